// SPDX-License-Identifier: BSD-3-Clause
// Delayed completions and asynchronous events: they come later than their cause, as on cards. Off
// unless DeviceConfig::late_ns_max is set.
//
//   queue pair, SRQ ---> delayed, until a random time ---> CQ, EventSink
//
// (1) The order within a lane is kept: the sends of a queue pair, its receives, its events, all of
//     the tag-matching SRQs of a CQ. There is none between lanes, not even those of one queue pair.
// (2) A completion has its place in the CQ from the moment when it is delayed.
// (3) Completions and events delayed for an object are dropped with it.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <unordered_map>

#include "vhca/core/completion_queue.hpp"

namespace tagwire::vhca {

class SharedReceiveQueue;

class LateEvents {
  public:
    LateEvents(EventSink& sink, Time late_ns_max, std::uint64_t seed)
        : sink_(sink), late_ns_max_(late_ns_max), random_(seed) {}

    [[nodiscard]] bool is_on() const { return late_ns_max_ != 0; }

    // ---- Completions: the CQ's way to itself
    /// The entry to fill; delay() takes it.
    [[nodiscard]] Cqe* scratch() { return &scratch_; }
    void delay(CompletionQueue& cq, const Cqe& cqe, Time now);
    /// Drops the delayed ones of `cq` for which `is_meant` is true; returns their number.
    std::uint32_t purge(const CompletionQueue& cq, const std::function<bool(const Cqe&)>& is_meant);

    // ---- Events; told at once when late events are off
    void tell(ibv_event_type type, QueuePair& qp, Time now);
    void tell(ibv_event_type type, SharedReceiveQueue& srq, Time now);
    /// Drops all that is delayed; nothing is told any more.
    void stop();
    void erase(const QueuePair& qp);
    void erase(const SharedReceiveQueue& srq);

    /// Hands over all that is due. Returns when it wants to be called again, else kNever.
    Time release(Time now);

  private:
    /// Either a completion, or an event of a queue pair or an SRQ.
    struct Delayed {
        CompletionQueue* cq = nullptr;
        QueuePair* qp = nullptr;
        SharedReceiveQueue* srq = nullptr;
        ibv_event_type type{};
        Cqe cqe{};
        std::array<std::byte, kDataInCqeMax> data{};  // of the entry, if it has any
    };

    void delay(std::uintptr_t lane, const Delayed& delayed, Time now);
    void tell(std::uintptr_t lane, const Delayed& event, Time now);
    void hand_over(const Delayed& delayed);

    EventSink& sink_;
    const Time late_ns_max_;
    bool is_stopped_ = false;
    std::mt19937_64 random_;
    std::multimap<Time, Delayed> delayed_;             // by the time they are due
    std::unordered_map<std::uintptr_t, Time> newest_;  // by lane: when its youngest is due
    Cqe scratch_{};
};

}  // namespace tagwire::vhca
