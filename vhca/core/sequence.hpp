// SPDX-License-Identifier: BSD-3-Clause
// Packet sequence numbers: 24 bits on the wire, 64 inside, so that they only ever grow.
#pragma once

#include <cstdint>

namespace tagwire::vhca {

/// Inside, numbers begin here plus the 24 bits that the program chose: there is room below.
inline constexpr std::uint64_t kSequenceBase = std::uint64_t{1} << 32;

/// Distance of the wire's number `psn` ahead of `from`; within 2^23 either way.
inline std::int32_t distance(std::uint32_t psn, std::uint64_t from) {
    return static_cast<std::int32_t>((psn - static_cast<std::uint32_t>(from)) << 8) >> 8;
}

/// Packets of a message; one that is empty still takes one.
inline std::uint32_t packets_of(std::uint64_t bytes, std::uint32_t mtu) {
    return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes + mtu - 1) / mtu);
}

inline constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 30;
// Sequence numbers under way stay far below 2^23, half of what the wire can tell apart.
inline constexpr std::uint64_t kReadPacketsMax = std::uint64_t{1} << 22;
static_assert(kMessageBytesMax / 256 <= kReadPacketsMax);

/// Packets that one queue pair may send before others get their turn.
inline constexpr unsigned kPacketsPerTurn = 64;

}  // namespace tagwire::vhca
