// SPDX-License-Identifier: BSD-3-Clause
// Progress of rc beside messages: credit that is owed to peers, endpoints that close, keepalive.
#include <algorithm>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

// ---- Credit

// The peer hears of every quarter of the credit that kept descriptors leave it, so that it never
// waits for what we have handled already.
void RcIface::tell_released(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    const auto credits = static_cast<std::uint32_t>(options_.credits);
    const std::uint32_t left = credits > ep.held_ ? credits - ep.held_ : 0;
    if (ep.released_ - ep.told_ < std::max(1U, left / 4) || ep.owes_credit_)
        return;
    ep.owes_credit_ = true;
    owing_.push_back(&ep);
    has_work_ = true;
}

void RcIface::keep(ib::MessageEp* any, std::byte* message) {
    receives_.keep(message, any == nullptr ? ib::kUnknownOwner : any->id());
    if (any != nullptr) {
        ++static_cast<RcEp*>(any)->held_;
        tell_released(*any);
    }
}

void RcIface::released(std::uint64_t ep_id) {
    ib::MessageEp* any = ep_id > UINT32_MAX ? nullptr : find(static_cast<std::uint32_t>(ep_id));
    if (any != nullptr) {
        --static_cast<RcEp*>(any)->held_;
        release_credit(*any);
    }
    receives_.refill();
}

void RcIface::send_owed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < owing_.size(); ++i) {
        RcEp& ep = *owing_[i];
        const bool owes = ep.failure_ == UCS_OK && ep.released_ != ep.told_;
        if (owes && !gets_room(ep, 1)) {
            owing_[kept++] = &ep;
            continue;
        }
        ep.owes_credit_ = false;
        if (!owes)
            continue;  // a message of the user has taken it along
        struct {
            ib::Prefix prefix;
            std::uint64_t padding;
        } message{ep.prefix(ib::MessageKind::kCredit, 0, sizeof(std::uint64_t)), 0};
        ibv_sge sge{ib::address_of(&message), sizeof message, 0};
        ibv_send_wr request{};
        request.sg_list = &sge;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_INLINE;
        if (ep.post(request, false) == UCS_OK)
            count(ib::MessageCounter::kCreditMessages);
    }
    owing_.resize(kept);
}

// ---- The ends of endpoints

void RcIface::stop(ib::MessageEp& ep) {
    static_cast<RcEp&>(ep).to_error();
}

void RcIface::end_arrivals(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    if (std::exchange(ep.has_partial_, false) && ep.partial_.receive != nullptr)
        complete(*ep.partial_.receive, ep.partial_.tag, ep.partial_.imm, 0, ep.failure_);
    if (has_device_tags_) {
        tag_list_.fail_consumed(ep.message_qp_num_,
                                [&](ib::TagEntry& entry) { end_entry(entry, ep.failure_); });
    }
}

// The queue pairs stay until the last receive buffer that they took has come back: a device may
// forget completions of a queue pair that is destroyed, and the buffers with them.
void RcIface::bury(RcEp& ep) {
    if (ep.failure_ == UCS_OK)
        fail(ep, UCS_ERR_CANCELED, "destroyed");
    ep.is_destroyed_ = true;
    end_now(ep);
    destroyed_.push_back({&ep, ucs::clock_now_ns() + kLastRequestNs, 0, false});
}

// Nobody may read what was posted after the queue pairs are gone.
void RcIface::give_up(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    ep.destroy_queue_pairs();
    abandon(ep.own_queue_);
    unmap_queue(ep.own_queue_);
    while (ib::SendOp* op = ep.own_queue_.take_any())
        finish(ep, *op, ep.failure_);
}

void RcIface::reap(std::uint64_t now) {
    std::size_t kept = 0;
    for (Destroyed& each : destroyed_) {
        RcEp* ep = each.ep;
        if (!each.has_all && (ep->last_requests_ == 0 || now >= each.deadline)) {
            each.has_all = true;
            each.mark = receives_seen_;
        }
        if (ep->state_ != RcEp::State::kFailed || !each.has_all || !has_heard_all(each.mark)) {
            destroyed_[kept++] = each;
            continue;
        }
        if (ep->window_ != 0)
            receives_.want_less(buffers_per_peer());
        if (ep->owes_credit_)
            std::erase(owing_, ep);
        unmap_queue(ep->own_queue_);
        remove(*ep);
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
    return ep.has_partial_ || (has_device_tags_ && tag_list_.waits_for(ep.message_qp_num_));
}

// The peer's queue pair answers only when the peer's program has connected it, too; until then a
// question would end ours. A peer that dies before it has said anything is missed later.
bool RcIface::may_ask(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    ep.has_spoken_ |= ep.was_heard_ || ep.own_queue_.posted > 0;
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
