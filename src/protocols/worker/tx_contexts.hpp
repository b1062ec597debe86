// SPDX-License-Identifier: BSD-3-Clause
// Transmit contexts: the ways by which the threads of one worker send without standing in line for
// its lock (TW_THREAD_MULTI; tw_worker_params_t.tx_contexts).
//
//     worker (the front): its lock; all that comes, all receives
//       |-- transmit context 1: a lock, rails, requests, endpoints; sends of some threads
//       '-- transmit context 2: the same; sends of others
//
// 1. A transmit context is a worker that only sends. Beside the program's endpoint stands one of
//    each context. These connect when it has connected, to the same worker, which learns from
//    their hello whose messages they carry.
// 2. A thread sends everything by one context, so its messages to a peer stay in order.
// 3. The owner of the front's lock may take that of a context, never the other way round. Callbacks
//    run without either.
// 4. Endpoints of contexts fail with the program's endpoint, and it with any of them.
#pragma once

#include <ucs/type/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocols/api/tw_context.h"
#include "protocols/request/request.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Context;
class Endpoint;
class EpTxContexts;
class Rail;
class TxContexts;
class Worker;
class WorkerCore;
struct Fact;

/// Never UINT32_MAX.
unsigned new_number_of_thread();

/// The number of the calling thread, among all that have asked.
inline unsigned number_of_thread() {
    [[gnu::tls_model("initial-exec")]] static thread_local constinit unsigned number = UINT32_MAX;
    if (number == UINT32_MAX) [[unlikely]]
        number = new_number_of_thread();
    return number;
}

/// One of them: what its worker has to tell the front. With the lock of its worker.
class alignas(64) TxContext {
  public:
    TxContext(WorkerCore& of, unsigned its_number);
    ~TxContext();
    TxContext(const TxContext&) = delete;
    TxContext& operator=(const TxContext&) = delete;

    void has_failed(const Endpoint& ep, ucs_status_t status);
    /// The failure of `front` is told to the program behind the ends of operations that wait now.
    void tells_before(Endpoint& front);
    void forget(const Endpoint& front);

    WorkerCore& front;
    const unsigned number;  // from 1 on
    std::unique_ptr<Worker> worker;

  private:
    friend class TxContexts;
    struct Failure {
        Endpoint* front;
        ucs_status_t status;
    };
    struct Telling {
        Endpoint* front;
        std::uint64_t after;  // so many ends were told
    };

    ucs::ReserveVector<Failure> failures_;
    ucs::ReserveVector<Telling> tellings_;
    // Relaxed: who sees it takes the lock.
    std::atomic<bool> has_news_{false};
    std::atomic<unsigned> calls_{0};  // of progress, by its threads
};

/// An endpoint of one context beside one of the program. With the context's lock; who sends by it
/// reads `ep` without, for the program does not close what it uses.
struct TxPart {
    EpTxContexts* all;
    TxContext* context;
    Endpoint* ep;  // nullptr: it has gone
};

/// The endpoints of all contexts beside one of the program. With the lock of the front's worker,
/// but of_this_thread().
class EpTxContexts {
  public:
    EpTxContexts(TxContexts& owner, Endpoint& front);
    EpTxContexts(const EpTxContexts&) = delete;
    EpTxContexts& operator=(const EpTxContexts&) = delete;

    /// nullptr: it was closed, and its front is being closed.
    Endpoint* of_this_thread() const {
        const std::size_t number = number_of_thread();
        return (number < parts_.size() ? parts_[number] : parts_[number % parts_.size()]).ep;
    }
    ucs_status_t open();
    /// The front is connected.
    void begin();
    /// The front has failed: fails each context.
    void fail(ucs_status_t status);
    /// Begins to flush, or to close all. TW_ERR_NO_RESOURCE: to be called again.
    tw_status_t flush(RequestKind kind);
    /// Some of what flush() has begun has not ended.
    bool awaits_ends() const { return ends_ > 0; }
    /// The front goes: those that are open are closed by force, and this goes as soon as nothing is
    /// awaited.
    void release();

  private:
    static void flushed(const tw_completion_t* done);
    void ended();

    TxContexts& owner_;
    Endpoint* front_;  // nullptr: it has gone
    std::vector<TxPart> parts_;
    std::size_t ends_ = 0;
    bool has_begun_ = false;
};

/// Transmit contexts of a worker. Without a lock, unless said otherwise.
class TxContexts {
  public:
    explicit TxContexts(Worker& front);
    ~TxContexts();
    TxContexts(const TxContexts&) = delete;
    TxContexts& operator=(const TxContexts&) = delete;

    ucs_status_t open(Context& context, unsigned count);
    Worker& front() const { return front_; }
    const std::vector<std::unique_ptr<TxContext>>& all() const { return contexts_; }

    /// As tw_worker_progress(), of all.
    unsigned progress();
    /// As progress(), of the contexts alone. 0 in a callback.
    unsigned progress_contexts();
    /// The calling thread is in a callback of one of them.
    bool is_in_progress_here() const;
    unsigned poll(tw_completion_t* completions, unsigned max) const;
    /// The sum of the counters at that place of a CounterSet.
    std::uint64_t counter(std::size_t place) const;

    // ---- With the lock of the front's worker

    /// Gives an endpoint of the program its endpoints. UCS_ERR_NO_MEMORY.
    ucs_status_t add(Endpoint& front);
    void remove(const EpTxContexts& gone);
    std::uint64_t ends() const;
    bool has_completions() const;
    /// Rails of all contexts, for their descriptors.
    std::vector<const Rail*> rails() const;
    void describe(std::vector<Fact>& facts) const;
    /// Asks them for events. UCS_ERR_BUSY: something has come. *deadline_ns: the next look at the
    /// clock, if it is earlier.
    ucs_status_t arm(std::uint64_t* deadline_ns) const;

  private:
    /// The calling thread is in a callback of a context or of the front.
    bool is_in_callback() const;
    unsigned progress(TxContext& context);
    void settle(TxContext& context);

    Worker& front_;
    std::vector<std::unique_ptr<TxContext>> contexts_;
    std::vector<std::unique_ptr<EpTxContexts>> endpoints_;
};

}  // namespace tagwire::proto
