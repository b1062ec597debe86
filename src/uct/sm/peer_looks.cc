// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/peer_looks.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

using Peers = uct::PeerWatch::Peers;

namespace {

/// This thread runs on `cpu`, so a peer that waited there does not, whatever its count says. One
/// that has not said hello has not called progress.
Peers state_of(Link& link, std::uint32_t cpu) {
    if (link.awaits_hello())
        return Peers::kStand;
    const bool has_moved = link.has_moved();
    if (link.waits_on(cpu))
        return Peers::kStandHere;
    return has_moved ? Peers::kRun : Peers::kStand;
}

}  // namespace

bool PeerLooks::is_own(const Link& link) {
    if (own_name_ == 0)
        own_name_ = iface_.connections.iface_address().name;
    return link.peer_name == own_name_;
}

std::size_t PeerLooks::peers() const {
    return iface_.connections.links().size();
}

/// While requests wait for room, any peer may be the one that gives it.
Peers PeerLooks::look_at_peer(uct_ep_h ep, const uct::Whereabouts& here) {
    if (!iface_.pending.empty())
        return look_at_peers(here);
    Link& link = static_cast<SmEp*>(ep)->link();
    if (!link.is_in_sight() && !link.awaits_hello())
        return Peers::kUnknown;
    return is_own(link) ? Peers::kNone : state_of(link, here.cpu);
}

Peers PeerLooks::look_at_peers(const uct::Whereabouts& here) {
    Peers all = Peers::kNone;
    visit_some(kPerLook, [&](Link& link) {
        all = std::max(all, state_of(link, here.cpu));
        return true;
    });
    return all;
}

std::uint64_t PeerLooks::moved() const {
    const ucs::CounterSet all = iface_.counters();
    std::uint64_t sum = 0;
    for (const SmCounter one :
         {SmCounter::kDelivered, SmCounter::kDirectBytes, SmCounter::kProcessVmBytes,
          SmCounter::kMessageBytes, SmCounter::kHelpedBytes})
        sum += all.values[static_cast<std::size_t>(one)].value();
    return sum;
}

void PeerLooks::tell_wait(const uct::Whereabouts& here, bool is_away) {
    iface_.rings.tell_wait(here, is_away);
}

bool PeerLooks::had_processor(const uct::Whereabouts& here, std::uint64_t begin) {
    bool had = false;
    visit_some(kPerLongTurn, [&](const Link& link) {
        had = link.is_in_sight() && link.had_processor(here.cpu, begin, here.now);
        return !had;
    });
    return had;
}

void PeerLooks::expect_naps(bool are_expected) {
    iface_.rings.expect_naps(are_expected);
}

/// Room for requests that wait comes without a bell; the descriptor has a timer for it.
ucs_status_t PeerLooks::prepare_nap(tagwire_uct_nap_t* nap) {
    if (!iface_.pending.empty())
        return UCS_ERR_UNSUPPORTED;
    if (iface_.is_busy() || iface_.connections.is_retrying())
        return UCS_ERR_BUSY;
    std::atomic<std::uint32_t>* const word = iface_.rings.try_nap();
    if (word == nullptr)
        return UCS_ERR_BUSY;
    nap->word = word;
    // SYNC sm_armed: relaxed; a sender that has taken it since woke nobody, and need not.
    nap->value = word->load(std::memory_order_relaxed);
    return (nap->value & kArmedNap) != 0 ? UCS_OK : UCS_ERR_BUSY;
}

void PeerLooks::end_nap() {
    iface_.rings.end_nap();
}

void PeerLooks::wake_nap() {
    iface_.rings.wake_nap();
}

/// Visits so many in turn, until `visit` answers false.
template <class Visit>
void PeerLooks::visit_some(unsigned most, const Visit& visit) {
    const auto& links = iface_.connections.links();
    unsigned seen = 0;
    for (std::size_t i = 0; i < links.size() && seen < most; ++i) {
        next_ = next_ + 1 < links.size() ? next_ + 1 : 0;
        Link* const link = links[next_].get();
        if (link == nullptr || is_own(*link) || (!link->is_in_sight() && !link->awaits_hello()))
            continue;
        ++seen;
        if (!visit(*link))
            return;
    }
}

}  // namespace tagwire::sm
