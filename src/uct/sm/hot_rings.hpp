// SPDX-License-Identifier: BSD-3-Clause
// The rings that progress polls, and the bell by which a sender asks for its ring to be polled.
//
//          packet, new ring                 idle between two calls of cool()
//   new ------------------------------> hot ---------------------------------> cold, by bell
//                                        ^                                       |      ^
//                                        |            each message rings         v      |
//                                        +---- many messages ----------------- guest ---+
//                                                                   no message left in the ring
//
// A cold ring's sender rings for each message, so a ring that brings one now and then never needs
// the barrier again. The last kKept rings stay hot, so a message from a lone idle peer needs no
// bell; not where calls of progress are far apart (crowding.hpp) or the worker naps: there an idle
// call looks at the bell alone, whatever the number of peers.
#pragma once

#include <atomic>
#include <cstdint>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/one_writer.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/politeness.hpp"
#include "uct/sm/crowding.hpp"
#include "uct/sm/force.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/ring.hpp"

namespace tagwire::sm {

class HotRings {
  public:
    explicit HotRings(SmIface& owner) : iface_(owner) {}
    ucs_status_t open(const SmForce& force);

    /// Links whose rings are polled.
    [[nodiscard]] const ucs::ReserveVector<Link*>& hot() const { return hot_; }
    [[nodiscard]] bool has_bell() const {
        return bell_->summary.load(std::memory_order_relaxed) != 0;
    }
    /// One more call of progress, which peers may see.
    void count_call() {
        // SYNC call_count: relaxed, pairs with the load in Link::has_moved(); only that it moves
        // has a meaning.
        ucs::add_alone(bell_->calls, 1);
    }
    /// Another number in each call of progress, as long as no peer writes to the bell's page.
    [[nodiscard]] std::uint64_t calls() const {
        // SYNC call_count: relaxed; this thread counts.
        return bell_->calls.load(std::memory_order_relaxed);
    }
    /// This thread waits on that processor, or is about to give it away; peers may see it.
    void tell_wait(const uct::Whereabouts& here, bool is_away) {
        // SYNC call_count: relaxed, pairs with the loads in Link::waits_on() and had_processor().
        bell_->waited_ns.store(here.now, std::memory_order_relaxed);
        bell_->waited_on.store((here.cpu + 1) | (is_away ? kIsAway : 0), std::memory_order_relaxed);
    }
    /// Invites the rings for which it was rung.
    void answer_bell();
    void make_hot(Link& link);
    void make_cold(Link& link);
    /// After their messages were delivered.
    void let_guests_go();
    /// There were `calls` calls of progress since the last look; cools now and then.
    void look(std::uint64_t calls);
    /// Calls of progress are far apart, or are taken to be.
    [[nodiscard]] bool is_crowded() const {
        return poll_ == PollMode::kBell || naps_ || crowding_.is_crowded();
    }
    /// Naps follow each other from now on, or do no more: rings are watched by the bell meanwhile.
    void expect_naps(bool are_expected);
    /// Arms the bell for a nap: a message changes this word and wakes who sleeps on it
    /// (ucs::sleep_shared()). Null: something has come, or there are rings that must be polled.
    std::atomic<std::uint32_t>* try_nap();
    void end_nap();
    /// As a message would. Any thread.
    void wake_nap();
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
    static constexpr std::size_t kKept = 2;  // rings that never cool
    // Messages between two calls of cool() for which a ring becomes hot.
    static constexpr std::uint32_t kFrequent = 4;
    // As kFrequent, with calls of progress that are far apart: a stream, several for each call.
    static constexpr std::uint32_t kStream = 1024;

    static constexpr unsigned kLooksPerCooling = 16;
    static constexpr unsigned kLooksPerCoolingCrowded = 4;

    /// Looks at so many of the rings that are not polled, in turn.
    void find_unrung(std::size_t most);
    /// Stops polling the rings that have brought few messages since the last call.
    void cool();
    void watch_by_bell(std::size_t count);
    /// The bell was rung for it: it is polled until let_guests_go(), or hot from now on.
    void invite(Link& link);
    [[nodiscard]] std::uint32_t many() const { return is_crowded() ? kStream : kFrequent; }
    void sleep_barrier() const;
    /// After each change of hot_.
    void tell_number();

    SmIface& iface_;
    Bell<>* bell_ = nullptr;
    ucs::ReserveVector<Link*> hot_;
    ucs::UniqueFd bell_fd_;
    ucs::Mapping bell_page_;
    Crowding crowding_;
    PollMode poll_ = PollMode::kAuto;
    std::uint32_t round_ = 0;  // of cool()
    unsigned looks_ = 0;       // since the last one
    std::size_t next_unrung_ = 0;
    bool has_membarrier_ = false;
    bool sleeps_by_timer_ = false;
    bool naps_ = false;
};

}  // namespace tagwire::sm
