// SPDX-License-Identifier: BSD-3-Clause
// Ends of connections: dead peers, format violations, endpoints that leave.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

void SmIface::process_died(std::uint32_t id) {
    const auto found = processes_.find(id);
    if (found == processes_.end() || ucs::pidfd_is_alive(found->second->pidfd.get()))
        return;
    PeerProcess& process = *found->second;
    unwatch_fd(process.pidfd.get());
    for (const auto& link : links_) {
        if (link == nullptr || link->process != &process)
            continue;
        while (link->socket && read_socket(*link)) {
        }  // what it announced before it died; ends, for nobody sends any more
        fail(*link, UCS_ERR_CONNECTION_RESET);
    }
}

void SmIface::unwatch(PeerProcess& process) {
    if (--process.link_count > 0)
        return;
    if (process.pidfd)
        unwatch_fd(process.pidfd.get());
    processes_.erase(process.id);
}

// ---- Ends

void SmIface::fail(Link& link, ucs_status_t status) {
    if (link.failure != UCS_OK)
        return;
    link.failure = status;
    set_retry(link, false);
    link.state = LinkState::kFailed;
    if (link.tx_made)
        link.tx.hold();
    failed_.push_back(&link);
    has_work_ = true;
}

void SmIface::violation(Link& link, const char* what) {
    if (link.violated)
        return;
    TW_LOG_ERROR("connection to process %d ended: %s", link.peer.pid, what);
    counters_.add(SmCounter::kViolations);
    // A link that has failed already is marked, too: its ring must not be waited for.
    link.violated = true;
    fail(link, UCS_ERR_CONNECTION_RESET);
}

unsigned SmIface::bury_failed() {
    if (in_progress_ > 1)
        return 0;  // a callback of ours progresses: what it came from still walks failed_
    unsigned count = 0;
    for (std::size_t i = 0; i < failed_.size();) {
        Link& link = *failed_[i];
        if (link.rx_segment != nullptr && !link.violated) {
            // A sender that lives on could fill the ring for ever.
            std::uint64_t left = 2 * std::uint64_t{link.rx_segment->geometry.slot_count};
            for (unsigned n = 0; left > 0 && (n = poll_ring(link)) > 0;
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

void SmIface::report_link_failure(Link& link) {
    make_cold(link);
    close_socket(link);
    end_operations(link);
    link.controls.clear();
    link.serves.clear();
    link.get_helps.clear();
    let_go(link);
    if (link.rx_segment != nullptr)
        std::exchange(link.rx_segment, nullptr)->abandon();
    const auto known = by_name_.find(link.peer_name);
    if (known != by_name_.end() && known->second == &link)
        by_name_.erase(known);
    if (!link.eps.empty())
        counters_.add(SmCounter::kPeerFailures);
    // A handler may destroy its own or other endpoints.
    for (bool again = true; again;) {
        again = false;
        for (SmEp* ep : link.eps) {
            if (ep->failure_reported)
                continue;
            ep->failure_reported = true;
            report_failure(ep, link.failure);
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
void SmIface::let_go(Link& link) {
    if (link.tx_made)
        close_ring(link);
    link.tx_made = false;
    link.tx = TxRing();
    link.segs = SegmentPool();
    link.tx_segment = ucs::Mapping();
    link.bell_page = ucs::Mapping();
    if (PeerProcess* process = std::exchange(link.process, nullptr))
        unwatch(*process);
}

// Every operation of the link completes, once, with its failure.
void SmIface::end_operations(Link& link) {
    ops.cancel(link, nullptr, link.failure);
    while (Op* op = link.receives.front())
        rndv.finish_receive(*op, link.failure);
    if (link.message_left > 0 && link.message_entry != nullptr) {
        PostedEntry* entry = std::exchange(link.message_entry, nullptr);
        complete_entry(*entry, entry->tag, 0, link.message_total, link.failure);
    }
}

// For a debugger.
void SmIface::close_ring(Link& link) {
    reinterpret_cast<RingHead*>(link.tx_segment.base())
        ->producer.closed.store(1, std::memory_order_relaxed);
}

void SmIface::detach(Link& link, SmEp& ep) {
    std::erase(link.eps, &ep);
    if (!link.eps.empty() || &link == &cancelled_link_)
        return;
    if (link.tx_made)
        close_ring(link);
    if (link.failure == UCS_OK && link.state == LinkState::kConnecting) {
        fail(link, UCS_ERR_CONNECTION_RESET);
    } else if (link.failure == UCS_OK) {
        const auto known = by_name_.find(link.peer_name);
        if (known != by_name_.end() && known->second == &link)
            by_name_.erase(known);
        link.has_left = true;
        send_leave(link);
        if (link.peer_left)
            fail(link, UCS_ERR_CONNECTION_RESET);
    }
    if (link.is_buried)
        set_unused(link);
    if (in_progress_ == 0)
        reap();
}

// A peer that never learns of it keeps the connection: where the notice finds no room it goes when
// there is some.
void SmIface::send_leave(Link& link) {
    const Notice leave{kPacketMagic, kFormatVersion, PacketType::kLeave, 0};
    const bool had_owed = std::exchange(link.owes_leave, true);
    if (link.owes_hello)
        return;
    const ucs_status_t status = ucs::unix_send(link.socket.get(), bytes_of(leave), nullptr, 0);
    link.owes_leave = status == UCS_ERR_NO_RESOURCE;
    if (link.owes_leave || had_owed)
        watch_link(link, link.owes_leave);
}

// A link is unused once it is buried and has no endpoint: what its peer sent was delivered then. It
// stays so, for new endpoints take no link that has failed.
void SmIface::set_unused(Link& link) {
    unused_.push_back(&link);
    reap_wanted_ = true;
}

void SmIface::reap() {
    reap_wanted_ = false;
    while (!unused_.empty()) {
        Link& link = *unused_.back();
        unused_.pop_back();
        remove(link);
    }
}

void SmIface::remove(Link& link) {
    make_cold(link);
    set_retry(link, false);
    close_socket(link);
    std::erase(working_, &link);
    std::erase(failed_, &link);
    const auto known = by_name_.find(link.peer_name);
    if (known != by_name_.end() && known->second == &link)
        by_name_.erase(known);
    if (link.process != nullptr)
        unwatch(*link.process);
    if (link.rx_segment != nullptr)
        link.rx_segment->abandon();
    free_links_.push_back(link.index);
    links_[link.index].reset();
}

}  // namespace tagwire::sm
