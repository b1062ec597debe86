// SPDX-License-Identifier: BSD-3-Clause
// Closes a connection in agreement with the peer. An endpoint sends Bye when the program closes it,
// and Back when the program opens it again. When both sides have closed and nothing is in flight,
// the side with the lower worker id sends Leave. The other side replies with Left and leaves,
// unless its program has opened the endpoint again: so neither side sends on a connection that has
// ended.
//
//     open ----> said bye ----> asked ----> the answer: gone, or not
//                         '---> has left, by the peer's request
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <string>

#include "protocols/port/lane_port.hpp"
#include "protocols/port/peer_port.hpp"
#include "protocols/request/ep_hold.hpp"

namespace tagwire::proto {

class Closing {
  public:
    /// The ids are those of the workers on both sides.
    Closing(const LanePort& lane, const PeerPort& peer, EpHold& hold, std::uint64_t own_id,
            std::uint64_t peer_id)
        : hold_(hold),
          lane_(lane),
          peer_(peer),
          is_lower_(own_id < peer_id),
          is_to_self_(own_id == peer_id) {}
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;

    /// The program has the endpoint (again).
    void open(void* user_data);
    /// The program closes it: it stays open until that has ended.
    void begin() { hold_.is_closing = true; }
    /// Sends the Bye of a close that has nothing more to send. UCS_OK: it has been said.
    /// UCS_ERR_NO_RESOURCE: the lane has no room for it.
    ucs_status_t say_bye();
    /// The program's endpoint has ended well. Ours stays while the peer's program has its own.
    void closed();
    /// The program has it no more, because it has failed or is closed by force; nobody is told.
    void lose();
    /// Everything ends with `status` for a reason of this side's own: the peer hears of it, and
    /// does not wait for what will not come.
    void end(ucs_status_t status);
    /// Called in progress while nobody has it open: true when it can be destroyed.
    bool leave();
    /// The peer hears of the end by the lane. False: that has no room for it. `is_gone`: the worker
    /// goes; in order, unless something is under way.
    bool say_reset(bool is_gone);
    /// The peer's transport has all that the lane was given, or the lane has gone.
    bool has_arrived() const;
    void begin_anew();

    // ---- Messages of the peer

    void on_bye();
    void on_back();
    void on_leave();
    /// The answer to our Leave.
    void on_left(bool is_gone);
    /// A flush; `is_close`: the peer's program closes, and all that it has sent was taken.
    void on_flush(bool is_close) { peer_may_go_ = is_close; }

    /// The program has the endpoint; closing counts.
    bool is_open() const { return hold_.is_open; }
    bool is_closing() const { return hold_.is_closing; }
    void* user_data() const { return user_data_; }
    bool has_left() const { return has_left_; }
    bool has_asked() const { return has_asked_; }
    bool peer_may_go() const { return peer_may_go_; }
    /// The peer's program has closed, and all that it sent was taken: where nothing of this side is
    /// under way, its end is one in order.
    bool may_be_left() const { return peer_is_closed_ || (peer_may_go_ && !hold_.is_open); }
    bool peer_is_closed() const { return peer_is_closed_; }
    /// The program had it and has closed it, or the peer took it for that.
    bool is_closed() const;
    /// For people.
    std::string description() const;

  private:
    void tell_left();

    EpHold& hold_;
    bool peer_is_closed_ = false;  // the peer's program has closed its own
    bool peer_may_go_ = false;     // it closes, and all that it has sent was taken
    bool has_said_bye_ = false;
    bool has_asked_ = false;  // to leave; nothing is sent before the answer
    bool has_left_ = false;   // has answered that it leaves
    bool told_left_ = false;  // the program: that the peer's one has closed

  public:
    /// This worker goes, and the peer has said that its connection has ended.
    bool has_gone = false;
    /// Not UCS_OK: the peer has announced its end; the connection ends with this status.
    ucs_status_t farewell = UCS_OK;

  private:
    void* user_data_ = nullptr;
    const LanePort& lane_;
    const PeerPort& peer_;
    const bool is_lower_;    // this side asks to leave
    const bool is_to_self_;  // both ends are of this worker
};

}  // namespace tagwire::proto
