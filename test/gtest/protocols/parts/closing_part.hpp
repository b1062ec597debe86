// SPDX-License-Identifier: BSD-3-Clause
// One end of a connection that is closed in agreement, over fakes.
#pragma once

#include <cstdint>

#include "protocols/connect/closing.hpp"
#include "protocols/parts/fakes.hpp"

namespace tagwire::test {

inline constexpr std::uint64_t kLower = 1, kHigher = 2;

/// One end of a connection.
struct ClosingSide {
    explicit ClosingSide(std::uint64_t id = kLower, std::uint64_t peer_id = kHigher)
        : closing(lane.port, peer.port, hold, id, peer_id) {}

    /// The program closes it, and all that it has sent has been taken.
    void close() {
        closing.begin();
        closing.closed();
    }
    /// Both programs have closed it.
    void close_both() {
        close();
        closing.on_bye();
    }

    FakeLane lane;
    FakePeer peer;
    proto::EpHold hold;
    proto::Closing closing;
};

}  // namespace tagwire::test
