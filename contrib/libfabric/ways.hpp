// SPDX-License-Identifier: BSD-3-Clause
// Which calls an endpoint may make, and which operations of peers it serves: FI_SEND, FI_RECV,
// FI_READ, FI_WRITE, FI_REMOTE_READ and FI_REMOTE_WRITE, called ways here, limit FI_MSG, FI_TAGGED,
// FI_RMA and FI_ATOMIC (fi_getinfo(3), "primary modifiers").
//
// 1. Without any way of its kind a capability has all of them, else those that were asked for.
// 2. fi_tx_attr's and fi_rx_attr's caps limit them further (fi_endpoint(3)); 0 does not.
// 3. Hints that name ways of the target only (FI_REMOTE_READ, FI_REMOTE_WRITE) do not limit the
//    initiator: fi_tx_attr has both of its ways then, as with shm and tcp;ofi_rxm. Charm++ asks for
//    FI_REMOTE_READ and calls fi_read(). An endpoint that has no queue and no counter for
//    operations of its own begins none.
#pragma once

#include "info.hpp"

namespace tagwire::fi {

/// `caps`, and the ways that they imply.
constexpr std::uint64_t with_ways(std::uint64_t caps) {
    if ((caps & kMessages) != 0 && (caps & (FI_SEND | FI_RECV)) == 0)
        caps |= FI_SEND | FI_RECV;
    if ((caps & kOneSided) != 0 && (caps & (kTxWays | kRxWays)) == 0)
        caps |= kTxWays | kRxWays;
    return caps;
}

/// Those of `caps` that are asked for in an attribute. `messages` and `one_sided` are its ways.
constexpr std::uint64_t limited(std::uint64_t caps, std::uint64_t asked, std::uint64_t messages,
                                std::uint64_t one_sided) {
    if (asked == 0)
        return caps;
    if ((asked & kMessages) != 0 && (asked & messages) == 0)
        asked |= messages;
    if ((asked & kOneSided) != 0 && (asked & one_sided) == 0)
        asked |= one_sided;
    return caps & (asked | ~(kMessages | kOneSided | messages | one_sided));
}

/// Capabilities of the transmit side: `caps` those of the endpoint, `asked` those of fi_tx_attr.
constexpr std::uint64_t tx_caps_of(std::uint64_t caps, std::uint64_t asked) {
    caps = with_ways(caps);
    if ((caps & kOneSided) != 0 && (caps & kTxWays) == 0)
        caps |= kTxWays;
    return limited(caps & kTxCaps, asked, FI_SEND, kTxWays);
}

/// The same of the receive side, with fi_rx_attr.
constexpr std::uint64_t rx_caps_of(std::uint64_t caps, std::uint64_t asked) {
    return limited(with_ways(caps) & kRxCaps, asked, FI_RECV, kRxWays);
}

}  // namespace tagwire::fi
