// SPDX-License-Identifier: BSD-3-Clause
// Completion queue entries of mlx5 (64 bytes; of a CQ with 128, the second half).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "vhca/core/objects.hpp"
#include "vhca/engine/packet_kind.hpp"

namespace tagwire::vhca::driver {

inline constexpr std::size_t kCqeBytes = 64;
using CqeImage = std::array<std::byte, kCqeBytes>;

/// A completion's wr_id on this face: the place of the entry, and its opcode.
struct EntryName {
    std::uint16_t counter = 0;  // send: block that it begins at; receive: index in ring or list
    std::uint8_t opcode = 0;    // send: MLX5_OPCODE_*

    [[nodiscard]] std::uint64_t pack() const { return std::uint64_t{opcode} << 16 | counter; }
    static EntryName unpack(std::uint64_t wr_id) {
        return {static_cast<std::uint16_t>(wr_id), static_cast<std::uint8_t>(wr_id >> 16)};
    }
};

/// Owner of a completion.
struct CqeOwner {
    std::uint32_t user_index = 0;  // uidx of the queue pair, or of the tag-matching SRQ
    std::uint32_t qpn = 0;
    bool is_tag_matching = false;
    PacketKind kind = PacketKind::kInfiniband;  // of the port
    bool has_room_before = false;               // of 64 bytes, where data go: entries of 128
};

/// All but the owner bit, which the ring sets. A completion of a list operation or tagged
/// receive names the list's index in the low 16 bits of wr_id.
[[nodiscard]] CqeImage make_cqe(const Completion& completion, const CqeOwner& owner);
/// Tells that a CQ was resized: the driver looks for it at the end of the old ring.
[[nodiscard]] CqeImage make_resize_cqe();

}  // namespace tagwire::vhca::driver
