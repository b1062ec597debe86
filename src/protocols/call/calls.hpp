// SPDX-License-Identifier: BSD-3-Clause
// Remote calls of a worker, both sides (tw_call.h): what its progress looks at now and then, and
// the timer that wakes who sleeps.
//
// Threads: look() and peer_ended() in progress, with the worker's lock; the rest any, without it.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "protocols/call/call_port.hpp"
#include "protocols/call/incoming_calls.hpp"
#include "protocols/call/outgoing_calls.hpp"
#include "protocols/request/callback_port.hpp"
#include "protocols/worker/lookout.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/private_fd.hpp"

namespace tagwire::proto {

/// The world of the calls of a worker.
struct CallPorts {
    CallPort port;
    CallLimits limits;
    const CallbackPort& callbacks;
};

class Calls final : public Lookout {
  public:
    /// UCS_ERR_IO_ERROR: the system has no more descriptors.
    static ucs_status_t create(const CallPorts& ports, std::unique_ptr<Calls>* calls_p);

    unsigned look() override;
    int fd() const override { return timer_.get(); }
    /// look() ends its calls.
    void peer_ended(std::uint64_t worker_id, tw_status_t status) override;

    OutgoingCalls& outgoing() { return outgoing_; }
    IncomingCalls& incoming() { return incoming_; }
    /// Handlers of the active messages; the argument is this object.
    static void on_request(void* calls, tw_am_t* am);
    static void on_reply(void* calls, tw_am_t* am);

  private:
    explicit Calls(const CallPorts& ports);
    void wake_at(std::uint64_t at_ns);
    void set_timer(std::uint64_t at_ns);
    void renew_timer(std::uint64_t now);

    /// Refusals that wait for room are tried again after this time.
    static constexpr std::uint64_t kRefusalsNs = 1'000'000;

    const CallPorts to_;
    ucs::PrivateFd timer_;
    std::mutex timer_lock_;
    std::uint64_t timer_ns_ = UINT64_MAX;  // when it wakes
    ucs::ReserveVector<EndedPeer> ended_;  // guarded by the worker's lock
    OutgoingCalls outgoing_;
    IncomingCalls incoming_;
};

}  // namespace tagwire::proto
