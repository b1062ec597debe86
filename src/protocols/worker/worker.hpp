// SPDX-License-Identifier: BSD-3-Clause
// A worker as a whole: its parts, their progress, and how calls of the API enter it.
//
// 1. Callbacks of the program run inside progress only, and never inside one another; completions
//    seen elsewhere wait for it. Ends of operations are told before the next message of a peer is
//    taken, and when the transports have been progressed; what a message calls itself (a posted
//    receive, a handler, rma_event), as the last step of taking it.
// 2. Every message of a peer is checked before anything of it is used; one that cannot be is
//    dropped and counted (kGarbage).
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocols/connect/contacts.hpp"
#include "protocols/eager/receiver.hpp"
#include "protocols/offload/device_tags.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/politeness.hpp"
#include "protocols/worker/waiting.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

/// For people.
struct Fact {
    std::string key;
    std::string value;
};

/// On cache lines of its own: workers of several threads lie one behind the other in the heap.
class alignas(128) Worker : public WorkerCore {
  public:
    /// `own_tx`: as WorkerCore has it. UCS_ERR_INVALID_PARAM: `params`; the log says what.
    static ucs_status_t create(Context& context, const tw_worker_params_t& params,
                               TxContext* own_tx, std::unique_ptr<Worker>* worker_p);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    /// In at most `room` bytes; empty: that is not enough.
    std::vector<std::byte> address(std::size_t room) const { return contacts_.address(id_, room); }
    void query(tw_worker_attr_t* attr) const;
    std::vector<Fact> description();
    /// Counters of the worker itself, without those of its transmit contexts.
    ucs::CounterSet counters() const { return set_of(counters_); }
    void cancel(Request& request);

    /// Progress of a worker that is_plain().
    [[gnu::always_inline]] unsigned progress_plain() {
        attention_.begin_plain<false>();
        const unsigned count = progress_and_look();
        if (!attention_.is_plain_inside()) [[unlikely]]
            return end_attentively(count);
        attention_.end_plain<false>();
        return count;
    }
    /// Progress of another one.
    unsigned progress_otherwise();
    /// As progress(), of a worker with a lock, which the caller has not. TW_PROGRESS_BUSY.
    unsigned progress_shared();
    /// The answer to a call of progress in a callback.
    unsigned refuse_progress();
    /// The calling thread is in a callback of it. Asked without the lock.
    bool is_progressing_thread() const { return attention_.is_progressing_thread(); }
    /// Slow work, then the transports.
    unsigned progress_all();

    Politeness& politeness() { return politeness_; }
    /// The next call takes the looks that are due after a number of calls.
    void look_soon() { calls_left_ = 1; }

    // ---- Waiting

    Waiting& waiting() { return waiting_; }
    /// The descriptor is armed, or a thread sleeps.
    void set_watched(bool is_watched) { attention_.set_watched(is_watched); }
    /// There is something to progress, or to poll.
    bool has_work() const {
        return attention_.has_slow_work() || attention_.has_deferred() ||
               requests_.has_completions();
    }
    /// Makes the next call of progress look at the clock. Returns the time of the next look in
    /// nanoseconds; UINT64_MAX: there is no endpoint.
    std::uint64_t look_at_clock_next();

  private:
    Worker(Context& context, const tw_worker_params_t& params, TxContext* tx)
        : WorkerCore(context, params, tx, own_peers_, own_receiver_) {}
    ucs_status_t open_tx_contexts();
    ucs_status_t open();
    ucs_status_t open_device_tags();
    static const DeviceTagCalls kDeviceTagCalls;
    static const ReceiverCalls kReceiverCalls;
    static const PeerTableCalls kPeerTableCalls;
    static const PolitenessCalls kPolitenessCalls;
    PeerTablePorts peer_table_ports();
    PolitenessPorts politeness_ports();
    ucs_status_t open_rails();
    void say_farewell();
    bool are_atomics_by_device() const;
    ucs_status_t check_scheme() const;
    ucs_status_t plan_stripes();
    /// As uct_worker_progress(), which most times calls one rail: nothing but the worker is kept
    /// beyond that.
    [[gnu::always_inline]] unsigned progress_transports() {
        const ucs_callbackq_elem_t* first = uct_->progress_q.fast_elems;
        // SYNC publish(callbackq): as in ucs_callbackq_dispatch().
        const ucs_callback_t callback = __atomic_load_n(&first->cb, __ATOMIC_ACQUIRE);
        if (callback == nullptr) [[unlikely]]
            return 0;
        const unsigned count = callback(first->arg);
        const ucs_callbackq_elem_t* second = uct_->progress_q.fast_elems + 1;
        if (__atomic_load_n(&second->cb, __ATOMIC_RELAXED) == nullptr) [[likely]]
            return count;
        return progress_other_transports(count);
    }
    unsigned progress_other_transports(unsigned count);
    [[gnu::always_inline]] unsigned progress_and_look() {
        unsigned count = progress_transports();
        if (--calls_left_ == 0) [[unlikely]]
            count += look_around();
        return count;
    }
    /// In progress, whatever attention is needed.
    unsigned advance();
    unsigned end_attentively(unsigned count);
    unsigned end_attentively_and_leave(unsigned count);
    unsigned leave_attentively(unsigned count);
    unsigned progress_alone();
    unsigned progress_heard();
    unsigned leave_and_go_away(unsigned count);
    unsigned settle_and_leave(unsigned count);
    unsigned progress_slowly();
    unsigned progress_attentively();
    unsigned progress_behind_another();
    unsigned progress_and_unlock();
    unsigned run_slow_work();
    unsigned look_around();
    unsigned look_at_rails();
    void look_at_peers();

    /// Calls of progress between two looks at the clock, and at rails that nobody uses.
    static constexpr unsigned kCallsPerLook = 1024;
    static constexpr unsigned kCallsPerRailLook = 128;
    static constexpr unsigned kCallsPerLookout = 128;
    /// Time between two looks at such rails that cost system calls.
    static constexpr std::uint64_t kKernelLookNs = 100'000;

    Contacts contacts_;
    ucs_async_context_t* async_ = nullptr;
    uct_worker_h uct_ = nullptr;
    bool lacks_memory_ = false;                      // for a rail
    unsigned calls_left_ = kCallsPerLook;            // before the clock is looked at
    std::atomic<bool> has_refused_progress_{false};  // relaxed: it is logged once, or once more
    std::uint64_t next_look_ns_ = 0;
    std::uint64_t next_kernel_look_ns_ = 0;
    std::unique_ptr<DeviceTags> own_device_tags_;
    PeerTable own_peers_{peer_table_ports()};
    Receiver own_receiver_{{port(), matches_, attention_, limits, this, kReceiverCalls}};
    Waiting waiting_{*this};
    Politeness politeness_{politeness_ports()};
};

inline Worker& worker_of(tw_worker_h handle) {
    return *static_cast<Worker*>(handle);
}

inline Worker& worker_of(WorkerCore& core) {
    return static_cast<Worker&>(core);
}

}  // namespace tagwire::proto
