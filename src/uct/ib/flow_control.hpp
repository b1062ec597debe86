// SPDX-License-Identifier: BSD-3-Clause
// The transport's flow control between peers: counts the received messages that have been handled,
// and reports the count to their senders. rc reports it unasked, dc when a sender asks.
//
// Threads: owner of the interface.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::ib {

class MessageEp;

class FlowControl {
  public:
    FlowControl() = default;
    FlowControl(const FlowControl&) = delete;
    FlowControl& operator=(const FlowControl&) = delete;

    /// The user keeps a message of this peer from now on; null: the peer is not known.
    virtual void keep(MessageEp* ep, std::byte* message) = 0;
    /// The user gave back what keep() was called for.
    virtual void released(std::uint64_t ep_id) = 0;
    /// The peer should hear soon what was released.
    virtual void tell_released(MessageEp& ep) = 0;
    /// Sends the messages that the transport owes to peers, as far as there is room.
    virtual void send_owed() = 0;
    [[nodiscard]] virtual bool owes() const = 0;
    /// Sends a message again that the peer may have missed; false: nothing was sent.
    virtual bool sends_again(MessageEp&) { return false; }

  protected:
    ~FlowControl() = default;
};

}  // namespace tagwire::ib
