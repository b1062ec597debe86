// SPDX-License-Identifier: BSD-3-Clause
// Data of a read on their way into memory, in any order. Responses come in theirs, but a card's
// writes pass each other on the bus, so verbs promise the data with the completion and nothing
// before. Off unless DeviceConfig::shuffles_reads says otherwise.
//
//   response ---> pieces, kHeldMax at most are held ---> memory, one of them at a time
//
// (1) The data of one read at a time are held: all are placed before it completes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "vhca/core/memory.hpp"

namespace tagwire::vhca {

/// Where the data of a read go.
struct ReadTarget {
    const MemoryTable& memory;
    std::span<const ibv_sge> sges;
    const Pd* pd;
};

class ReadPlacement {
  public:
    explicit ReadPlacement(std::mt19937_64& random) : random_(random) {}

    /// Takes the bytes of the read from `offset` on, and places some that were held. False: memory
    /// is not accessible.
    [[nodiscard]] bool take(const ReadTarget& to, std::uint64_t offset,
                            std::span<const std::byte> data);
    /// Places all that is held. False as above.
    [[nodiscard]] bool finish(const ReadTarget& to);
    /// The read has failed: nothing more of it is placed.
    void drop() { held_.clear(); }

  private:
    static constexpr std::size_t kPieceBytesMax = 512, kHeldMax = 64;
    struct Piece {
        std::uint64_t offset;
        std::uint32_t count;
        std::array<std::byte, kPieceBytesMax> bytes;
    };

    [[nodiscard]] bool place_one(const ReadTarget& to);

    std::mt19937_64& random_;
    std::vector<Piece> held_;
};

}  // namespace tagwire::vhca
