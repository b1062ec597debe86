// SPDX-License-Identifier: BSD-3-Clause
// Progress beside receiving: send completions, pending requests, endpoints that fail, asynchronous
// events.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/completion.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

namespace {

constexpr unsigned kCallsPerLook = 4096;  // busy ones; an idle one counts for many
constexpr std::size_t kDispatchMax = 32;

}  // namespace

// Send completions wait while messages come, but not for long, and not while requests wait. While
// no completion was asked for only failures can come.
inline bool MessageIface::is_time_for_sends(bool has_moved) const {
    constexpr unsigned kBusyPerLook = 8;  // both divide what an idle call counts for, times a few
    constexpr unsigned kQuietPerLook = 512;
    if (has_work_)
        return true;
    if (signals_out_ == 0)
        return calls_ % kQuietPerLook == 0;
    return !has_moved || calls_ % kBusyPerLook == 0;
}

unsigned MessageIface::progress() {
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
        look_now_and_then();
    return moved;
}

void MessageIface::end_sends(const Completion* completions, unsigned count) {
    in_progress_ = true;
    sends_ = completions;
    sends_left_ = count;
    if (!late_.empty()) [[unlikely]]
        finish_late(nullptr);  // they were first
    handle_sends();
    in_progress_ = false;
}

// A callback that destroys an endpoint takes over what is left, in its order.
void MessageIface::handle_sends() {
    while (sends_left_ != 0) {
        --sends_left_;
        send_completed(*sends_++);
    }
}

void MessageIface::send_completed(const Completion& completion) {
    SendQueue* queue = queue_of(static_cast<std::uint32_t>(completion.wr_id >> 32));
    if (queue == nullptr) [[unlikely]]
        return;  // of an endpoint that is gone
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    if (queue->is_special) [[unlikely]]
        return special_completed(*queue, completion);
    queue->free += sn - queue->acked;
    owned_completed(*queue, completion);
}

void MessageIface::owned_completed(SendQueue& owned, const Completion& completion) {
    SendQueue* const queue = &owned;
    MessageEp* ep = queue->owner;
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    ucs_status_t status = UCS_OK;
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        queue->is_broken = true;
        if (ep->failure_ == UCS_OK) {
            if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR)
                count(MessageCounter::kRnrFailures);
            fail(*ep, failure_of(completion.status), verbs().wc_status_str(completion.status));
        }
        status = ep->failure_;
    }
    ep->was_heard_ = true;
    const std::uint32_t acknowledged = sn - queue->acked;
    queue->acked = sn;
    cq_free_ += acknowledged;
    // One that failed may not have asked for its completion.
    if (completion.status == IBV_WC_SUCCESS)
        --signals_out_;
    else if (cq_free_ == options_.tx_cq_depth)
        signals_out_ = 0;
    // Those before a request that failed were carried out.
    while (SendOp* op = queue->take_until(sn))
        finish(*op->ep, *op, op->sn == sn ? status : UCS_OK);
    if (queue->is_drained())
        drained(*queue);
}

void MessageIface::finish(MessageEp& ep, SendOp& op, ucs_status_t status) {
    if (ending_ != nullptr && op.ep != ending_) [[unlikely]] {
        finish_later(op, status);
        return;
    }
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

void MessageIface::finish_flush(MessageEp& ep, SendOp& op) {
    keep_flush(ep, op);
    settle_flushes(ep);
}

void MessageIface::keep_flush(MessageEp& ep, SendOp& op) {
    SendOp** last = &ep.flushes_;
    while (*last != nullptr)
        last = &(*last)->next;
    op.next = nullptr;
    *last = &op;
}

void MessageIface::settle_flushes(MessageEp& ep) {
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

// ---- Pending requests

void MessageIface::release_group(MessageEp& ep) {
    if (ep.group_ != nullptr)
        groups_.destroy(std::exchange(ep.group_, nullptr));
}

void MessageIface::release_groups() {
    for (const std::uint32_t id : grouped_)
        if (MessageEp* ep = find(id); ep != nullptr)
            release_group(*ep);
    grouped_.clear();
}

// ---- Work

unsigned MessageIface::work() {
    unsigned moved = 0;
    in_progress_ = true;
    if (!late_.empty())
        finish_late(nullptr);
    if (owes())
        send_owed();
    if (!reads_waiting_.empty())
        moved += step_reads();
    if (!cancelled_.empty())
        moved += report_cancelled();
    if (!pending_.empty())
        moved += static_cast<unsigned>(pending_.dispatch(kDispatchMax));
    else if (!grouped_.empty())
        release_groups();
    if (!failing_.empty())
        moved += settle_failing();
    if (wants_signals_)
        signal_all();
    has_work_ = owes() || !reads_waiting_.empty() || !cancelled_.empty() || !pending_.empty() ||
                !failing_.empty() || wants_signals_ || !grouped_.empty() || !late_.empty();
    in_progress_ = false;
    return moved;
}

// Requests without a completion fill the queue: some that ask for one, behind them. Where places in
// the completion queue run out it goes on from there when some have come back: each of what it
// posted brings at least its own.
void MessageIface::signal_all() {
    for (std::size_t left = busy_.size(); left > 0; --left) {
        SendQueue* queue = busy_.front();
        if (queue->has_unsignaled() && queue->free > 0 && !signal(*queue))
            return;
        busy_.erase(*queue);
        busy_.push_back(*queue);  // the next call begins behind it
    }
    wants_signals_ = false;
}

bool MessageIface::signal(SendQueue& queue) {
    MessageEp* ep = poster_of(queue);
    if (ep == nullptr || (ep->failure_ != UCS_OK && !queue.wants_mark))
        return true;
    if (cq_free_ == 0)
        return false;
    queue.wants_mark = false;
    return ep->post_signal() == UCS_OK;
}

// Requests without a completion that were carried out end silently, so one is put behind them. Its
// place is one of those that has_room() leaves; when none is left, others' completions bring some.
void MessageIface::mark_end(SendQueue& queue, MessageEp& ep) {
    if (!queue.has_unsignaled() || queue.free == 0)
        return;
    queue.wants_mark = cq_free_ == 0;
    if (queue.wants_mark)
        ask_for_completions();
    else
        ep.post_signal();
}

// ---- The ends of endpoints

void MessageIface::fail(MessageEp& ep, ucs_status_t status, const char* why) {
    if (ep.failure_ != UCS_OK)
        return;
    // Nobody else will ask about one that the user does not have, or has destroyed.
    if (ep.is_destroyed_ || status == UCS_ERR_CANCELED) {
        TW_LOG_DEBUG("%s on %s: an endpoint ends (%s): %s", params().tl_name.c_str(),
                     params().dev_name.c_str(), ucs_status_string(status), why);
    } else {
        TW_LOG_WARN("%s on %s: an endpoint fails (%s): %s", params().tl_name.c_str(),
                    params().dev_name.c_str(), ucs_status_string(status), why);
    }
    ep.failure_ = status;
    ep.state_ = MessageEp::State::kFailing;
    stop(ep);
    failing_.push_back({&ep, receives_seen_});
    has_work_ = true;
}

// Messages that the peer had sent are delivered first; then every operation ends, then the failure
// is reported.
unsigned MessageIface::settle_failing() {
    unsigned ended = 0;
    std::size_t kept = 0;
    // By index: callbacks may have others fail.
    for (std::size_t i = 0; i < failing_.size(); ++i) {
        const auto [ep, mark] = failing_[i];
        if (!ep->has_ended() || has_late(*ep) || !has_heard_all(mark)) {
            failing_[kept++] = failing_[i];
            continue;
        }
        const ucs_status_t status = ep->failure_;
        end_operations(*ep);
        ep->state_ = MessageEp::State::kFailed;
        ++ended;
        // Last, because the program may destroy the endpoint when it hears of it.
        const bool is_told = status != UCS_ERR_CANCELED && !ep->is_destroyed_;
        if (settled(*ep) && is_told) {
            count(MessageCounter::kPeerFailures);
            report_failure(ep, status);
        }
    }
    failing_.resize(kept);
    return ended;
}

void MessageIface::end_operations(MessageEp& ep) {
    ep.end_rendezvous(ep.failure_);
    end_reads(ep);
    end_arrivals(ep);
    settle_flushes(ep);
}

// Requests end by the device, in order and with those of others; their completions are looked at
// here, until the last of this endpoint. Flushes are the last of all that ends.
void MessageIface::end_now(MessageEp& ep) {
    const bool was_in_progress = std::exchange(in_progress_, true);
    MessageEp* const outer = std::exchange(ending_, &ep);
    const std::uint64_t deadline = ucs::clock_now_ns() + kEndNs;
    finish_late(&ep);
    // One of its callbacks may be what destroys it: the rest of what that completion told.
    while (SendOp* op = ep.queue_->take_until(ep.queue_->acked))
        finish(*op->ep, *op, op->ep->failure_);
    handle_sends();
    while (uses_memory(ep)) {
        if (ep.queue_->wants_mark)
            signal(*ep.queue_);
        sends_left_ = send_cq_.poll(&sends_);
        if (sends_left_ == 0 && ucs::clock_now_ns() >= deadline) {
            TW_LOG_WARN("%s: the device did not end the requests of an endpoint in time",
                        ib_md().device().name().c_str());
            give_up(ep);
            break;
        }
        handle_sends();
    }
    finish_late(&ep);
    end_copied(ep);
    ep.end_rendezvous(ep.failure_);
    settle_flushes(ep);
    ending_ = outer;
    in_progress_ = was_in_progress;
}

/// No completion of it is looked at any more.
void MessageIface::abandon(SendQueue& queue) {
    const std::uint32_t given_up = queue.posted - queue.acked;
    queue.acked = queue.posted;
    queue.free += given_up;
    cq_free_ += given_up;
    queue.clear_unsignaled();
    queue.wants_mark = false;
    if (cq_free_ == options_.tx_cq_depth)
        signals_out_ = 0;
}

void MessageIface::finish_later(SendOp& op, ucs_status_t status) {
    late_.push_back({&op, status});
    has_work_ = true;
}

/// Null: of all.
void MessageIface::finish_late(const MessageEp* of) {
    for (std::size_t i = 0; i < late_.size();) {
        const Late late = late_[i];
        if (of != nullptr && late.op->ep != of) {
            ++i;
            continue;
        }
        late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
        finish(*late.op->ep, *late.op, late.status);
        i = 0;  // the callback may have changed the list
    }
}

bool MessageIface::has_late(const MessageEp& ep) const {
    return std::ranges::any_of(late_, [&](const Late& late) { return late.op->ep == &ep; });
}

void MessageIface::cancel(MessageEp& ep) {
    fail(ep, UCS_ERR_CANCELED, "cancelled");
    ep.end_rendezvous(UCS_ERR_CANCELED);
}

// ---- Now and then

void MessageIface::look_now_and_then() {
    calls_ = 0;
    const std::uint64_t now = ucs::clock_now_ns();
    if (now < next_look_)
        return;
    next_look_ = now + kLookNs;
    for (const AsyncEvent& event : take_async_events())
        take_event(event);
    end_receiving();  // what could not be posted, for lack of memory
    look(now);
    if (keepalive_ns_ > 0 && now >= next_keepalive_) {
        next_keepalive_ = now + keepalive_ns_;
        probes_left_ = std::min(eps_.size(), kProbedMax);
    }
    keep_alive();
}

// Asks silent peers for an acknowledgement: their death would go unnoticed otherwise. With very
// many endpoints each interval asks some of them. An endpoint that finds no room is the first of
// the next look, since others would have taken the room again by the next round.
void MessageIface::keep_alive() {
    for (; probes_left_ > 0; --probes_left_) {
        if (next_probed_ >= eps_.size())
            next_probed_ = 0;
        MessageEp* ep = eps_[next_probed_];
        if (ep != nullptr && ep->state_ == MessageEp::State::kConnected && !probe(*ep))
            return;
        ++next_probed_;
    }
}

bool MessageIface::probe(MessageEp& ep) {
    if (!may_ask(ep))
        return true;
    const bool waits = ep.rndv_first_ != nullptr || waits_for(ep);
    if (waits && sends_again(ep))
        return true;
    if (std::exchange(ep.was_heard_, false) || (!waits && params().err_handler == nullptr))
        return true;
    if (!gets_room(ep, 1))
        return !ep.has_ended();  // what is under way asks, too
    if (ep.post_signal() == UCS_OK)
        count(MessageCounter::kProbes);
    return true;
}

std::uint64_t MessageIface::sleep_ns() const {
    if (looks_soon() || probes_left_ > 0)
        return kLookNs;
    if (keepalive_ns_ == 0 || ep_count_ == 0)
        return 0;
    const std::uint64_t now = ucs::clock_now_ns();
    return next_keepalive_ > now ? next_keepalive_ - now : 1;
}

void MessageIface::take_event(const AsyncEvent& event) {
    switch (event.type) {
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            count(MessageCounter::kReceiveLow);
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
            for (MessageEp* each : eps_)
                if (each != nullptr)
                    fail(*each, UCS_ERR_IO_ERROR, verbs().event_type_str(event.type));
            break;
        default:
            break;
    }
}

// ---- Flush, fence

ucs_status_t MessageIface::flush(unsigned, uct_completion_t* comp) {
    if (comp != nullptr)
        return UCS_ERR_UNSUPPORTED;
    if (!pending_.empty())
        return UCS_ERR_NO_RESOURCE;
    ucs_status_t status = late_.empty() && rndvs_under_way_ == 0 ? UCS_OK : UCS_INPROGRESS;
    bool is_shared = false, lacks_signals = false;
    drop_idle_queues();
    for (SendQueue* queue = busy_.front(); queue != nullptr; queue = busy_.next(*queue)) {
        const MessageEp* owner = queue->owner;
        if (owner != nullptr &&
            (owner->is_destroyed_ || owner->state_ == MessageEp::State::kFailed))
            continue;
        is_shared |= owner == nullptr;
        lacks_signals |= queue->has_unsignaled();
        status = owner == nullptr ? status : UCS_INPROGRESS;
    }
    if (is_shared && status == UCS_OK && is_any_busy())
        status = UCS_INPROGRESS;
    wants_signals_ |= lacks_signals && status != UCS_OK;
    has_work_ |= wants_signals_;
    return status;
}

void MessageIface::drop_idle_queues() {
    busy_.for_each([this](SendQueue& queue) {
        if (queue.is_drained()) {
            busy_.erase(queue);
            queue.unsignaled = SendQueue::kUnlisted;
        }
    });
}

// A queue that endpoints share does not tell whose its requests are.
bool MessageIface::is_any_busy() const {
    return std::ranges::any_of(eps_, [](const MessageEp* ep) {
        return ep != nullptr && ep->state_ != MessageEp::State::kFailed && !ep->is_idle();
    });
}

ucs_status_t MessageIface::fence(unsigned) {
    drop_idle_queues();
    for (SendQueue* queue = busy_.front(); queue != nullptr; queue = busy_.next(*queue))
        queue->fence_flag = IBV_SEND_FENCE;
    return UCS_OK;
}

// ---- Events

ucs_status_t MessageIface::event_arm(unsigned events) {
    if (in_progress_ || owes() || !cancelled_.empty() || !late_.empty() || !failing_.empty() ||
        wants_signals_)
        return UCS_ERR_BUSY;
    for (const AsyncEvent& event : take_async_events())
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
    wake_after(sleep_ns());
    return UCS_OK;
}

}  // namespace tagwire::ib
