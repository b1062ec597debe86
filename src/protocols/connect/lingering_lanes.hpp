// SPDX-License-Identifier: BSD-3-Clause
// Lanes of endpoints that have gone, which stay until all that they were given has arrived, or for
// a while.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class LingeringLanes {
  public:
    static constexpr std::uint64_t kLingerNs = 100'000'000;
    /// However fast peers come and go: the oldest give way.
    static constexpr std::size_t kLanesMax = 16;

    LingeringLanes() = default;
    LingeringLanes(const LingeringLanes&) = delete;
    LingeringLanes& operator=(const LingeringLanes&) = delete;
    /// clear() was called.
    ~LingeringLanes() = default;

    bool empty() const { return lanes_.empty(); }
    /// No endpoint has the lane any more.
    void add(uct_ep_h lane, std::uint64_t now_ns);
    void destroy_arrived(std::uint64_t now_ns);
    void clear();

  private:
    struct Lane {
        uct_ep_h ep;
        std::uint64_t until_ns;
    };

    ucs::ReserveVector<Lane> lanes_;
};

}  // namespace tagwire::proto
