// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/read_placement.hpp"

#include <algorithm>
#include <cstring>

namespace tagwire::vhca {

// Pieces of any length, so that the last byte of a short read does not come last either.
bool ReadPlacement::take(const ReadTarget& to, std::uint64_t offset,
                         std::span<const std::byte> data) {
    while (!data.empty()) {
        if (held_.size() == kHeldMax && !place_one(to))
            return false;
        const std::size_t count =
            1 + random_() % std::min<std::size_t>(data.size(), kPieceBytesMax);
        Piece& piece = held_.emplace_back();
        piece.offset = offset;
        piece.count = static_cast<std::uint32_t>(count);
        std::memcpy(piece.bytes.data(), data.data(), count);
        offset += count;
        data = data.subspan(count);
    }
    return true;
}

bool ReadPlacement::place_one(const ReadTarget& to) {
    std::swap(held_[random_() % held_.size()], held_.back());
    const Piece& piece = held_.back();
    const bool is_placed =
        to.memory.scatter(to.sges, to.pd, piece.offset, piece.bytes.data(), piece.count);
    held_.pop_back();
    return is_placed;
}

bool ReadPlacement::finish(const ReadTarget& to) {
    while (!held_.empty())
        if (!place_one(to))
            return false;
    return true;
}

}  // namespace tagwire::vhca
