// SPDX-License-Identifier: BSD-3-Clause
// The calls of a worker that are under way (tw_call.h): what the program waits for.
//
//     begin() --> sending, waiting --- reply ---> receiving --> finished: the callback runs
//                     |                               ^
//                     '-- time, cancel, peer's end -> over: finished when the request is sent, or
//                                                     was taken back
//
// 1. A call ends once. Its callback runs in progress, with no lock held, when neither its request
//    nor its reply uses the program's memory any more. A request with a deadline is sent from a
//    copy, if it is long: a peer that makes no progress keeps that, and not the call.
// 2. An id is a place and the number of its use, so that a late reply finds no other call.
// 3. A reply counts only if it comes from the worker that was called.
// 4. Ends take no memory.
//
// Threads: any; look() and end_of_peer() in progress.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "protocols/call/call_port.hpp"
#include "protocols/wire/call_messages.hpp"
#include "ucs/log/repeats.hpp"

namespace tagwire::proto {

/// A call that the program makes of the worker `peer`.
struct WantedCall {
    tw_ep_h ep;
    std::uint64_t peer;
    std::uint32_t method;
    const void* data;
    std::size_t length;
};

/// A connection to the worker has ended.
struct EndedPeer {
    std::uint64_t worker_id;
    std::uint64_t calls;  // those with a higher number began later
    tw_status_t status;
};

class OutgoingCalls {
  public:
    /// `wake` makes a sleeping thread progress at a time, in ns; called with the lock.
    struct Alarm {
        void* owner;
        void (*wake)(void* owner, std::uint64_t at_ns);
    };

    /// `copies_max`: bytes of all copies.
    OutgoingCalls(const CallPort& port, const Alarm& alarm, std::uint64_t copies_max)
        : to_(port), alarm_(alarm), copies_max_(copies_max), lock_(port.is_multi) {}
    OutgoingCalls(const OutgoingCalls&) = delete;
    OutgoingCalls& operator=(const OutgoingCalls&) = delete;

    /// tw_call(), with checked arguments. Throws std::bad_alloc.
    tw_status_t begin(const WantedCall& wanted, const tw_call_params_t& params,
                      std::uint64_t* id_p);
    /// False: no such call can be cancelled.
    bool cancel(std::uint64_t id);
    /// A reply has come; in its handler.
    void on_reply(tw_am_t& am);

    /// The time at which look() has something to do; UINT64_MAX: none is known.
    std::uint64_t due_ns() const { return due_ns_.load(std::memory_order_relaxed); }
    /// Calls that have begun, ever.
    std::uint64_t numbers() const { return numbers_.load(std::memory_order_relaxed); }
    /// Ends calls whose time is up, and tells ends that wait for progress. Returns how many.
    unsigned look();
    /// Ends the calls of a peer.
    unsigned end_of_peer(const EndedPeer& ended);

    /// Requests of this length on are copied, if their call has a deadline.
    static constexpr std::size_t kCopiedFrom = 1024;

  private:
    struct Call {
        OutgoingCalls* owner;
        std::uint64_t id = 0;  // 0: the place is free
        std::uint64_t number = 0;
        std::uint64_t peer = 0;
        std::uint64_t deadline_ns = UINT64_MAX;
        tw_call_params_t params{};
        tw_request_h request = nullptr;  // of the message that is being sent
        tw_call_done_t done{};
        bool is_starting = false;   // tw_call() has not returned
        bool is_sending = false;    // the request's data is the library's
        bool is_receiving = false;  // the reply's data comes
        bool is_over = false;       // `done` has the status
        bool is_ready = false;      // among those whose callback waits for look()
        bool is_told = false;       // the callback has run; the copy is being sent
        std::unique_ptr<std::byte[]> copy;
        std::size_t copy_bytes = 0;
        Call* next_ready = nullptr;

        bool is_finished() const {
            return is_over && !is_ready && !is_told && !is_starting && !is_receiving &&
                   (!is_sending || copy != nullptr);
        }
        bool may_end() const { return id != 0 && !is_over && !is_receiving; }
    };
    using Locked = std::unique_lock<std::mutex>;

    Call& take_place();
    void free_place(Call& call);
    Call* find(std::uint64_t id);
    void set_deadline(Call& call, std::uint64_t timeout_ns);
    void drop_deadline(Call& call);
    void note_due();
    void make_ready(Call& call);
    void end(Call& call, tw_status_t status);
    void take_back(Call& call);
    const void* copied(Call& call, const WantedCall& wanted);
    tw_status_t started(Call& call, tw_status_t status, tw_request_h request);
    bool finish_if_finished(Call& call, Locked& locked);
    void refuse_reply(const tw_am_t& am, const char* why);
    bool receive(Call& call, const tw_am_t& am, Locked& locked);
    static void on_sent(const tw_completion_t* sent);
    static void on_received(const tw_completion_t* received);

    const CallPort& to_;
    const Alarm alarm_;
    const std::uint64_t copies_max_;
    std::uint64_t copies_ = 0;  // bytes
    CallLock lock_;
    std::vector<std::unique_ptr<Call>> places_;
    std::vector<std::uint32_t> free_;  // has room for all places
    std::set<std::pair<std::uint64_t, Call*>> deadlines_;
    Call* ready_ = nullptr;  // finished outside of progress
    // Relaxed: hints for look(), which takes the lock.
    std::atomic<std::uint64_t> due_ns_{UINT64_MAX};
    std::atomic<std::uint64_t> numbers_{0};
    ucs::Repeats refused_;
};

}  // namespace tagwire::proto
