// SPDX-License-Identifier: BSD-3-Clause
// An endpoint: a worker's state for one peer, made for the program or when the peer connects.
//
// 1. All messages of the program and all that must stay in order with them go by one lane, which is
//    chosen before the first of them and never changes.
// 2. A message is sent at once only if none waits (direct_end_); so they leave in the order of
//    their calls.
// 3. Operations not yet sent, or not yet answered by the peer, are in `queue_`, `flushes_` or
//    `outstanding_`; fail() ends all of these, once.
//
//        made ----> greeting ----> (offering) ----> ready ----> failed
//                   hello sent,    rc: addresses
//                   theirs awaited cross
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocols/address.hpp"
#include "protocols/control_message.hpp"
#include "protocols/eager_header.hpp"
#include "protocols/fifo.hpp"
#include "protocols/request.hpp"
#include "protocols/rndv_messages.hpp"
#include "protocols/room_waiter.hpp"
#include "protocols/unexpected.hpp"
#include "protocols/wireup_messages.hpp"
#include "ucs/memory/reserve.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_ep {};

namespace tagwire::proto {

class Rail;
class Stripes;

/// A tagged message that is here before its place in the order.
struct Announced {
    AmId am = AmId::kEager;
    Header header{};
    ReserveBytes bytes;     // behind the header
    bool has_come = false;  // its place

    std::size_t held() const { return sizeof *this + bytes.size(); }
};

/// Parameters of a send call.
struct Outgoing {
    const void* base;
    std::size_t length;
    const tw_iov_t* list;
    std::size_t count;
    std::uint64_t tag;
    bool is_tagged;
    const tw_op_t* op;
    tw_request_h* request_p;
};

enum class EpState : std::uint8_t { kGreeting, kOffering, kReady, kFailed };

class Endpoint : public tw_ep, public ucs::FromReserve {
  public:
    Endpoint(WorkerCore& owner, std::uint64_t peer_id);
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    ~Endpoint();

    // ---- Connection (wireup.cc)

    /// First contact: makes the lane of wire-up and says hello. UCS_ERR_UNREACHABLE. *why, which
    /// may be null, gets the reason of any failure.
    ucs_status_t contact(const Address& to, std::string* why);
    void on_hello(const Hello& hello, ucs::ReserveVector<PeerRail> rails);
    void on_offer(const OfferMessage& message);
    void on_ready(const Offer& offer);
    void on_refuse(const Offer& offer);
    /// Sends what waits and is not waiting for an event of the transport. False: it waits still.
    bool work_slowly();

    // ---- Sending (send.cc)

    /// Progress tries again whatever waits for room.
    void stall();
    bool may_send_short(std::size_t length) const { return length < direct_end_; }
    bool may_send_short_imm(std::size_t length) const {
        return direct_end_ > sizeof(std::uint64_t) && length < direct_end_ - sizeof(std::uint64_t);
    }
    /// Also without the worker's lock.
    bool may_send_unlocked(std::size_t length) const { return length < unlocked_end_; }
    bool try_send_short(const void* data, std::size_t length, std::uint64_t tag, bool is_tagged);
    bool try_send_short_imm(const Outgoing& message);
    tw_status_t send(const Outgoing& message);
    tw_status_t flush(RequestKind kind, const tw_op_t* op, tw_request_h* request_p);
    /// Sends it behind those that wait.
    template <class Body>
    void control(const Body& body) {
        queue_control(Control::of(body));
    }
    /// `is_gone`: the worker goes; in order, unless something is under way.
    void say_reset(bool is_gone);
    void cancel(Request& request);
    /// The receiver `receive_id` of a rendezvous wants `bytes` of its data.
    void send_data(Request& request, std::uint32_t receive_id, std::uint64_t bytes);
    void queue_transfer(Request& request);
    void begin_transfer(Request& request, std::span<const std::byte> keys, bool only_connections);
    /// The peer's memory has what this side wrote, or never will.
    void all_is_written(Request& request, ucs_status_t status);
    void on_rtr(const RtrMessage& message);
    void drop_data(Request& request);

    // ---- Data over several rails (stripe.cc)

    Stripes& stripes();
    const Stripes* chosen_stripes() const { return stripes_.get(); }
    /// False: it is not one of the lanes of stripes().
    bool stripe_failed(uct_ep_h lane, ucs_status_t status);

    // ---- Messages of the peer (control.cc)

    void on_control(const Control& message);
    /// The program has the endpoint (again).
    void open(void* data);
    /// One of its requests has ended: what waited for that may go on.
    void request_ended();

    /// For people.
    std::string description() const;
    /// Asks the transport whether the peer is alive.
    void check();
    /// Ends everything with `status`; the endpoint refuses everything from then on.
    void fail(ucs_status_t status);
    /// The transport's endpoints go; the peer can reach nothing any more.
    void disconnect();

    /// Called in progress while nobody has it open: true when it can be destroyed. The sides agree
    /// on that, so that neither sends on a connection that is gone: the one with the lower id asks,
    /// and the other leaves with its answer unless its program is back.
    bool leave();
    bool has_left() const { return has_left_; }
    bool has_asked() const { return has_asked_; }
    /// The peer's answer.
    void on_left(bool is_gone);
    void begin_anew();
    const Rail& rail() const { return *rail_; }
    /// Where the peer takes first contact.
    const Address& address() const { return address_; }
    EpState state() const { return state_; }
    ucs_status_t failure() const { return failure_; }
    /// Not what its messages go by: what took first contact.
    bool is_beside_its_lane(uct_ep_h ep) const { return state_ == EpState::kReady && ep != lane_; }
    /// UINT8_MAX: the peer has told of no such rail.
    std::uint8_t domain_of_peer(std::size_t rail) const {
        return rail < peer_rails_.size() ? peer_rails_[rail].domain : std::uint8_t{UINT8_MAX};
    }
    std::uint8_t peer_rail() const { return peer_rail_; }
    /// The endpoint that the program sees as the sender of messages; nullptr: it does not have it.
    tw_ep_h handle() { return is_open && !is_closing ? this : nullptr; }

    WorkerCore& worker;
    const std::uint64_t worker_id;  // of the peer
    std::uint32_t id = 0;           // by which the peer names itself, new for each connection
    std::uint32_t source = 0;       // what matching knows it by, the same for all endpoints to it
    std::uint32_t peer_names = 0;   // by which we name ourselves
    bool is_open = false;           // the program has it (closing counts)
    bool is_closing = false;
    bool peer_is_closed = false;  // the peer's program has closed its own
    bool peer_may_go = false;     // it closes, and all that it has sent was taken
    bool wants_wireup = false;    // among those that PeerTable asks to work_slowly()
    bool is_retired = false;      // among those that PeerTable asks whether they can go
    bool is_up = false;           // the connection was told of, and its end was not
    bool has_notice = false;      // the program is to be told of its failure
    std::uint32_t late = 0;       // requests of it that end when a device is done with them
    // Not UCS_OK: the peer has said that it goes, and the end of the connection is due to that.
    ucs_status_t farewell = UCS_OK;
    void* user_data = nullptr;

    // A long eager message whose parts are coming: where they go. Neither: they are dropped.
    Request* incoming_request = nullptr;
    Unexpected* incoming_message = nullptr;
    std::uint64_t incoming_bytes = 0;
    std::uint64_t incoming_length = 0;
    bool has_incoming = false;

    // Tagged messages whose places in the order are to come (Placeholder), oldest first.
    Fifo<Announced> announced;
    std::uint32_t first_announced = 0;  // the number of the first of them
    bool sends_to_device = false;       // its tagged messages come to a device that matches them

    // Its messages that nobody has received, and their memory (match_table.hpp).
    UnexpectedList kept;
    std::uint64_t held_bytes = 0;  // of these, and of announced ones
    std::uint64_t sent_on = 0;     // bytes that came although it was told to hold
    bool told_to_pause_eager = false;
    bool told_to_pause = false;
    bool has_flooded = false;  // it fails because of that

    RequestList outstanding;  // sends that have gone and not ended
    RequestList receiving;    // receives that matched a message that is not all here

  private:
    friend class RoomWaiter<Endpoint>;
    friend class Stripes;

    /// A step of drain(): there was nothing to do, something was done, the transport is full.
    enum class Step : std::uint8_t { kIdle, kDone, kFull };

    [[gnu::cold]] tw_completion_t end_of(const tw_op_t* op, std::size_t length, std::uint64_t tag,
                                         bool is_tagged);
    ucs_status_t start(Request& request);
    ucs_status_t start_eager(Request& request);
    void register_source(Request& request);
    ucs_status_t start_rndv(Request& request);
    ucs_status_t send_request(Request& request);
    ucs_status_t start_flush(Request& request);
    bool on_operation(const Control& message);
    bool on_ack(Ack message);
    bool on_ats(Ats message);
    bool on_data_end(DataEnd message);
    bool on_canceled(Canceled message);
    bool on_flushed(Flushed message);
    bool on_cts(Cts message);
    void on_reset(Reset message);
    Request* own_request(std::uint32_t request_id) const;
    bool awaits_receiver(const Request* request) const;
    bool is_rndv_of_ours(const Request* request) const;
    ucs_status_t send_parts(Request& request);
    bool try_send_at_once(const Outgoing& message);
    ucs_status_t send_whole(Request& request, std::uint32_t flags);
    bool goes_as_tagged(const Request& request) const;
    bool is_rndv(const Request& request) const;
    ucs_status_t send_tagged(Request& request);
    ucs_status_t send_placeholder(Request& request);
    ucs_status_t track_transmission(Request& request);
    bool may_start(const Request& request) const;
    void enqueue(Request& request);
    ucs_status_t drain();
    Step drain_controls();
    Step drain_queue();
    Step drain_data();
    Step send_piece(Request& request);
    Step move_pieces(Request& request);
    Step send_rtr(Request& request);
    void drain_and_arm() { room_.run(); }
    uct_ep_h drainable() const { return state_ == EpState::kReady ? lane_ : nullptr; }
    void drained() { update_direct(); }
    /// A step is a message, a part of one or a piece of a transfer.
    bool may_step() {
        if (steps_left_ == 0)
            return false;
        --steps_left_;
        return true;
    }
    bool send_wireup();
    void update_direct();
    void check_flushes();
    void closed();
    void on_bye();
    void on_leave();
    void log_failure() const;
    bool is_quiet() const;
    bool has_no_work() const;
    ucs_status_t send_now(Control message);
    void queue_control(const Control& message);
    void set_ready();
    void choose_lane();
    bool try_lane(std::size_t rail, std::size_t peer_rail);
    void send_offer();
    void drop_offered();
    void refuse(const Offer& offer);
    void add_refused(const Offer& offer);
    bool is_about_ours(const Offer& offer) const;
    ucs_status_t make_ep(Rail& rail, std::span<const std::byte> device,
                         std::span<const std::byte> iface, uct_ep_h* ep_p);
    void queue_wireup(WireupOp op, const Offer& offer, std::span<const std::byte> address);
    void queue_wireup(ReserveBytes bytes);
    ReserveBytes hello_bytes() const;
    void contact_again();
    void answer_contact();

    /// Steps of one call, so that a receiver that keeps up does not keep the sender in it.
    static constexpr unsigned kStepsMax = 64;
    /// Control messages that wait for the transport. With more, the peer does not take what it asks
    /// for.
    static constexpr std::size_t kControlsMax = std::size_t{1} << 20;
    /// The same of wire-up: a hello, and offers for as many rails as there may be.
    static constexpr std::size_t kWireupMax = 512;

    // Fields that a short message reads, first.
    std::size_t direct_end_ = 0;    // shorter messages go at once, on the fast path
    std::size_t unlocked_end_ = 0;  // the same where calls take no lock; else 0
    uct_ep_h lane_ = nullptr;
    std::size_t short_data_max_ = 0;
    Rail* rail_ = nullptr;
    std::uint8_t peer_rail_ = 0;
    EpState state_ = EpState::kGreeting;
    ucs_status_t failure_ = UCS_OK;
    bool eager_is_paused_ = false;  // the peer wants requests of rendezvous only
    bool is_paused_ = false;        // ... nothing
    bool is_stalled_ = false;       // drain_and_arm() is repeated in progress
    bool owes_contact_ = false;     // there was no memory for it
    unsigned steps_left_ = 0;       // of this call
    bool has_said_bye_ = false;
    bool has_asked_ = false;          // to leave; nothing is sent before the answer
    bool has_left_ = false;           // has answered that it leaves
    std::uint32_t placeholders_ = 0;  // placeholders sent
    std::uint64_t order_ = 0;         // of the next send
    RequestQueue queue_;
    RequestQueue data_;    // outstanding rendezvous whose data the peer wants sent
    RequestList flushes_;  // answered by the peer or not, waiting for earlier sends
    Fifo<Control> controls_;
    RoomWaiter<Endpoint> room_{*this};

    // Connecting.
    Address address_;           // first contact of the peer
    std::uint32_t number_ = 0;  // of its hello
    uct_ep_h contact_ = nullptr;
    Rail* contact_rail_ = nullptr;
    uct_ep_h offered_ = nullptr;  // not connected, or not both sides yet
    Rail* offered_rail_ = nullptr;
    std::uint8_t offered_to_ = 0;
    bool offered_is_connected_ = false;
    ucs::ReserveVector<PeerRail> peer_rails_;
    ucs::ReserveVector<std::pair<std::size_t, std::size_t>> refused_;
    Fifo<ReserveBytes> wireup_;
    std::unique_ptr<Stripes> stripes_;  // from the first message that is long enough on
};

inline Endpoint& endpoint_of(tw_ep_h handle) {
    return *static_cast<Endpoint*>(handle);
}

}  // namespace tagwire::proto
