// SPDX-License-Identifier: BSD-3-Clause
// Progress of ud: completions, the clock, the ends of endpoints; and sleeping.
#include <algorithm>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/ud/ud_iface.hpp"

namespace tagwire::ud {

using ib::Completion;
using ib::SendOp;

namespace {

constexpr std::size_t kDispatchMax = 32;

}  // namespace

unsigned UdIface::progress() {
    if (!guard_.try_enter()) [[unlikely]]
        return 0;
    unsigned moved = poll_receives() + poll_sends();
    if (node_->has_waiting()) [[unlikely]]
        node_->resume(ucs::clock_now_ns());
    if (has_work_) [[unlikely]]
        moved += work();
    if (++calls_ >= kCallsPerLook || moved > 0)
        look();
    if (!destroyed_.empty()) [[unlikely]]
        reap();
    guard_.leave();
    count_moved(moved);
    if (moved == 0)
        worker().found_nothing(*this, 1);
    return moved;
}

// ---- Completions

unsigned UdIface::poll_receives() {
    const Completion* completions = nullptr;
    const unsigned count = receive_cq_.poll(&completions);
    if (count == 0)
        return 0;
    const std::uint64_t now = ucs::clock_now_ns();
    for (unsigned i = 0; i < count; ++i) {
        const Completion& completion = completions[i];
        std::byte* slot = receives_.message(completion.wr_id);
        receives_.consumed();
        if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
            receives_.put_back(slot);
            if (completion.status != IBV_WC_WR_FLUSH_ERR)
                break_down("a receive", verbs().wc_status_str(completion.status));
            continue;
        }
        const std::uint32_t bytes = completion.byte_len - static_cast<std::uint32_t>(kGrhBytes);
        if (bytes > datagram_bytes_) [[unlikely]] {  // or too short for what is put in front
            receives_.put_back(slot);
            counters_.add(UdCounter::kGarbage);
            continue;
        }
        node_->arrived(slot + kGrhBytes, bytes, now);
    }
    node_->settle();
    receives_.refill();
    return count;
}

// ---- Requests and reports of the node

void UdIface::send_data(UdPeer& peer, const Header& header, void* packet) {
    auto* op = static_cast<SendOp*>(packet);
    const auto bytes = static_cast<std::uint32_t>(op->serial);
    // A packet that the device still reads goes again as it is: an old acknowledgement does no
    // harm, and one that is owed goes by itself.
    if (is_read(*op)) [[unlikely]] {
        if (header.ack_id != 0)
            node_->did_not_tell();
    } else {
        Header filled = pack(header);
        filled.value = std::to_integer<std::uint8_t>(op->data()[offsetof(Header, value)]);
        const auto flags = std::to_integer<unsigned>(op->data()[offsetof(Header, flags)]);
        filled.flags = static_cast<std::uint8_t>(filled.flags | (flags & kHasMore));
        std::memcpy(op->data(), &filled, sizeof filled);
    }
    post(peer, {ib::address_of(op->data()), bytes, op->lkey});
    if (bytes > inline_max_)
        op->sn = posted_;
}

void UdIface::deliver(std::uint8_t am_id, void* message, std::uint32_t bytes) {
    auto* at = static_cast<std::byte*>(message);
    // Else a program that keeps everything would leave nothing to receive with.
    const bool may_keep = receives_.kept() < options_.rx_held;
    const ucs_status_t status = invoke_am(am_id, at + kHeaderBytes, bytes - kHeaderBytes,
                                          may_keep ? unsigned{UCT_CB_PARAM_FLAG_DESC} : 0U);
    if (status == UCS_INPROGRESS && may_keep)
        receives_.keep(slot_of(message), 0);
    else
        receives_.put_back(slot_of(message));
}

void UdIface::deliver_joined(std::uint8_t am_id, std::span<const std::byte> data) {
    const std::size_t unit = std::max<std::size_t>(params().am_alignment, 1);
    joined_.resize(data.size() + 2 * unit);
    const std::size_t behind = (ib::address_of(joined_.data()) + params().am_align_offset) % unit;
    std::byte* at = joined_.data() + (unit - behind) % unit;
    std::ranges::copy(data, at);
    invoke_am(am_id, at, static_cast<std::uint32_t>(data.size()), 0);
}

void UdIface::released(void* iface, std::uint64_t) {
    static_cast<UdIface*>(iface)->receives_.refill();
}

void UdIface::advanced(Outbound& outbound) {
    auto& ep = static_cast<UdEp&>(outbound);
    if (ep.waiters_ == nullptr || ep.is_advanced_)
        return;
    ep.is_advanced_ = true;
    advanced_.push_back(&ep);
    has_work_ = true;
}

Liveness UdIface::liveness(UdPeer& peer) {
    return peers_.life.ask(peer.life, peer.host, peer.cookie, peer.qp_num);
}

void UdIface::failed(Outbound& outbound, Failure failure) {
    auto& ep = static_cast<UdEp&>(outbound);
    switch (failure) {
        case Failure::kDeath:
            return fail(ep, UCS_ERR_ENDPOINT_TIMEOUT, "the process of the peer has ended");
        case Failure::kSilence:
            return fail(ep, UCS_ERR_ENDPOINT_TIMEOUT,
                        "the peer did not reply in time (TAGWIRE_UD_REMOTE_TIMEOUT)");
        case Failure::kReset:
            return fail(ep, UCS_ERR_CONNECTION_RESET, "the peer has closed the connection");
    }
}

void UdIface::fail(UdEp& ep, ucs_status_t status, const char* why) {
    if (ep.failure_ != UCS_OK)
        return;
    // Nothing is lost with an idle endpoint whose peer went in order.
    const bool is_quiet =
        status == UCS_ERR_CANCELED || (status == UCS_ERR_CONNECTION_RESET && ep.sender.is_idle() &&
                                       ep.waiters_ == nullptr && ep.group_.empty());
    if (is_quiet) {
        TW_LOG_DEBUG("ud on %s: an endpoint ended (%s): %s", params().dev_name.c_str(),
                     ucs_status_string(status), why);
    } else {
        TW_LOG_WARN("ud on %s: an endpoint failed (%s): %s", params().dev_name.c_str(),
                    ucs_status_string(status), why);
    }
    ep.failure_ = status;
    ep.is_failing_ = true;
    failing_.push_back(&ep);
    has_work_ = true;
}

void UdIface::break_down(const char* what, const char* why) {
    if (is_broken_)
        return;
    is_broken_ = true;
    TW_LOG_ERROR("%s: %s of the ud queue pair 0x%x failed: %s; all endpoints of the interface fail",
                 ib_md().device().name().c_str(), what, qp_->qp_num, why);
    for (UdEp* ep : eps_)
        fail(*ep, UCS_ERR_IO_ERROR, "the queue pair of the interface failed");
}

// ---- Work

unsigned UdIface::work() {
    unsigned moved = 0;
    while (!advanced_.empty()) {
        UdEp* ep = advanced_.back();
        advanced_.pop_back();
        ep->is_advanced_ = false;
        waiters_.settle(ep->waiters_, [ep](const Waiter& each) { return ep->has_ended(each); });
        ++moved;
    }
    if (!pending_.empty())
        moved += static_cast<unsigned>(pending_.dispatch(kDispatchMax));
    if (!failing_.empty())
        moved += settle_failing();
    has_work_ = !advanced_.empty() || !pending_.empty() || !failing_.empty();
    return moved;
}

// Every operation ends, then the failure is told.
unsigned UdIface::settle_failing() {
    unsigned settled = 0;
    for (; settled < failing_.size(); ++settled) {  // callbacks may add to it
        UdEp* ep = failing_[settled];
        ep->is_failing_ = false;
        node_->close(*ep);
        waiters_.end_all(ep->waiters_, ep->failure_);
        ep->is_settled_ = true;
        if (ep->failure_ != UCS_ERR_CANCELED && !ep->is_destroyed_) {
            count(UdCounter::kPeerFailures);
            report_failure(ep, ep->failure_);
        }
    }
    failing_.clear();
    return settled;
}

// One that another list still has goes when the next work() has emptied that.
void UdIface::reap() {
    std::size_t kept = 0;
    for (UdEp* ep : destroyed_) {
        if (ep->is_advanced_ || ep->is_failing_) {
            destroyed_[kept++] = ep;
            continue;
        }
        eps_[ep->index_] = eps_.back();
        eps_[ep->index_]->index_ = ep->index_;
        eps_.pop_back();
        delete ep;
    }
    destroyed_.resize(kept);
}

// ---- Now and then

void UdIface::look() {
    calls_ = 0;
    const std::uint64_t now = ucs::clock_now_ns();
    if (now >= node_->next_deadline())
        node_->expire(now);
    if (now < next_look_)
        return;
    next_look_ = now + kLookNs;
    receives_.refill(true);
    for (const ib::AsyncEvent& event : take_async_events())
        take_event(event);
    if (now < next_drain_)
        return;
    next_drain_ = now + kDrainNs;
    peers_.life.drain();
}

void UdIface::take_event(const ib::AsyncEvent& event) {
    switch (event.type) {
        case IBV_EVENT_PORT_ERR:
            if (event.port == port().number) {
                TW_LOG_WARN("%s: port %d is down; endpoints fail after TAGWIRE_UD_REMOTE_TIMEOUT",
                            ib_md().device().name().c_str(), event.port);
            }
            break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            break_down("an object", verbs().event_type_str(event.type));
            break;
        default:
            break;
    }
}

// ---- Events

ucs_status_t UdIface::event_arm(unsigned) {
    if (guard_.is_inside() || !advanced_.empty() || !failing_.empty() || !destroyed_.empty())
        return UCS_ERR_BUSY;
    for (const ib::AsyncEvent& event : take_async_events())
        take_event(event);
    const std::uint64_t now = ucs::clock_now_ns();
    if (!failing_.empty() || drain_descriptors() || now >= node_->next_deadline())
        return UCS_ERR_BUSY;
    node_->tell_all(now);
    if (node_->has_waiting() && can_send(false))
        return UCS_ERR_BUSY;
    // Acknowledgements wake whoever waits for room in a window; completions, in the send queue.
    ucs_status_t status = receive_cq_.arm(false);
    if (status == UCS_OK && (node_->has_waiting() || !pending_.empty()))
        status = send_cq_.arm(false);
    if (status != UCS_OK)
        return status;
    const std::uint64_t deadline = node_->next_deadline();
    wake_after(deadline == kNever ? 0 : deadline - now);
    return UCS_OK;
}

// ---- Flush, fence

ucs_status_t UdIface::flush(unsigned, uct_completion_t* comp) {
    if (comp != nullptr)
        return UCS_ERR_UNSUPPORTED;
    if (!pending_.empty())
        return UCS_ERR_NO_RESOURCE;
    // From the one on that was not idle the last time, so those before it are not looked at again
    // and again.
    for (std::size_t left = eps_.size(); left > 0; --left) {
        next_flushed_ = next_flushed_ < eps_.size() ? next_flushed_ : 0;
        const UdEp& ep = *eps_[next_flushed_];
        if (!(ep.failure_ != UCS_OK ? ep.is_settled_ : ep.sender.is_idle()))
            return UCS_INPROGRESS;
        ++next_flushed_;
    }
    return UCS_OK;
}

ucs_status_t UdIface::fence(unsigned) {
    return UCS_OK;  // messages of an endpoint are delivered in order
}

}  // namespace tagwire::ud
