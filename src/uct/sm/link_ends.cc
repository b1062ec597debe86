// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/link_ends.hpp"

#include <algorithm>
#include <utility>

#include "ucs/log/log.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

void LinkEnds::fail(Link& link, ucs_status_t status) {
    if (link.failure != UCS_OK)
        return;
    link.failure = status;
    link.loan.end();  // first: whoever hears of the failure may use what was lent
    iface_.connections.set_retry(link, false);
    link.state = LinkState::kFailed;
    if (link.tx_made)
        link.tx.hold();
    failed_.push_back(&link);
    iface_.want_work();
}

void LinkEnds::violation(Link& link, const char* what) {
    if (link.violated)
        return;
    TW_LOG_REPEATED(ucs::LogLevel::kError, violations_.due(),
                    "connection to process %d ended: protocol violation: %s", link.peer.pid, what);
    iface_.count(SmCounter::kViolations);
    // A link that has failed already is marked, too: its ring must not be waited for.
    link.violated = true;
    fail(link, UCS_ERR_CONNECTION_RESET);
}

unsigned LinkEnds::bury_failed() {
    unsigned count = 0;
    for (std::size_t i = 0; i < failed_.size();) {
        Link& link = *failed_[i];
        if (link.rx_segment != nullptr && !link.violated) {
            // A sender that lives on could fill the ring for ever.
            std::uint64_t left = 2 * std::uint64_t{link.rx_segment->geometry.slot_count};
            for (unsigned n = 0; left > 0 && (n = iface_.poll_ring(link)) > 0;
                 left -= std::min<std::uint64_t>(left, n)) {
                count += n;
            }
            // Messages that wait for a descriptor are not dropped: the failure waits, too.
            if (left > 0 && link.rx.peek().word != 0 && !link.violated) {
                ++i;
                continue;
            }
        }
        failed_.erase(failed_.begin() + static_cast<std::ptrdiff_t>(i));
        report_link_failure(link);
        ++count;
    }
    return count;
}

void LinkEnds::report_link_failure(Link& link) {
    iface_.rings.make_cold(link);
    iface_.connections.close_socket(link);
    end_operations(link);
    link.controls.clear();
    link.serves.clear();
    link.get_helps.clear();
    let_go(link);
    if (link.rx_segment != nullptr)
        std::exchange(link.rx_segment, nullptr)->abandon();
    iface_.connections.forget_name(link);
    if (!link.eps.empty())
        iface_.count(SmCounter::kPeerFailures);
    // A handler may destroy its own or other endpoints.
    for (bool again = true; again;) {
        again = false;
        for (SmEp* ep : link.eps) {
            if (ep->failure_reported)
                continue;
            ep->failure_reported = true;
            iface_.report_failure(ep, link.failure);
            again = true;
            break;
        }
    }
    link.is_buried = true;  // last: until here the link is walked
    if (link.eps.empty())
        set_unused(link);
}

// The endpoints of a failed link may stay for long: what was shared with the peer goes now, all but
// its arena, into which the program may have pointers (uct_rkey_ptr).
void LinkEnds::let_go(Link& link) {
    if (link.tx_made)
        link.close_ring();
    link.tx_made = false;
    link.tx = link.other_tx = TxRing();
    link.retire_buffers();
    link.tx_segment = ucs::Mapping();
    link.bell_page = ucs::Mapping();
    link.end_writing(true);
    iface_.connections.processes().leave(link);
}

// Every operation of the link completes, once, with its failure.
void LinkEnds::end_operations(Link& link) {
    iface_.ops.cancel(link, nullptr, link.failure);
    while (Op* op = link.receives.front())
        iface_.rndv.finish_receive(*op, link.failure);
    if (link.message_left > 0 && link.message_entry != nullptr) {
        PostedEntry* entry = std::exchange(link.message_entry, nullptr);
        iface_.tags.complete(*entry, entry->tag, 0, link.message_total, link.failure);
    }
}

void LinkEnds::detach(Link& link, SmEp& ep) {
    std::erase(link.eps, &ep);
    if (!link.eps.empty() || &link == &iface_.connections.cancelled_link())
        return;
    if (link.tx_made)
        link.close_ring();
    if (link.failure == UCS_OK && link.state == LinkState::kConnecting) {
        fail(link, UCS_ERR_CONNECTION_RESET);
    } else if (link.failure == UCS_OK) {
        iface_.connections.forget_name(link);
        link.has_left = true;
        iface_.connections.send_leave(link);
        if (link.peer_left)
            fail(link, UCS_ERR_CONNECTION_RESET);
    }
    if (link.is_buried)
        set_unused(link);
    if (!iface_.guard().is_inside())
        reap();
}

// A link is unused once it is buried and has no endpoint: what its peer sent was delivered then. It
// stays so, for new endpoints take no link that has failed.
void LinkEnds::set_unused(Link& link) {
    unused_.push_back(&link);
    is_reap_wanted_ = true;
    iface_.want_work();
}

void LinkEnds::reap() {
    is_reap_wanted_ = false;
    while (!unused_.empty()) {
        Link& link = *unused_.back();
        unused_.pop_back();
        iface_.connections.remove(link);
    }
}

}  // namespace tagwire::sm
