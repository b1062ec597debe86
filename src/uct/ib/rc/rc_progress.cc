// SPDX-License-Identifier: BSD-3-Clause
// Progress of rc beside messages: endpoints that close, keepalive.
#include <algorithm>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

// ---- The ends of endpoints

void RcIface::stop(ib::MessageEp& ep) {
    if (!has_lost_device())
        static_cast<RcEp&>(ep).to_error();
}

void RcIface::end_arrivals(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    if (std::exchange(ep.has_partial_, false) && ep.partial_.receive != nullptr)
        complete(*ep.partial_.receive, ep.partial_.tag, ep.partial_.imm, 0, ep.failure);
    if (limits.has_device_tags) {
        tag_list.fail_consumed(ep.message_qp_num_,
                               [&](ib::TagEntry& entry) { end_entry(entry, ep.failure); });
    }
}

// The queue pairs stay until the last receive buffer that they took has come back: a device may
// forget completions of a queue pair that is destroyed, and the buffers with them.
void RcIface::bury(RcEp& ep) {
    if (ep.failure == UCS_OK)
        fail(ep, UCS_ERR_CANCELED, "destroyed");
    ep.is_destroyed = true;
    end_now(ep);
    destroyed_.push_back({&ep, ucs::clock_now_ns() + kLastRequestNs, 0, false});
}

// Nobody may read what was posted after the queue pairs are gone.
void RcIface::give_up(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    ep.destroy_queue_pairs();
    sends.abandon(ep.own_queue_);
    sends.remove(ep.own_queue_);
    ep.last_requests_ = 0;
    while (ib::SendOp* op = ep.own_queue_.take_any())
        op_ends.finish_later(*op, ep.failure);
}

void RcIface::reap(std::uint64_t now) {
    std::size_t kept = 0;
    for (Destroyed& each : destroyed_) {
        RcEp* ep = each.ep;
        if (!each.has_all && (ep->last_requests_ == 0 || now >= each.deadline)) {
            each.has_all = true;
            each.mark = receives_seen_;
        }
        if (ep->state != RcEp::State::kFailed || !each.has_all || !has_heard_all(each.mark)) {
            destroyed_[kept++] = each;
            continue;
        }
        if (ep->window != 0)
            receives.want_less(buffers_per_peer());
        credits_.forget(*ep);
        sends.remove(ep->own_queue_);
        pending.release(*ep);
        eps.remove(*ep);
        delete ep;
    }
    destroyed_.resize(kept);
}

// ---- Now and then

void RcIface::look(std::uint64_t now) {
    if (!destroyed_.empty())
        reap(now);
}

bool RcIface::waits_for(const ib::MessageEp& any) const {
    const auto& ep = static_cast<const RcEp&>(any);
    return ep.has_partial_ || (limits.has_device_tags && tag_list.waits_for(ep.message_qp_num_));
}

// The peer's queue pair answers only when the peer's program has connected it, too; until then a
// question would end ours. A peer that dies before it has said anything is missed later.
bool RcIface::may_ask(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    ep.has_spoken_ |= ep.was_heard || ep.own_queue_.posted > 0;
    return ep.has_spoken_ || ++ep.silent_rounds_ >= kSilentRounds;
}

void RcIface::take_event(const ib::AsyncEvent& event) {
    RcEp* ep = event.qp_num == 0 ? nullptr : of_qp(event.qp_num);
    switch (event.type) {
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            if (ep != nullptr && ep->last_requests_ > 0)
                --ep->last_requests_;
            break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            if (ep != nullptr)
                fail(*ep, UCS_ERR_CONNECTION_RESET, verbs().event_type_str(event.type));
            break;
        default:
            MessageIface::take_event(event);
            break;
    }
}

}  // namespace tagwire::rc
