// SPDX-License-Identifier: BSD-3-Clause
// The protocol of ud for one interface: connections that it opened (Outbound), connections that
// others opened to it (Inbound), acknowledgements owed. No verbs and no clock: the interface and
// the simulation in the tests run the same code, which docs/internals/formats/verbs.md describes
// ("Datagrams").
//
// `Host` provides wire and memory:
//   typename Host::Peer                 another interface; has members `std::uint32_t cookie` and
//                                       `std::uint32_t owed` (0 at first; ours)
//   bool can_send(bool is_control)      room for one packet
//   void send_control(Peer&, const Header&)
//                                       with our ReturnAddress where the kind has one
//   void send_data(Peer&, const Header&, void* packet)
//                                       the packet stays ours until release(); where the header's
//                                       acknowledgement does not go along: did_not_tell()
//   void release(void* packet)
//   void deliver(std::uint8_t am_id, void* message, std::uint32_t bytes)
//                                       takes the message over
//   void deliver_joined(std::uint8_t am_id, std::span<const std::byte> data)
//                                       the data of a message that came in several packets
//   void drop(void* message)            a message that nobody gets
//   Peer* peer_of(const void* message)  the one whose ReturnAddress it is; null: not reachable
//   void put_peer(Peer&)                a peer_of() that is not needed any more
//   Liveness liveness(Peer&)            what is known of its process; asked about silent peers only
//   void advanced(Outbound&)            something was acknowledged or answered
//   void failed(Outbound&, Failure)     once; the host calls close() in its own time
//   void count(Event)
//
// Threads: owner of the interface.
// Invariants
//  (1) An Inbound is found by its own number (index and generation) and accepts packets that carry
//      the opener's number, too: 64 random-looking bits, besides our cookie. So neither a packet
//      of an earlier connection nor one for an earlier process on this queue pair number is taken.
//  (2) One (interface, opener's number) has one Inbound, however often CONNECT comes.
//  (3) next_deadline() is not later than any connection's or owed acknowledgement's.
//  (4) Silence ends no Inbound, since a sender may sleep for as long as it likes; only a full table
//      ends the longest silent, if it was so for remote_timeout_ns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/ud/ud_numbers.hpp"
#include "uct/ib/ud/ud_packet.hpp"
#include "uct/ib/ud/ud_receiver.hpp"
#include "uct/ib/ud/ud_sender.hpp"
#include "uct/ib/ud/ud_timers.hpp"

namespace tagwire::ud {

enum class Failure : std::uint8_t { kSilence, kDeath, kReset };

enum class Event : std::uint8_t {
    kDelivered,
    kDuplicate,
    kEarly,
    kBeyond,
    kGarbage,
    kForeign,
    kAckSent,
    kResent,
    kResetSent,
    kProbe,
    kEvicted,
    kCount
};

struct NodeParams {
    std::uint32_t cookie = 1;  // random, not 0
    SenderParams sender;       // of each connection but for first_psn
    std::uint32_t ahead_max = 256;
    std::uint32_t held_max = 1024;  // too early packets of all connections
    std::uint32_t inbound_max = 65536;
    std::uint64_t ack_delay_ns = 20'000;
    std::uint64_t reset_interval_ns = 100'000;  // between RESETs to strangers, on average
    std::uint32_t reset_burst = 256;            // of them at once
};

template <class PeerType>
struct BasicOutbound {
    BasicOutbound(const SenderParams& params, std::uint64_t now) : sender(params, now) {}

    Sender sender;
    PeerType* peer = nullptr;
    std::uint32_t id = 0;
    bool is_waiting = false;  // for its turn, in the node's list
    std::uint32_t timer_index = 0;
    std::uint64_t timer_ns = kNever;
};

template <class Host>
class Node {
  public:
    using Peer = typename Host::Peer;
    using Outbound = BasicOutbound<Peer>;

    Node(Host& host, const NodeParams& params)
        : host_(host), params_(params), generation_(params.cookie & ~kIndexMask) {}
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    [[nodiscard]] const NodeParams& params() const { return params_; }

    // ---- Connections that we open
    /// False: there are too many. `outbound.peer` is set.
    bool open(Outbound& outbound);
    /// Releases the peer's packets and tells the peer.
    void close(Outbound& outbound);
    /// Sends what may be sent. After a push or an ask.
    void pump(Outbound& outbound, std::uint64_t now);

    // ---- Events
    void arrived(void* message, std::uint32_t bytes, std::uint64_t now);
    /// After a batch of them: acknowledgements that are due at once.
    void settle();
    /// When has_waiting() and there is room: those who wait take their turns.
    void resume(std::uint64_t now);
    void expire(std::uint64_t now);
    /// Tells all that is owed: nobody will call for a while.
    void tell_all(std::uint64_t now);
    /// Within send_data(): the acknowledgement of its header was not sent.
    void did_not_tell();
    /// The interface goes: who is connected is told, and who still comes gets to hear the same.
    void farewell();

    [[nodiscard]] std::uint64_t next_deadline() const {
        return later_.empty() ? timers_.earliest()
                              : std::min(timers_.earliest(), later_.front().due_ns);
    }
    [[nodiscard]] bool has_waiting() const { return !waiting_.empty() || !urgent_.empty(); }
    [[nodiscard]] std::size_t inbounds() const { return by_key_.size(); }
    [[nodiscard]] std::uint32_t held() const { return held_; }

  private:
    static constexpr unsigned kEvictLooks = 64;
    static constexpr unsigned kPacketsPerTurn = 16;

    struct Key {  // who opened it
        std::uint32_t cookie;
        std::uint32_t qp_num;
        std::uint32_t id;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            std::uint64_t mixed = std::uint64_t{key.cookie} << 32 | key.id;
            mixed = (mixed ^ key.qp_num) * 0x9e3779b97f4a7c15ULL;
            return static_cast<std::size_t>(mixed ^ mixed >> 29);
        }
    };
    struct Inbound : ucs::FromReserve {
        Receiver receiver;
        ucs::ReserveVector<std::byte> parts;  // of a message whose last packet has not come
        Peer* peer;
        Key key;
        std::uint32_t id;
        std::uint64_t heard_ns;
        bool is_urgent = false;  // in the list
        bool is_later = false;   // in the list
    };
    struct Later {
        std::uint32_t id;
        std::uint64_t due_ns;
    };

    static Key key_of(const Header& header, const void* message);

    void take_connect(const Header& header, void* message, std::uint64_t now);
    void take_accept(const Header& header, std::uint64_t now);
    void take_data(const Header& header, void* message, std::uint32_t bytes, std::uint64_t now);
    void take_next(Inbound& inbound, const Header& header, void* message, std::uint32_t bytes,
                   std::uint64_t now);
    void give(Inbound& inbound, const Header& header, void* message, std::uint32_t bytes);
    void take_ack(const Header& header, std::uint64_t now);
    void take_probe(const Header& header, const void* message, std::uint64_t now);
    void take_close(const Header& header, const void* message);
    void take_reset(const Header& header);

    void take_turn(Outbound& outbound, std::uint64_t now);
    bool step(Outbound& outbound, const Sender::Next& step, std::uint64_t now);
    bool tell(Inbound& inbound, std::uint8_t flags, std::uint32_t probe);
    void tell_due(std::uint64_t until, std::uint64_t now);
    void owe(Inbound& inbound, bool at_once, std::uint64_t now);
    void add_ack(Header& header, Peer& peer);
    void say_reset(const Header& header, const void* message, std::uint64_t now);
    bool may_reset(std::uint64_t now);
    Inbound* make_inbound(const Header& header, const Key& key, Peer& peer, std::uint64_t now);
    void forget(Inbound& inbound);
    bool evict(std::uint64_t now);
    void expire(Outbound& outbound, std::uint64_t now);
    void note(Outbound& outbound) { timers_.no_later_than(outbound, outbound.sender.deadline()); }

    Host& host_;
    NodeParams params_;
    std::uint32_t generation_;
    std::uint32_t held_ = 0;
    std::uint32_t evict_hand_ = 0;
    std::uint32_t told_ = 0;         // the Inbound that was acknowledged last within a packet
    std::uint64_t resets_paid_ = 0;  // the time until which RESETs that were sent use up the rate
    bool is_gone_ = false;
    TimerHeap<Outbound> timers_;  // of each Outbound that has a deadline, or earlier
    Numbers<Outbound*> outbounds_{generation_};
    Numbers<std::unique_ptr<Inbound>> inbounds_{generation_};
    ucs::ReserveHashMap<Key, std::uint32_t, KeyHash> by_key_;
    ucs::ReserveVector<std::uint32_t> urgent_;  // Inbounds that owe an acknowledgement now
    ucs::ReserveDeque<Later> later_;            // and in a while, in the order of time
    ucs::ReserveDeque<std::uint32_t> waiting_;  // Outbounds that have more to send, in turn
};

}  // namespace tagwire::ud

#include "uct/ib/ud/ud_node_impl.hpp"
