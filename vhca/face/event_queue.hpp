// SPDX-License-Identifier: BSD-3-Clause
// Events that wait for a program behind a file descriptor: what a completion channel and the
// asynchronous events of a context are made of.
//
// Any thread pushes and pops. The descriptor is readable while something waits; it blocks or not as
// the program set it with fcntl(), and pop() does the same. Nothing is ever dropped.
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <mutex>

#include "ucs/sys/fd.hpp"

namespace tagwire::vhca {

/// `Event` has a method note_delivered(), called when the program gets it.
template <typename Event>
class EventQueue {
  public:
    EventQueue() : fd_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {}

    /// Negative when the process has no descriptor left.
    [[nodiscard]] int fd() const { return fd_.get(); }

    void push(const Event& event) {
        const std::lock_guard guard(mutex_);
        events_.push_back(event);
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = write(fd(), &one, sizeof one);
    }

    /// False: errno is EAGAIN or what else read() said.
    bool pop(Event* event_p) {
        for (;;) {
            std::uint64_t one;
            if (read(fd(), &one, sizeof one) != sizeof one)
                return false;
            const std::lock_guard guard(mutex_);
            if (!events_.empty()) {
                *event_p = events_.front();
                events_.pop_front();
                event_p->note_delivered();
                return true;
            }
        }
    }

    /// Forgets the events for which `is_dead` holds, and makes the descriptor say so.
    template <typename Predicate>
    void erase_if(Predicate is_dead) {
        const std::lock_guard guard(mutex_);
        const auto alive = std::remove_if(events_.begin(), events_.end(), is_dead);
        for (auto dead = events_.end() - alive; dead > 0; --dead) {
            std::uint64_t one;
            iovec into{&one, sizeof one};
            // Another thread may be between its read() and the lock, so this must not wait.
            [[maybe_unused]] const auto taken = preadv2(fd(), &into, 1, -1, RWF_NOWAIT);
        }
        events_.erase(alive, events_.end());
    }

  private:
    const ucs::UniqueFd fd_;
    std::mutex mutex_;
    std::deque<Event> events_;
};

}  // namespace tagwire::vhca
