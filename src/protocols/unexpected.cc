// SPDX-License-Identifier: BSD-3-Clause
// Messages that nobody waited for: kept within budgets, found by receives, peeked at, claimed,
// dropped.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "protocols/arrival.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

// ---- Budgets. A peer that uses half of its share hears that it should send no more data; what is
// on its way then may fill the other half.

void Endpoint::hold(Unexpected& message) {
    held_bytes += message.held;
    if (!told_to_hold_data && held_bytes > worker.share() / 2) {
        told_to_hold_data = true;
        worker.count(WorkerCounter::kHeldData);
        control(ControlOp::kHoldData, 0);
    }
}

void Endpoint::release(Unexpected& message) {
    held_bytes -= message.held;
    if (told_to_hold_data && held_bytes <= worker.share() / 4) {
        told_to_hold_data = false;
        control(ControlOp::kSendData, 0);
    }
}

/// nullptr: it cannot be kept, and its endpoint has ended.
Unexpected* Worker::make_message(Endpoint& ep, const Arrival& arrival) {
    if (!arrival.is_rndv && arrival.length > options().unexpected_bytes) {
        TW_LOG_ERROR(
            "an unexpected message announces %zu bytes, TAGWIRE_UNEXPECTED_BYTES is %zu: "
            "its endpoint ends",
            static_cast<std::size_t>(arrival.length),
            static_cast<std::size_t>(options().unexpected_bytes));
        ep.fail(UCS_ERR_EXCEEDS_LIMIT);
        return nullptr;
    }
    const std::size_t behind = arrival.is_rndv ? arrival.bytes.size() : arrival.length;
    void* memory = std::malloc(sizeof(Unexpected) + behind);
    if (memory == nullptr) {
        TW_LOG_ERROR("no memory for an unexpected message of %zu bytes: its endpoint ends", behind);
        ep.fail(UCS_ERR_NO_MEMORY);
        return nullptr;
    }
    auto* message = ::new (memory) Unexpected;
    message->tag = arrival.tag;
    message->source = ep.source;
    message->ep = &ep;
    message->worker_id = ep.worker_id;
    message->imm = arrival.imm;
    message->length = arrival.length;
    message->flags = arrival.flags;
    message->send_id = arrival.send_id;
    message->is_rndv = arrival.is_rndv;
    message->is_tagged = (arrival.flags & kTagged) != 0;
    message->rndv = arrival.rndv;
    message->received = arrival.bytes.size();
    if (!arrival.bytes.empty())
        std::memcpy(message->data(), arrival.bytes.data(), arrival.bytes.size());
    if (!arrival.is_rndv)
        message->held = arrival.length;
    if (!arrival.is_rndv && arrival.bytes.size() < arrival.length) {
        ep.has_incoming = true;
        ep.incoming_request = nullptr;
        ep.incoming_message = message;
        ep.incoming_bytes = arrival.bytes.size();
        ep.incoming_length = arrival.length;
    }
    ++envelopes_;
    ep.hold(*message);
    if (envelopes_ > options().envelopes_max / 2 && !ep.told_to_hold) {
        ep.told_to_hold = true;
        count(WorkerCounter::kHeld);
        ep.control(ControlOp::kHold, 0);
        has_held_ = true;
    }
    return message;
}

void Worker::keep(Endpoint& ep, const Arrival& arrival) {
    Unexpected* message = make_message(ep, arrival);
    if (message == nullptr)
        return;
    count(WorkerCounter::kRxUnexpected);
    space(message->is_tagged).unexpected.add(*message);
}

/// `message` is in no matcher.
void Worker::free_message(Unexpected& message) {
    if (Endpoint* ep = message.ep) {
        if (ep->incoming_message == &message)
            ep->incoming_message = nullptr;
        ep->release(message);
    }
    --envelopes_;
    std::free(message.start);
    message.~Unexpected();
    std::free(&message);
    if (has_held_ && envelopes_ <= options().envelopes_max / 4) {
        has_held_ = false;
        names_.for_each([](Endpoint& ep) {
            if (std::exchange(ep.told_to_hold, false))
                ep.control(ControlOp::kResume, 0);
        });
    }
}

// ---- Receives

namespace {

/// nullptr: anybody. A posted receive remembers the number of its source alone: it may outlive the
/// endpoint that it was posted with.
const Endpoint* source_of(const Incoming& wanted) {
    return wanted.op == nullptr || wanted.op->source == nullptr ? nullptr
                                                                : &endpoint_of(wanted.op->source);
}

}  // namespace

tw_status_t Worker::receive(const Incoming& wanted) {
    Request* request = make(RequestKind::kReceive, wanted.op, wanted.request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    if (!set_buffer(*request, wanted.base, wanted.length, wanted.list, wanted.count,
                    wanted.op == nullptr ? nullptr : wanted.op->mem)) {
        release(*request);
        return TW_ERR_NO_RESOURCE;
    }
    request->is_tagged = wanted.is_tagged;
    request->tag = wanted.tag;
    request->mask = wanted.mask;
    request->source = kAnySource;
    request->done.flags = TW_DONE_RECV | flag_if(wanted.is_tagged, TW_DONE_TAGGED);
    if (const Endpoint* from = source_of(wanted))
        request->source = from->source;
    if ((request->flags & TW_OP_PEEK) != 0)
        return peek(*request, wanted);
    if ((request->flags & TW_OP_CLAIM) != 0)
        return claim(*request, wanted);
    if ((request->flags & TW_OP_MULTI_RECV) != 0)
        return post_multi(*request, wanted);
    return post(*request, wanted);
}

tw_status_t Worker::post(Request& request, const Incoming& wanted) {
    MatchSpace& in = space(request.is_tagged);
    Unexpected* message = nullptr;
    if (!in.unexpected.empty()) {
        message =
            static_cast<Unexpected*>(in.unexpected.take(request.tag, request.mask, request.source));
    }
    if (message != nullptr) {
        give_message(request, *message);
    } else if (const Endpoint* from = source_of(wanted);
               from != nullptr && from->failure() != UCS_OK) {
        finish(request, from->failure());  // nothing can come any more
    } else {
        request.is_posted = true;
        in.posted.post(request);
        if (device_tags_ != nullptr && request.is_tagged)
            device_tags_->posted(request);
    }
    return answer(request, wanted.op, wanted.request_p);
}

tw_status_t Worker::post_multi(Request& request, const Incoming& wanted) {
    MatchSpace& in = space(false);
    // Its last report comes behind those of its messages, also if the call sees the end.
    request.flags |= TW_OP_COMPLETION;
    request.is_posted = true;
    in.posted.post(request);
    while (request.is_posted) {
        UnexpectedMessage* found = in.unexpected.find(request.tag, request.mask, request.source);
        Request* child = found == nullptr ? nullptr : make_child(request);
        if (child == nullptr)
            break;
        in.unexpected.remove(*found);
        give_message(*child, static_cast<Unexpected&>(*found));
    }
    const Endpoint* from = source_of(wanted);
    if (request.is_posted && from != nullptr && from->failure() != UCS_OK) {
        in.posted.cancel(request);  // nothing more can come
        close_multi(request, from->failure());
    }
    return answer(request, wanted.op, wanted.request_p);
}

/// The receive gets a message that waited; `message` is in no matcher, and freed.
void Worker::give_message(Request& request, Unexpected& message) {
    if ((request.flags & TW_OP_BUFFERED) != 0)
        return buffer_message(request, message);
    if (message.has_failed || message.ep == nullptr) {
        describe(request, message);
        if (message.has_failed) {
            free_message(message);
            return finish(request, UCS_ERR_CONNECTION_RESET);
        }
        const std::size_t fits = std::min<std::size_t>(message.length, request.buffer.length);
        use_room(request, fits);
        request.buffer.scatter(0, message.data(), fits);
        request.done.length = fits;
        const bool is_cut = fits < message.length;
        free_message(message);
        return finish(request, is_cut ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
    }
    Endpoint& ep = *message.ep;
    const Arrival arrival{message.tag,     message.imm,     message.length,
                          message.flags,   message.send_id, {message.data(), message.received},
                          message.is_rndv, message.rndv};
    deliver(request, ep, arrival);
    free_message(message);
}

/// The sender learns that it was taken, and it is freed; `message` is in no matcher.
void Worker::discard(Unexpected& message) {
    if (Endpoint* ep = message.ep) {
        if (message.is_rndv) {
            ep->control(ControlOp::kAts, message.send_id, UCS_OK);
        } else if ((message.flags & kAcks) != 0) {
            ep->control(ControlOp::kAck, message.send_id);
        }
    }
    free_message(message);
}

// ---- What goes back, or comes to an end

bool Worker::withdraw(Endpoint& ep, std::uint32_t send_id) {
    for (MatchSpace& in : spaces_) {
        for (auto* at = in.unexpected.oldest(); at != nullptr; at = at->newer) {
            auto* message = static_cast<Unexpected*>(at);
            if (message->ep != &ep || message->send_id != send_id)
                continue;
            in.unexpected.remove(*message);
            free_message(*message);
            return true;
        }
    }
    return false;
}

/// Receives of that source end, those that are posted now: what their callbacks post waits for the
/// next endpoint to it.
void Worker::end_directed(MatchSpace& in, std::uint32_t source, ucs_status_t status) {
    std::vector<Request*> ending;
    while (auto* receive = static_cast<Request*>(in.posted.take_directed(source))) {
        has_left(*receive);
        ending.push_back(receive);
    }
    for (Request* receive : ending) {
        if ((receive->flags & TW_OP_MULTI_RECV) != 0) {
            close_multi(*receive, status);
        } else {
            finish(*receive, status);
        }
    }
}

void Worker::drop_incoming(Endpoint& ep, ucs_status_t status, bool is_last) {
    const auto is_half = [](const Unexpected& message) {
        return message.is_rndv || message.received < message.length;
    };
    for (MatchSpace& in : spaces_) {
        for (UnexpectedMessage* at = in.unexpected.oldest(); at != nullptr;) {
            auto* message = static_cast<Unexpected*>(at);
            at = at->newer;
            if (message->ep != &ep)
                continue;
            if (is_half(*message)) {
                in.unexpected.remove(*message);
                free_message(*message);
            } else {
                message->ep = nullptr;
            }
        }
        if (is_last)
            end_directed(in, ep.source, status);
    }
    // Receives that wait for data end with the endpoint's others, and their messages with them.
    for (std::size_t i = 0; i < claimed_.size();) {
        Unexpected* message = claimed_[i];
        if (message->ep == &ep && message->waiting != nullptr) {
            if (message->fetch != nullptr)
                message->fetch->done.context = nullptr;
            claimed_.erase(claimed_.begin() + static_cast<std::ptrdiff_t>(i));
            free_message(*message);
            continue;
        }
        if (message->ep == &ep) {
            message->has_failed = is_half(*message);
            message->ep = nullptr;
        }
        ++i;
    }
    ep.has_incoming = false;
    ep.incoming_message = nullptr;
    ep.held_bytes = 0;
    ep.announced.clear();
}

}  // namespace tagwire::proto
