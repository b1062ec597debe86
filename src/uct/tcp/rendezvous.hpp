// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous, both sides. The receiver asks for the data when a receive matches:
//
//   sender                              receiver
//   Rts{op, key} ---------------------> match; not: the program is told, and may get by the key
//          <--------------------------- GetRequest{rts = op}
//   GetData... -----------------------> straight into the receive
//   Done{OK} -------------------------> the receive is complete (short data: without a Done)
//   completion, when the kernel has all
//   cancelled before that: Done{CANCELED} --> the receive ends so
//
// A receive that takes no bytes asks, too: only the sender knows whether it has cancelled.
//
// Owner thread only.
#pragma once

#include "uct/tcp/stream_reader.hpp"

namespace tagwire::tcp {

class Rendezvous {
  public:
    explicit Rendezvous(TcpIface& owner) : iface_(owner) {}
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    /// True: the program keeps the descriptor.
    bool take_rts(Connection& connection, const Message& message);
    bool take_request(Connection& connection, const Message& message);
    /// A receive has all of its data, or ends with the status.
    void finish_receive(Op& op, ucs_status_t status);
    /// A receive is cancelled by force. False: no rendezvous fills it.
    bool abandon(Posted& posted);

  private:
    void start_receive(Connection& connection, const RtsBody& rts, Posted& posted);

    TcpIface& iface_;
};

}  // namespace tagwire::tcp
