// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/call/outgoing_calls.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

WireBytes header_of(const tw_am_t& am) {
    return {static_cast<const std::byte*>(am.header), am.header_length};
}

}  // namespace

// ---- Places

OutgoingCalls::Call& OutgoingCalls::take_place() {
    if (free_.empty()) {
        auto call = std::make_unique<Call>();
        call->owner = this;
        free_.reserve(places_.size() + 1);
        places_.reserve(places_.size() + 1);
        free_.push_back(static_cast<std::uint32_t>(places_.size()));
        call->done.id = places_.size();  // the last use; the first one follows
        places_.push_back(std::move(call));
    }
    Call& call = *places_[free_.back()];
    free_.pop_back();
    call.id = call.done.id + CallId::kUse;
    return call;
}

void OutgoingCalls::free_place(Call& call) {
    drop_deadline(call);
    const std::uint64_t id = std::exchange(call.id, 0);
    call.request = nullptr;
    call.is_over = call.is_told = call.is_sending = call.is_starting = false;
    call.copy.reset();
    copies_ -= std::exchange(call.copy_bytes, 0);
    call.done = {};
    call.done.id = id;
    free_.push_back(static_cast<std::uint32_t>(CallId::place_of(id)));
}

OutgoingCalls::Call* OutgoingCalls::find(std::uint64_t id) {
    const std::uint64_t place = CallId::place_of(id);
    if (id < CallId::kUse || place >= places_.size() || places_[place]->id != id)
        return nullptr;
    return places_[place].get();
}

// ---- Time

void OutgoingCalls::set_deadline(Call& call, std::uint64_t timeout_ns) {
    call.deadline_ns = UINT64_MAX;
    if (timeout_ns == 0)
        return;
    const std::uint64_t now = to_.now_ns();
    const std::uint64_t deadline = now + std::min(timeout_ns, UINT64_MAX - now);
    if (deadline == UINT64_MAX)
        return;
    deadlines_.insert({deadline, &call});
    call.deadline_ns = deadline;
    if (deadlines_.begin()->second == &call)
        alarm_.wake(alarm_.owner, deadline);
    note_due();
}

void OutgoingCalls::drop_deadline(Call& call) {
    if (call.deadline_ns == UINT64_MAX)
        return;
    deadlines_.erase({std::exchange(call.deadline_ns, UINT64_MAX), &call});
    note_due();
}

void OutgoingCalls::note_due() {
    const std::uint64_t due = ready_ != nullptr    ? 0
                              : deadlines_.empty() ? UINT64_MAX
                                                   : deadlines_.begin()->first;
    due_ns_.store(due, std::memory_order_relaxed);  // Relaxed: a hint
}

// ---- Ends

/// Its end waits for progress.
void OutgoingCalls::make_ready(Call& call) {
    call.is_ready = true;
    call.next_ready = std::exchange(ready_, &call);
    note_due();
    alarm_.wake(alarm_.owner, 0);
}

void OutgoingCalls::end(Call& call, tw_status_t status) {
    call.is_over = true;
    call.done.status = status;
    drop_deadline(call);
    if (call.is_sending)
        take_back(call);
}

/// The request that is being sent, as far as that can be. Its completion follows in any case.
void OutgoingCalls::take_back(Call& call) {
    if (call.request != nullptr)
        to_.calls.cancel(to_.owner, std::exchange(call.request, nullptr));
}

bool OutgoingCalls::finish_if_finished(Call& call, Locked& locked) {
    if (!call.is_finished())
        return false;
    const tw_call_done_t done = call.done;
    const tw_call_done_cb_t callback = call.params.done;
    if (call.is_sending)
        call.is_told = true;
    else
        free_place(call);
    CallLock::leave(locked);
    callback(&done);
    return true;
}

// ---- Calls of the program

/// The data to send: the program's, or its copy.
const void* OutgoingCalls::copied(Call& call, const WantedCall& wanted) {
    if (call.deadline_ns == UINT64_MAX || wanted.length < kCopiedFrom ||
        wanted.length > copies_max_ - copies_)
        return wanted.data;
    call.copy.reset(new (std::nothrow) std::byte[wanted.length]);
    if (call.copy == nullptr)
        return wanted.data;
    copies_ += call.copy_bytes = wanted.length;
    std::memcpy(call.copy.get(), wanted.data, wanted.length);
    call.params.mem = nullptr;
    return call.copy.get();
}

tw_status_t OutgoingCalls::begin(const WantedCall& wanted, const tw_call_params_t& params,
                                 std::uint64_t* id_p) {
    CallHeader header;
    Call* call = nullptr;
    const void* data = nullptr;
    tw_op_t op{};
    {
        const Locked locked = lock_.take();
        call = &take_place();
        call->params = params;
        call->peer = wanted.peer;
        call->number = numbers_.fetch_add(1, std::memory_order_relaxed) + 1;  // Relaxed: a count
        call->done = {};
        call->done.context = params.context;
        call->done.id = call->id;
        call->done.reply = params.reply;
        call->done.ep = wanted.ep;
        call->is_starting = call->is_sending = true;
        try {
            set_deadline(*call, params.timeout_ns);
        } catch (const std::bad_alloc&) {
            free_place(*call);
            throw;
        }
        header.id = call->id;
        data = copied(*call, wanted);
        op.mem = call->params.mem;
    }
    header.method = wanted.method;
    header.timeout_ns = params.timeout_ns;
    if (id_p != nullptr)
        *id_p = header.id;
    const CallMessage message{kCallAmId, &header, sizeof header, data, wanted.length};
    op.context = call;
    op.complete = &OutgoingCalls::on_sent;
    tw_request_h request = nullptr;
    const tw_status_t status = to_.calls.send(to_.owner, wanted.ep, message, op, &request);
    return started(*call, status, request);
}

/// Another thread's progress may have brought the reply, or the end of the peer.
tw_status_t OutgoingCalls::started(Call& call, tw_status_t status, tw_request_h request) {
    const Locked locked = lock_.take();
    call.is_starting = false;
    if (status != TW_OK && status != TW_INPROGRESS) {
        free_place(call);
        return status;
    }
    if (status == TW_OK)
        call.is_sending = false;
    else if (call.is_sending)
        call.request = request;
    if (call.is_over && call.is_sending)
        take_back(call);
    if (call.is_finished())
        make_ready(call);
    return TW_OK;
}

bool OutgoingCalls::cancel(std::uint64_t id) {
    const Locked locked = lock_.take();
    Call* const call = find(id);
    if (call == nullptr || !call->may_end())
        return false;
    end(*call, TW_ERR_CANCELED);
    if (call->is_finished())
        make_ready(*call);
    return true;
}

// ---- Messages

void OutgoingCalls::on_sent(const tw_completion_t* sent) {
    auto& call = *static_cast<Call*>(sent->context);
    OutgoingCalls& self = *call.owner;
    Locked locked = self.lock_.take();
    call.is_sending = false;
    call.request = nullptr;
    if (call.is_told)
        return self.free_place(call);
    if (sent->status != TW_OK && call.may_end())
        self.end(call, sent->status);
    self.finish_if_finished(call, locked);
}

void OutgoingCalls::refuse_reply(const tw_am_t& am, const char* why) {
    to_.count(WorkerCounter::kCallRefused);
    TW_LOG_REPEATED(ucs::LogLevel::kWarn, refused_.due(why),
                    "a reply of worker %016lx is dropped: %s", am.source, why);
}

void OutgoingCalls::on_reply(tw_am_t& am) {
    ReplyHeader header;
    Locked locked = lock_.take();
    if (!decode(header_of(am), &header))
        return refuse_reply(am, "it is malformed");
    Call* const call = find(header.id);
    if (call != nullptr && call->peer != am.source)
        return refuse_reply(am, "another worker was called");
    if (call == nullptr || !call->may_end())
        return to_.count(WorkerCounter::kCallLate);
    drop_deadline(*call);
    if (header.is_refusal()) {
        end(*call, static_cast<tw_status_t>(header.status));
    } else {
        call->done.reply_status = header.status;
        if (!receive(*call, am, locked))
            return;
    }
    finish_if_finished(*call, locked);
}

/// False: its data comes, and the call ends when it is here.
bool OutgoingCalls::receive(Call& call, const tw_am_t& am, Locked& locked) {
    const std::size_t room = call.params.reply_bytes;
    call.done.message_length = am.length;
    if ((am.flags & TW_AM_RNDV) == 0) {
        call.done.length = std::min(room, am.length);
        if (call.done.length > 0)
            std::memcpy(call.params.reply, am.data, call.done.length);
        end(call, am.length > room ? TW_ERR_MESSAGE_TRUNCATED : TW_OK);
        return true;
    }
    call.is_receiving = true;
    tw_op_t op{};
    op.flags = TW_OP_COMPLETION;
    op.context = &call;
    op.complete = &OutgoingCalls::on_received;
    op.mem = call.params.reply_mem;
    CallLock::leave(locked);
    const tw_status_t status =
        to_.calls.receive(to_.owner, am.message, call.params.reply, room, op);
    lock_.enter_again(locked);
    if (status == TW_INPROGRESS)
        return false;
    call.is_receiving = false;
    end(call, status);
    return true;
}

void OutgoingCalls::on_received(const tw_completion_t* received) {
    auto& call = *static_cast<Call*>(received->context);
    OutgoingCalls& self = *call.owner;
    Locked locked = self.lock_.take();
    call.is_receiving = false;
    call.done.length = received->length;
    self.end(call, received->status);
    self.finish_if_finished(call, locked);
}

// ---- Progress

unsigned OutgoingCalls::look() {
    unsigned count = 0;
    for (;;) {
        Locked locked = lock_.take();
        Call* call = nullptr;
        if (ready_ != nullptr) {
            call = std::exchange(ready_, ready_->next_ready);
            call->is_ready = false;
            note_due();
        } else if (!deadlines_.empty() && deadlines_.begin()->first <= to_.now_ns()) {
            call = deadlines_.begin()->second;
            to_.count(WorkerCounter::kCallTimeouts);
            end(*call, TW_ERR_TIMED_OUT);
        } else {
            break;
        }
        count += finish_if_finished(*call, locked) ? 1 : 0;
    }
    return count;
}

unsigned OutgoingCalls::end_of_peer(const EndedPeer& ended) {
    unsigned count = 0;
    Locked locked = lock_.take();
    for (std::size_t i = 0; i < places_.size(); ++i) {
        Call& call = *places_[i];
        if (call.peer != ended.worker_id || call.number > ended.calls || !call.may_end())
            continue;
        end(call, ended.status);
        if (!finish_if_finished(call, locked))
            continue;
        ++count;
        lock_.enter_again(locked);
    }
    return count;
}

}  // namespace tagwire::proto
