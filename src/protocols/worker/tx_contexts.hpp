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

#include "protocols/api/tw_worker.h"
#include "protocols/request/request.hpp"
#include "protocols/worker/tx_parts.hpp"
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

/// One of them: what its worker has to tell the front. With the lock of its worker.
class alignas(64) TxContext {
  public:
    TxContext(WorkerCore& of, unsigned its_number);
    ~TxContext();
    TxContext(const TxContext&) = delete;
    TxContext& operator=(const TxContext&) = delete;

    struct Failure {
        Endpoint* front;
        ucs_status_t status;
    };

    void has_failed(const Endpoint& ep, ucs_status_t status);
    /// The failure of `front` is told to the program behind the ends of operations that wait now.
    void delay_failure_of(Endpoint& front);
    void forget(const Endpoint& front);
    /// Without its lock: the front has something to hear, by take_failures() and take_told().
    bool has_news() const { return has_news_.load(std::memory_order_relaxed); }
    ucs::ReserveVector<Failure> take_failures();
    /// Fronts for which delay_failure_of() was called, and all of whose ends were told since.
    ucs::ReserveVector<Endpoint*> take_told();
    /// Counts a call of progress by a thread of the context, without its lock.
    unsigned count_call() {
        // Relaxed: what is lost to another thread of this context is its turn.
        const unsigned calls = calls_.load(std::memory_order_relaxed) + 1;
        calls_.store(calls, std::memory_order_relaxed);
        return calls;
    }

    WorkerCore& front;
    const unsigned number;  // from 1 on
    std::unique_ptr<Worker> worker;

  private:
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

/// The endpoints of all contexts beside one of the program. With the lock of the front's worker.
class EpTxContexts : public TxParts {
  public:
    EpTxContexts(TxContexts& owner, Endpoint& front);

    ucs_status_t open();

  private:
    static const TxCalls kCalls;

    void begin_all();
    void fail_all(ucs_status_t status);
    tw_status_t flush_all(bool closes, tw_flush_level_t level, bool is_kept);
    void release_all();
    static void flushed(const tw_completion_t* done);
    void ended();

    TxContexts& owner_;
    Endpoint* front_;  // nullptr: it has gone
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
