// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/request_table.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "protocols/completion/completion_counter.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/wire/am_part.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/memory/sized.hpp"

namespace tagwire::proto {

namespace {

/// Copies the fields; the room behind them is nobody's yet.
void copy_completion(const tw_completion_t& from, tw_completion_t* to) {
    std::memcpy(to, &from, kCompletionBytes);
}

tw_message_info_t info_of(const tw_completion_t& done) {
    tw_message_info_t info{};
    info.flags = done.flags;
    info.tag = done.tag;
    info.length = done.message_length;
    info.imm = done.imm;
    info.source = done.source;
    info.ep = done.ep;
    return info;
}

/// The counter of a request that is reported, which counts it behind that.
class Counted {
  public:
    explicit Counted(Request& request)
        : counter_(std::exchange(request.counter, nullptr)), status_(request.done.status) {}
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() {
        if (counter_ != nullptr)
            counter_->report(status_);
    }

  private:
    CompletionCounter* const counter_;
    const tw_status_t status_;
};

/// The request ends, and nobody is told.
void let_go(Request& request) {
    if (CompletionQueue* queue = std::exchange(request.cq, nullptr))
        queue->users().leave();
    if (CompletionCounter* counter = std::exchange(request.counter, nullptr))
        counter->users().leave();
}

}  // namespace

ucs_status_t RequestTable::open(const Options& options) {
    ucs_status_t status = pool_.init({.name = "requests",
                                      .element_bytes = sizeof(Request),
                                      .alignment = kRequestAlignment,
                                      .elements_max = options.requests_max});
    if (status == UCS_OK) {
        status = part_pool_.init({.name = "parts of multi-receives",
                                  .element_bytes = sizeof(Request),
                                  .alignment = kRequestAlignment});
    }
    if (status == UCS_OK)
        status = list_pool_.init({.name = "lists", .element_bytes = sizeof(IovBlock)});
    if (status == UCS_OK) {
        status = transmission_pool_.init(
            {.name = "transmissions", .element_bytes = sizeof(Transmission)});
    }
    if (status == UCS_OK) {
        status = header_pool_.init({.name = "headers of active messages",
                                    .element_bytes = TW_AM_HEADER_MAX,
                                    .elements_max = options.requests_max});
    }
    if (status == UCS_OK) {
        status = copy_pool_.init({.name = "injected messages",
                                  .element_bytes = options.inject_bytes,
                                  .elements_max = options.requests_max});
    }
    extras_max_ = options.queued_max;
    if (status == UCS_OK) {
        status = extra_pool_.init({.name = "operations of TW_OP_QUEUE",
                                   .element_bytes = sizeof(Request),
                                   .alignment = kRequestAlignment});
    }
    if (status == UCS_OK) {
        status = extra_header_pool_.init({.name = "active messages of TW_OP_QUEUE",
                                          .element_bytes = TW_AM_HEADER_MAX,
                                          .elements_per_chunk = 16});
    }
    if (status == UCS_OK) {
        status = extra_copy_pool_.init({.name = "injected messages of TW_OP_QUEUE",
                                        .element_bytes = options.inject_bytes,
                                        .elements_per_chunk = 16});
    }
    return status;
}

void RequestTable::clear() {
    if (has_kept_) {
        port_.drop_kept(port_.owner, returned_);
        take_back();
    }
    for (RequestQueue* queue : {&deferred_, &completed_})
        while (Request* request = queue->pop_front())
            release(*request);
    while (Request* request = testable_.pop_front())
        release(*request);
    for (; spare_ != nullptr; --spares_)
        pool_.put(std::exchange(spare_, spare_->next));
}

// ---- Memory

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
    rma = nullptr;
    cq = nullptr;
    counter = nullptr;
    am_header = nullptr;
    am_header_bytes = 0;
    has_extra_header = has_extra_copy = false;
    done = {};
    done.context = context;
    done.request = this;
    if (kind == RequestKind::kReceive)
        done.flags = TW_DONE_RECV | flag_if(is_tagged, TW_DONE_TAGGED);
}

tw_status_t Request::test(tw_completion_t* to) const {
    if (!has_ended)
        return TW_INPROGRESS;
    if (to != nullptr)
        copy_completion(done, to);
    return done.status;
}

void Request::name(CompletionQueue* queue, CompletionCounter* count) {
    cq = queue;
    counter = count;
    if (queue != nullptr)
        queue->users().enter();
    if (count != nullptr)
        count->users().enter();
}

void* RequestTable::request_memory() {
    void* memory = pool_.get();
    if (memory != nullptr || !has_kept_)
        return memory;
    take_back();
    return pool_.get();
}

bool RequestTable::keep_free(std::size_t calls) {
    const auto keeps = [calls](ucs::Mpool& pool) {
        return pool.elements_free() >= calls ||
               pool.reserve(pool.elements_taken() + calls) == UCS_OK;
    };
    return keeps(pool_) && keeps(copy_pool_);
}

Request* RequestTable::make(RequestKind kind, const tw_op_t* op, tw_request_h* request_p,
                            bool is_refused) {
    const tw_op_t& how = op == nullptr ? kPlainOp : *op;
    void* memory = how.request;
    if (memory == nullptr && !is_refused)
        memory = request_memory();
    const bool is_extra = memory == nullptr || is_refused;
    const bool has_extra_memory = memory == nullptr;
    if (is_extra && !may_be_extra(how.flags))
        return nullptr;
    if (has_extra_memory)
        memory = extra_pool_.get();
    if (memory == nullptr)
        return nullptr;
    const RequestState state{.kind = kind,
                             .is_foreign = how.request != nullptr,
                             .is_tested = request_p != nullptr && how.cq == nullptr,
                             .in_call = true,
                             .has_extra_memory = has_extra_memory};
    auto* request = ::new (memory) Request(port_.worker, how, state);
    request->make_whole();
    if (is_extra)
        become_extra(*request);
    if (how.cq != nullptr || how.counter != nullptr) {
        request->name(how.cq == nullptr ? nullptr : &queue_of(how.cq),
                      how.counter == nullptr ? nullptr : &counter_of(how.counter));
    }
    return request;
}

void RequestTable::become_extra(Request& request) {
    request.is_extra = true;
    ++extras_;
    port_.count_extra(port_.owner);
}

void RequestTable::end_extra(Request& request) {
    if (request.is_extra)
        --extras_;
    request.is_extra = false;
}

/// Memory beside a request. nullptr: there is none.
void* RequestTable::memory_beside(Request& request, ucs::Mpool& pool, ucs::Mpool& extra_pool,
                                  bool* is_extra_p) {
    void* memory = request.is_extra ? nullptr : pool.get();
    if (memory != nullptr || !(request.is_extra || may_be_extra(request.flags)))
        return memory;
    memory = extra_pool.get();
    if (memory == nullptr)
        return nullptr;
    *is_extra_p = true;
    if (!request.is_extra)
        become_extra(request);
    return memory;
}

Request* RequestTable::make_part(Request& parent) {
    void* memory = part_pool_.get();
    if (memory == nullptr)
        return nullptr;
    const RequestState state{.kind = RequestKind::kReceive};
    auto* part = ::new (memory) Request(port_.worker, kPlainOp, state);
    part->make_whole();
    part->flags = parent.flags;
    part->complete = parent.complete;
    part->name(parent.cq, parent.counter);
    part->done = parent.done;
    part->done.request = &parent;
    part->buffer.base = parent.buffer.base + parent.offset;
    part->buffer.length = parent.buffer.length - parent.offset;
    part->buffer.memory = parent.buffer.memory;
    part->done.buffer = part->buffer.base;
    part->parent = &parent;
    ++parent.children;
    return part;
}

Request* RequestTable::make_internal(RequestKind kind, const tw_op_t& op, bool is_start) {
    void* memory = part_pool_.get();
    if (memory == nullptr)
        return nullptr;
    const RequestState state{.kind = kind, .is_start = is_start};
    auto* request = ::new (memory) Request(port_.worker, op, state);
    request->make_whole();
    request->is_internal = true;
    return request;
}

bool RequestTable::add_notice(const tw_completion_t& done) {
    tw_op_t op{};
    op.flags = TW_OP_COMPLETION;
    Request* request = make_internal(RequestKind::kReceive, op);
    if (request == nullptr)
        return false;
    request->done = done;
    port_.add_notice(port_.owner);
    report(*request);
    return true;
}

bool RequestTable::set_buffer(Request& request, const void* base, std::size_t length,
                              const tw_iov_t* list, std::size_t elements, tw_mem_h memory) {
    request.buffer.base = static_cast<std::byte*>(const_cast<void*>(base));
    request.buffer.length = length;
    request.buffer.memory = memory == nullptr ? nullptr : &memory_of(memory);
    if (list == nullptr)
        return true;
    auto* block = static_cast<IovBlock*>(list_pool_.get());
    if (block == nullptr)
        return false;
    std::memcpy(block->elements, list, elements * sizeof *list);
    request.buffer.list = block->elements;
    request.buffer.count = elements;
    return true;
}

bool RequestTable::set_am(Request& request, const AmPart& am) {
    request.is_am = true;
    request.am_header_bytes = static_cast<std::uint32_t>(am.header_bytes);
    if (am.header_bytes == 0)
        return true;
    request.am_header = static_cast<std::byte*>(
        memory_beside(request, header_pool_, extra_header_pool_, &request.has_extra_header));
    if (request.am_header == nullptr)
        return false;
    std::memcpy(request.am_header, am.header, am.header_bytes);
    return true;
}

void* RequestTable::copy_of(Request& request) {
    if (request.copy != nullptr)
        return request.copy;
    void* copy = memory_beside(request, copy_pool_, extra_copy_pool_, &request.has_extra_copy);
    if (copy == nullptr)
        return nullptr;
    request.buffer.gather(copy, 0, request.buffer.length);
    if (request.buffer.list != nullptr)
        list_pool_.put(request.buffer.list);
    request.buffer = {static_cast<std::byte*>(copy), request.buffer.length, nullptr, 0, nullptr};
    return request.copy = copy;
}

Transmission* RequestTable::make_transmission(Request& request) {
    void* memory = transmission_pool_.get();
    if (memory == nullptr)
        return nullptr;
    auto* transmission = ::new (memory) Transmission;
    transmission->func = [](uct_completion_t* self) {
        auto* ended = static_cast<Transmission*>(self);
        Request* sent = ended->request;
        RequestTable& table = *ended->table;
        const ucs_status_t status = ended->status;
        table.release(*ended);
        if (sent == nullptr)
            return;
        sent->transmission = nullptr;
        table.port_.transmitted(table.port_.owner, *sent, status);
    };
    transmission->count = 1;
    transmission->status = UCS_OK;
    transmission->table = this;
    transmission->request = &request;
    return transmission;
}

void RequestTable::release_buffers(Request& request) {
    if (request.copy != nullptr)
        (request.has_extra_copy ? extra_copy_pool_ : copy_pool_)
            .put(std::exchange(request.copy, nullptr));
    if (request.buffer.list != nullptr)
        list_pool_.put(std::exchange(request.buffer.list, nullptr));
    if (request.am_header != nullptr)
        (request.has_extra_header ? extra_header_pool_ : header_pool_)
            .put(std::exchange(request.am_header, nullptr));
}

/// All but its memory.
void RequestTable::release_parts(Request& request) {
    if (!request.is_whole)
        return;
    if (request.rma != nullptr)
        port_.end_rma(port_.owner, request);
    release_buffers(request);
    end_extra(request);
    let_go(request);
}

void RequestTable::release(Request& request) {
    release_parts(request);
    const bool is_foreign = request.is_foreign;
    if (request.is_whole &&
        (request.parent != nullptr || request.is_internal || request.has_extra_memory)) [[unlikely]]
        return release_otherwise(request);
    request.~Request();
    if (!is_foreign)
        pool_.put(&request);
}

/// It is an extra one, part of a multi-receive, the library's own, or a notice, whose peer may have
/// been paused.
[[gnu::noinline]] void RequestTable::release_otherwise(Request& request) {
    if (request.has_extra_memory) {
        request.~Request();
        return extra_pool_.put(&request);
    }
    const bool is_notice = request.is_internal && request.complete == nullptr;
    request.~Request();
    part_pool_.put(&request);
    if (is_notice)
        port_.remove_notice(port_.owner);
}

// ---- Ends

void RequestTable::report(Request& request) {
    request.has_ended = true;
    // The library is told of its own in any case: others refer to that request.
    if (is_silent_)
        return request.is_internal && request.complete != nullptr ? call_back(request)
                                                                  : release(request);
    attention_.count_events();
    if (request.complete != nullptr) {
        deferred_.push_back(request);
        return attention_.set_deferred(true);
    }
    const Counted counted(request);
    if (request.is_for_test()) {
        if (request.is_abandoned)
            return release(request);
        return testable_.push_back(request);
    }
    // A close that nobody asks about is told to nobody: it has no queue to wait in for a program
    // that does not look for ends.
    const bool is_quiet = request.done.status == TW_OK || request.kind == RequestKind::kClose;
    if (request.cq != nullptr)
        queue_up(request);
    else if ((request.flags & TW_OP_COMPLETION) == 0 && is_quiet)
        release(request);
    else
        completed_.push_back(request);
}

void RequestTable::queue_up(Request& request) {
    if (has_kept_)
        take_back();
    CompletionQueue& queue = *std::exchange(request.cq, nullptr);
    // Once it is kept nothing but its memory comes back.
    release_buffers(request);
    request.kept = {nullptr, &returned_, &request, &request.done, request.is_foreign};
    // Memory of the program is the program's again as soon as the completion is visible.
    const bool is_foreign = request.is_foreign;
    if (is_foreign)
        end_extra(request);
    if (!queue.push(request.done, request.kept))
        has_kept_ = true;
    else if (!is_foreign)
        release(request);
}

/// Requests whose kept completions were moved.
void RequestTable::take_back() {
    KeptCompletion* kept = returned_.take_all();
    while (kept != nullptr) {
        Request& request = *kept->request;
        kept = kept->next;
        release(request);
    }
}

void RequestTable::call_back(Request& request) {
    attention_.count_events();
    tw_completion_t done;
    copy_completion(request.done, &done);
    const tw_complete_cb_t complete = request.complete;
    const bool is_internal = request.is_internal;
    const Counted counted(request);
    if (port_.is_multi && !is_internal)
        return let_run(request, done, complete);
    release(request);
    if (is_internal)
        return complete(&done);  // the library's own, which relies on the lock
    const InCallback callback(attention_);
    complete(&done);
}

/// Another element than that of the request whose callback runs is free.
void RequestTable::provide_spare() {
    if (spare_ != nullptr)
        return pool_.put(std::exchange(spare_, spare_->next));
    pool_.raise_max(1);
    ++spares_;
}

/// A callback of a worker that threads share runs without its lock, and `request` stays what it is
/// until then. Memory of the program is the program's already.
void RequestTable::let_run(Request& request, const tw_completion_t& done,
                           tw_complete_cb_t complete) {
    const bool is_part = request.is_whole && request.parent != nullptr;
    const bool is_kept = !request.is_foreign && !is_part;
    if (!is_kept) {
        release(request);
    } else {
        release_parts(request);
        if (!request.has_extra_memory)  // whose pool has no maximum
            provide_spare();
    }
    {
        const InCallback callback(attention_);  // which needs the lock at both of its ends
        port_.leave(port_.owner);
        complete(&done);
        port_.enter_again(port_.owner);
    }
    if (is_kept && request.has_extra_memory) {
        release_otherwise(request);
    } else if (is_kept) {
        request.~Request();
        spare_ = ::new (&request) Spare{spare_};
    }
}

unsigned RequestTable::tell_ends() {
    // No more than are here now, since each may add one; but an end of the library's own brings one
    // of the program's about, which is told here, too.
    unsigned count = 0;
    for (std::size_t left = deferred_.size(); left > 0 && !deferred_.empty();) {
        Request& request = *deferred_.pop_front();
        ++told_;
        if (!request.is_internal) {
            --left;
            ++count;
        }
        call_back(request);
    }
    attention_.set_deferred(!deferred_.empty());
    return count;
}

void RequestTable::forget(tw_ep_h ep) {
    for (Request* told = deferred_.front(); told != nullptr; told = RequestQueue::next(*told))
        if (told->kind == RequestKind::kReceive && told->done.ep == ep)
            told->done.ep = nullptr;
}

tw_status_t RequestTable::answer(Request& request, const tw_op_t* op, tw_request_h* request_p) {
    // A completion alone tells where the data of a buffered receive is.
    if (!request.has_ended || (request.flags & (TW_OP_COMPLETION | kBufferedReceive)) != 0) {
        if (request_p != nullptr)
            *request_p = &request;
        if (request.has_ended)
            report(request);
        else
            request.in_call = false;
        return TW_INPROGRESS;
    }
    const tw_status_t status = request.done.status;
    const bool has_matched =
        status == TW_OK || status == TW_ERR_MESSAGE_TRUNCATED || request.done.source != 0;
    if (op != nullptr && op->info != nullptr && request.kind == RequestKind::kReceive &&
        has_matched)
        ucs::write_sized(info_of(request.done), op->info);
    if (status == TW_OK) {
        const Counted counted(request);
        release(request);
    } else {
        release(request);
    }
    return status;
}

void RequestTable::answer_later(Request& request) {
    if (request.has_ended)
        report(request);
    else
        request.in_call = false;
}

unsigned RequestTable::poll(tw_completion_t* completions, unsigned max) {
    unsigned taken = 0;
    while (taken < max) {
        Request* request = completed_.pop_front();
        if (request == nullptr)
            break;
        copy_completion(request->done, &completions[taken++]);
        release(*request);
    }
    return taken;
}

void RequestTable::abandon(Request& request) {
    request.is_abandoned = true;
    if (!request.has_ended)
        return;
    testable_.erase(request);
    if (!request.is_whole) [[likely]]
        return release_plain(request);
    release(request);
}

}  // namespace tagwire::proto
