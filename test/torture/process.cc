// SPDX-License-Identifier: BSD-3-Clause
#include "process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace tagwire::torture {
namespace {

constexpr std::size_t kChildrenMax = 256;

// Children that have not been waited for; the watchdog's handler reads it.
std::array<std::atomic<pid_t>, kChildrenMax> g_children;

void remember(pid_t pid) {
    for (auto& entry : g_children) {
        pid_t empty = 0;
        if (entry.compare_exchange_strong(empty, pid, std::memory_order_relaxed))
            return;
    }
    throw std::runtime_error("too many children");
}

void forget(pid_t pid) {
    for (auto& entry : g_children) {
        pid_t expected = pid;
        entry.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
    }
}

std::pair<int, int> make_link() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::runtime_error("socketpair failed");
    return {ends[0], ends[1]};
}

void die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);  // it died before we asked to be told
}

/// In the child: only async-signal-safe calls, since the parent may have threads.
[[noreturn]] void become(int fd, char* const* arguments, pid_t parent) {
    die_with(parent);
    if (fd == kLinkFd)
        fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, kLinkFd) < 0)
        _exit(127);
    execv("/proc/self/exe", arguments);
    _exit(127);
}

}  // namespace

Link::~Link() {
    ::close(fd_);
}

void Link::send_bytes(const void* bytes, std::size_t length) const {
    // The other end may be dead already, which the caller finds out in its own way.
    static_cast<void>(::send(fd_, bytes, length, MSG_NOSIGNAL));
}

bool Link::receive_bytes(void* bytes, std::size_t length) const {
    ssize_t got = -1;
    do {
        got = ::recv(fd_, bytes, length, 0);
    } while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(length);
}

bool Link::has_packet() const {
    pollfd entry = {fd_, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
}

Child::Child(const std::string& role, std::uint64_t seed) {
    const auto ends = make_link();
    std::string text = std::to_string(seed);
    std::string name = role;
    std::array<char, 8> program = {"torture"};
    std::array<char, 5> command = {"role"};
    const std::array<char*, 5> arguments = {program.data(), command.data(), name.data(),
                                            text.data(), nullptr};
    const pid_t parent = getpid();
    link_.emplace(ends.first);
    pid_ = fork();
    if (pid_ == 0)
        become(ends.second, arguments.data(), parent);
    ::close(ends.second);
    if (pid_ < 0)
        throw std::runtime_error("fork failed");
    remember(pid_);
}

Child::Child(const std::function<int(Link&)>& function) {
    const auto ends = make_link();
    const pid_t parent = getpid();
    std::fflush(nullptr);
    link_.emplace(ends.first);
    pid_ = fork();
    if (pid_ == 0) {
        die_with(parent);
        ::close(ends.first);
        Link link(ends.second);
        int code = 1;
        try {
            code = function(link);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "torture: forked child: %s\n", error.what());
        }
        std::fflush(nullptr);
        _exit(code);
    }
    ::close(ends.second);
    if (pid_ < 0)
        throw std::runtime_error("fork failed");
    remember(pid_);
}

Child::~Child() {
    if (pid_ <= 0 || code_)
        return;
    ::kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR)
        continue;
    forget(pid_);
}

bool Child::is_running() {
    return !try_join().has_value();
}

void Child::kill() {
    if (!code_) {
        ::kill(pid_, SIGKILL);
        join();
    }
}

int Child::ended(int status) {
    forget(pid_);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return *code_;
}

int Child::join() {
    int status = 0;
    while (!code_) {
        if (waitpid(pid_, &status, 0) == pid_)
            return ended(status);
        if (errno != EINTR)
            throw std::runtime_error("waitpid failed");
    }
    return *code_;
}

std::optional<int> Child::try_join() {
    int status = 0;
    if (!code_ && waitpid(pid_, &status, WNOHANG) == pid_)
        ended(status);
    return code_;
}

int kill_children() {
    int running = 0;
    for (const auto& entry : g_children) {
        const pid_t pid = entry.load(std::memory_order_relaxed);
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            ++running;
        }
    }
    return running;
}

std::string transports() {
    const char* text = std::getenv("TAGWIRE_TRANSPORTS");
    return text != nullptr ? text : "auto";
}

}  // namespace tagwire::torture
