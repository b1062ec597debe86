// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/awaited.hpp"

#include <algorithm>

#include "protocols/match/match_peer.hpp"
#include "protocols/match/match_table.hpp"

namespace tagwire::proto {

void Awaited::know(MatchPeer& peer) {
    if (peer.source >= by_source_.size())
        by_source_.resize(peer.source + 1, nullptr);
    by_source_[peer.source] = &peer;
}

void Awaited::forget(const MatchPeer& peer) {
    if (known(peer.source) == &peer)
        by_source_[peer.source] = nullptr;
}

void Awaited::begin(MatchPeer& peer) {
    ++operations_;
    for (Busy& busy : std::span(busy_, busy_count_)) {
        if (busy.peer == &peer) {
            ++busy.operations;
            return;
        }
    }
    if (busy_count_ == kFew)
        ++others_;
    else
        busy_[busy_count_++] = {&peer, 1};
}

void Awaited::end(MatchPeer& peer) {
    --operations_;
    for (Busy& busy : std::span(busy_, busy_count_)) {
        if (busy.peer != &peer)
            continue;
        if (--busy.operations == 0)
            busy = busy_[--busy_count_];
        return;
    }
    --others_;
}

unsigned Awaited::lanes_of(MatchTable& matches, std::size_t requests,
                           std::span<uct_ep_h> lanes) const {
    const auto& tagged = matches.space(true).posted;
    const auto& untagged = matches.space(false).posted;
    // A flush, a send that waits for room, a receive from anybody's active messages: more requests
    // than these.
    if (others_ > 0 || requests != operations_ + tagged.size() + untagged.size())
        return 0;
    unsigned count = 0;
    const auto add = [&](const MatchPeer* peer) {
        const uct_ep_h lane = peer == nullptr ? nullptr : peer->lane.lane();
        if (lane == nullptr)
            return false;
        const auto end = lanes.begin() + count;
        if (std::find(lanes.begin(), end, lane) != end)
            return true;
        if (count == lanes.size())
            return false;
        lanes[count++] = lane;
        return true;
    };
    for (const Busy& busy : std::span(busy_, busy_count_))
        if (!add(busy.peer))
            return 0;
    const auto add_source = [&](const Request& receive) {
        return add(known(receive.source));  // there is none of kAnySource
    };
    return tagged.all_of_few(kFew, add_source) && untagged.all_of_few(kFew, add_source) ? count : 0;
}

}  // namespace tagwire::proto
