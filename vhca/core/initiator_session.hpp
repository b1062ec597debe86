// SPDX-License-Identifier: BSD-3-Clause
// The session of a DCI with one target at a time.
//
// The request at the requester's cursor says which target it is for. If the session is with another
// one, all that is under way has to be acknowledged first; then the old target is told that the
// session is over, and a connect packet goes ahead of the first request to the new one. The
// initiator does not wait for a reply: a target that missed the connect packet refuses the request
// or stays silent, and both packets are sent again.
//
//   none --open()--> connect is due --connect()--> connected --close()--> none
//                         ^---- connect_again() -------'
//
// Sequence numbers go on from one session to the next, so a late packet is never mistaken.
#pragma once

#include <cstdint>

#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

class QueuePair;
struct SendRequest;

class InitiatorSession {
  public:
    explicit InitiatorSession(QueuePair& qp) : qp_(qp) {}

    /// It is open, with the target of `request`.
    [[nodiscard]] bool is_with(const SendRequest& request) const;
    [[nodiscard]] bool is_open() const { return is_open_; }
    /// Ends the session that there is, and begins one with the target of `request`.
    void open(const SendRequest& request);
    /// Tells the target, if there is one and the wire has room.
    void close();

    /// Requests wait for connect().
    [[nodiscard]] bool is_connect_due() const { return is_connect_due_; }
    /// Sends the connect packet: the next request has this number. False: the wire has no room.
    [[nodiscard]] bool connect(std::uint64_t psn);
    /// The requester goes back to the oldest request: announces the session again if it may.
    void connect_again() { is_connect_due_ = is_connect_due_ || may_connect_again(); }
    void cancel_connect() { is_connect_due_ = false; }

    void note_answered() { is_answered_ = true; }
    /// The target had no room: it took nothing of this session.
    void note_no_room();

  private:
    [[nodiscard]] bool may_connect_again() const;

    QueuePair& qp_;
    std::uint64_t key_ = 0;
    Time began_ = 0;
    bool is_open_ = false;
    bool is_answered_ = false;  // the target knows it
    bool is_connect_due_ = false;
};

}  // namespace tagwire::vhca
