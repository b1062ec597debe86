// SPDX-License-Identifier: BSD-3-Clause
// The end of an endpoint.
#include "protocols/endpoint.hpp"

#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "protocols/peer_table.hpp"
#include "protocols/rail.hpp"
#include "protocols/receiver.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

void Endpoint::fail(ucs_status_t status) {
    if (state_ == EpState::kFailed)
        return;
    // The transport may see that the peer has gone before this side acts upon its farewell. One
    // that has closed may go once it has the answer to that. Its farewell is not waited for: it may
    // be lost with what its transports had under way.
    if (farewell != UCS_OK && status != UCS_ERR_CANCELED)
        status = farewell;
    else if (peer_may_go && !is_open && has_no_work() && status != UCS_ERR_CANCELED)
        status = UCS_ERR_NOT_CONNECTED;
    failure_ = status;
    log_failure();
    state_ = EpState::kFailed;
    // Another one may have taken its place when it had left; its receives go on.
    const bool is_last = worker.peers().endpoint_to(worker_id) == this;
    worker.peers().detach(*this);  // the ends below may call what makes another one
    update_direct();
    disconnect();
    controls_.clear();
    wireup_.clear();
    while (Request* request = data_.pop_front())
        request->is_queued = false;
    worker.receiver().drop_incoming(*this, status, is_last);
    worker.peers().release_id(*this);
    for (RequestList* list : {&receiving, &outstanding})
        while (Request* request = list->front())
            worker.finish_late(*request, status);
    while (Request* request = flushes_.pop_front())
        worker.finish(*request, request->kind == RequestKind::kClose ? UCS_OK : status);
    while (Request* request = queue_.pop_front()) {
        request->is_queued = false;
        worker.finish(*request, request->kind == RequestKind::kClose ? UCS_OK : status);
    }
    worker.peers().report_failure(*this, status);
}

/// The only place where the reason is told in any case. A close, by whomever, is none.
void Endpoint::log_failure() const {
    if (failure_ == UCS_ERR_CANCELED)
        return;
    if (failure_ == UCS_ERR_NOT_CONNECTED) {
        TW_LOG_DEBUG("endpoint to worker %016lx: the peer has gone in order", worker_id);
        return;
    }
    const Rail* rail = lane_ != nullptr ? rail_ : contact_rail_;
    std::string state;
    try {
        state = description();
    } catch (const std::bad_alloc&) {
        state = "no memory";  // short enough to need none
    }
    TW_LOG_WARN("endpoint to worker %016lx over %s fails: %s (%s)", worker_id,
                rail == nullptr ? "no transport" : rail->transport(), ucs_status_string(failure_),
                state.c_str());
}

std::string Endpoint::description() const {
    constexpr const char* kStates[] = {"greeting", "offering", "ready", "failed"};
    std::string text = kStates[static_cast<std::size_t>(state_)];
    if (state_ == EpState::kReady)
        text += fmt::format(" over {}", rail_->transport());
    if (stripes_ != nullptr && stripes_->ready() > 0)
        text += fmt::format(", long messages over {} more rails", stripes_->ready());
    if (!is_open)
        text += peer_is_closed ? ", closed by both" : ", the peer's alone";
    if (has_asked_)
        text += ", asks whether it can go";
    if (has_left_)
        text += ", has left";
    if (is_paused_ || eager_is_paused_)
        text += is_paused_ ? ", the peer takes no messages" : ", the peer takes no data";
    for (const auto& [number, what] : {std::pair{queue_.size(), "waiting"},
                                       {outstanding.size(), "outstanding"},
                                       {receiving.size(), "being received"},
                                       {flushes_.size(), "flushes"},
                                       {controls_.size(), "answers to send"}}) {
        if (number > 0)
            text += fmt::format(", {} {}", number, what);
    }
    return text;
}

void Endpoint::check() {
    const uct_ep_h asked = lane_ != nullptr ? lane_ : contact_;
    const Rail* rail = lane_ != nullptr ? rail_ : contact_rail_;
    if (asked == nullptr || (rail->attr().cap.flags & UCT_IFACE_FLAG_EP_CHECK) == 0)
        return;
    const ucs_status_t status = uct_ep_check(asked, 0, nullptr);
    if (status < 0 && status != UCS_ERR_NO_RESOURCE)
        fail(status);
}

void Endpoint::disconnect() {
    if (stripes_ != nullptr)
        stripes_->disconnect();
    for (uct_ep_h* ep : {&lane_, &offered_, &contact_}) {
        if (*ep == nullptr)
            continue;
        const uct_ep_h old = *ep;
        worker.peers().map_lane(old, nullptr);
        for (uct_ep_h* same : {&lane_, &offered_, &contact_})
            if (*same == old)
                *same = nullptr;
        uct_ep_pending_purge(
            old, [](uct_pending_req_t*, void*) {}, nullptr);
        uct_ep_destroy(old);
    }
    room_.disarm();
    offered_is_connected_ = false;
}

// ---- Opening and leaving

void Endpoint::open(void* data) {
    is_open = true;
    user_data = data;
    if (std::exchange(has_said_bye_, false) && !has_asked_)
        control(Back{});
}

/// The program's endpoint has ended well. Ours stays while the peer's program has its own.
void Endpoint::closed() {
    is_open = false;
    is_closing = false;
    has_said_bye_ = true;
    control(Bye{});
    worker.peers().retire(*this);
}

/// Nothing of either side is on its way.
bool Endpoint::is_quiet() const {
    return controls_.empty() && has_no_work();
}

/// No operation of a program is under way.
bool Endpoint::has_no_work() const {
    return outstanding.empty() && receiving.empty() && queue_.empty() && flushes_.empty();
}

bool Endpoint::leave() {
    if (is_open)
        return false;
    if (state_ == EpState::kFailed)
        return true;
    if (has_left_) {
        // The answer must get through before the endpoint of the transport goes.
        if (!is_quiet() || uct_ep_flush(lane_, UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_INPROGRESS) {
            worker.peers().retire(*this);
            return false;
        }
        return true;
    }
    if (!has_said_bye_ || !peer_is_closed || has_asked_ || state_ != EpState::kReady)
        return false;
    if (worker_id == worker.id())
        return is_quiet();
    if (!is_quiet()) {
        worker.peers().retire(*this);
    } else if (worker.id() < worker_id) {
        control(Leave{});
        has_asked_ = true;
        update_direct();
    }
    return false;
}

void Endpoint::on_left(bool is_gone) {
    if (!std::exchange(has_asked_, false))
        return;
    if (is_open) {
        // The program came back meanwhile.
        if (is_gone)
            return worker.peers().reconnect(*this);
        control(Back{});
    } else if (is_gone) {
        worker.peers().tell_end(*this, UCS_OK);
        fail(UCS_ERR_NOT_CONNECTED);
    } else {
        // The peer had something on its way, or its program has come back and says so by kBack.
        worker.peers().retire(*this);
    }
    drain_and_arm();
}

Endpoint::Endpoint(WorkerCore& owner, std::uint64_t peer_id) : worker(owner), worker_id(peer_id) {}

Endpoint::~Endpoint() {
    disconnect();
}

}  // namespace tagwire::proto
