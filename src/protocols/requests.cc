// SPDX-License-Identifier: BSD-3-Clause
// Requests of a worker: made, named, ended, reported.
#include <cstring>
#include <memory>
#include <new>

#include "protocols/memory.hpp"
#include "protocols/transfer.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

void Request::make_whole() {
    is_whole = true;
    buffer.list = nullptr;
    buffer.count = 0;
    buffer.memory = nullptr;
    id = 0;
    ep = nullptr;
    std::construct_at(&queue_link);
    std::construct_at(&list_link);
    offset = order = wanted = 0;
    copy = nullptr;
    transfer = nullptr;
    peer_id = acks = children = registered_in = 0;
    parent = nullptr;
    closing = UCS_INPROGRESS;
    registration = nullptr;
    cached = nullptr;
    transmission = nullptr;
    on_device = nullptr;
    done = {};
    done.context = context;
    done.request = this;
    if (kind == RequestKind::kReceive)
        done.flags = TW_DONE_RECV | flag_if(is_tagged, TW_DONE_TAGGED);
}

Request* Worker::make(RequestKind kind, const tw_op_t* op, tw_request_h* request_p) {
    const tw_op_t& how = op == nullptr ? kPlainOp : *op;
    const RequestState state{.kind = kind,
                             .is_foreign = how.request != nullptr,
                             .was_named = request_p != nullptr,
                             .in_call = true};
    void* memory = state.is_foreign ? how.request : request_pool_.get();
    if (memory == nullptr)
        return nullptr;
    auto* request = ::new (memory) Request(*this, how, state);
    request->make_whole();
    return request;
}

bool Worker::set_buffer(Request& request, const void* base, std::size_t length,
                        const tw_iov_t* list, std::size_t elements, tw_mem_h memory) {
    request.buffer.base = static_cast<std::byte*>(const_cast<void*>(base));
    request.buffer.length = length;
    request.buffer.memory = memory == nullptr ? nullptr : &memory_of(memory);
    if (list == nullptr)
        return true;
    auto* block = static_cast<IovBlock*>(iov_pool_.get());
    if (block == nullptr)
        return false;
    std::memcpy(block->elements, list, elements * sizeof *list);
    request.buffer.list = block->elements;
    request.buffer.count = elements;
    return true;
}

void* Worker::copy_of(Request& request) {
    if (request.copy != nullptr)
        return request.copy;
    void* copy = copy_pool_.get();
    if (copy == nullptr)
        return nullptr;
    request.buffer.gather(copy, 0, request.buffer.length);
    if (request.buffer.list != nullptr)
        iov_pool_.put(request.buffer.list);
    request.buffer = {static_cast<std::byte*>(copy), request.buffer.length, nullptr, 0, nullptr};
    return request.copy = copy;
}

Transmission* Worker::make_transmission(Request& request) {
    void* memory = transmission_pool_.get();
    if (memory == nullptr)
        return nullptr;
    auto* transmission = ::new (memory) Transmission;
    transmission->func = [](uct_completion_t* self) {
        auto* ended = static_cast<Transmission*>(self);
        Request* sent = ended->request;
        Worker& owner = *ended->worker;
        const ucs_status_t status = ended->status;
        owner.free_transmission(*ended);
        if (sent == nullptr)
            return;
        sent->transmission = nullptr;
        const ucs_status_t failure = sent->ep->failure();
        owner.finish(*sent, failure != UCS_OK ? failure : status);
    };
    transmission->count = 1;
    transmission->status = UCS_OK;
    transmission->worker = this;
    transmission->request = &request;
    return transmission;
}

std::uint32_t Worker::name(Request& request) {
    return request.id = requests_.add(request);
}

void Worker::set_outstanding(Request& request, Endpoint& ep) {
    request.ep = &ep;
    request.is_outstanding = true;
    (request.kind == RequestKind::kReceive ? ep.receiving : ep.outstanding).push_back(request);
}

void Worker::finish(Request& request, ucs_status_t status) {
    if (!request.is_whole)
        request.make_whole();
    if (request.id != 0)
        requests_.remove(std::exchange(request.id, 0));
    end_transfer(request);
    if (request.transmission != nullptr)
        std::exchange(request.transmission, nullptr)->request = nullptr;
    Endpoint* ep = request.ep;
    const bool was_outstanding = request.is_outstanding;
    request.is_outstanding = false;
    if (was_outstanding) {
        if (request.is_queued)
            ep->drop_data(request);
        (request.kind == RequestKind::kReceive ? ep->receiving : ep->outstanding).erase(request);
    }
    if (ep != nullptr && ep->incoming_request == &request)
        ep->incoming_request = nullptr;
    if (request.registration != nullptr) {
        uct_md_mem_dereg(context_.domains()[request.registered_in].md,
                         std::exchange(request.registration, nullptr));
    }
    if (request.cached != nullptr)
        context_.cache()->release(*std::exchange(request.cached, nullptr), status == UCS_OK);
    request.done.status = static_cast<tw_status_t>(status);
    const bool is_send = request.kind == RequestKind::kSend;
    Request* parent = request.parent;
    if (request.in_call)
        request.has_ended = true;
    else
        report(request);
    if (parent != nullptr && --parent->children == 0 && parent->closing != UCS_INPROGRESS)
        finish(*parent, parent->closing);
    if (was_outstanding && is_send)
        ep->request_ended();
}

/// As finish(), once no device moves data of it: whatever the transport, reads and writes that did
/// not end with their lane are waited for, so that the program gets its buffer back unused. The
/// failure of the endpoint is told after that.
void Worker::finish_late(Request& request, ucs_status_t status) {
    Transfer* transfer = request.transfer;
    if (transfer == nullptr || !transfer->is_busy() || endings_are_silent_)
        return finish(request, status);
    transfer->failed_ep = request.ep;
    ++request.ep->late;
    (request.kind == RequestKind::kReceive ? request.ep->receiving : request.ep->outstanding)
        .erase(request);
    request.is_outstanding = false;
    request.ep = nullptr;
    transfer->ending = status;
    late_.push_back(request);
}

void Worker::end_late(Request& request, ucs_status_t status) {
    if (Endpoint* ep = std::exchange(request.transfer->failed_ep, nullptr)) {
        --ep->late;
        ask_slow_work();  // the failure may be told
    }
    late_.erase(request);
    finish(request, status);
}

/// Part of a multi-receive that takes the next message: the rest of its buffer.
Request* Worker::make_child(Request& parent) {
    void* memory = child_pool_.get();
    if (memory == nullptr)
        return nullptr;
    const RequestState state{.kind = RequestKind::kReceive};
    auto* child = ::new (memory) Request(*this, kPlainOp, state);
    child->make_whole();
    child->flags = parent.flags;
    child->complete = parent.complete;
    child->done = parent.done;
    child->done.request = &parent;
    child->buffer.base = parent.buffer.base + parent.offset;
    child->buffer.length = parent.buffer.length - parent.offset;
    child->buffer.memory = parent.buffer.memory;
    child->done.buffer = child->buffer.base;
    child->parent = &parent;
    ++parent.children;
    return child;
}

/// A message takes so much of the buffer, if that is a multi-receive's.
void Worker::use_room(Request& part, std::size_t bytes) {
    Request* parent = part.parent;
    if (parent == nullptr)
        return;
    parent->offset += bytes;
    if (parent->buffer.length - parent->offset < limits.multi_recv_bytes_min) {
        space(false).posted.cancel(*parent);
        close_multi(*parent, UCS_OK);
    }
}

/// The multi-receive takes no more messages; it ends when its parts have.
void Worker::close_multi(Request& parent, ucs_status_t status) {
    parent.is_posted = false;
    parent.done.flags |= TW_DONE_MULTI_RECV;
    parent.closing = status;
    if (parent.children == 0)
        finish(parent, status);
}

void Worker::call_back(Request& request) {
    ++ends_;
    const tw_completion_t done = request.done;
    const tw_complete_cb_t complete = request.complete;
    release(request);
    complete(&done);
}

void Worker::report(Request& request) {
    request.has_ended = true;
    if (endings_are_silent_)
        return release(request);
    ++ends_;
    if (request.complete != nullptr) {
        // Callbacks run in the order of the ends: the parts of a multi-receive before its own. None
        // runs in the call that made the operation or its parent: it may make the next operation,
        // which would come before the rest of this one.
        const bool in_call =
            request.in_call || (request.parent != nullptr && request.parent->in_call);
        if ((attention_ & kInProgress) != 0 && !in_call && deferred_.empty())
            return call_back(request);
        deferred_.push_back(request);
        return ask_slow_work();
    }
    if (request.is_for_test()) {
        if (request.is_given_up)
            return release(request);
        return kept_.push_back(request);
    }
    if ((request.flags & TW_OP_COMPLETION) != 0 || request.done.status != TW_OK)
        ended_.push_back(request);
    else
        release(request);
}

tw_status_t Worker::answer(Request& request, const tw_op_t* op, tw_request_h* request_p) {
    if (!request.has_ended || (request.flags & TW_OP_COMPLETION) != 0) {
        if (request_p != nullptr)
            *request_p = &request;
        if (request.has_ended)
            report(request);
        else
            request.in_call = false;
        return TW_INPROGRESS;
    }
    const tw_completion_t done = request.done;
    release(request);
    if (op != nullptr && op->done != nullptr)
        *op->done = done;
    return done.status;
}

void Worker::release(Request& request) {
    if (request.is_whole && request.copy != nullptr)
        copy_pool_.put(request.copy);
    if (request.is_whole && request.buffer.list != nullptr)
        iov_pool_.put(request.buffer.list);
    const bool is_foreign = request.is_foreign;
    const bool is_child = request.is_whole && (request.parent != nullptr || request.is_internal);
    request.~Request();
    if (!is_foreign)
        (is_child ? child_pool_ : request_pool_).put(&request);
}

unsigned Worker::poll(tw_completion_t* completions, unsigned max) {
    unsigned taken = 0;
    while (taken < max) {
        Request* request = ended_.pop_front();
        if (request == nullptr)
            break;
        completions[taken++] = request->done;
        release(*request);
    }
    return taken;
}

tw_status_t Worker::test(Request& request, tw_completion_t* done) {
    if (!request.has_ended)
        return TW_INPROGRESS;
    if (done != nullptr)
        *done = request.done;
    return request.done.status;
}

void Worker::give_up(Request& request) {
    request.is_given_up = true;
    if (!request.has_ended)
        return;
    kept_.erase(request);
    release(request);
}

void Worker::cancel(Request& request) {
    if (request.has_ended)
        return;
    if (request.kind == RequestKind::kReceive) {
        if (request.is_posted) {
            if (request.is_whole && DeviceTags::cancel(request, UCS_ERR_CANCELED))
                return;
            take_out(request);
            if ((request.flags & TW_OP_MULTI_RECV) != 0)
                return close_multi(request, UCS_ERR_CANCELED);
            finish(request, UCS_ERR_CANCELED);
        }
    } else if (request.ep != nullptr) {
        request.ep->cancel(request);
    }
}

}  // namespace tagwire::proto
