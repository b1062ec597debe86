// SPDX-License-Identifier: BSD-3-Clause
// Ends of connections: dead peers, format violations, endpoints that leave.
//
//   fail() --> failed_: progress delivers the messages left, completes every operation with the
//              failure, and calls the error handlers (bury_failed)
//          --> buried: it stays while endpoints have it
//          --> unused_: it is removed when no progress walks links (reap)
//
// No number of messages or requests is a violation: who asks for more than it reads waits
// (Link::is_paused()). These are, and a peer that keeps to the format does not get there:
//   length, id or buffer that cannot be   each sender fills the slots and buffers of its geometry
//   position of the receiver              it counts what was published, and no more
//   more data than was requested          a serve ends with PullBody::length
//   fragment that does not fit            a message has kFragmentCountMax buffers at most, the
//                                         limit that the attributes tell
//   rendezvous or word out of range       each side has kRndvCount words
#pragma once

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/sm/link.hpp"

namespace tagwire::sm {

class LinkEnds {
  public:
    explicit LinkEnds(SmIface& owner) : iface_(owner) {}

    /// No callback runs before the next progress.
    void fail(Link& link, ucs_status_t status);
    /// The peer broke the format.
    void violation(Link& link, const char* what);
    [[nodiscard]] bool has_failed() const { return !failed_.empty(); }
    /// Reports the links that failed; how many moved.
    unsigned bury_failed();
    /// An endpoint goes; with the last one the peer is told.
    void detach(Link& link, SmEp& ep);
    /// Removes unused links; nobody walks them.
    void reap();
    [[nodiscard]] bool is_reap_wanted() const { return is_reap_wanted_; }
    /// The link is removed.
    void forget(Link& link) { std::erase(failed_, &link); }

  private:
    void report_link_failure(Link& link);
    void let_go(Link& link);
    void end_operations(Link& link);
    void set_unused(Link& link);

    SmIface& iface_;
    ucs::ReserveVector<Link*> failed_;  // failure set, not reported yet
    ucs::Repeats violations_;
    ucs::ReserveVector<Link*> unused_;  // to remove when nobody looks at them
    bool is_reap_wanted_ = false;       // there are some
};

}  // namespace tagwire::sm
