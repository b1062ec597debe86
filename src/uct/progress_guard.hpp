// SPDX-License-Identifier: BSD-3-Clause
// Keeps progress out of the callbacks that it runs: a program that calls it there finds nothing
// done, on any transport. The message whose callback runs is still in its slot, and lists are
// walked.
//
// One per interface. Owner thread only.
// Invariant: as many enter() and try_enter() that answered true as leave().
#pragma once

namespace tagwire::uct {

class ProgressGuard {
  public:
    /// False: a callback runs, and nothing may be done now. True: leave() follows.
    [[nodiscard]] bool try_enter() {
        // From kOutside to 0: the increment in memory that counts also tells, by its flag of zero.
        if (++depth_ == 0) [[likely]]
            return true;
        give_up();
        return false;
    }
    /// For calls other than progress that end operations, and so run callbacks.
    void enter() { ++depth_; }
    void leave() { --depth_; }
    [[nodiscard]] bool is_inside() const { return depth_ != kOutside; }

  private:
    // Inlined, it would have the value before kept in a register.
    [[gnu::noinline, gnu::cold]] void give_up() { --depth_; }

    static constexpr int kOutside = -1;
    int depth_ = kOutside;
};

}  // namespace tagwire::uct
