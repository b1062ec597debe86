// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/poller.hpp"

#include <algorithm>
#include <atomic>

namespace tagwire::vhca::driver {
namespace {

// Pollers of this process, and of those that it was forked from; none is ever destroyed.
struct Known {
    Engine* engine;
    Poller poller;
    Known* next;
};
constinit std::atomic<Known*> all{nullptr};

Poller* find(const Engine& engine) {
    // SYNC pollers: pairs with the store in of()
    for (Known* known = all.load(std::memory_order_acquire); known != nullptr; known = known->next)
        if (known->engine == &engine)
            return &known->poller;
    return nullptr;
}

}  // namespace

Poller& Poller::of(Engine& engine) {
    Poller* poller = find(engine);
    if (poller != nullptr)
        return *poller;
    const auto guard = engine.lock();
    poller = find(engine);
    if (poller == nullptr) {
        auto* known = new Known{.engine = &engine, .poller = {}, .next = nullptr};
        Known* first = all.load(std::memory_order_relaxed);
        do {
            known->next = first;
            // SYNC pollers: pairs with find()
        } while (!all.compare_exchange_weak(first, known, std::memory_order_release,
                                            std::memory_order_relaxed));
        poller = &known->poller;
        engine.set_pump(poller);
    }
    return *poller;
}

std::uint32_t Poller::take_cq_number() {
    constexpr std::uint32_t kNumbers = 1 << 24;
    const auto is_used = [this](std::uint32_t number) {
        bool found = false;
        cqs_.for_each([&](const CqObject& cq) { found = found || cq.ring->number() == number; });
        return found;
    };
    for (;;) {
        const std::uint32_t number = next_cq_number_;
        next_cq_number_ = number + 1 == kNumbers ? kFirstCqNumber : number + 1;
        has_wrapped_ = has_wrapped_ || next_cq_number_ == kFirstCqNumber;
        if (!has_wrapped_ || !is_used(number))
            return number;
    }
}

bool Poller::poll(QpObject& qp, Time now) {
    bool moved = false, is_gone = false;
    if (qp.sends != nullptr) {
        moved = qp.sends->poll(*qp.core, now);
        is_gone = qp.sends->is_gone();
    } else if (qp.tag_commands != nullptr) {
        moved = qp.tag_commands->poll(*qp.core, *qp.srq->core, now);
        is_gone = qp.tag_commands->is_gone();
    }
    is_gone = is_gone || (qp.receives != nullptr && qp.receives->is_gone()) ||
              (qp.srq != nullptr && qp.srq->ring->is_gone());
    const ibv_qp_state state = qp.core->state();
    if (is_gone && state != IBV_QPS_ERR && state != IBV_QPS_RESET) [[unlikely]] {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        moved = qp.core->modify(attr, IBV_QP_STATE, {}, now) == 0 || moved;
    }
    if (state == IBV_QPS_ERR && qp.receives != nullptr) [[unlikely]] {
        has_flushing_ = has_flushing_ || !is_gone;
        if (qp.receives->has_more()) {
            qp.core->flush_source(now);
            moved = true;
        }
    }
    return moved;
}

void Poller::settle(QpObject& qp, Time now) {
    // A queue that is full twice over was posted to while it was polled.
    constexpr unsigned kPollsMax = 2 * 65536 / SendRing::kEntriesPerPoll;
    for (unsigned i = 0; i < kPollsMax && poll(qp, now); ++i) {
    }
}

void Poller::flush(EventPipe& pipe) {
    if (pipe.has_waiting()) [[unlikely]] {
        pipe.flush();
        has_waiting_ = has_waiting_ || pipe.has_waiting();
    }
}

bool Poller::pump_rings(Time now) {
    bool moved = false;
    has_flushing_ = false;
    has_waiting_ = false;
    qps_.for_each([&](QpObject& qp) { moved = poll(qp, now) || moved; });
    cqs_.for_each([&](CqObject& cq) {
        moved = cq.ring->poll() || moved;
        flush(*cq.context->async_pipe);
        if (cq.channel != nullptr)
            flush(*cq.channel->pipe);
    });
    if (moved)
        flush_nap_ns_ = kFlushNapNs / 2;  // rest() doubles it
    return moved;
}

// A thread that stores to a page that is not there waits for us. It may have posted behind our
// poll.
bool Poller::pump(Time now) {
    constexpr unsigned kBusyPassesMax = 16;
    const bool moved = pump_rings(now);
    busy_passes_ = moved ? busy_passes_ + 1 : 0;
    return busy_passes_ % kBusyPassesMax == 0 ? trap_.attend() || moved : moved;
}

void Poller::rest() {
    flush_nap_ns_ = std::min(2 * flush_nap_ns_, kFlushNapMaxNs);
    is_settled_ = trap_.close();
    unsettled_nap_ns_ =
        is_settled_ ? kUnsettledNapNs : std::min(2 * unsettled_nap_ns_, kFlushNapNs);
}

void Poller::wake(Time now) {
    pump_rings(now);
    trap_.attend();
}

Time Poller::nap() const {
    if (qps_.empty() && cqs_.empty())
        return kNever;
    if (trap_.fd() < 0)
        return kBlindNapNs;
    if (!is_settled_)
        return unsettled_nap_ns_;
    return has_flushing_ || has_waiting_ ? flush_nap_ns_ : kNever;
}

}  // namespace tagwire::vhca::driver
