// SPDX-License-Identifier: BSD-3-Clause
// The ends of endpoints of rc and dc: failures, cancels, destroys, the loss of the device.
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

void MessageIface::fail(MessageEp& ep, ucs_status_t status, const char* why) {
    if (ep.failure != UCS_OK)
        return;
    // Nobody else will ask about one that the user does not have, or has destroyed.
    if (ep.is_destroyed || status == UCS_ERR_CANCELED) {
        TW_LOG_DEBUG("%s on %s: an endpoint ended (%s): %s", params().tl_name.c_str(),
                     params().dev_name.c_str(), ucs_status_string(status), why);
    } else {
        TW_LOG_WARN("%s on %s: an endpoint failed (%s): %s", params().tl_name.c_str(),
                    params().dev_name.c_str(), ucs_status_string(status), why);
    }
    ep.failure = status;
    ep.state = MessageEp::State::kFailing;
    source->stop(ep);
    failing_.push_back({&ep, receives_seen_, watched.ns() + kFlushNs});
    has_work = true;
}

// Messages that the peer had sent are delivered first; then every operation ends, then the failure
// is reported.
unsigned MessageIface::settle_failing() {
    unsigned ended = 0;
    std::size_t kept = 0;
    watched.look(ucs::clock_now_ns());
    // By index: callbacks may have others fail.
    for (std::size_t i = 0; i < failing_.size(); ++i) {
        MessageEp* const ep = failing_[i].ep;
        if (is_overdue(failing_[i])) {
            TW_LOG_WARN("%s: the device did not complete the requests of a failed endpoint in time",
                        ib_md().device().name().c_str());
            source->give_up(*ep);
        }
        if (!ep->has_ended() || op_ends.has_late(*ep) || !has_heard_all(failing_[i].mark)) {
            failing_[kept++] = failing_[i];
            continue;
        }
        const ucs_status_t status = ep->failure;
        end_operations(*ep);
        ep->state = MessageEp::State::kFailed;
        ++ended;
        // Last, because the program may destroy the endpoint when it hears of it.
        const bool is_told = status != UCS_ERR_CANCELED && !ep->is_destroyed;
        if (settled(*ep) && is_told) {
            count(MessageCounter::kPeerFailures);
            report_failure(ep, status);
        }
    }
    failing_.resize(kept);
    return ended;
}

bool MessageIface::is_overdue(const Failing& failing) const {
    return !failing.ep->has_ended() && source->ends_soon(*failing.ep) &&
           watched.ns() >= failing.deadline;
}

void MessageIface::lose_device(const char* why) {
    if (has_lost_device())
        return;
    TW_LOG_ERROR("%s: %s; all endpoints of the interface fail", ib_md().device().name().c_str(),
                 why);
    loss_ = why;
    has_work = true;
}

void MessageIface::end_all() {
    if (std::exchange(has_ended_all_, true))
        return;
    for (MessageEp* each : eps)
        if (each != nullptr)
            fail(*each, UCS_ERR_IO_ERROR, loss_);
    for (MessageEp* each : eps)
        if (each != nullptr)
            source->give_up(*each);
}

void MessageIface::end_operations(MessageEp& ep) {
    rndv_sends.end_all(ep, ep.failure);
    reads.end_all(ep);
    end_arrivals(ep);
    OpEnds::settle_flushes(ep);
}

// Requests end by the device, in order and with those of others; their completions are looked at
// here, until the last of this endpoint. Flushes are the last of all that ends.
void MessageIface::end_now(MessageEp& ep) {
    guard.enter();
    MessageEp* const outer = op_ends.put_off_others_than(&ep);
    const std::uint64_t begin = watched.look(ucs::clock_now_ns());
    op_ends.finish_late(&ep);
    // One of its callbacks may be what destroys it: the rest of what that completion told.
    while (SendOp* op = ep.queue->take_until(ep.queue->acked))
        op_ends.finish(*op, op->ep->failure);
    handle_sends();
    while (source->uses_memory(ep)) {
        if (ep.queue->wants_mark)
            sends.signal(*ep.queue, *source);
        sends_left_ = sends.cq().poll(&sends_);
        if (sends_left_ != 0) {
            is_unresponsive_ = false;
            handle_sends();
        } else if (waits_on(ep, begin)) {
            ucs::step_aside();
        } else {
            break;
        }
    }
    op_ends.finish_late(&ep);
    source->end_copied(ep);
    rndv_sends.end_all(ep, ep.failure);
    OpEnds::settle_flushes(ep);
    op_ends.put_off_others_than(outer);
    guard.leave();
}

// Nothing has completed now. False: the device will not end the requests, and they were given up.
bool MessageIface::waits_on(MessageEp& ep, std::uint64_t begin) {
    const std::uint64_t now = ucs::clock_now_ns();
    if (now >= next_look_) {
        next_look_ = now + kLookNs;
        for (const AsyncEvent& event : take_async_events())
            take_event(event);
    }
    if (has_lost_device()) {
        end_all();
        return false;
    }
    const std::uint64_t waited_ns = watched.look(now) - begin;
    if (!is_unresponsive_ && waited_ns < kEndNs) {
        source->press(ep, waited_ns);
        return true;
    }
    if (!std::exchange(is_unresponsive_, true)) {
        TW_LOG_WARN("%s: the device did not complete the requests of an endpoint in time",
                    ib_md().device().name().c_str());
    }
    source->give_up(ep);
    return false;
}

void MessageIface::broke_off(MessageEp& ep) {
    fail(ep, UCS_ERR_CONNECTION_RESET, "a matched message did not arrive completely");
}

void MessageIface::cancel(MessageEp& ep) {
    guard.enter();
    fail(ep, UCS_ERR_CANCELED, "cancelled");
    rndv_sends.end_all(ep, UCS_ERR_CANCELED);
    guard.leave();
}

}  // namespace tagwire::ib
