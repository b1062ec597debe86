// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/late_events.hpp"

#include <algorithm>
#include <iterator>

#include "vhca/core/queue_pair.hpp"
#include "vhca/core/receive_queue.hpp"

namespace tagwire::vhca {

namespace {

/// One of so many is later than the others, by this factor at most.
constexpr std::uint64_t kStragglerOf = 16, kStragglerFactor = 8;

/// Objects are aligned, so the low bits tell the lanes of one apart.
std::uintptr_t lane_of(const void* object, unsigned which) {
    return reinterpret_cast<std::uintptr_t>(object) + which;
}

std::uintptr_t lane_of(const CompletionQueue& cq, const Cqe& cqe) {
    if (cqe.qp == nullptr)
        return lane_of(&cq, 0);  // tag matching
    return lane_of(cqe.qp, cqe.from_queue != nullptr ? 1 : 0);
}

}  // namespace

void LateEvents::delay(std::uintptr_t lane, const Delayed& delayed, Time now) {
    const bool is_straggler = random_() % kStragglerOf == 0;
    const Time late_max = is_straggler ? kStragglerFactor * late_ns_max_ : late_ns_max_;
    Time& newest = newest_[lane];
    newest = std::max(newest, now + random_() % (late_max + 1));
    delayed_.emplace(newest, delayed);  // equal times keep their order
}

void LateEvents::delay(CompletionQueue& cq, const Cqe& cqe, Time now) {
    Delayed delayed{.cq = &cq, .cqe = cqe};
    std::ranges::copy(cqe.data, delayed.data.begin());
    delay(lane_of(cq, cqe), delayed, now);
}

std::uint32_t LateEvents::purge(const CompletionQueue& cq,
                                const std::function<bool(const Cqe&)>& is_meant) {
    return static_cast<std::uint32_t>(std::erase_if(delayed_, [&](const auto& item) {
        return item.second.cq == &cq && is_meant(item.second.cqe);
    }));
}

void LateEvents::tell(std::uintptr_t lane, const Delayed& event, Time now) {
    if (!is_stopped_) [[likely]]
        is_on() ? delay(lane, event, now) : hand_over(event);
}

void LateEvents::tell(ibv_event_type type, QueuePair& qp, Time now) {
    tell(lane_of(&qp, 2), {.qp = &qp, .type = type}, now);
}

void LateEvents::tell(ibv_event_type type, SharedReceiveQueue& srq, Time now) {
    tell(lane_of(&srq, 0), {.srq = &srq, .type = type}, now);
}

void LateEvents::stop() {
    is_stopped_ = true;
    delayed_.clear();
    newest_.clear();
}

void LateEvents::erase(const QueuePair& qp) {
    std::erase_if(delayed_, [&](const auto& item) { return item.second.qp == &qp; });
}

void LateEvents::erase(const SharedReceiveQueue& srq) {
    std::erase_if(delayed_, [&](const auto& item) { return item.second.srq == &srq; });
}

void LateEvents::hand_over(const Delayed& delayed) {
    if (delayed.cq != nullptr) {
        Cqe cqe = delayed.cqe;
        cqe.data = std::span(delayed.data).first(cqe.data.size());
        delayed.cq->take_delayed(cqe);
    } else if (delayed.qp != nullptr) {
        sink_.qp_event(delayed.type, *delayed.qp);
    } else {
        sink_.srq_event(delayed.type, *delayed.srq);
    }
}

Time LateEvents::release(Time now) {
    while (!delayed_.empty() && delayed_.begin()->first <= now) {
        const auto due = delayed_.extract(delayed_.begin());
        hand_over(due.mapped());
    }
    if (delayed_.empty()) {
        newest_.clear();
        return kNever;
    }
    return delayed_.begin()->first;
}

}  // namespace tagwire::vhca
