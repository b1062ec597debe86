// SPDX-License-Identifier: BSD-3-Clause
// What progress does beside receiving: send completions, owed credit, endpoints that fail or go,
// asynchronous events, keepalive.
#include <algorithm>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/completion.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

using ib::Completion;
using ib::MessageKind;
using ib::SendOp;

namespace {

constexpr unsigned kCallsPerLook = 4096;  // busy ones; an idle one counts for many
constexpr std::size_t kDispatchMax = 32;

ucs_status_t status_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_SUCCESS:
            return UCS_OK;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return UCS_ERR_ENDPOINT_TIMEOUT;
        case IBV_WC_WR_FLUSH_ERR:
        case IBV_WC_REM_ABORT_ERR:
            return UCS_ERR_CONNECTION_RESET;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
            return UCS_ERR_REJECTED;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

}  // namespace

// What has ended waits while messages come, but not for long, and not while requests wait. While no
// completion was asked for only failures can come.
inline bool RcIface::is_time_for_sends(bool has_moved) const {
    constexpr unsigned kBusyPerLook = 8;  // both divide what an idle call counts for, times a few
    constexpr unsigned kQuietPerLook = 512;
    if (has_work_)
        return true;
    if (signals_out_ == 0)
        return calls_ % kQuietPerLook == 0;
    return !has_moved || calls_ % kBusyPerLook == 0;
}

unsigned RcIface::progress() {
    if (in_progress_) [[unlikely]]
        return 0;  // called by a callback
    const Completion* completions = nullptr;
    unsigned moved = receive_cq_.poll(&completions);
    receives_empty_ = moved == 0;
    if (moved != 0)
        receive(completions, moved);
    if (is_time_for_sends(moved != 0)) {
        if (const unsigned ended = send_cq_.poll(&completions); ended != 0) {
            end_sends(completions, ended);
            moved += ended;
        }
    }
    if (has_work_) [[unlikely]]
        moved += work();
    calls_ += moved == 0 ? kCallsPerLook / kIdlePerLook : 1;
    if (calls_ >= kCallsPerLook) [[unlikely]]
        look();
    return moved;
}

void RcIface::end_sends(const Completion* completions, unsigned count) {
    in_progress_ = true;
    for (unsigned i = 0; i < count; ++i)
        send_completed(completions[i]);
    in_progress_ = false;
}

void RcIface::send_completed(const Completion& completion) {
    RcEp* ep = find(static_cast<std::uint32_t>(completion.wr_id >> 32));
    if (ep == nullptr) [[unlikely]]
        return;  // of an endpoint that is gone
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    ucs_status_t status = UCS_OK;
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        status = ep->failure_ != UCS_OK ? ep->failure_ : status_of(completion.status);
        if (ep->failure_ == UCS_OK) {
            TW_LOG_DEBUG("%s: a request of queue pair 0x%x failed: %s",
                         ib_md().device().name().c_str(), completion.qp_num,
                         verbs().wc_status_str(completion.status));
            if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR)
                count(RcCounter::kRnrFailures);
            fail(*ep, status);
        }
    }
    ep->was_heard_ = true;
    const std::uint32_t acknowledged = sn - ep->acked_;
    ep->acked_ = sn;
    ep->sq_free_ += acknowledged;
    cq_free_ += acknowledged;
    // One that failed may not have asked for its completion.
    if (completion.status == IBV_WC_SUCCESS)
        --signals_out_;
    else if (cq_free_ == options_.tx_cq_depth)
        signals_out_ = 0;
    while (ep->ops_first_ != nullptr && static_cast<std::int32_t>(ep->ops_first_->sn - sn) <= 0) {
        SendOp* op = ep->ops_first_;
        ep->ops_first_ = op->next;
        // Those before a request that failed were carried out.
        finish(*ep, *op, op->sn == sn ? status : UCS_OK);
    }
}

void RcIface::finish(RcEp& ep, SendOp& op, ucs_status_t status) {
    uct_completion_t* comp = op.comp;
    switch (op.kind) {
        case SendOp::Kind::kFlush:
            finish_flush(ep, op);
            return;
        case SendOp::Kind::kRndvRead: {
            auto* read = static_cast<RndvRead*>(op.read);
            op.pool->put(&op);
            read_part_done(*read, status);
            return;
        }
        case SendOp::Kind::kUnpack:
            if (status == UCS_OK)
                op.unpack.call(op.unpack.arg, op.data(), op.unpack.bytes);
            break;
        case SendOp::Kind::kFetch:
            if (status == UCS_OK)
                std::memcpy(op.result.to, op.data(), op.result.bytes);
            break;
        default:
            break;
    }
    op.pool->put(&op);
    if (comp != nullptr)
        uct::invoke_completion(comp, status);
}

// ---- Flushes wait for the rendezvous before them, too

void RcIface::finish_flush(RcEp& ep, SendOp& op) {
    SendOp** last = &ep.flushes_;
    while (*last != nullptr)
        last = &(*last)->next;
    op.next = nullptr;
    *last = &op;
    settle_flushes(ep);
}

void RcIface::settle_flushes(RcEp& ep) {
    const std::uint64_t oldest = ep.rndv_first_ == nullptr ? UINT64_MAX : ep.rndv_first_->serial;
    SendOp** at = &ep.flushes_;
    while (*at != nullptr) {
        SendOp* op = *at;
        if (op->serial >= oldest) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        uct_completion_t* comp = op->comp;
        op->pool->put(op);
        uct::invoke_completion(comp, ep.failure_ == UCS_ERR_CANCELED ? UCS_OK : ep.failure_);
        at = &ep.flushes_;  // the callback may have changed the list
    }
}

// ---- Work

unsigned RcIface::work() {
    unsigned moved = 0;
    in_progress_ = true;
    if (!owing_.empty())
        send_credits();
    if (!reads_waiting_.empty())
        moved += step_reads();
    if (!cancelled_.empty())
        moved += report_cancelled();
    if (!pending_.empty())
        moved += static_cast<unsigned>(pending_.dispatch(kDispatchMax));
    if (!failing_.empty())
        moved += settle_failing();
    if (wants_signals_)
        signal_all();
    has_work_ = !owing_.empty() || !reads_waiting_.empty() || !cancelled_.empty() ||
                !pending_.empty() || !failing_.empty() || wants_signals_;
    in_progress_ = false;
    return moved;
}

void RcIface::send_credits() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < owing_.size(); ++i) {
        RcEp& ep = *owing_[i];
        const bool owes = ep.failure_ == UCS_OK && ep.released_ != ep.told_;
        if (owes && !ep.has_room(1)) {
            owing_[kept++] = &ep;
            continue;
        }
        ep.owes_credit_ = false;
        if (!owes)
            continue;  // a message of the user has taken it along
        struct {
            ib::Prefix prefix;
            std::uint64_t padding;
        } message{ep.prefix(MessageKind::kCredit, 0, sizeof(std::uint64_t)), 0};
        ibv_sge sge{ib::address_of(&message), sizeof message, 0};
        ibv_send_wr request{};
        request.sg_list = &sge;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_INLINE;
        if (ep.post(request, false) == UCS_OK)
            count(RcCounter::kCreditMessages);
    }
    owing_.resize(kept);
}

// Requests without a completion fill the queue: some that ask for one, behind them.
void RcIface::signal_all() {
    for (RcEp* ep : eps_) {
        if (ep == nullptr || ep->unsignaled_ == 0 || ep->failure_ != UCS_OK || ep->sq_free_ == 0)
            continue;
        SendOp* op = cq_free_ > 0 ? small_.get() : nullptr;
        if (op == nullptr)
            return;  // goes on when those have come back
        if (ep->post_empty_write(op, SendOp::Kind::kProbe, nullptr) != UCS_OK)
            return;
    }
    wants_signals_ = false;
}

// ---- The ends of endpoints

void RcIface::fail(RcEp& ep, ucs_status_t status) {
    if (ep.failure_ != UCS_OK)
        return;
    ep.failure_ = status;
    ep.state_ = RcEp::State::kFailing;
    ep.fail_mark_ = receives_seen_;
    ep.to_error();
    failing_.push_back(&ep);
    has_work_ = true;
}

// What the peer had sent is delivered first; then every operation ends, then the failure is told.
unsigned RcIface::settle_failing() {
    unsigned settled = 0;
    for (std::size_t i = 0; i < failing_.size();) {
        RcEp* ep = failing_[i];
        const bool heard_all =
            receives_empty_ || receives_seen_ - ep->fail_mark_ > receive_cq_.entries();
        if (!ep->is_drained() || !heard_all) {
            ++i;
            continue;
        }
        failing_.erase(failing_.begin() + static_cast<std::ptrdiff_t>(i));
        const ucs_status_t status = ep->failure_;
        end_operations(*ep);
        ep->state_ = RcEp::State::kFailed;
        ++settled;
        if (status != UCS_ERR_CANCELED && !ep->is_destroyed_) {
            count(RcCounter::kPeerFailures);
            report_failure(ep, status);
        }
    }
    return settled;
}

void RcIface::end_operations(RcEp& ep) {
    ep.end_rendezvous(ep.failure_);
    end_reads(ep);
    if (ep.partial_receive_ != nullptr) {
        SoftReceive* receive = std::exchange(ep.partial_receive_, nullptr);
        complete(*receive, ep.partial_tag_, ep.partial_imm_, 0, ep.failure_);
    }
    ep.has_partial_ = false;
    if (has_device_tags_) {
        tag_list_.fail_consumed(ep.message_qp_num_,
                                [&](ib::TagEntry& entry) { end_entry(entry, ep.failure_); });
    }
    settle_flushes(ep);
}

void RcEp::end_rendezvous(ucs_status_t status) {
    while (rndv_first_ != nullptr) {
        uct_completion_t* comp = rndv_first_->comp;
        owner().drop_rndv(*rndv_first_);
        uct::invoke_completion(comp, status);
    }
}

void RcIface::cancel(RcEp& ep) {
    fail(ep, UCS_ERR_CANCELED);
    ep.end_rendezvous(UCS_ERR_CANCELED);
}

// The queue pairs stay until the last receive buffer that they took has come back: a device may
// forget completions of a queue pair that is destroyed, and the buffers with them.
void RcIface::bury(RcEp& ep) {
    if (ep.failure_ == UCS_OK)
        fail(ep, UCS_ERR_CANCELED);
    ep.is_destroyed_ = true;
    ep.end_rendezvous(ep.failure_);
    ep.last_requests_ = static_cast<std::uint8_t>(ep.device_qp_ == nullptr ? 1 : 2);
    ep.deadline_ = ucs::clock_now_ns() + kLastRequestNs;
    destroyed_.push_back(&ep);
}

unsigned RcIface::reap(std::uint64_t now) {
    unsigned reaped = 0;
    for (std::size_t i = 0; i < destroyed_.size();) {
        RcEp* ep = destroyed_[i];
        const bool has_all = ep->last_requests_ == 0 || now >= ep->deadline_;
        if (ep->state_ != RcEp::State::kFailed || !has_all || !receives_empty_) {
            ++i;
            continue;
        }
        destroyed_.erase(destroyed_.begin() + static_cast<std::ptrdiff_t>(i));
        if (ep->window_ != 0)
            receives_.want_less(buffers_per_peer());
        remove(*ep);
        delete ep;
        ++reaped;
    }
    return reaped;
}

// ---- Now and then

void RcIface::look() {
    calls_ = 0;
    const std::uint64_t now = ucs::clock_now_ns();
    if (now < next_look_)
        return;
    next_look_ = now + kLookNs;
    for (const ib::AsyncEvent& event : take_async_events())
        take_event(event);
    if (!destroyed_.empty())
        reap(now);
    if (keepalive_ns_ > 0 && now >= next_keepalive_) {
        next_keepalive_ = now + keepalive_ns_;
        keep_alive();
    }
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
            if (ep != nullptr && ep->failure_ == UCS_OK) {
                TW_LOG_DEBUG("queue pair 0x%x: %s", event.qp_num,
                             verbs().event_type_str(event.type));
                fail(*ep, UCS_ERR_CONNECTION_RESET);
            }
            break;
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            count(RcCounter::kReceiveLow);
            receives_.arm_limit();
            break;
        case IBV_EVENT_PORT_ERR:
            if (event.port == port().number) {
                TW_LOG_WARN("%s: port %d is down; endpoints fail when their retries are used up",
                            ib_md().device().name().c_str(), event.port);
            }
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            TW_LOG_ERROR("%s: %s; all endpoints of the interface fail",
                         ib_md().device().name().c_str(), verbs().event_type_str(event.type));
            for (RcEp* each : eps_) {
                if (each != nullptr)
                    fail(*each, UCS_ERR_IO_ERROR);
            }
            break;
        default:
            break;
    }
}

// Whoever was silent is asked for an acknowledgement: nobody else would notice that it is gone.
void RcIface::keep_alive() {
    for (RcEp* ep : eps_) {
        if (ep == nullptr || ep->state_ != RcEp::State::kConnected)
            continue;
        const bool waits = ep->rndv_first_ != nullptr || ep->has_partial_ ||
                           (has_device_tags_ && tag_list_.waits_for(ep->message_qp_num_));
        if (!std::exchange(ep->was_heard_, false) && (waits || params().err_handler != nullptr) &&
            ep->has_room(1)) {
            SendOp* op = small_.get();
            if (op != nullptr && ep->post_empty_write(op, SendOp::Kind::kProbe, nullptr) == UCS_OK)
                count(RcCounter::kProbes);
        }
    }
}

// ---- Events

ucs_status_t RcIface::event_arm(unsigned events) {
    if (in_progress_ || !owing_.empty() || !cancelled_.empty() || !failing_.empty() ||
        wants_signals_)
        return UCS_ERR_BUSY;
    for (const ib::AsyncEvent& event : take_async_events())
        take_event(event);
    if (!failing_.empty() || drain_descriptors())
        return UCS_ERR_BUSY;
    const bool solicited = (events & (UCT_EVENT_RECV | UCT_EVENT_SEND_COMP)) == 0 &&
                           pending_.empty() && reads_waiting_.empty();
    const bool sends = (events & UCT_EVENT_SEND_COMP) != 0 || !pending_.empty() ||
                       !reads_waiting_.empty() || reads_under_way_ > 0;
    ucs_status_t status = receive_cq_.arm(solicited);
    if (status == UCS_OK && sends)
        status = send_cq_.arm(false);
    if (status != UCS_OK)
        return status;
    std::uint64_t sleep_ns = destroyed_.empty() ? 0 : kLookNs;
    if (sleep_ns == 0 && keepalive_ns_ > 0 && ep_count_ > 0) {
        const std::uint64_t now = ucs::clock_now_ns();
        sleep_ns = next_keepalive_ > now ? next_keepalive_ - now : 1;
    }
    wake_after(sleep_ns);
    return UCS_OK;
}

}  // namespace tagwire::rc
