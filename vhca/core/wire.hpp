// SPDX-License-Identifier: BSD-3-Clause
// The network under a device: nodes, and packets between them that may be lost.
//
// A packet is InfiniBand's BTH, extended headers and payload (packet.hpp). A fabric may lose,
// repeat, delay and reorder packets; it never changes or splits one, and tells the receiver
// truthfully which node it came from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::vhca {

/// Nanoseconds of the clock that the device lives by: real or simulated.
using Time = std::uint64_t;
inline constexpr Time kNever = ~Time{0};

/// The treatment of a packet by the network: InfiniBand's service level, and the traffic class of
/// the header that is there where packets carry GIDs.
struct ServiceClass {
    std::uint8_t level = 0, traffic = 0;
    friend bool operator==(const ServiceClass&, const ServiceClass&) = default;
};

/// A node of the fabric, and how packets go there. The fabric defines the number: a LID, an IPv4
/// address, an index. Routes to one node are equal whatever their class; the class of a received
/// packet is not known.
struct Route {
    std::uint64_t node = 0;
    ServiceClass service{};
    friend bool operator==(const Route& a, const Route& b) { return a.node == b.node; }
};

inline constexpr std::size_t kMtuMax = 4096;
inline constexpr std::size_t kHeaderBytesMax = 96;
inline constexpr std::size_t kPacketBytesMax = kMtuMax + kHeaderBytesMax;
/// Space for a network header before the data of a datagram.
inline constexpr std::size_t kGrhBytes = 40;

/// A point in the life of another node: packets that were handed over for it, and times that it
/// looked for some.
struct Turn {
    std::uint64_t packets = 0, visits = 0;
};

class Wire {
  public:
    virtual ~Wire() = default;

    /// Where to write a packet of at most `bytes` (<= kPacketBytesMax) to `to`; valid until
    /// commit(). nullptr: no room at present; the device tries again in its next progress().
    /// A claim that is not committed never happened.
    virtual std::byte* claim(Route to, std::size_t bytes) = 0;

    /// Sends the claimed packet, of `bytes` bytes in the end.
    virtual void commit(Route to, std::size_t bytes) = 0;

    // ---- A card answers whatever its host does. Here a process does, when it gets the processor,
    // so time in which it did not is none of a timeout. A fabric without this information says
    // that all had their turn.
    /// The turn of a node until now.
    [[nodiscard]] virtual Turn turn_of(Route /*to*/) { return {}; }
    /// Since then the node took what was sent before and had the time to answer it; or it is gone.
    [[nodiscard]] virtual bool has_had_turn(Route /*to*/, const Turn& /*since*/) { return true; }
    /// Calls of Device::progress() after which all that has arrived by now was received.
    [[nodiscard]] virtual unsigned steps_to_catch_up() const { return 0; }
};

}  // namespace tagwire::vhca
