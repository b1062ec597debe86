// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/flushes.hpp"

#include <utility>

#include "protocols/request/outgoing.hpp"
#include "protocols/request/rma_op.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

namespace {

/// The operation is outstanding, and cannot end as it should without this process: its data is
/// here, or its result is to come here.
bool needs_process(const Request& request) {
    if (request.kind != RequestKind::kRma)
        return request.is_rndv || !request.has_gone;
    const RmaOp& op = *request.rma;
    if (op.kind == RmaKind::kKeys)
        return false;
    const bool was_asked = op.kind == RmaKind::kAtomic && op.by_messages;
    return op.kind == RmaKind::kGet || op.result != nullptr ||
           (op.phase < RmaPhase::kAck && !was_asked);
}

}  // namespace

tw_status_t Flushes::call(RequestKind kind, tw_flush_level_t level, const tw_op_t* op,
                          tw_request_h* request_p) {
    if (const ucs_status_t failure = to_.lane.failure();
        failure != UCS_OK && kind == RequestKind::kFlush)
        return static_cast<tw_status_t>(failure);
    if (const tw_status_t status =
            to_.peer.flush_contexts(kind == RequestKind::kClose, level, asks_to_queue(op));
        status != TW_OK)
        return status;
    Request* request = to_.requests.make(kind, op, request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    begin(*request, level);
    return to_.requests.answer(*request, op, request_p);
}

void Flushes::begin(Request& request, tw_flush_level_t level) {
    to_.lane.adopt(request);
    request.order = order_;
    request.done.flags = TW_DONE_FLUSH;
    request.flags &= ~std::uint32_t{TW_OP_FENCE};
    request.is_sent_level = level == TW_FLUSH_SENT;
    if (request.kind == RequestKind::kClose)
        to_.closing.begin();
    if (is_over(request)) {
        to_.lane.finish(request, end(request));
    } else {
        ++order_;
        to_.lane.push(request);
    }
}

/// With kReady: no operation needs this process, and nothing but the transport can hold a flush at
/// TW_FLUSH_SENT back.
bool Flushes::may_let_go() const {
    return !to_.lane.has_waiting() && leaving_.empty() && blocker_before(order_) == nullptr;
}

bool Flushes::is_flushed(tw_flush_level_t level) {
    if (to_.peer.awaits_contexts() || has_refusal())
        return false;
    const bool is_ready = to_.lane.state() == EpState::kReady;
    // Messages that left on the fast path are not numbered; there are none before it is ready.
    if (level == TW_FLUSH_DELIVERED)
        return !is_ready && order_ == 0;
    return is_ready ? may_let_go() && has_let_go() : !to_.lane.has_operations();
}

/// The transport needs this process no longer.
bool Flushes::has_let_go() {
    const ucs_status_t status = to_.lane.flush_sent(nullptr);
    // An operation was refused behind its end: a transport tells it once.
    if (status < 0 && status != UCS_ERR_NO_RESOURCE && refusal_ == UCS_OK)
        refusal_ = status;
    const bool has_ended = status == UCS_OK;
    has_puts_ = has_puts_ && !has_ended;
    return has_ended;
}

bool Flushes::is_over(const Request& request) {
    const bool must_say_bye = request.kind == RequestKind::kClose && request.is_sent_level &&
                              to_.lane.state() == EpState::kReady;
    if (must_say_bye &&
        (to_.peer.awaits_contexts() || !may_let_go() || to_.closing.say_bye() != UCS_OK))
        return false;
    return is_flushed(request.is_sent_level ? TW_FLUSH_SENT : TW_FLUSH_DELIVERED);
}

ucs_status_t Flushes::start(Request& request) {
    if (request.is_sent_level) {
        leaving_.push_back(request);
        if (leaving_.front() != &request || !may_end(request))
            return UCS_INPROGRESS;
        leaving_.erase(request);
        return end(request);
    }
    if (request.id == 0 && to_.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const bool is_close = request.kind == RequestKind::kClose;
    const ucs_status_t status = to_.lane.send_now(Flush{request.id, is_close ? 1U : 0U});
    if (status != UCS_OK)
        return status;
    asked_.push_back(request);
    return UCS_INPROGRESS;
}

ucs_status_t Flushes::end(const Request& request) {
    if (request.kind == RequestKind::kClose)
        to_.closing.closed();
    return std::exchange(refusal_, UCS_OK);
}

void Flushes::check(const Request* moved) {
    check_asked();
    if (!leaving_.empty() && (moved == nullptr || blocker_ == nullptr || moved == blocker_))
        check_leaving();
}

void Flushes::check_asked() {
    while (Request* flush = asked_.front()) {
        if (!flush->is_answered || to_.outstanding.earliest() < flush->order ||
            to_.peer.awaits_contexts())
            return;
        asked_.erase(*flush);
        to_.lane.finish(*flush, end(*flush));
    }
}

void Flushes::check_leaving() {
    bool has_ended = false;
    while (Request* flush = leaving_.front()) {
        if (!flush->is_answered && !may_end(*flush))
            break;
        leaving_.erase(*flush);
        to_.lane.finish(*flush, end(*flush));
        has_ended = true;
    }
    // Operations behind a fence begin in progress: the queue may be amid of its own work.
    if (has_ended && to_.lane.has_operations())
        to_.lane.stall();
}

/// The first of leaving_.
bool Flushes::may_end(Request& request) {
    blocker_ = nullptr;
    if (request.transmission != nullptr || to_.lane.state() != EpState::kReady ||
        to_.lane.has_controls() || to_.peer.awaits_contexts())
        return false;
    blocker_ = blocker_before(request.order);
    if (blocker_ != nullptr)
        return false;
    const ucs_status_t status = ask_transport(request);
    if (status == UCS_ERR_NO_RESOURCE)
        to_.lane.stall();
    else if (status < 0)
        answer(request, status);
    return status == UCS_OK;
}

/// The request tells of a refusal in the next turn: where the lane has failed the transport says so
/// next, and that status counts.
void Flushes::answer(Request& request, ucs_status_t status) {
    request.is_answered = true;
    if (status == UCS_OK)
        return check_leaving();
    if (refusal_ == UCS_OK)
        refusal_ = status;
    to_.lane.stall();
}

/// Behind it nothing of the lane is given to the transport that the request waits for.
ucs_status_t Flushes::ask_transport(Request& request) {
    if (request.kind == RequestKind::kClose) {
        if (const ucs_status_t status = to_.closing.say_bye(); status != UCS_OK)
            return status;
    }
    Transmission* transmission = to_.requests.make_transmission(request);
    if (transmission == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const ucs_status_t status = to_.lane.flush_sent(transmission);
    if (status == UCS_INPROGRESS)
        request.transmission = transmission;
    else
        to_.requests.release(*transmission);
    return status;
}

/// The first operation before `order` that needs this process; nullptr: none does.
const Request* Flushes::blocker_before(std::uint64_t order) const {
    for (const RequestList& stream : to_.outstanding) {
        for (const Request* each = stream.front(); each != nullptr && each->order < order;
             each = RequestList::next(*each))
            if (needs_process(*each))
                return each;
    }
    return nullptr;
}

void Flushes::on_flushed(Request& request) {
    request.is_answered = true;
    check();
}

void Flushes::on_transmitted(Request& request, ucs_status_t status) {
    answer(request, status);
}

}  // namespace tagwire::proto
