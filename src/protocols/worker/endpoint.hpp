// SPDX-License-Identifier: BSD-3-Clause
// An endpoint: a worker's state for one peer, made for the program or when the peer connects.
//
// 1. All messages of the program and all that must stay in order with them go by one lane, which is
//    chosen before the first of them and never changes.
// 2. A message is sent at once only if none waits (DirectPath); so they leave in the order of
//    their calls.
// 3. Operations not yet sent, or not yet answered by the peer, are in the SendQueue, in Flushes, or
//    in `outstanding`; fail() ends all of these, once.
//
//     Endpoint: lane, state, lists of what is under way
//       |-- Connector     finds the lane             |-- EagerSender   eager messages
//       |-- SendQueue     what waits for the lane    |-- RndvSender    the sender of a rendezvous
//       |-- SendWindow    what the peer may keep     |-- RndvReceiver  the receiver of one
//       |-- Closing       the end in order           |-- Flushes
//                                                    '-- Stripes       lanes beside it
//
//        connecting ----> ready ----> failed
#pragma once

#include <uct/api/uct.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "protocols/connect/connector.hpp"
#include "protocols/eager/eager_sender.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/peer_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/outgoing.hpp"
#include "protocols/request/outstanding.hpp"
#include "protocols/request/request.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_sender.hpp"
#include "protocols/rma/rma_target.hpp"
#include "protocols/rndv/rndv_receiver.hpp"
#include "protocols/rndv/rndv_sender.hpp"
#include "protocols/transfer/flushes.hpp"
#include "protocols/transfer/send_queue.hpp"
#include "protocols/transfer/send_window.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/worker/peer_endpoint.hpp"
#include "protocols/worker/tx_parts.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;
class Stripes;

/// Whether messages may go at once, and how long they may be. Endpoint writes it, with the lock.
struct DirectPath {
    // Shorter ones take the fast path. Relaxed: a thread sees an end or a failure that it was told
    // of, and no other matters.
    std::atomic<std::size_t> end{0};
    std::size_t unlocked_end = 0;  // the same where calls take no lock; else 0
    std::size_t short_data_max = 0;
    bool is_open = false;  // what `end` depends on but for the lane
    // `unlocked_end` is not 0, and messages need this process no longer when the lane has them.
    bool lets_go = false;
};

class alignas(64) Endpoint : public PeerEndpoint, public ucs::FromReserve {
  public:
    /// `of_worker`: as the program names the peer; `peer` itself, if that is no transmit context.
    Endpoint(WorkerCore& owner, std::uint64_t peer, std::uint64_t of_worker);
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    ~Endpoint();

    // ---- Parts

    SendQueue& queue() { return queue_; }
    SendWindow& window() { return window_; }
    EagerSender& eager() { return eager_; }
    RndvSender& rndv() { return rndv_; }
    RndvReceiver& rndv_receiver() { return rndv_receiver_; }
    Flushes& flushes() { return flushes_; }
    /// Made at the first call.
    Stripes& stripes();
    /// nullptr: no message was long enough for them.
    Stripes* chosen_stripes() const { return stripes_.get(); }

    // ---- Sending

    bool may_send_short(std::size_t length) const {
        return length < direct_.end.load(std::memory_order_relaxed);
    }
    bool may_send_short_imm(std::size_t length) const {
        const std::size_t end = direct_.end.load(std::memory_order_relaxed);
        return end > sizeof(std::uint64_t) && length < end - sizeof(std::uint64_t);
    }
    /// An eager message may go at once: none waits, and the peer wants it.
    bool may_send_eager() const { return direct_.is_open; }
    /// A call of the program, of these flags, has sent: that leaves now, for the program may not
    /// come back for long, or ever. More calls follow at once with TW_OP_MORE, and behind a
    /// callback what its lane has to do in progress.
    void write_out(const tw_op_t* op);
    /// Also without the worker's lock.
    bool may_send_unlocked(std::size_t length) const { return length < direct_.unlocked_end; }
    bool try_transmit_short(const void* data, std::size_t length, std::uint64_t tag,
                            bool is_tagged);
    void note_short(std::size_t length);
    bool try_send_short(const void* data, std::size_t length, std::uint64_t tag, bool is_tagged);
    bool try_send_short_imm(const Outgoing& message);
    /// Sends a plain message that fits one buffer of a free lane, without a request: messages that
    /// an urgent one passes may have them all. False: it is not plain, too long, or has to wait.
    bool try_send_at_once(const Outgoing& message);
    /// As try_send_at_once(), of a message that asks for nothing (is_plain_send()) and is longer
    /// than a short one; in a few steps, over lanes with nothing to do behind it.
    bool try_send_plain(const void* data, std::size_t length, std::uint64_t tag, bool is_tagged);
    /// Nothing is under way that a flush at TW_FLUSH_SENT would wait for. False: its call tells.
    bool has_all_left() const {
        return direct_.lets_go && queue_.has_no_one_sided() && outstanding.is_empty() &&
               flushes_.is_idle();
    }
    tw_status_t send(const Outgoing& message);
    /// A message that takes no fast path: it has ended, is outstanding, or waits. nullptr: there is
    /// no room for its request. `is_held`: the peer has paused it.
    Request* begin(const Outgoing& message, bool is_held = false);
    /// UCS_OK: it has ended. UCS_INPROGRESS: it is outstanding. UCS_ERR_NO_RESOURCE: to be called
    /// again.
    ucs_status_t start(Request& request);
    /// Sends it behind those that wait.
    template <class Body>
    void control(const Body& body) {
        queue_.push_control(Control::of(body));
    }
    /// The transfer of the request begins; its data may be divided over several rails, by `keys`.
    /// `only_connections`: none of them leads to an interface.
    void begin_transfer(Request& request, std::span<const std::byte> keys, bool only_connections);
    void cancel(Request& request);
    /// One of its requests has ended, or needs this process no longer: what waited for that may go
    /// on. nullptr: any of them.
    void request_ended(const Request* ended = nullptr);
    /// Something has changed that the fast path depends on.
    void update_direct();
    /// The program sends, or begins a one-sided operation: in each call that takes no fast path,
    /// which the first one does not.
    void note_sending() {
        if (!hold.has_sent) [[unlikely]]
            begin_sending();
    }
    /// Status of a close that could not flush: success, if there was nothing to flush.
    ucs_status_t close_failure() const {
        return hold.has_sent || tx.contexts != nullptr ? lane_.failure : UCS_OK;
    }

    // ---- Life

    /// Sends messages over `lane` from now on.
    void set_ready(uct_ep_h lane, Rail& rail, std::uint8_t peer_rail);
    void on_control(const Control& message);
    /// The slow work that it has asked progress for. False: to be called again.
    bool work_slowly();
    /// Asks the transport whether the peer is alive.
    void check();
    /// Ends everything with `status`; the endpoint refuses everything from then on. Its peer has
    /// ended the connection, or its lane has failed; else Closing::end().
    void fail(ucs_status_t status);
    /// An operation uses the key, with kReady: progress asks the owner for keys that the packed one
    /// lacks.
    void want_keys(RemoteKey& key);
    /// The program has closed it, and hears of it no more.
    void forget_program();
    /// Messages that wait for the lane are not sent.
    void stop_sending();
    /// Hands the transport's endpoint to the caller; this endpoint has no lane from now on.
    uct_ep_h take_lane();
    /// The transport's endpoints go; the peer can reach nothing any more.
    void disconnect();
    /// Operations that wait to be sent go over a new connection.
    void begin_anew();
    /// The program has the endpoint (again): it has sent nothing.
    void opened();

    const LaneState& lane_state() const { return lane_; }
    EpState state() const { return lane_.state; }
    ucs_status_t failure() const { return lane_.failure; }
    /// The lane, its rail, and which rail of the peer it leads to; with kReady.
    uct_ep_h lane() const { return lane_.ep; }
    Rail& rail() const { return lane_.rail(); }
    std::uint8_t peer_rail() const { return lane_.peer_rail; }
    /// The peer wants no messages.
    bool is_paused() const { return lane_.is_paused; }
    /// No operation of a program is under way.
    bool has_no_work() const;
    /// No operation but flushes at TW_FLUSH_SENT is under way.
    bool needs_no_peer() const;
    /// Nothing of either side is on its way.
    bool is_quiet() const { return queue_.is_empty() && has_no_work(); }
    /// For people.
    std::string description() const;
    /// The endpoint that the program sees as the sender of messages; nullptr: it does not have it.
    tw_ep_h handle();

    Outstanding outstanding;
    RequestList receiving;  // receives that matched a message that is not all here

    EpTx tx;

    RmaSender rma;
    RmaTarget rma_target;
    RmaLane rma_lane;

    WorkerCore& worker;

  private:
    ucs_status_t start_message(Request& request);
    void begin_sending();
    void ask_for_keys();
    void forget_keys();

    DirectPath direct_;  // which a short message reads, before the lane
    LaneState lane_;
    RemoteKeyList wanted_keys_;  // whose owner is asked in progress; it holds them
    SendWindow window_{port_};

    SendQueue queue_;
    EagerSender eager_;
    Flushes flushes_;
    RndvSender rndv_;
    RndvReceiver rndv_receiver_;
    Connector connector_;
    static const LaneCalls kLaneCalls;
    static const PeerCalls kPeerCalls;
    static const SendCalls kSendCalls;
    const LanePort port_{this, kLaneCalls};
    const PeerPort peer_port_{this, kPeerCalls};
    std::unique_ptr<Stripes> stripes_;  // from the first message that is long enough on
};

/// `outstanding` or `receiving`.
inline RequestList& list_of(Endpoint& ep, const Request& request) {
    return request.kind == RequestKind::kReceive
               ? ep.receiving
               : ep.outstanding[static_cast<std::size_t>(request.stream)];
}
inline std::size_t outstanding_count(const Endpoint& ep) {
    return ep.outstanding.operations();
}

/// The endpoint to the sender of a message that is kept; the peer is there.
inline Endpoint& sender_of(const Unexpected& message) {
    return static_cast<Endpoint&>(*message.peer);
}

/// The endpoint that the program has to the worker of a transmit context.
tw_ep_h handle_of_worker(const Endpoint& ep);
inline tw_ep_h Endpoint::handle() {
    if (hold.is_held()) [[likely]]
        return this;
    return is_to_tx_context(*this) ? handle_of_worker(*this) : nullptr;
}
/// The program's, for what it has sent.
inline tw_ep_h sender_handle(Endpoint& ep) {
    return ep.tx.front == nullptr ? &ep : ep.tx.front;
}
inline Endpoint& endpoint_of(tw_ep_h handle) {
    return *static_cast<Endpoint*>(handle);
}
inline Endpoint& endpoint_of(MatchPeer& peer) {
    return static_cast<Endpoint&>(peer);
}

}  // namespace tagwire::proto
