// SPDX-License-Identifier: BSD-3-Clause
// A second process of a test, which may be killed at any time and dies with the first.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <utility>

#include "common/skip.hpp"

#if defined(__SANITIZE_THREAD__)
#define TW_SKIP_FORK_BESIDE_THREADS() TW_SKIP("ThreadSanitizer forbids threads after such a fork")
#else
#define TW_SKIP_FORK_BESIDE_THREADS() static_cast<void>(0)
#endif

namespace tagwire::test {

/// Runs `body(socket)`; its result is what the body returns.
class SecondProcess {
  public:
    explicit SecondProcess(const std::function<int(int)>& body) {
        std::array<int, 2> sockets{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::close(sockets[0]);
            ::_exit(body(sockets[1]));
        }
        ::close(sockets[1]);
        socket_ = sockets[0];
    }
    ~SecondProcess() {
        ::close(socket_);
        if (pid_ > 0)
            kill();
    }
    void kill() {
        ::kill(pid_, SIGKILL);
        ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
    void stop() {
        ::kill(pid_, SIGSTOP);
        int status = 0;
        EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    }
    void resume() { ::kill(pid_, SIGCONT); }
    int result() {
        int status = 0;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    }
    [[nodiscard]] int socket() const { return socket_; }

  private:
    pid_t pid_ = -1;
    int socket_ = -1;
};

}  // namespace tagwire::test
