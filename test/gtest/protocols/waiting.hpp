// SPDX-License-Identifier: BSD-3-Clause
// Waiting workers, and threads that are asked whether they sleep.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {

inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr tw_wait_mode_t kModes[] = {TW_WAIT_SPIN, TW_WAIT_YIELD, TW_WAIT_SLEEP};
inline constexpr std::uint64_t kPatience = 10 * kSecond;  // then it hangs

/// Waits for nothing until nothing is left to tell.
inline void calm(Node& node, tw_wait_mode_t mode) {
    while (tw_worker_wait(node.worker(), mode, 1000000) == TW_OK) {
    }
}

/// A thread that tells whether it sleeps in the kernel.
class WatchedThread {
  public:
    template <class Body>
    explicit WatchedThread(Body body)
        : thread_([this, body] {
              tid_ = ::gettid();
              body();
              is_over = true;
          }) {}
    ~WatchedThread() { thread_.join(); }
    bool sleeps() const { return state() == 'S'; }
    void until_it_sleeps() const {
        while (!is_over && !sleeps())
            ::sched_yield();
    }
    pthread_t handle() { return thread_.native_handle(); }

    std::atomic<bool> is_over{false};

  private:
    char state() const {
        std::ifstream file("/proc/self/task/" + std::to_string(tid_) + "/stat");
        std::string text;
        std::getline(file, text);
        const std::size_t end = text.rfind(')');
        return tid_ == 0 || end == std::string::npos || end + 2 >= text.size() ? '?'
                                                                               : text[end + 2];
    }

    std::atomic<pid_t> tid_{0};
    std::thread thread_;
};

}  // namespace tagwire::test
