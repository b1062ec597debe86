// SPDX-License-Identifier: BSD-3-Clause
// A worker: rails, endpoints, the two name spaces of messages, requests and their ends.
//
// 1. Callbacks of the program run inside progress only; ends seen elsewhere wait for it.
// 2. Every message of a peer is checked before anything of it is used; one that cannot be is
//    dropped and counted (kGarbage).
#pragma once

#include <uct/api/uct.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "protocols/api/tw_context.h"
#include "protocols/attention.hpp"
#include "protocols/context.hpp"
#include "protocols/device_tags.hpp"
#include "protocols/endpoint.hpp"
#include "protocols/match_table.hpp"
#include "protocols/peer_table.hpp"
#include "protocols/rail.hpp"
#include "protocols/receiver.hpp"
#include "protocols/request.hpp"
#include "protocols/request_table.hpp"
#include "protocols/unexpected.hpp"
#include "protocols/wait_protocol.hpp"
#include "protocols/wakeup.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "ucs/sys/recursive_lock.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_worker {};

namespace tagwire::proto {

enum class WorkerCounter {
    kTxShort,
    kTxEager,
    kTxParts,
    kTxRndv,
    kTxQueued,
    kRxExpected,
    kRxUnexpected,
    kRxRndv,
    kRndvGet,
    kRndvPut,
    kRndvCopy,
    kRndvFallback,
    kRndvStriped,
    kRndvRailBytes,
    kRndvRailLost,
    kRegCached,
    kRegMade,
    kRegRefused,
    kTxTagged,
    kTxPlaceholders,
    kTagGiven,
    kTagMatched,
    kTagBounced,
    kTagTakenBack,
    kTagRecalled,
    kTagKeptKind,
    kTagKeptOrder,
    kTagKeptPeers,
    kTagKeptFull,
    kHeldData,
    kHeld,
    kOrphansDropped,
    kLate,
    kGarbage,
    kCount
};

/// On cache lines of its own: workers of several threads lie one behind the other in the heap.
class alignas(128) Worker : public tw_worker {
  public:
    static ucs_status_t create(Context& context, const tw_worker_params_t& params,
                               std::unique_ptr<Worker>* worker_p);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    Context& context() const { return context_; }
    const Options& options() const { return context_.options(); }
    std::uint64_t id() const { return id_; }
    const std::vector<std::byte>& address() const { return address_; }
    std::span<const std::unique_ptr<Rail>> rails() const { return rails_; }
    Rail* rail_of(std::string_view transport) const;

    unsigned progress() {
        if (attention_.is_needed()) [[unlikely]]
            return progress_slowly();
        return advance();
    }
    void query(tw_worker_attr_t* attr) const;
    void describe(tw_describe_cb_t cb, void* arg);
    ucs::CounterSet counters() const;
    void count(WorkerCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }

    // ---- Waiting (worker_wait.cc)

    ucs_status_t event_fd(int* fd_p);
    /// For the program, which sleeps on the descriptor. UCS_ERR_BUSY: there is something to
    /// progress, or to poll.
    ucs_status_t arm();
    /// Ends waits, and makes the descriptor readable. Any thread, also in a signal handler.
    void signal();
    /// The number of events that the program may have seen: it grows when an operation ends, a
    /// message comes that nobody waits for, or an endpoint fails.
    std::uint64_t ends() const {
        return attention_.events() + counters_.value(WorkerCounter::kRxExpected) +
               counters_.value(WorkerCounter::kRxUnexpected);
    }
    std::uint64_t signals() const {
        // SYNC worker_signal: pairs with the release in signal(): what was written before it is
        // seen by the program whose wait it ends.
        return signals_.load(std::memory_order_acquire);
    }
    /// The peer takes messages again.
    void count_resumed() { attention_.count_events(); }
    /// A callback of this worker is running, in the calling thread.
    bool is_in_progress() const { return attention_.is_in_progress(); }
    /// The calling thread begins to wait, or has woken. `arming`: what it slept on, if its
    /// descriptor has told of something; else 0.
    Waiter& wake_up(std::uint64_t arming);
    /// Progress, unless other threads sleep and nothing has come.
    unsigned progress_for(const Waiter& me);
    /// The calling thread sleeps next. UCS_ERR_BUSY: there is something to progress.
    ucs_status_t fall_asleep(Waiter& me, std::uint64_t* arming_p);
    bool is_watched() const { return attention_.is_watched(); }
    /// Before the lock is released: those who sleep go on sleeping only if nothing has happened and
    /// the worker is armed. `leaves_work`: the call may have left work to progress.
    void settle(bool leaves_work);

    // ---- Peers

    PeerTable& peers() { return peers_; }
    /// Where a device matches tags; else nullptr.
    DeviceTags* device_tags() const { return device_tags_.get(); }
    void ask_slow_work() { attention_.ask_slow_work(); }

    // ---- Requests (requests.cc)

    RequestTable& requests() { return requests_; }
    /// The operation has ended.
    void finish(Request& request, ucs_status_t status);
    void finish_late(Request& request, ucs_status_t status);
    void end_late(Request& request, ucs_status_t status);
    /// The endpoint goes: requests of it that end late do not come back to it.
    void drop_late(const Endpoint& ep);
    void cancel(Request& request);
    void set_outstanding(Request& request, Endpoint& ep);
    /// A region of the cache for what is sent or received; nullptr: none, or a list. (memory.cc)
    CachedRegion* cache_region(const Request& request, std::size_t domain, RegUse use);

    // ---- Receiving (worker_messages.cc, receiver.hpp)

    bool try_post_short(void* buffer, std::size_t length, std::uint64_t tag, std::uint64_t mask,
                        bool is_tagged, const tw_op_t& op, tw_request_h* request_p,
                        std::uint32_t source);
    ucs_status_t on_eager(const std::byte* data, std::size_t length);
    ucs_status_t on_part(const std::byte* data, std::size_t length);
    ucs_status_t on_rts(const std::byte* data, std::size_t length);
    ucs_status_t on_rtr(const std::byte* data, std::size_t length);
    ucs_status_t on_data(const std::byte* data, std::size_t length);
    ucs_status_t on_control(const std::byte* data, std::size_t length);
    ucs_status_t on_wireup(const std::byte* data, std::size_t length);
    /// Drops a message that is malformed, or of a sender that has no endpoint.
    ucs_status_t garbage(const char* what, std::size_t length);
    ucs_status_t of_nobody(std::uint32_t sender, const char* what, std::size_t length);
    /// The same as garbage(); false.
    bool drop(const char* what, std::size_t length);
    /// A receive leaves the list of posted ones; it has left it.
    void unpost(Request& request) {
        space(request.is_tagged).posted.cancel(request);
        unposted(request);
    }
    void unposted(Request& request) {
        request.is_posted = false;
        if (device_tags_ != nullptr && request.is_tagged)
            device_tags_->left(request);
    }
    Request* match(MatchSpace& space, std::uint64_t tag, std::uint32_t source);
    Receiver& receiver() { return receiver_; }
    /// A message is moved by several rails: `bytes` of it by others than the lane.
    void count_striped(std::uint64_t bytes) {
        count(WorkerCounter::kRndvStriped);
        count(WorkerCounter::kRndvRailBytes, bytes);
    }
    MatchTable& matches() { return matches_; }
    MatchSpace& space(bool is_tagged) { return matches_.space(is_tagged); }

    const bool is_multi;
    tw_worker_limits_t limits;
    bool receives_long;  // receives cannot be posted on the fast path: there is a lock, or a device
    ucs::RecursiveLock lock;  // with is_multi

  private:
    Worker(Context& context, const tw_worker_params_t& params);
    ucs_status_t open();
    ucs_status_t open_device_tags();
    void open_rails();
    ucs_status_t check_scheme() const;
    ucs_status_t plan_stripes();
    void set_handlers(Rail& rail);
    unsigned advance() {
        attention_.begin_progress();
        unsigned count = uct_worker_progress(uct_);
        if (--calls_left_ == 0) [[unlikely]]
            count += look_around();
        attention_.end_progress();
        return count;
    }
    unsigned progress_slowly();
    unsigned progress_all();
    unsigned progress_watched();
    friend class WaitProtocol<Worker, WakeEvent>;
    bool has_work() const;
    ucs_status_t take_and_arm();
    void ring() const { wakeup_.ring(); }
    void watch();
    unsigned run_slow_work();
    unsigned look_around();
    unsigned look_at_rails();
    void look_at_peers();

    template <bool kIsLong>
    void end_short(Request& request, Endpoint& ep, const Header& header, const std::byte* data,
                   std::size_t length, std::uint64_t imm);
    ucs_status_t on_long_eager(const std::byte* data, std::size_t length);
    ucs_status_t on_eager_among_others(Endpoint& ep, Header header, const std::byte* data,
                                       std::size_t length);

    /// Calls of progress between two looks at the clock, and at rails that nobody uses.
    static constexpr unsigned kCallsPerLook = 1024;
    static constexpr unsigned kCallsPerRailLook = 128;

    Context& context_;
    const tw_worker_params_t params_;
    std::uint64_t id_ = 0;
    std::vector<std::byte> address_;
    ucs_async_context_t* async_ = nullptr;
    uct_worker_h uct_ = nullptr;
    std::unique_ptr<DeviceTags> device_tags_;
    std::vector<std::unique_ptr<Rail>> rails_;
    Attention attention_;
    unsigned calls_left_ = kCallsPerLook;  // before the clock is looked at
    std::uint64_t next_look_ns_ = 0;
    Wakeup wakeup_;
    WaitProtocol<Worker, WakeEvent> waits_{*this};
    bool has_refused_progress_ = false;
    std::atomic<std::uint64_t> signals_{0};

    PeerTable peers_{*this, params_};

    MatchTable matches_{*this, options()};
    Receiver receiver_{*this};

    RequestTable requests_{*this, attention_};
    RequestList late_;  // of endpoints that are gone; devices still move data of theirs

    ucs::CounterArray<WorkerCounter> counters_;
};

inline Worker& worker_of(tw_worker_h handle) {
    return *static_cast<Worker*>(handle);
}

/// Held by every call of the API on a worker.
class Entry {
  public:
    explicit Entry(Worker& worker) : worker_(worker) {
        if (worker.is_multi)
            worker.lock.lock();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
        if (worker_.is_multi)
            worker_.lock.unlock();
    }

  private:
    Worker& worker_;
};

/// Held by every call that may leave work to progress: behind Entry, it wakes who sleeps.
class LeavesWork {
  public:
    explicit LeavesWork(Worker& worker) : worker_(worker) {}
    LeavesWork(const LeavesWork&) = delete;
    LeavesWork& operator=(const LeavesWork&) = delete;
    ~LeavesWork() {
        if (worker_.is_watched()) [[unlikely]]
            worker_.settle(true);
    }

  private:
    Worker& worker_;
};

}  // namespace tagwire::proto
