// SPDX-License-Identifier: BSD-3-Clause
// The operations, and memory, that name an object which the program destroys: a queue, a counter.
// An operation that reports its end is inside until it no longer touches the object, though the
// program may have seen the end meanwhile, and destroy the object.
#pragma once

#include <atomic>
#include <cstdint>

#include "ucs/sys/step_aside.hpp"

namespace tagwire::proto {

class Users {
  public:
    void enter() { word_.fetch_add(1, std::memory_order_relaxed); }
    void leave() {
        // SYNC users: pairs with the acquires below.
        word_.fetch_sub(1, std::memory_order_release);
    }
    /// In place of leave(): its end becomes visible next.
    void begin_report() { word_.fetch_add(kInside - 1, std::memory_order_relaxed); }
    /// A thread that is no user touches the object.
    void begin_visit() { word_.fetch_add(kInside, std::memory_order_relaxed); }
    /// The last use of the object.
    void end() {
        // SYNC users: pairs with the acquires below.
        word_.fetch_sub(kInside, std::memory_order_release);
    }

    /// Operations that have not ended.
    std::uint32_t count() const {
        // SYNC users: pairs with the releases above.
        return static_cast<std::uint32_t>(word_.load(std::memory_order_acquire));
    }
    /// Waits for those that are inside, which is short.
    void drain() const {
        // SYNC users: pairs with the releases above.
        while (word_.load(std::memory_order_acquire) >= kInside)
            ucs::step_aside();
    }

  private:
    static constexpr std::uint64_t kInside = std::uint64_t{1} << 32;

    std::atomic<std::uint64_t> word_{0};
};

}  // namespace tagwire::proto
