// SPDX-License-Identifier: BSD-3-Clause
// Messages that connect two workers: each says hello over the transport of first contact, and both
// agree on endpoints for the transports that connect endpoints (connector.hpp).
//
//     +--------+-------+------------------------------------+----
//     | Wireup | Hello | RailHead | device addr | iface addr| ...      hello
//     +--------+-------+------------------------------------+----
//     +--------+-------+------------------+
//     | Wireup | Offer | endpoint address |      offer; ready and refuse without address
//     +--------+-------+------------------+
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "protocols/wire/reserve_bytes.hpp"
#include "protocols/wire/wire.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

enum class WireupOp : std::uint32_t {
    kHello = 1,   // Hello, rails
    kOffer = 2,   // Offer, address of an endpoint
    kReady = 3,   // Offer without address: what was offered can be used
    kRefuse = 4,  // Offer without address: it cannot
    // Offers and replies for rails that carry data beside the lane.
    kStripeOffer = 5,
    kStripeReady = 6,
    kStripeRefuse = 7,
};

/// Begins each message.
struct Wireup {
    std::uint32_t op;  // WireupOp
    std::uint32_t version;
    std::uint64_t from;  // worker ids
    std::uint64_t to;
};
inline constexpr std::uint32_t kWireVersion = 11;
/// `op` is one of WireupOp; `behind` is a hello or an offer.
[[nodiscard]] bool decode(WireBytes bytes, Wireup* message, WireBytes* behind);

struct Hello {
    std::uint32_t id;  // by which the receiver shall name itself in messages to the sender
    std::uint32_t rails;
    std::uint32_t known;   // the same of the receiver's hello; 0: it has not come
    std::uint32_t number;  // of the sender's connections; a later one has a higher number
    // An id as `known` that an earlier connection of the sender has used, or 0: messages of that
    // one may still be on their way, so the receiver must not go by it any more.
    std::uint32_t retired_id;
    std::uint32_t tx_context = 0;  // the sender is that one of a worker's, from 1 on; 0: a worker
    std::uint64_t worker = 0;      // id of the worker of that transmit context; else 0
    // Interface pair on which the hello arrived; reply on the same pair.
    std::uint32_t from_rail = 0;  // the sender's, from 1 on; 0: not told
    std::uint32_t to_check = 0;   // check_of() the receiver's
    // The sender of this can keep messages up to this length, the program's header included, that
    // no receive waits for. A longer one that is eager ends the connection.
    std::uint64_t eager_max = UINT64_MAX;
};
static_assert(sizeof(Hello) == 48);
/// FNV-1a of the two addresses of an interface.
std::uint32_t check_of(WireBytes device, WireBytes iface);

/// Then, for each rail, its device address and its interface address.
struct RailHead {
    char transport[10];
    std::uint8_t domain;
    std::uint8_t device_bytes;
    std::uint8_t iface_bytes;
    std::uint8_t flags;  // RailFlag
};
static_assert(sizeof(RailHead) == 14);

enum RailFlag : std::uint8_t {
    kRailMatchesTags = 1,  // its device matches tagged messages
};

/// A rail of the peer.
struct PeerRail {
    std::string transport;
    std::uint8_t domain = 0;
    std::uint8_t flags = 0;  // RailFlag
    ReserveBytes device;
    ReserveBytes iface;
};

struct HelloMessage {
    Hello hello;
    ucs::ReserveVector<PeerRail> rails;  // at least one
};
[[nodiscard]] bool decode(WireBytes bytes, HelloMessage* message);

struct Offer {
    std::uint32_t id;        // of the receiver's endpoint, as its hello said
    std::uint8_t rail;       // of the sender, as its hello numbers them
    std::uint8_t peer_rail;  // of the receiver
    std::uint8_t is_connected;
    std::uint8_t address_bytes;
};
static_assert(sizeof(Offer) == 8);

struct OfferMessage {
    Offer offer;
    ReserveBytes address;
};
[[nodiscard]] bool decode(WireBytes bytes, OfferMessage* message);

}  // namespace tagwire::proto
