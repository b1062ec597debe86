// SPDX-License-Identifier: BSD-3-Clause
// The flow control of rc: a peer has one credit for each message that it may send before this side
// has handled it. Credits return unasked, within any message to the peer or in a message of their
// own.
//
// Threads: owner thread of the worker.
// Invariant: an endpoint is in the list of those that owe exactly while its owes_credit is set.
#pragma once

#include "ucs/memory/reserve.hpp"
#include "uct/ib/flow_control.hpp"
#include "uct/ib/message_iface.hpp"
#include "uct/ib/rc/rc_ep.hpp"

namespace tagwire::rc {

class RcCredits final : public ib::FlowControl {
  public:
    explicit RcCredits(ib::MessageIface& owner) : owner_(owner) {}

    /// The peer's count of our messages that it has handled. One that cannot be is not believed:
    /// more than was sent, or less than was told before.
    void take(RcEp& ep, std::uint32_t released_by_peer) {
        if (released_by_peer - ep.peer_released <= ep.sent - ep.peer_released) [[likely]]
            ep.peer_released = released_by_peer;
        else
            owner_.garbage("a credit for messages that were not sent");
    }
    /// The endpoint goes.
    void forget(RcEp& ep);

    void keep(ib::MessageEp* ep, std::byte* message) override;
    void released(std::uint64_t lasting_id) override;
    void tell_released(ib::MessageEp& ep) override;
    void send_owed() override;
    [[nodiscard]] bool owes() const override { return !owing_.empty(); }

  private:
    ib::MessageIface& owner_;
    ucs::ReserveVector<RcEp*> owing_;
};

}  // namespace tagwire::rc
