// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of a worker: receives that are posted, and messages that have been decoded,
// meet in the worker's MatchTable and end each other. The fast path (fast_path.hpp) does the same
// for plain receives of short messages.
//
//     receive() ----> a message waits ---------------> deliver() ---> eager: the data, or its start
//          '--------> posted                               ^    '---> RndvReceiver
//     arrive() -----> a receive is posted -----------------'    '---> BufferedReceives
//          '--------> kept (match_table.hpp)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocols/api/tw_worker.h"
#include "protocols/cost/timing.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/match/match_table.hpp"
#include "protocols/match/unexpected.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/request.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

class Attention;
struct Arrival;

/// Calls of the worker as its receiver knows it; the first argument of each is the owner.
struct ReceiverCalls {
    /// The request has matched a rendezvous; `keys`: those behind its `rts`.
    void (*begin_rndv)(void* owner, Request& request, MatchPeer& from, const Rts& rts,
                       std::span<const std::byte> keys);
    /// An eager message of `bytes` bytes, which is learnt from by length, is here now.
    void (*learn)(void* owner, MatchPeer& from, std::size_t bytes, const Timing& timing);
    /// All parts of an active message are here.
    void (*complete_am)(void* owner, Unexpected& message);
    /// With a device that matches tags: a tagged receive is posted, or is so no more.
    void (*posted)(void* owner, Request& request);
    void (*unposted)(void* owner, Request& request);
};

/// The world of a receiver.
struct ReceiverPorts {
    const WorkerPort worker;  // a copy, for the path of each message
    MatchTable& matches;
    Attention& attention;
    const tw_worker_limits_t& limits;
    void* owner;
    const ReceiverCalls& calls;
};

/// Parameters of a receive call.
struct Incoming {
    void* base;
    std::size_t length;
    const tw_iov_t* list;
    std::size_t count;
    std::uint64_t tag;
    std::uint64_t mask;
    bool is_tagged;
    const tw_op_t* op;
    tw_request_h* request_p;
    std::uint32_t kind = 0;         // kMultiReceive, kBufferedReceive
    Unexpected* message = nullptr;  // a claimed one, which it receives
};

/// Receives without a buffer of the program. The message that one matches is kept as if it had been
/// claimed, and the receive ends when enough of it is here. Data of a rendezvous is fetched by a
/// receive of the library's own: all of it, and it is an eager message from then on, or its start,
/// and the sender is not told.
class BufferedReceives {
  public:
    /// `ports` are the receiver's.
    explicit BufferedReceives(const ReceiverPorts& ports) : to_(ports) {}

    /// `request` has matched a message that comes now.
    void buffer(Request& request, MatchPeer& from, const Arrival& arrival);
    /// As buffer(), of a message that was kept and is in no name space.
    void buffer_message(Request& request, Unexpected& message);
    /// More of the message has come.
    void check(Unexpected& message);

  private:
    bool is_enough_here(const Unexpected& message) const;
    void fetch(Request& request, Unexpected& message);
    void fetched(Unexpected& message, tw_status_t status, std::size_t bytes);
    void report_buffered(Unexpected& message);
    void drop_buffered(Unexpected& message, ucs_status_t status);

    const ReceiverPorts& to_;
};

class Receiver {
  public:
    explicit Receiver(const ReceiverPorts& ports) : to_(ports) {}
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    /// A device matches tags: it learns which receives are posted (ReceiverCalls).
    void set_has_device() { has_device_ = true; }

    /// A call of the program.
    tw_status_t receive(const Incoming& wanted);
    /// The earliest message that a receive would take; it stays. nullptr: there is none. `from`
    /// nullptr: from anybody.
    Unexpected* probe(bool is_tagged, std::uint64_t tag, std::uint64_t mask, const MatchPeer* from);
    /// The program has it from now on.
    void claim(Unexpected& message);
    static tw_message_info_t info_of(const Unexpected& message);
    /// A call that has returned TW_INPROGRESS already: a receive of any source, for which there is
    /// room.
    void begin(const Incoming& wanted);
    /// The multi-receive takes no more messages; it ends when its parts have.
    void close_multi(Request& parent, ucs_status_t status);
    /// Removes a receive from the posted ones.
    void unpost(Request& request);
    /// To be called when a receive has left the posted ones.
    void unposted(Request& request);
    /// Fills in the message's fields of the completion.
    static void describe(Request& request, const Unexpected& message);

    // ---- Messages of peers. False: malformed, and dropped unless it is the last one

    /// `request` has been matched; null: none was.
    void arrive(MatchPeer& from, const Arrival& arrival, Request* request);
    void arrive_unmatched(MatchPeer& from, const Arrival& arrival);
    /// A device has written the message into its buffer.
    void end_in_place(Request& request, MatchPeer& from, const Arrival& arrival);
    /// `behind`: what follows the header. As for arrive().
    bool take_eager(MatchPeer& from, const Header& header, WireBytes behind, Request* request);
    bool take_rndv(MatchPeer& from, const Header& header, WireBytes behind, Request* request);
    /// A message that comes before its place in the order (device_tags.hpp).
    void announce(MatchPeer& from, AmId am, const Header& header, WireBytes behind);
    /// The place of an announced message: it arrives now. False: there is no such message, and
    /// `request`, which has been matched if it is not null, is left alone.
    bool take_announced(MatchPeer& from, const Placeholder& place, std::uint64_t tag,
                        Request* request);
    bool take_part(MatchPeer& from, WireBytes bytes);

    // ---- Ends

    /// Drops everything half here of an endpoint that has failed. `ends_receives`: those that wait
    /// for its messages alone end, too, for no other endpoint takes its place.
    void drop_incoming(MatchPeer& from, ucs_status_t status, bool ends_receives);

  private:
    MatchSpace& space(bool is_tagged) { return to_.matches.space(is_tagged); }
    Request* make(const Incoming& wanted);
    void post(Request& request, const MatchPeer* from);
    tw_status_t post_multi(Request& request, const Incoming& wanted);
    tw_status_t receive_claimed(Request& request, const Incoming& wanted);
    void give_message(Request& request, Unexpected& message);
    void describe(Request& request, MatchPeer& from, const Arrival& arrival);
    void deliver(Request& request, MatchPeer& from, const Arrival& arrival);
    void end_receive(Request& request, MatchPeer& from);
    void use_room(Request& part, std::size_t bytes);
    void arrive_or_match(MatchPeer& from, const Arrival& arrival, Request* request);
    void end_directed(MatchSpace& in, std::uint32_t source, ucs_status_t status);

    const ReceiverPorts to_;
    bool has_device_ = false;
    BufferedReceives buffered_{to_};
};

}  // namespace tagwire::proto
