// SPDX-License-Identifier: BSD-3-Clause
// Records of peers, which outlive connections: the numbers by which matching knows the peers of a
// worker, and which of their connections are over.
//
// 1. A source is that of one peer while the peer is remembered.
// 2. Peers that have gone are remembered for a while, because something of theirs may come late:
//    one is forgotten when a look finds it unused for the second time. There is a look whenever as
//    many peers have come as were in use at the look before, and a few. So there are records of
//    three times the peers in use at most, and a few, however many have come and gone.
// 3. Numbers of connections wrap around.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/wire/wireup_messages.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

/// Sources in use: of endpoints, and of messages that are kept.
struct UsedSources {
    ucs::ReserveHashSet<std::uint32_t> sources;
    std::size_t messages = 0;
};

class PeerRecords {
  public:
    using FindUsed = void (*)(void* owner, UsedSources& used);

    PeerRecords(void* owner, FindUsed find_used) : owner_(owner), find_used_(find_used) {}
    PeerRecords(const PeerRecords&) = delete;
    PeerRecords& operator=(const PeerRecords&) = delete;

    /// Peers that are remembered.
    std::size_t size() const { return peers_.size(); }
    /// The peer is remembered from now on.
    std::uint32_t source_of(std::uint64_t peer_id) { return record_of(peer_id).source; }
    /// 0: the peer is not remembered.
    std::uint32_t known_source(std::uint64_t peer_id) const;
    /// The id by which the latest ended connection to the peer named itself; 0: none.
    std::uint32_t retired_id_of(std::uint64_t peer_id) { return record_of(peer_id).retired_id; }
    /// Our connection is over in which the peer named itself by `id`. Messages of it may arrive
    /// after those of the next one, and must not be taken for those.
    void retire(std::uint64_t peer_id, std::uint32_t id);
    /// A hello has come. False: it is of a connection that is over, or came before. `is_current`:
    /// it fits the connection that there is.
    bool admit(std::uint64_t peer_id, const Hello& hello, bool is_current);
    /// The peer's connection of that number is over, even if its hello is still to come.
    void note_over(std::uint64_t peer_id, std::uint32_t number);

  private:
    struct Record {
        std::uint32_t source;      // in matching
        std::uint32_t connection;  // the latest that it has made
        std::uint32_t retired_id;  // how the latest of ours that is over named it; 0: not at all
        std::uint32_t retired_at;  // `connection` then: a later one may have that id again
        bool is_idle;              // nothing was left of it at the last look
    };

    Record& record_of(std::uint64_t peer_id);
    void forget_idle();

    static constexpr std::size_t kPeersMin = 64;
    static constexpr std::size_t kMessagesPerPeer = 16;

    void* const owner_;
    const FindUsed find_used_;
    ucs::ReserveHashMap<std::uint64_t, Record> peers_;
    ucs::ReserveVector<std::uint32_t> free_sources_;  // of those that were forgotten
    std::size_t peers_max_ = kPeersMin;               // then forget_idle() looks
};

}  // namespace tagwire::proto
