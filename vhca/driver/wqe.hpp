// SPDX-License-Identifier: BSD-3-Clause
// Work queue entries of mlx5, as programs write them into send queues, and their requests.
//
// An entry is parsed from a private copy; whatever is in it, the result stays within it. An unknown
// or inconsistent entry becomes a request that fails (SendWork::refused), as it would on a card.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "vhca/core/objects.hpp"

namespace tagwire::vhca::driver {

inline constexpr std::size_t kBlockBytes = 64;    // unit of the send ring and of its counter
inline constexpr std::size_t kSegmentBytes = 16;  // unit of an entry's size
inline constexpr std::size_t kEntryBytesMax = 63 * kSegmentBytes;
inline constexpr std::uint32_t kEndOfList = 0x100;  // the key that ends a list of receives

/// Properties of a queue pair that say how entries are read.
struct WqeContext {
    ibv_qp_type type = IBV_QPT_RC;
    DcKind dc = DcKind::kNone;
    bool commands_tags = false;  // its SRQ matches tags: it takes TAG_MATCHING, too
};

/// One operation of a TAG_MATCHING entry.
struct TagCommand {
    enum class Kind : std::uint8_t { kNop, kAppend, kRemove } kind = Kind::kNop;
    bool wants_completion = false;
    bool has_count = false;  // of unexpected messages that software has dealt with
    std::uint16_t count = 0;
    std::uint16_t index = 0;  // REMOVE: which; APPEND: that of the next one
    std::uint64_t tag = 0, mask = 0;
    ibv_sge sge{};
};

/// The address vector of a datagram or DC entry, as the entry has it; the kernel face turns it into
/// a Route.
///
/// `attr` is filled as on InfiniBand. On Ethernet the service level is shifted by one bit, dlid is
/// a UDP port, and there is a GRH although its bit is not set.
struct WqeAddress {
    std::uint32_t remote_qpn = 0, remote_qkey = 0;
    std::uint64_t dc_key = 0;
    bool is_extended = false;  // 48 bytes: attr.grh is there
    ibv_ah_attr attr{};
};

/// A piece of a message: in the entry itself (offset and bytes in it), or in the program's memory.
struct WqePiece {
    bool is_inline = false;
    std::uint32_t offset = 0;  // inline
    ibv_sge sge{};             // `length` of both
};

/// One object serves many entries: parsing sets it anew, but for pieces beyond piece_count.
struct Wqe {
    static constexpr std::size_t kPiecesMax = kEntryBytesMax / kSegmentBytes;
    std::uint8_t opcode = 0;   // MLX5_OPCODE_*
    std::uint16_t index = 0;   // as the entry says
    std::uint32_t blocks = 1;  // of the ring; those that were given at most
    bool wants_completion = false;
    SendWork work;  // without wr_id, route and sges
    bool has_address = false;
    WqeAddress address;
    bool is_tag_command = false;
    TagCommand tag;
    std::uint32_t piece_count = 0;
    std::array<WqePiece, kPiecesMax> pieces;
};

/// `entry`: a copy, as many bytes as its size says or the ring has, at least one block. `expected`:
/// the ring's counter, which the entry's index has to be.
void parse_wqe(std::span<const std::byte> entry, std::uint16_t expected, const WqeContext& context,
               Wqe* wqe_p);
/// It is none: fails in its turn, and always says so.
void refuse(Wqe* wqe_p);
/// Blocks that the entry takes, from its first 16 bytes: 1 to 16.
[[nodiscard]] std::uint32_t blocks_of(std::span<const std::byte, kSegmentBytes> control);

/// A receive's list: until its end, or kEndOfList; pieces of no bytes are left out. Returns how
/// many were put into `to`.
std::size_t parse_receive(std::span<const std::byte> entry, std::span<ibv_sge> to);

}  // namespace tagwire::vhca::driver
