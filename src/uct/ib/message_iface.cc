// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/message_iface.hpp"

#include <algorithm>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/codes.hpp"

namespace tagwire::ib {

// ---- Set-up

ucs_status_t MessageIface::open_queues() {
    constexpr unsigned kCompletionsSpare = 64;
    std::uint64_t keepalive_ns = limits.options.keepalive_ns;
    if (keepalive_ns > 0 && params().keepalive_interval_ns > 0)
        keepalive_ns = params().keepalive_interval_ns;
    keepalive_.init(keepalive_ns);
    ucs_status_t status = limits.fit_depths(ib_md().device());
    if (status == UCS_OK)
        status = open_receiving();
    if (status == UCS_OK) {
        limits.set(ib_md(), port());
        sends.set_signal_every(limits.signal_every);
        status = sends.open(ib_md(), limits.cq_places, limits.cq_reserve, kCompletionsSpare,
                            channel(), &mailbox());
    }
    rndv_sends.init(limits.options.rndv_max);
    if (status == UCS_OK)
        status = tags_.open(limits.options.tag_depth, "message receives");
    if (status == UCS_OK)
        status = pending.init();
    if (status == UCS_OK)
        status = reads.init();
    buffers.init(ib_md(), kTmhBytes + limits.seg_bytes,
                 static_cast<unsigned>(limits.options.tx_buffers));
    small.init(ib_md(), kPrefixBytes + kZcopyHeaderMax + sizeof(std::uint64_t),
               limits.cq_places + kCompletionsSpare);
    return status;
}

void MessageIface::query_messages(uct_iface_attr_t* attr) const {
    query_base(attr);
    limits.query(attr, port(), has_tag_callbacks());
}

void MessageIface::describe_messages(const uct::DescribeSink& sink) const {
    sink.text("tag_matching", limits.matching_reason);
    sink.number("endpoints", eps.count());
    sink.number("receive_buffers_wanted", receives.wanted());
    sink.number("receive_buffers_posted", receives.posted());
    sink.number("receive_buffers_held", receives.kept());
    sink.number("posted_receives", limits.has_device_tags ? tag_list.size() : tags_.posted());
    sink.number("rendezvous_under_way", rndv_sends.under_way());
    sink.number("send_queues_busy", sends.busy());
    sink.number("inline_bytes", limits.inline_max);
}

// ---- Progress

// The work that waits, too: is_time_for_sends() knows of it.
unsigned MessageIface::look_at_sends() {
    const Completion* completions = nullptr;
    unsigned moved = sends.cq().poll(&completions);
    if (moved != 0)
        end_sends(completions, moved);
    if (has_work)
        moved += work();
    return moved;
}

void MessageIface::end_sends(const Completion* completions, unsigned count) {
    guard.enter();
    is_unresponsive_ = false;
    sends_ = completions;
    sends_left_ = count;
    if (op_ends.has_late()) [[unlikely]]
        op_ends.finish_late(nullptr);  // they were first
    handle_sends();
    guard.leave();
}

// A callback that destroys an endpoint takes over what is left, in its order.
void MessageIface::handle_sends() {
    while (sends_left_ != 0) {
        --sends_left_;
        send_completed(*sends_++);
    }
}

void MessageIface::send_completed(const Completion& completion) {
    WorkQueue* queue = sends.find(static_cast<std::uint32_t>(completion.wr_id >> 32));
    if (queue == nullptr) [[unlikely]]
        return;  // of an endpoint that is gone
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    if (queue->is_special) [[unlikely]]
        return source->special_completed(*queue, completion);
    queue->free += sn - queue->acked;
    owned_completed(*queue, completion);
}

void MessageIface::owned_completed(WorkQueue& owned, const Completion& completion) {
    WorkQueue* const queue = &owned;
    MessageEp* ep = queue->owner;
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    ucs_status_t status = UCS_OK;
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        queue->is_broken = true;
        if (ep->failure == UCS_OK) {
            if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR)
                count(MessageCounter::kRnrFailures);
            fail(*ep, failure_of(completion.status), verbs().wc_status_str(completion.status));
        }
        status = ep->failure;
    }
    ep->was_heard = true;
    const std::uint32_t acknowledged = sn - queue->acked;
    queue->acked = sn;
    sends.give_back(acknowledged);
    // One that failed may not have asked for its completion.
    if (completion.status == IBV_WC_SUCCESS)
        sends.signal_came();
    else
        sends.settle_signals();
    // Those before a request that failed were carried out.
    while (SendOp* op = queue->take_until(sn))
        op_ends.finish(*op, op->sn == sn ? status : UCS_OK);
    if (queue->is_drained())
        source->drained(*queue);
}

// ---- Work

unsigned MessageIface::work() {
    unsigned moved = 0;
    guard.enter();
    if (has_lost_device()) [[unlikely]]
        end_all();
    if (op_ends.has_late())
        op_ends.finish_late(nullptr);
    if (flow->owes())
        flow->send_owed();
    if (reads.has_waiting())
        moved += reads.step_all();
    if (tags_.has_cancelled())
        moved += tags_.report_cancelled();
    if (!pending.empty())
        moved += pending.dispatch();
    else if (pending.has_groups())
        pending.release_all(eps);
    if (!failing_.empty())
        moved += settle_failing();
    if (sends.wants_signals())
        sends.signal_all(*source);
    has_work = flow->owes() || reads.has_waiting() || tags_.has_cancelled() || !pending.empty() ||
               !failing_.empty() || sends.wants_signals() || pending.has_groups() ||
               op_ends.has_late();
    guard.leave();
    return moved;
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
    watched.look(now);
    guard.enter();
    look(now);
    guard.leave();
    // Asks silent peers for an acknowledgement: their death would go unnoticed otherwise.
    keepalive_.look(now, eps, [this](MessageEp& ep) {
        return ep.state != MessageEp::State::kConnected || probe(ep);
    });
}

bool MessageIface::probe(MessageEp& ep) {
    if (!may_ask(ep))
        return true;
    const bool waits = ep.rndv_first != nullptr || waits_for(ep);
    if (waits && flow->sends_again(ep))
        return true;
    if (std::exchange(ep.was_heard, false) || (!waits && params().err_handler == nullptr))
        return true;
    if (!ep.gets_room(1))
        return !ep.has_ended();  // what is under way asks, too
    if (ep.post_signal() == UCS_OK)
        count(MessageCounter::kProbes);
    return true;
}

std::uint64_t MessageIface::sleep_ns() const {
    if (looks_soon() || keepalive_.is_due())
        return kLookNs;
    if (!keepalive_.is_on() || eps.count() == 0)
        return 0;
    return keepalive_.sleep_ns(ucs::clock_now_ns());
}

void MessageIface::take_event(const AsyncEvent& event) {
    switch (event.type) {
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            count(MessageCounter::kReceiveLow);
            receives.arm_limit();
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
            lose_device(verbs().event_type_str(event.type));
            break;
        default:
            break;
    }
}

// ---- Flush, fence

ucs_status_t MessageIface::flush(unsigned, uct_completion_t* comp) {
    if (comp != nullptr)
        return UCS_ERR_UNSUPPORTED;
    if (!pending.empty())
        return UCS_ERR_NO_RESOURCE;
    ucs_status_t status =
        !op_ends.has_late() && rndv_sends.under_way() == 0 ? UCS_OK : UCS_INPROGRESS;
    bool is_shared = false, lacks_signals = false;
    sends.drop_idle();
    for (WorkQueue* queue = sends.first_busy(); queue != nullptr; queue = sends.next_busy(*queue)) {
        const MessageEp* owner = queue->owner;
        if (owner != nullptr && (owner->is_destroyed || owner->state == MessageEp::State::kFailed))
            continue;
        is_shared |= owner == nullptr;
        lacks_signals |= queue->has_unsignaled();
        status = owner == nullptr ? status : UCS_INPROGRESS;
    }
    if (is_shared && status == UCS_OK && is_any_busy())
        status = UCS_INPROGRESS;
    if (lacks_signals && status != UCS_OK)
        sends.ask_for_completions();
    return status;
}

// A queue that endpoints share does not tell whose its requests are.
bool MessageIface::is_any_busy() const {
    return std::ranges::any_of(eps, [](const MessageEp* ep) {
        return ep != nullptr && ep->state != MessageEp::State::kFailed && !ep->is_idle();
    });
}

ucs_status_t MessageIface::fence(unsigned) {
    sends.drop_idle();
    for (WorkQueue* queue = sends.first_busy(); queue != nullptr; queue = sends.next_busy(*queue))
        queue->fence_flag = IBV_SEND_FENCE;
    return UCS_OK;
}

// ---- Events

ucs_status_t MessageIface::event_arm(unsigned events) {
    if (guard.is_inside() || flow->owes() || tags_.has_cancelled() || op_ends.has_late() ||
        !failing_.empty() || sends.wants_signals())
        return UCS_ERR_BUSY;
    for (const AsyncEvent& event : take_async_events())
        take_event(event);
    if (!failing_.empty() || (has_lost_device() && !has_ended_all_) || drain_descriptors())
        return UCS_ERR_BUSY;
    const bool solicited = (events & (UCT_EVENT_RECV | UCT_EVENT_SEND_COMP)) == 0 &&
                           pending.empty() && !reads.has_waiting();
    const bool wants_sends = (events & UCT_EVENT_SEND_COMP) != 0 || !pending.empty() ||
                             reads.has_waiting() || reads.under_way() > 0;
    ucs_status_t status = receive_cq.arm(solicited);
    if (status == UCS_OK && wants_sends)
        status = sends.cq().arm(false);
    if (status != UCS_OK)
        return status;
    wake_after(sleep_ns());
    return UCS_OK;
}

}  // namespace tagwire::ib
