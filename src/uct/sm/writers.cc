// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/writers.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::sm {

namespace {

/// As far as can be seen from here.
bool is_dead(pid_t pid) {
    return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

bool Writers::may_give_again(std::uint32_t index) const {
    const Given& given = given_[index - 1];
    // SYNC sm_writer: nothing comes behind kGone.
    return !given.is_connected &&
           (words_[index].state.load(std::memory_order_acquire) == kGone || is_dead(given.pid));
}

std::uint32_t Writers::give(pid_t pid) {
    const std::lock_guard guard(mutex_);
    std::uint32_t index = 1;
    while (index <= given_.size() && !may_give_again(index))
        ++index;
    if (index == kWriters)
        return kSharedWriter;
    if (index > given_.size()) {
        try {
            given_.emplace_back();
        } catch (const std::bad_alloc&) {
            return kSharedWriter;
        }
    }
    given_[index - 1] = {pid, true};
    // Relaxed: its next writer hears of it by a hello.
    words_[index].state.store(kIdle, std::memory_order_relaxed);
    return index;
}

void Writers::take_back(std::uint32_t index) {
    if (index == kSharedWriter)
        return;
    const std::lock_guard guard(mutex_);
    given_[index - 1].is_connected = false;
}

void Writers::wait() {
    const std::lock_guard guard(mutex_);
    // SYNC sm_writer: a writer that has not seen the new generation is seen below. A writer without
    // membarrier has a fence; if this process has none, store buffers get the time to drain.
    ucs::full_barrier();
    if (!ucs::global_barrier())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::uint32_t index = 0; index <= given_.size(); ++index)
        if (is_writing(words_[index], index == kSharedWriter))
            wait_for(index);
}

void Writers::wait_for(std::uint32_t index) {
    const bool is_shared = index == kSharedWriter;
    const std::uint64_t end = ucs::ticks_now() + ucs::ticks_from_ns(kPatienceNs);
    std::chrono::microseconds pause(1);
    while (is_writing(words_[index], is_shared)) {
        const pid_t pid = is_shared ? 0 : given_[index - 1].pid;
        if (is_dead(pid))
            return;
        if (static_cast<std::int64_t>(ucs::ticks_now() - end) > 0) {
            TW_LOG_WARN(
                "process %d was stopped while it wrote to memory that is being deregistered: the "
                "rest may still be written",
                pid);
            return;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::microseconds(1000));
    }
}

}  // namespace tagwire::sm
