// SPDX-License-Identifier: BSD-3-Clause
// The requests of a worker: their memory, the ids by which peers name them, and the report of their
// ends. WorkerCore::finish() ends them.
//
// 1. An end that a callback is to be told of is queued, wherever it comes about. Progress tells the
//    queued ones, in their order, where nothing else of the library is under way (tell_ends()):
//    no callback runs inside a walk of it or inside another callback.
// 2. A request whose completion queue is full belongs to that queue until a thread has moved its
//    completion; then it comes back by returned_, which is looked at when the next one ends, or
//    memory is short.
// 3. A pool that is used up is no error of the table: the caller refuses its operation.
// 4. TW_OP_QUEUE makes a request an extra one where that is so, or where its peer has paused
//    messages: it, its copy and its header come from pools of their own. There are at most
//    TAGWIRE_QUEUED_MAX of them, each from its call until its memory is free.
// 5. Where threads share the worker, the memory of a request stays what it was until its callback
//    has returned: another thread may cancel or test it until the callback has told that thread.
//    It counts as free all the same, by a spare element for each callback that runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "protocols/cost/options.hpp"
#include "protocols/index/id_table.hpp"
#include "protocols/request/attention.hpp"
#include "protocols/request/request.hpp"
#include "ucs/memory/mpool.hpp"

namespace tagwire::proto {

struct AmPart;

/// The world of a table of requests. `owner` is the first argument of the functions.
struct RequestPort {
    Attention& attention;
    WorkerCore* worker;  // as requests name it; the table does not look into it
    bool is_multi;       // callbacks run without its lock
    void* owner;
    /// The transport has transmitted the message of `request`, with `status`.
    void (*transmitted)(void* owner, Request& request, ucs_status_t status);
    /// A one-sided operation needs what it was made with no more.
    void (*end_rma)(void* owner, Request& request);
    /// An operation has become an extra one.
    void (*count_extra)(void* owner);
    void (*add_notice)(void* owner);
    void (*remove_notice)(void* owner);
    /// The lock of a worker that is_multi, before and behind a callback.
    void (*leave)(void* owner);
    void (*enter_again)(void* owner);
    /// Completion queues let go of the completions that they keep for the table.
    void (*drop_kept)(void* owner, const KeptReturns<CompletionEnv>& home);
};

class RequestTable {
  public:
    explicit RequestTable(const RequestPort& port) : port_(port), attention_(port.attention) {}
    RequestTable(const RequestTable&) = delete;
    RequestTable& operator=(const RequestTable&) = delete;

    ucs_status_t open(const Options& options);
    /// The program is told nothing from now on.
    void silence() { is_silent_ = true; }
    bool is_silent() const { return is_silent_; }
    /// Gives back the memory of requests that have ended and wait for the program.
    void clear();

    // ---- Memory; nullptr: the pool is used up

    /// The request of a call. `is_refused`: the call has a reason to refuse it beside the pool, so
    /// that only an extra one is made.
    Request* make(RequestKind kind, const tw_op_t* op, tw_request_h* request_p,
                  bool is_refused = false);
    /// A plain receive that is posted on the fast path. A request is free.
    [[gnu::always_inline]] Request* make_plain(WorkerCore* owner, const tw_op_t& op,
                                               RequestState state) {
        return ::new (pool_.get()) Request(owner, op, state);
    }
    /// Requests of the program that have not ended, or wait to be tested or polled, and operations
    /// of the library's own.
    std::size_t in_use() const {
        return pool_.elements_taken() - spares_ + extra_pool_.elements_taken() +
               part_pool_.elements_taken();
    }
    bool has_free() const { return pool_.has_free(); }
    /// Operations that TW_OP_QUEUE keeps.
    std::size_t extras() const { return extras_; }
    std::size_t extras_max() const { return extras_max_; }
    /// Reserves a request, and memory for an injected message, for each of `calls` further calls.
    /// False: there is no room for them.
    bool keep_free(std::size_t calls);
    /// Part of a multi-receive that takes the next message: the rest of its buffer.
    Request* make_part(Request& parent);
    /// An operation of the library's own, which takes none of the program's requests.
    Request* make_internal(RequestKind kind, const tw_op_t& op, bool is_start = false);
    /// False: there is no room for the list.
    bool set_buffer(Request& request, const void* base, std::size_t length, const tw_iov_t* list,
                    std::size_t elements, tw_mem_h memory);
    /// Makes the request an active message and copies its header. False: there is no room for that.
    bool set_am(Request& request, const AmPart& am);
    /// A copy of the buffer, which the request has from now on in place of it.
    void* copy_of(Request& request);
    Transmission* make_transmission(Request& request);
    void release(Transmission& transmission) { transmission_pool_.put(&transmission); }
    void release(Request& request);
    /// One that make_plain() made and nothing made whole.
    void release_plain(Request& request) { pool_.put(&request); }

    // ---- Ids

    /// 0: there are too many.
    std::uint32_t assign_id(Request& request) { return request.id = ids_.add(request); }
    void release_id(Request& request) {
        if (request.id != 0)
            ids_.remove(std::exchange(request.id, 0));
    }
    /// nullptr: no request has it.
    Request* find(std::uint32_t id) const { return ids_.find(id); }

    // ---- Ends

    /// The request has ended: progress tells its callback, or the program asks for it.
    void report(Request& request);
    /// The result of the call that made `request`.
    tw_status_t answer(Request& request, const tw_op_t* op, tw_request_h* request_p);
    /// The notice of a peer's operation, for poll(); in the budget until then. False: out of
    /// memory.
    [[nodiscard]] bool add_notice(const tw_completion_t& done);
    /// A request that make_plain() made has ended, and nothing made it whole; Request::test()
    /// tells its completion.
    void keep_plain(Request& request) {
        request.has_ended = true;
        request.is_posted = false;
        if (request.is_abandoned)
            return release_plain(request);
        std::construct_at(&request.list_link);
        testable_.push_back(request);
    }
    /// The call that made `request` has returned already, with TW_INPROGRESS.
    void answer_later(Request& request);
    unsigned poll(tw_completion_t* completions, unsigned max);
    /// The program does not ask for its end any more.
    void abandon(Request& request);
    bool has_completions() const { return !completed_.empty(); }
    /// In progress, outside of everything else: runs the callbacks of ends that are queued now, and
    /// returns their number.
    unsigned tell_ends();
    /// The program has closed `ep`: receives that are told later do not name it.
    void forget(tw_ep_h ep);
    /// Ends that callbacks were told of, ever; with those that are queued.
    std::uint64_t told() const { return told_; }
    std::uint64_t told_and_deferred() const { return told_ + deferred_.size(); }
    /// Calls `visit` with each request whose callback is to be told of its end.
    template <class Visit>
    void visit_deferred(Visit visit) const {
        for (const Request* one = deferred_.front(); one != nullptr; one = RequestQueue::next(*one))
            visit(*one);
    }

  private:
    /// The memory of a request whose callback runs, and later that of one which may run.
    struct Spare {
        Spare* next;
    };

    void call_back(Request& request);
    void let_run(Request& request, const tw_completion_t& done, tw_complete_cb_t complete);
    void provide_spare();
    void queue_up(Request& request);
    bool may_be_extra(std::uint32_t flags) const {
        return (flags & TW_OP_QUEUE) != 0 && extras_ < extras_max_;
    }
    void become_extra(Request& request);
    void end_extra(Request& request);
    void* memory_beside(Request& request, ucs::Mpool& pool, ucs::Mpool& extra_pool,
                        bool* is_extra_p);
    void release_buffers(Request& request);
    void release_parts(Request& request);
    void take_back();
    void release_otherwise(Request& request);
    void* request_memory();

    const RequestPort port_;
    Attention& attention_;
    bool is_silent_ = false;
    ucs::Mpool pool_;
    Spare* spare_ = nullptr;  // taken from the pool, for the next callback
    std::size_t spares_ = 0;  // those, and requests whose callbacks run
    ucs::Mpool part_pool_;    // parts of multi-receives, and operations of the library's own
    std::size_t extras_ = 0;
    std::size_t extras_max_ = 0;
    ucs::Mpool extra_pool_;  // of extra requests, as the next two
    ucs::Mpool extra_header_pool_;
    ucs::Mpool extra_copy_pool_;
    ucs::Mpool list_pool_;
    ucs::Mpool header_pool_;
    ucs::Mpool copy_pool_;
    ucs::Mpool transmission_pool_;
    IdTable<Request> ids_;
    RequestQueue completed_;               // for poll()
    RequestQueue deferred_;                // for callbacks, in progress
    std::uint64_t told_ = 0;               // of deferred_, ever
    RequestList testable_;                 // for test(): the program has their handles
    bool has_kept_ = false;                // a completion queue was full, ever
    KeptReturns<CompletionEnv> returned_;  // requests whose completions were kept by queues
};

}  // namespace tagwire::proto
