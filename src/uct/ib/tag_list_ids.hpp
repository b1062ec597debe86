// SPDX-License-Identifier: BSD-3-Clause
// The wr_ids of a tag list: 1 | kind, 3 bits | generation, 28 bits | index, 32 bits. The high half
// of a receive's, whose kind is 0, is its ticket.
#pragma once

#include <cstdint>

namespace tagwire::ib {

enum class WrKind : std::uint64_t { kReceive, kAdd, kDelete, kSync };

inline constexpr unsigned kKindShift = 60;
inline constexpr std::uint32_t kTicketOwn = 0x80000000U;
inline constexpr std::uint32_t kTicketGeneration = 0x0fffffffU;

constexpr WrKind kind_of(std::uint64_t wr_id) {
    return static_cast<WrKind>(wr_id >> kKindShift & 7);
}
constexpr std::uint64_t bits_of(WrKind kind) {
    return static_cast<std::uint64_t>(kind) << kKindShift;
}
/// Whatever the kind.
constexpr std::uint32_t ticket_of(std::uint64_t wr_id) {
    return static_cast<std::uint32_t>(wr_id >> 32) & (kTicketOwn | kTicketGeneration);
}
constexpr std::uint32_t next_ticket(std::uint32_t ticket) {
    return kTicketOwn | ((ticket + 1) & kTicketGeneration);
}

inline constexpr std::uint32_t kNoEntry = ~std::uint32_t{0};
inline constexpr std::uint8_t kAddAck = 1, kDelAck = 2;

}  // namespace tagwire::ib
