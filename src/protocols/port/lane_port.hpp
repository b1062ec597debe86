// SPDX-License-Identifier: BSD-3-Clause
// The port by which a part of an endpoint reaches its lane: the messages that it sends to the peer,
// and the rest of the endpoint as far as that depends on them. Endpoint has one, for all its parts;
// a unit test builds a part over a fake one.
//
// 1. Each function is plain, and none is on the path of a short message: parts keep in fields of
//    their own what that reads.
// 2. A port refers to its owner, which outlives it. Threads: as the owner's.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocols/api/tw_def.h"
#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

class Rail;
class RemoteKey;
struct Request;

enum class EpState : std::uint8_t { kConnecting, kReady, kFailed };

/// The functions of one kind of owner; the first argument of each is the owner.
struct LaneCalls {
    void (*control)(void* owner, const Control& message);
    void (*add_control)(void* owner, const Control& message);
    ucs_status_t (*send_now)(void* owner, const Control& message);
    void (*run)(void* owner);
    void (*stall)(void* owner);
    EpState (*state)(const void* owner);
    bool (*is_quiet)(const void* owner);
    bool (*has_waiting)(const void* owner);
    bool (*is_free)(const void* owner);
    ucs_status_t (*flush)(void* owner);
    ucs_status_t (*flush_sent)(void* owner, uct_completion_t* done);
    bool (*has_operations)(const void* owner);
    bool (*has_controls)(const void* owner);
    std::uint32_t (*connection)(const void* owner);
    void (*opened)(void* owner);
    void (*update_direct)(void* owner);
    void (*fail)(void* owner, ucs_status_t status);
    void (*end)(void* owner, ucs_status_t status);
    ucs_status_t (*failure)(const void* owner);
    void (*adopt)(void* owner, Request& request);
    void (*push)(void* owner, Request& request);
    void (*finish)(void* owner, Request& request, ucs_status_t status);
    void (*add_data)(void* owner, Request& request);
    void (*remove)(void* owner, Request& request);
    void (*begin_transfer)(void* owner, Request& request, std::span<const std::byte> keys,
                           bool only_connections);
    ucs_status_t (*send_placeholder)(void* owner, Request& request);
    void (*cancel)(void* owner, Request& request);
    void (*note_sending)(void* owner);
    void (*write_out)(void* owner, const tw_op_t* op);
    bool (*submit)(void* owner, Request& request);
    void (*push_data)(void* owner, Request& request);
    void (*request_ended)(void* owner);
    void (*set_ready)(void* owner, uct_ep_h lane, Rail& rail, std::uint8_t peer_rail);
    uct_ep_h (*lane)(const void* owner);
    void (*set_eager_max)(void* owner, std::uint64_t bytes);
    tw_ep_h (*handle)(void* owner);
    void (*want_keys)(void* owner, RemoteKey& key);
};

class LanePort {
  public:
    LanePort(void* owner, const LaneCalls& calls) : owner_(owner), calls_(&calls) {}

    /// Sends it behind those that wait. Nothing happens on a lane that has failed, here and below.
    template <class Body>
    void control(const Body& body) const {
        calls_->control(owner_, Control::of(body));
    }
    /// Queues it; the next call that sends, or progress, sends it.
    template <class Body>
    void add_control(const Body& body) const {
        calls_->add_control(owner_, Control::of(body));
    }
    /// Sends it ahead of those that wait. UCS_ERR_NO_RESOURCE: it was not sent.
    template <class Body>
    ucs_status_t send_now(const Body& body) const {
        return calls_->send_now(owner_, Control::of(body));
    }
    /// Sends what waits.
    void run() const { calls_->run(owner_); }
    /// Progress sends what waits.
    void stall() const { calls_->stall(owner_); }

    EpState state() const { return calls_->state(owner_); }
    /// The status that it has ended with; UCS_OK: it has not.
    ucs_status_t failure() const { return calls_->failure(owner_); }
    /// Nothing of either side is on its way.
    bool is_quiet() const { return calls_->is_quiet(owner_); }
    /// Operations or control messages wait to be sent.
    bool has_waiting() const { return calls_->has_waiting(owner_); }
    /// Nothing at all waits for it, nor is progress asked to send what has waited.
    bool is_free() const { return calls_->is_free(owner_); }
    /// Asks the transport, with kReady, whether the peer's has all that the lane was given: UCS_OK.
    ucs_status_t flush() const { return calls_->flush(owner_); }
    /// Asks the transport, with kReady, whether what the lane was given needs this process no
    /// longer: UCS_OK. UCS_INPROGRESS: `done` follows, unless it is null.
    ucs_status_t flush_sent(uct_completion_t* done) const {
        return calls_->flush_sent(owner_, done);
    }
    /// Operations wait to be sent.
    bool has_operations() const { return calls_->has_operations(owner_); }
    /// Control messages wait to be sent.
    bool has_controls() const { return calls_->has_controls(owner_); }
    /// The number by which the peer tells this connection from others.
    std::uint32_t connection() const { return calls_->connection(owner_); }

    /// The program has the endpoint (again): it has sent nothing.
    void opened() const { calls_->opened(owner_); }
    /// Something has changed that decides whether the fast path is open.
    void update_direct() const { calls_->update_direct(owner_); }
    /// Ends everything of the endpoint with `status`.
    void fail(ucs_status_t status) const { calls_->fail(owner_, status); }
    /// As fail(), for a reason of this side's own: the peer hears of it.
    void end(ucs_status_t status) const { calls_->end(owner_, status); }

    // ---- Connecting

    /// Messages go over `lane` from now on, an endpoint of `rail` that leads to that of the peer.
    void set_ready(uct_ep_h lane, Rail& rail, std::uint8_t peer_rail) const {
        calls_->set_ready(owner_, lane, rail, peer_rail);
    }
    /// nullptr: there is none yet, or none any more.
    uct_ep_h lane() const { return calls_->lane(owner_); }
    /// The peer keeps no longer messages that no receive waits for.
    void set_eager_max(std::uint64_t bytes) const { calls_->set_eager_max(owner_, bytes); }

    /// The endpoint that the program sees as the sender of messages; nullptr: it does not have it.
    tw_ep_h handle() const { return calls_->handle(owner_); }

    // ---- Requests

    /// The request is one of the endpoint: it names that, as the program hears of it.
    void adopt(Request& request) const { calls_->adopt(owner_, request); }
    /// The operation begins when its turn comes.
    void push(Request& request) const { calls_->push(owner_, request); }
    /// The operation has ended.
    void finish(Request& request, ucs_status_t status) const {
        calls_->finish(owner_, request, status);
    }
    /// The lane is that of `owner`, an endpoint.
    bool is_of(const void* owner) const { return owner == owner_; }
    const void* owner() const { return owner_; }
    /// Queues the next step of one that has begun; run() sends it.
    void add_data(Request& request) const { calls_->add_data(owner_, request); }
    /// The request leaves the queue.
    void remove(Request& request) const { calls_->remove(owner_, request); }
    /// The transfer of the request begins, by `keys` over several lanes if it is long;
    /// `only_connections`: over none that leads to an interface.
    void begin_transfer(Request& request, std::span<const std::byte> keys,
                        bool only_connections) const {
        calls_->begin_transfer(owner_, request, keys, only_connections);
    }
    /// The place of a message that was announced. UCS_ERR_NO_RESOURCE: to be called again.
    ucs_status_t send_placeholder(Request& request) const {
        return calls_->send_placeholder(owner_, request);
    }
    /// The program wants it back.
    void cancel(Request& request) const { calls_->cancel(owner_, request); }
    /// The program begins an operation.
    void note_sending() const { calls_->note_sending(owner_); }
    /// A call of the program with `op` has sent: that leaves now.
    void write_out(const tw_op_t* op) const { calls_->write_out(owner_, op); }
    /// A new operation, which the endpoint adopts: it has ended, is outstanding, or waits for its
    /// turn. False: there is no room for a copy of what it injects, and nothing has happened.
    bool submit(Request& request) const { return calls_->submit(owner_, request); }
    /// An operation uses the key, with kReady: progress asks the owner for what that lacks.
    void want_keys(RemoteKey& key) const { calls_->want_keys(owner_, key); }
    /// As add_data(), and sends it if that is possible.
    void push_data(Request& request) const { calls_->push_data(owner_, request); }
    /// An operation has ended, of which there is no request: what waited for that may go on.
    void request_ended() const { calls_->request_ended(owner_); }

  private:
    void* owner_;
    const LaneCalls* calls_;
};

}  // namespace tagwire::proto
