// SPDX-License-Identifier: BSD-3-Clause
// The port by which a part of an endpoint reaches its lane: the messages that it sends to the peer,
// and the rest of the endpoint as far as that depends on them. Endpoint has one, for all its parts;
// a unit test builds a part over a fake one.
//
// 1. Each function is plain, and none is on the path of a short message: parts keep in fields of
//    their own what that reads.
// 2. A port refers to its owner, which outlives it. Threads: as the owner's.
#pragma once

#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

/// The functions of one kind of owner; the first argument of each is the owner.
struct LaneCalls {
    void (*control)(void* owner, const Control& message);
    void (*add_control)(void* owner, const Control& message);
    void (*update_direct)(void* owner);
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
    /// Something has changed that decides whether the fast path is open.
    void update_direct() const { calls_->update_direct(owner_); }

  private:
    void* owner_;
    const LaneCalls* calls_;
};

}  // namespace tagwire::proto
