// SPDX-License-Identifier: BSD-3-Clause
// The requests that peers have made of a worker (tw_call.h), and that wait for a reply.
//
//     on_request() --- short ---------------------------> handler --> open --> reply() --> gone
//                 '--- rendezvous: receiving --> all here ---'
//                 '--- no method, no room: a refusal goes back
//
// 1. A request is open from its handler on, until one reply() has been sent. Its id is a place and
//    the number of its use, so that no other request is replied to by a late id.
// 2. Peers make this side keep at most TAGWIRE_CALL_REQUESTS_MAX requests, and
//    TAGWIRE_CALL_BYTES of data that came by rendezvous.
// 3. A refusal that cannot be sent now is sent by look(); at most kRefusalsMax wait.
//
// Threads: any; on_request() and look() in progress.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocols/call/call_port.hpp"
#include "protocols/wire/call_messages.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

struct CallLimits {
    std::uint64_t requests_max;
    std::uint64_t bytes_max;
};

/// A reply of the program.
struct WantedReply {
    std::uint64_t request;
    std::int32_t status;
    const void* data;
    std::size_t length;
};

class IncomingCalls {
  public:
    static constexpr std::size_t kRefusalsMax = 1024;

    IncomingCalls(const CallPort& port, const CallLimits& limits)
        : to_(port), limits_(limits), lock_(port.is_multi) {}
    IncomingCalls(const IncomingCalls&) = delete;
    IncomingCalls& operator=(const IncomingCalls&) = delete;

    /// Throws std::bad_alloc, and nothing has changed.
    void set(std::uint32_t method, tw_call_cb_t callback, void* arg);
    /// A request has come; in its handler.
    void on_request(tw_am_t& am);
    /// tw_call_keep().
    static tw_status_t keep(tw_call_request_t& request);
    /// tw_reply().
    tw_status_t reply(const WantedReply& wanted, const tw_op_t* op, tw_request_h* request_p);

    /// Refusals wait to be sent.
    bool has_refusals() const { return has_refusals_.load(std::memory_order_relaxed); }
    void look();
    std::size_t open_requests() const { return places_.size() - free_.size(); }

  private:
    struct Request {
        IncomingCalls* owner;
        std::uint64_t id = 0;  // 0: the place is free
        std::uint64_t last_id = 0;
        std::uint64_t source = 0;
        std::uint64_t length = 0;
        CallHeader header;
        std::unique_ptr<std::byte[]> data;  // that came by rendezvous
        tw_message_h kept = nullptr;
        bool is_open = false;  // the program has it
        bool is_replying = false;
    };
    struct Handler {
        tw_call_cb_t callback;
        void* arg;
    };
    struct Refusal {
        std::uint64_t source;
        std::uint64_t call;
        tw_status_t status;
    };
    /// A request while its handler runs.
    struct Given : tw_call_request_t {
        IncomingCalls* owner;
        tw_am_t* am;  // null: it came by rendezvous
    };
    using Locked = std::unique_lock<std::mutex>;

    Request* take_place();
    void free_place(Request& request);
    Request* find(std::uint64_t id);
    const Handler* handler_of(std::uint32_t method) const;
    tw_status_t admit(const tw_am_t& am, const CallHeader& header, Request** request_p);
    bool receive(Request& request, const tw_am_t& am, Locked& locked);
    static void on_received(const tw_completion_t* received);
    void give(Request& request, tw_am_t* am, tw_ep_h ep, Locked& locked);
    void refuse(const Refusal& refusal);
    tw_status_t send(const Refusal& refusal) const;

    const CallPort& to_;
    const CallLimits limits_;
    CallLock lock_;
    ucs::ReserveVector<std::unique_ptr<Request>> places_;
    ucs::ReserveVector<std::uint32_t> free_;  // has room for all places
    ucs::ReserveHashMap<std::uint32_t, Handler> handlers_;
    ucs::ReserveVector<Refusal> refusals_;
    std::uint64_t bytes_ = 0;                // of data
    std::atomic<bool> has_refusals_{false};  // relaxed: a hint for look(), which takes the lock
    ucs::Repeats malformed_;
};

}  // namespace tagwire::proto
