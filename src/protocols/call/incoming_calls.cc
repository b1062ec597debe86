// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/call/incoming_calls.hpp"

#include <new>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

/// Flags with which a message has no urgent place (TW_OP_URGENT).
constexpr std::uint32_t kLevels = TW_OP_TRANSMIT_COMPLETE | TW_OP_SENT_COMPLETE |
                                  TW_OP_DELIVERY_COMPLETE | TW_OP_MATCH_COMPLETE | TW_OP_FENCE;

/// Nothing happened: the call may be repeated.
bool is_nothing(tw_status_t status) {
    return status == TW_ERR_NO_RESOURCE || status == TW_ERR_NO_MEMORY ||
           status == TW_ERR_INVALID_PARAM || status == TW_ERR_EXCEEDS_LIMIT;
}

bool may_try_again(tw_status_t status) {
    return status == TW_ERR_NO_RESOURCE || status == TW_ERR_NO_MEMORY;
}

}  // namespace

// ---- Places

/// nullptr: out of memory.
IncomingCalls::Request* IncomingCalls::take_place() try {
    if (free_.empty()) {
        auto request = std::make_unique<Request>();
        request->owner = this;
        request->last_id = places_.size();
        free_.reserve(places_.size() + 1);
        places_.push_back(std::move(request));
        free_.push_back(static_cast<std::uint32_t>(places_.size() - 1));
    }
    Request& request = *places_[free_.back()];
    free_.pop_back();
    request.id = request.last_id + CallId::kUse;
    return &request;
} catch (const std::bad_alloc&) {
    return nullptr;
}

void IncomingCalls::free_place(Request& request) {
    bytes_ -= request.data != nullptr ? request.length : 0;
    request.data.reset();
    request.kept = nullptr;
    request.is_open = request.is_replying = false;
    request.last_id = std::exchange(request.id, 0);
    free_.push_back(static_cast<std::uint32_t>(CallId::place_of(request.last_id)));
}

IncomingCalls::Request* IncomingCalls::find(std::uint64_t id) {
    const std::uint64_t place = CallId::place_of(id);
    if (id < CallId::kUse || place >= places_.size() || places_[place]->id != id)
        return nullptr;
    return places_[place].get();
}

void IncomingCalls::set(std::uint32_t method, tw_call_cb_t callback, void* arg) {
    const Locked locked = lock_.take();
    if (callback == nullptr)
        handlers_.erase(method);
    else
        handlers_[method] = {callback, arg};
}

const IncomingCalls::Handler* IncomingCalls::handler_of(std::uint32_t method) const {
    const auto found = handlers_.find(method);
    return found == handlers_.end() ? nullptr : &found->second;
}

// ---- Requests

/// TW_OK: *request_p is there, with room for its data. Else the reason to refuse it.
tw_status_t IncomingCalls::admit(const tw_am_t& am, const CallHeader& header, Request** request_p) {
    const bool is_rndv = (am.flags & TW_AM_RNDV) != 0;
    if (handler_of(header.method) == nullptr)
        return TW_ERR_NO_ELEM;
    if (is_rndv && am.length > limits_.bytes_max)
        return TW_ERR_EXCEEDS_LIMIT;
    if (open_requests() >= limits_.requests_max ||
        (is_rndv && am.length > limits_.bytes_max - bytes_))
        return TW_ERR_NO_RESOURCE;
    Request* const request = take_place();
    if (request == nullptr)
        return TW_ERR_NO_MEMORY;
    request->source = am.source;
    request->length = am.length;
    request->header = header;
    if (is_rndv) {
        request->data.reset(new (std::nothrow) std::byte[am.length]);
        if (request->data == nullptr) {
            free_place(*request);
            return TW_ERR_NO_MEMORY;
        }
        bytes_ += am.length;
    }
    *request_p = request;
    return TW_OK;
}

void IncomingCalls::on_request(tw_am_t& am) {
    CallHeader header;
    if (!decode({static_cast<const std::byte*>(am.header), am.header_length}, &header)) {
        to_.count(WorkerCounter::kCallRefused);
        TW_LOG_REPEATED(ucs::LogLevel::kWarn, malformed_.due(),
                        "a request of worker %016lx is dropped: it is malformed", am.source);
        return;
    }
    Locked locked = lock_.take();
    Request* request = nullptr;
    const tw_status_t status = admit(am, header, &request);
    if (status != TW_OK) {
        CallLock::leave(locked);
        refuse({am.source, header.id, status});
    } else if ((am.flags & TW_AM_RNDV) == 0) {
        give(*request, &am, am.ep, locked);
    } else if (!receive(*request, am, locked)) {
        refuse({am.source, header.id, TW_ERR_NO_RESOURCE});
    }
}

/// False: the worker lacks a request for it. Leaves the lock.
bool IncomingCalls::receive(Request& request, const tw_am_t& am, Locked& locked) {
    tw_op_t op{};
    op.flags = TW_OP_COMPLETION;
    op.context = &request;
    op.complete = &IncomingCalls::on_received;
    CallLock::leave(locked);
    const tw_status_t status =
        to_.calls.receive(to_.owner, am.message, request.data.get(), request.length, op);
    if (status == TW_INPROGRESS)
        return true;
    lock_.enter_again(locked);
    free_place(request);
    CallLock::leave(locked);
    return !is_nothing(status);  // else its caller has gone, or has cancelled it
}

void IncomingCalls::on_received(const tw_completion_t* received) {
    auto& request = *static_cast<Request*>(received->context);
    IncomingCalls& self = *request.owner;
    Locked locked = self.lock_.take();
    if (received->status == TW_OK)
        self.give(request, nullptr, received->ep, locked);
    else
        self.free_place(request);
}

/// Leaves the lock.
void IncomingCalls::give(Request& request, tw_am_t* am, tw_ep_h ep, Locked& locked) {
    const Handler* const found = handler_of(request.header.method);
    if (found == nullptr) {  // not any more
        const Refusal refusal{request.source, request.header.id, TW_ERR_NO_ELEM};
        free_place(request);
        CallLock::leave(locked);
        return refuse(refusal);
    }
    const Handler handler = *found;
    Given given{};
    given.worker = to_.worker;
    given.id = request.id;
    given.data = am != nullptr ? am->data : request.data.get();
    given.length = request.length;
    given.source = request.source;
    given.ep = ep;
    given.timeout_ns = request.header.timeout_ns;
    given.method = request.header.method;
    given.owner = this;
    given.am = am;
    request.is_open = true;
    CallLock::leave(locked);
    handler.callback(handler.arg, &given);
}

tw_status_t IncomingCalls::keep(tw_call_request_t& request) {
    auto& given = static_cast<Given&>(request);
    IncomingCalls& self = *given.owner;
    Locked locked = self.lock_.take();
    const Request* const before = self.find(given.id);
    if (before == nullptr) {
        TW_LOG_ERROR("tw_call_keep: the request was replied to");
        return TW_ERR_INVALID_PARAM;
    }
    if (given.am == nullptr || before->kept != nullptr || given.length == 0)
        return TW_OK;
    CallLock::leave(locked);
    tw_message_h message = nullptr;
    const tw_status_t status = self.to_.calls.keep(self.to_.owner, *given.am, &message);
    if (status != TW_OK)
        return status;
    self.lock_.enter_again(locked);
    Request* const now = self.find(given.id);
    if (now != nullptr && !now->is_replying) {
        now->kept = message;
        given.data = given.am->data;
        return TW_OK;
    }
    CallLock::leave(locked);
    self.to_.calls.release(self.to_.owner, message);  // another thread replies
    return TW_ERR_INVALID_PARAM;
}

// ---- Replies

tw_status_t IncomingCalls::reply(const WantedReply& wanted, const tw_op_t* op,
                                 tw_request_h* request_p) {
    Locked locked = lock_.take();
    Request* const request = find(wanted.request);
    if (request == nullptr || !request->is_open || request->is_replying) {
        TW_LOG_ERROR("tw_reply: no request %016lx waits for a reply", wanted.request);
        return TW_ERR_NO_ELEM;
    }
    request->is_replying = true;
    const std::uint64_t source = request->source;
    ReplyHeader header;
    header.status = wanted.status;
    header.id = request->header.id;
    CallLock::leave(locked);
    tw_op_t how = op == nullptr ? tw_op_t{} : *op;
    if (sizeof header + wanted.length <= TW_AM_URGENT_MAX && (how.flags & kLevels) == 0)
        how.flags |= TW_OP_URGENT;
    const CallMessage message{kReplyAmId, &header, sizeof header, wanted.data, wanted.length};
    const tw_status_t status = to_.calls.send_to(to_.owner, source, message, how, request_p);
    lock_.enter_again(locked);
    if (is_nothing(status)) {
        request->is_replying = false;
        return status;
    }
    tw_message_h const kept = request->kept;
    free_place(*request);
    CallLock::leave(locked);
    if (kept != nullptr)
        to_.calls.release(to_.owner, kept);
    return status;
}

tw_status_t IncomingCalls::send(const Refusal& refusal) const {
    ReplyHeader header;
    header.flags = ReplyHeader::kRefused;
    header.status = refusal.status;
    header.id = refusal.call;
    tw_op_t op{};
    op.flags = TW_OP_URGENT;
    const CallMessage message{kReplyAmId, &header, sizeof header, nullptr, 0};
    return to_.calls.send_to(to_.owner, refusal.source, message, op, nullptr);
}

/// Without the lock. One that finds no room among those that wait is dropped: the caller's time
/// ends its call.
void IncomingCalls::refuse(const Refusal& refusal) {
    to_.count(WorkerCounter::kCallTurnedAway);
    if (!may_try_again(send(refusal)))
        return;
    const Locked locked = lock_.take();
    try {
        if (refusals_.size() < kRefusalsMax)
            refusals_.push_back(refusal);
    } catch (const std::bad_alloc&) {
        return;
    }
    has_refusals_.store(true, std::memory_order_relaxed);  // Relaxed: a hint
}

void IncomingCalls::look() {
    for (;;) {
        Locked locked = lock_.take();
        if (refusals_.empty()) {
            has_refusals_.store(false, std::memory_order_relaxed);  // Relaxed: a hint
            return;
        }
        const Refusal refusal = refusals_.back();
        refusals_.pop_back();
        CallLock::leave(locked);
        if (!may_try_again(send(refusal)))
            continue;
        lock_.enter_again(locked);
        refusals_.push_back(refusal);  // there is room
        return;
    }
}

}  // namespace tagwire::proto
