// SPDX-License-Identifier: BSD-3-Clause
// The port by which remote calls reach their worker: active messages, and the clock. As
// lane_port.hpp.
//
// Locks: the parts of calls have locks of their own, which are taken before the worker's. So none
// of them is taken while the worker's is held: handlers and completions run without it, and
// Calls::look() leaves it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "protocols/api/tw_am.h"
#include "protocols/api/tw_call.h"
#include "protocols/port/worker_counters.hpp"

namespace tagwire::proto {

/// An active message that calls send.
struct CallMessage {
    unsigned id;
    const void* header;
    std::size_t header_bytes;
    const void* data;
    std::size_t length;
};

/// The functions of a worker for its calls; the first argument of each is the owner.
struct CallFunctions {
    /// tw_am_send().
    tw_status_t (*send)(void* owner, tw_ep_h ep, const CallMessage& message, const tw_op_t& op,
                        tw_request_h* request_p);
    /// To a connected worker, with an endpoint of the program or without. TW_ERR_NOT_CONNECTED.
    tw_status_t (*send_to)(void* owner, std::uint64_t worker_id, const CallMessage& message,
                           const tw_op_t& op, tw_request_h* request_p);
    /// tw_message_recv().
    tw_status_t (*receive)(void* owner, tw_message_h message, void* buffer, std::size_t length,
                           const tw_op_t& op);
    /// tw_am_keep().
    tw_status_t (*keep)(void* owner, tw_am_t& am, tw_message_h* message_p);
    /// tw_message_drop().
    void (*release)(void* owner, tw_message_h message);
    /// tw_request_cancel().
    void (*cancel)(void* owner, tw_request_h request);
    void (*count)(void* owner, WorkerCounter counter);
    std::uint64_t (*now_ns)(void* owner);
};

struct CallPort {
    tw_worker_h const worker;
    const bool is_multi;
    void* const owner;
    const CallFunctions& calls;

    void count(WorkerCounter counter) const { calls.count(owner, counter); }
    std::uint64_t now_ns() const { return calls.now_ns(owner); }
};

/// The id of a call, or of a request that has come: its place in a table, and above that the number
/// of the place's use, from 1 on.
struct CallId {
    static constexpr unsigned kPlaceBits = 32;
    static constexpr std::uint64_t kUse = std::uint64_t{1} << kPlaceBits;

    static constexpr std::uint64_t place_of(std::uint64_t id) { return id & (kUse - 1); }
};

/// A lock that a worker of one thread does without.
class CallLock {
  public:
    explicit CallLock(bool is_multi) : is_multi_(is_multi) {}

    std::unique_lock<std::mutex> take() {
        return is_multi_ ? std::unique_lock(mutex_) : std::unique_lock(mutex_, std::defer_lock);
    }
    /// Before the program is called.
    static void leave(std::unique_lock<std::mutex>& locked) {
        if (locked.owns_lock())
            locked.unlock();
    }
    void enter_again(std::unique_lock<std::mutex>& locked) const {
        if (is_multi_)
            locked.lock();
    }

  private:
    const bool is_multi_;
    std::mutex mutex_;
};

}  // namespace tagwire::proto
