// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/peer_records.hpp"

#include <utility>

namespace tagwire::proto {

namespace {

/// Above 0: the connection `number` is later than `other`.
std::int32_t later_by(std::uint32_t number, std::uint32_t other) {
    return static_cast<std::int32_t>(number - other);
}

}  // namespace

PeerRecords::Record& PeerRecords::record_of(std::uint64_t peer_id) {
    const auto found = peers_.find(peer_id);
    if (found != peers_.end())
        return found->second;
    if (peers_.size() >= peers_max_)
        forget_idle();
    std::uint32_t source = static_cast<std::uint32_t>(peers_.size() + 1);
    if (!free_sources_.empty()) {
        source = free_sources_.back();
        free_sources_.pop_back();
    }
    return peers_.try_emplace(peer_id, Record{source, 0, 0, 0, false}).first->second;
}

std::uint32_t PeerRecords::known_source(std::uint64_t peer_id) const {
    const auto found = peers_.find(peer_id);
    return found == peers_.end() ? 0 : found->second.source;
}

void PeerRecords::forget_idle() {
    UsedSources used;
    find_used_(owner_, used);
    std::size_t in_use = 0;
    for (auto at = peers_.begin(); at != peers_.end();) {
        Record& peer = at->second;
        const bool was_idle = std::exchange(peer.is_idle, !used.sources.contains(peer.source));
        in_use += peer.is_idle ? 0 : 1;
        if (!was_idle || !peer.is_idle) {
            ++at;
            continue;
        }
        free_sources_.push_back(peer.source);
        at = peers_.erase(at);
    }
    peers_max_ = peers_.size() + in_use + kPeersMin + used.messages / kMessagesPerPeer;
}

void PeerRecords::retire(std::uint64_t peer_id, std::uint32_t id) {
    Record& peer = record_of(peer_id);
    peer.retired_id = id;
    peer.retired_at = peer.connection;
}

bool PeerRecords::admit(std::uint64_t peer_id, const Hello& hello, bool is_current) {
    Record& peer = record_of(peer_id);
    const std::int32_t newer = later_by(hello.number, peer.connection);
    // The peer hears from our own hello that this id is retired.
    const bool is_retired =
        hello.id == peer.retired_id && later_by(hello.number, peer.retired_at) <= 0;
    if (newer < 0 || (newer == 0 && !is_current) || is_retired)
        return false;
    peer.connection = hello.number;
    return true;
}

void PeerRecords::note_over(std::uint64_t peer_id, std::uint32_t number) {
    Record& peer = record_of(peer_id);
    if (later_by(number, peer.connection) > 0)
        peer.connection = number;
}

}  // namespace tagwire::proto
