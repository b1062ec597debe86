// SPDX-License-Identifier: BSD-3-Clause
// The core of a worker: the state that its parts share, and the completion of every request.
//
//     Worker (worker.hpp): progress, waiting
//       |-- PeerTable, DeviceTags, Receiver     reach it by ports (worker_ports.cc)
//       '-- WorkerCore                          rails, requests, name spaces, counters, lock
#pragma once

#include <uct/api/uct.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "protocols/am/am_receiver.hpp"
#include "protocols/api/tw_worker.h"
#include "protocols/connect/connector.hpp"
#include "protocols/index/id_table.hpp"
#include "protocols/match/match_table.hpp"
#include "protocols/port/worker_counters.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/attention.hpp"
#include "protocols/request/callback_port.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rma/rma_ops.hpp"
#include "protocols/worker/awaited.hpp"
#include "protocols/worker/delegated_call.hpp"
#include "protocols/worker/lookout.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_worker {};

namespace tagwire::proto {

class DeviceTags;
class Endpoint;
class PeerTable;
class Receiver;
class TxContext;
class TxContexts;

/// Ways to post a plain receive: unlocked fast path, locked fast path, or slow path (tag offload).
enum class ReceivePath : std::uint8_t { kFast, kLocked, kSlow };

class WorkerCore;
/// The port of its match table.
MatchPort match_port_of(WorkerCore& worker, WorkerCounters& counters, const IdCount& peers);
/// The port of its active messages.
AmReceiverPorts am_port_of(WorkerCore& worker, const WorkerPort& port, MatchTable& matches);
/// The port of its requests.
RequestPort request_port_of(WorkerCore& worker, Attention& attention);
/// The port of parts that call the program.
CallbackPort callback_port_of(WorkerCore& worker, Attention& attention);

class WorkerCore : public tw_worker {
  public:
    WorkerCore(const WorkerCore&) = delete;
    WorkerCore& operator=(const WorkerCore&) = delete;

    Context& context() const { return context_; }
    const Options& options() const { return context_.options(); }
    std::uint64_t id() const { return id_; }
    std::span<const std::unique_ptr<Rail>> rails() const { return rails_; }
    void count(WorkerCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }

    // ---- Parts

    /// Parts call the program by it.
    const CallbackPort& callbacks() const { return callbacks_; }
    /// Parts of endpoints reach the worker by it.
    const WorkerPort& port() const { return port_; }
    RequestTable& requests() { return requests_; }
    MatchTable& matches() { return matches_; }
    const MatchTable& matches() const { return matches_; }
    MatchSpace& space(bool is_tagged) { return matches_.space(is_tagged); }
    /// Endpoints by the ids that their peers name them with.
    IdTable<Endpoint>& endpoints() { return endpoints_; }
    PeerTable& peers() { return peers_; }
    Receiver& receiver() { return receiver_; }
    AmReceiver& ams() { return ams_; }
    /// Where a device matches tags; else nullptr.
    DeviceTags* device_tags() const { return device_tags_; }
    /// For connectors.
    const WireupWorld& wireup_world() const { return wireup_world_; }
    /// Contexts by which the worker's threads send; nullptr: by itself.
    TxContexts* tx_contexts() const { return tx_contexts_.get(); }

    // ---- Events

    /// A thread is inside progress: this one, or one whose callback runs.
    bool is_in_progress() const { return attention_.is_in_progress(); }
    /// A callback of this worker is running, in the calling thread.
    bool is_in_progress_here() const { return attention_.is_in_progress_here(); }
    void ask_slow_work() { attention_.ask_slow_work(); }
    /// A thread sleeps on this worker.
    bool is_watched() const { return attention_.is_watched(); }
    /// A worker of one thread whose progress is that of its transports.
    bool is_plain() const { return attention_.is_plain(); }
    /// Ends of operations wait to be told.
    bool has_deferred() const { return attention_.has_deferred(); }
    /// For Walk and InCallback.
    Attention& attention() { return attention_; }
    /// An operation that the program had to repeat is possible now.
    void count_event() { attention_.count_events(); }
    /// The number of events that the program may have seen: it grows when an operation ends, a
    /// message comes that nobody waits for, a handler runs, or an endpoint fails.
    std::uint64_t ends() const { return attention_.events() + arrivals(); }
    /// Messages of programs that have come; to a transmit context none do.
    std::uint64_t arrivals() const {
        return counters_.value(WorkerCounter::kRxAm) + counters_.value(WorkerCounter::kRxExpected) +
               counters_.value(WorkerCounter::kRxUnexpected);
    }

    // ---- The lock, of a worker that is_multi

    /// Takes it for longer.
    void enter() {
        lock.lock();
        open_if_wanted();
    }
    void leave() {
        lock.unlock([this](const DelegatedCall& call) { carry_out_and_settle(call); });
    }
    /// The lock is taken for longer: threads that come meanwhile delegate, if some had to wait
    /// lately.
    void open_if_wanted() {
        if (lock.should_open()) [[unlikely]]
            open();
    }

    /// Behind a callback that ran without it.
    void enter_again() {
        lock.lock_behind_others();
        open_if_wanted();
        count_event();
    }

    // ---- Ends of requests

    /// Adds a request that was sent, or that matched, and completes later to the endpoint's
    /// `outstanding` or `receiving`.
    void set_outstanding(Request& request, Endpoint& ep);
    /// The operation has ended.
    void finish(Request& request, ucs_status_t status);
    /// As finish(), after the reads and writes that outlive their lane: no device uses the buffer
    /// that the program gets back. The failure of the endpoint is reported after that.
    void finish_drained(Request& request, ucs_status_t status);
    /// The last read or write of such a request has ended.
    void drained(Request& request, ucs_status_t status);
    /// The endpoint is destroyed: requests that drain no longer refer to it.
    void detach_draining(const Endpoint& ep);
    /// A region of the cache for what is sent or received; nullptr: none, or a list.
    RegLease* cache_region(const Request& request, std::size_t domain, RegUse use);

    /// A peer's operation on memory of the program has taken effect. `is_counted`: the program has
    /// the memory count it, and needs no completion.
    void tell_rma(Endpoint& from, tw_completion_t done, bool is_counted);

    // ---- Messages that are dropped: counted and logged. UCS_OK, or false

    /// The message is malformed, or cannot come now.
    ucs_status_t garbage(const char* what, std::size_t length);
    bool drop(const char* what, std::size_t length);
    /// The message is of a sender that has no endpoint.
    ucs_status_t drop_from_unknown(std::uint32_t sender, const char* what, std::size_t length);

    RmaOps rma_ops;
    Awaited awaited;
    const bool is_multi;
    /// The reasons for an Entry to do something; 0: there is none.
    const std::uint8_t guards;
    static constexpr std::uint8_t kLocked = 1, kHeard = 2;
    /// The program takes the log lines of the context.
    bool is_heard() const { return (guards & kHeard) != 0; }
    /// The transmit context that this worker is; nullptr: it is a worker of a program.
    TxContext* const own_tx;
    tw_worker_limits_t limits;
    ReceivePath receive_path;
    WorkerLock lock;
    /// By LookoutOf; null: nobody needed one.
    std::array<std::unique_ptr<Lookout>, static_cast<std::size_t>(LookoutOf::kCount)> lookouts;
    Lookout* lookout(LookoutOf kind) const {
        return lookouts[static_cast<std::size_t>(kind)].get();
    }
    ucs::Repeats refusals;  // of messages that any stranger may send

  protected:
    WorkerCore(Context& context, const tw_worker_params_t& params, TxContext* tx, PeerTable& peers,
               Receiver& receiver);
    ~WorkerCore();

  private:
    void open();
    void carry_out_and_settle(const DelegatedCall& call);

  protected:
    Context& context_;
    const tw_worker_params_t params_;
    const std::uint64_t id_;
    std::unique_ptr<RegLeases> leases_;  // null: there is no cache; they outlive transfers of rails
    ucs::ReserveVector<std::unique_ptr<Rail>> rails_;
    Attention attention_{is_multi};
    const CallbackPort callbacks_{callback_port_of(*this, attention_)};
    IdTable<Endpoint> endpoints_;
    MatchTable matches_{match_port_of(*this, counters_, endpoints_), options()};
    AmReceiver ams_{am_port_of(*this, port_, matches_)};
    RequestTable requests_{request_port_of(*this, attention_)};
    RequestList draining_;  // of failed endpoints; a device still moves their data
    WorkerCounters counters_;
    PeerTable& peers_;
    Receiver& receiver_;
    DeviceTags* device_tags_ = nullptr;
    std::unique_ptr<TxContexts> tx_contexts_;

  private:
    static const WorkerCalls kWorkerCalls;
    const WorkerPort port_{this,
                           kWorkerCalls,
                           counters_,
                           options(),
                           requests_,
                           attention_,
                           context_.cache() != nullptr};
    const WireupWorld wireup_world_;
};

inline WorkerCore& core_of(tw_worker_h handle) {
    return *static_cast<WorkerCore*>(handle);
}

/// As InCallback: other threads may enter meanwhile, as the callback itself may. Such a thread may
/// have been told of the event before the callback had run, so its end is another one: who waits
/// for what the callback does looks again.
class Unlocked {
  public:
    explicit Unlocked(WorkerCore& worker) : worker_(worker), callback_(worker.attention()) {
        if (worker.is_multi)
            worker.leave();
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() {
        if (worker_.is_multi)
            worker_.enter_again();
    }

  private:
    WorkerCore& worker_;
    const InCallback callback_;
};

}  // namespace tagwire::proto
