// SPDX-License-Identifier: BSD-3-Clause
// Tags of the tests, the same at both levels, and how far ahead their receives are posted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::tools {

inline constexpr std::uint64_t kAckTag = std::uint64_t{1} << 63;
/// Tags of receives that nobody sends to have this bit.
inline constexpr std::uint64_t kBystanderTag = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kStreamTag = 42;
/// Threads that share a worker have tags of their own, told apart by the bits from here on.
inline constexpr unsigned kThreadShift = 50;
/// A ping-pong posts this many ahead. The driver posts the next one before the oldest is done, so
/// that it has one slot more.
inline constexpr std::size_t kAhead = 2;

}  // namespace tagwire::tools
