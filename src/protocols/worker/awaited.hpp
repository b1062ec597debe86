// SPDX-License-Identifier: BSD-3-Clause
// The peers that a worker waits for, where these are few and nothing else can be waited for: those
// that a posted receive is directed at, and those that an operation is under way to. Polite
// progress looks whether they run (uct/politeness.hpp); whoever else is connected does not matter.
//
// Threads: with the worker's lock.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class MatchTable;
struct MatchPeer;

class Awaited {
  public:
    Awaited() = default;
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

    /// The peer has its lane; it has none any more.
    void know(MatchPeer& peer);
    void forget(const MatchPeer& peer);
    /// An operation to it is under way; it has ended.
    void begin(MatchPeer& peer);
    void end(MatchPeer& peer);

    /// Lanes to those that are waited for, `lanes` having room for a few. 0: they are not known, or
    /// too many. `requests`: of the worker, that are in use.
    unsigned lanes_of(MatchTable& matches, std::size_t requests, std::span<uct_ep_h> lanes) const;

  private:
    static constexpr std::size_t kFew = 16;

    struct Busy {
        MatchPeer* peer;
        std::uint32_t operations;
    };

    [[nodiscard]] MatchPeer* known(std::uint32_t source) const {
        return source < by_source_.size() ? by_source_[source] : nullptr;
    }

    ucs::ReserveVector<MatchPeer*> by_source_;  // those that have a lane
    Busy busy_[kFew] = {};
    std::size_t busy_count_ = 0;
    std::size_t operations_ = 0;  // of all
    std::size_t others_ = 0;      // of these, those that busy_ had no room for
};

}  // namespace tagwire::proto
