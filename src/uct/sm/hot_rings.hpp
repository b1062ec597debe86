// SPDX-License-Identifier: BSD-3-Clause
// The rings that progress polls, and the bell by which a sender asks for its ring to be polled.
//
//   cold --- bell, packet, new ring ---> hot --- no message between two calls of cool() ---> cold
//
// The last few rings stay hot, so a message from a lone idle peer needs no bell.
#pragma once

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/options.hpp"
#include "uct/sm/ring.hpp"

namespace tagwire::sm {

class HotRings {
  public:
    explicit HotRings(SmIface& owner) : iface_(owner) {}
    ucs_status_t open(WakeupMode wakeup);

    /// Those that are polled.
    [[nodiscard]] const ucs::ReserveVector<Link*>& hot() const { return hot_; }
    [[nodiscard]] bool has_bell() const {
        return bell_->summary.load(std::memory_order_relaxed) != 0;
    }
    /// Calls `wake(bit)` for each bit of the bell that was rung.
    template <class Wake>
    void answer_bell(Wake&& wake) {
        collect_bell(*bell_, std::forward<Wake>(wake));
    }
    void make_hot(Link& link);
    void make_cold(Link& link);
    /// Stops polling the rings that have been idle since the last call.
    void cool();
    /// Before the thread sleeps: no ring is hot any more. False: messages are there, and nothing
    /// has changed.
    bool try_sleep();

    /// A peer whose sends carry no fence although we cannot run the barrier for it: sleeps are
    /// short from now on.
    void add_unfenced() { sleeps_by_timer_ |= !has_membarrier_; }
    [[nodiscard]] bool sleeps_by_timer() const { return sleeps_by_timer_; }
    /// Sends of ours need no fence: receivers run the barrier.
    [[nodiscard]] bool has_membarrier() const { return has_membarrier_; }
    [[nodiscard]] int bell_fd() const { return bell_fd_.get(); }
    [[nodiscard]] std::size_t bell_bytes() const { return bell_page_.bytes(); }

  private:
    static constexpr std::size_t kKept = 4;  // rings that never cool

    void sleep_barrier() const;

    SmIface& iface_;
    Bell<>* bell_ = nullptr;
    ucs::ReserveVector<Link*> hot_;
    ucs::UniqueFd bell_fd_;
    ucs::Mapping bell_page_;
    bool has_membarrier_ = false;
    bool sleeps_by_timer_ = false;
};

}  // namespace tagwire::sm
