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

void LateEvents::hold(std::uintptr_t lane, const Held& held, Time now) {
    const bool is_straggler = random_() % kStragglerOf == 0;
    const Time late_max = is_straggler ? kStragglerFactor * late_ns_max_ : late_ns_max_;
    Time& newest = newest_[lane];
    newest = std::max(newest, now + random_() % (late_max + 1));
    held_.emplace(newest, held);  // equal times keep their order
}

void LateEvents::hold(CompletionQueue& cq, const Cqe& cqe, Time now) {
    Held held{.cq = &cq, .cqe = cqe};
    std::ranges::copy(cqe.data, held.data.begin());
    hold(lane_of(cq, cqe), held, now);
}

std::uint32_t LateEvents::purge(const CompletionQueue& cq,
                                const std::function<bool(const Cqe&)>& is_meant) {
    return static_cast<std::uint32_t>(std::erase_if(held_, [&](const auto& item) {
        return item.second.cq == &cq && is_meant(item.second.cqe);
    }));
}

void LateEvents::tell(ibv_event_type type, QueuePair& qp, Time now) {
    const Held event{.qp = &qp, .type = type};
    is_on() ? hold(lane_of(&qp, 2), event, now) : let_go(event);
}

void LateEvents::tell(ibv_event_type type, SharedReceiveQueue& srq, Time now) {
    const Held event{.srq = &srq, .type = type};
    is_on() ? hold(lane_of(&srq, 0), event, now) : let_go(event);
}

void LateEvents::forget(const QueuePair& qp) {
    std::erase_if(held_, [&](const auto& item) { return item.second.qp == &qp; });
}

void LateEvents::forget(const SharedReceiveQueue& srq) {
    std::erase_if(held_, [&](const auto& item) { return item.second.srq == &srq; });
}

void LateEvents::let_go(const Held& held) {
    if (held.cq != nullptr) {
        Cqe cqe = held.cqe;
        cqe.data = std::span(held.data).first(cqe.data.size());
        held.cq->take_held(cqe);
    } else if (held.qp != nullptr) {
        sink_.qp_event(held.type, *held.qp);
    } else {
        sink_.srq_event(held.type, *held.srq);
    }
}

Time LateEvents::release(Time now) {
    while (!held_.empty() && held_.begin()->first <= now) {
        const auto due = held_.extract(held_.begin());
        let_go(due.mapped());
    }
    if (held_.empty()) {
        newest_.clear();
        return kNever;
    }
    return held_.begin()->first;
}

}  // namespace tagwire::vhca
