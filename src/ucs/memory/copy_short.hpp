// SPDX-License-Identifier: BSD-3-Clause
// Copying a few bytes without a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tagwire::ucs {

/// For lengths of which the most are below some 100 bytes: moves of constant size, no call.
[[gnu::always_inline]] inline void copy_short(std::byte* to, const void* from_void,
                                              std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(from_void);
    if (bytes <= 16) {
        if (bytes >= 8) {
            // The two moves overlap in the middle.
            std::uint64_t first, last;
            std::memcpy(&first, from, 8);
            std::memcpy(&last, from + bytes - 8, 8);
            std::memcpy(to, &first, 8);
            std::memcpy(to + bytes - 8, &last, 8);
        } else if (bytes >= 4) {
            std::uint32_t first, last;
            std::memcpy(&first, from, 4);
            std::memcpy(&last, from + bytes - 4, 4);
            std::memcpy(to, &first, 4);
            std::memcpy(to + bytes - 4, &last, 4);
        } else if (bytes > 0) {
            to[0] = from[0];
            to[bytes / 2] = from[bytes / 2];
            to[bytes - 1] = from[bytes - 1];
        }
        return;
    }
    std::byte tail[16];
    std::memcpy(tail, from + bytes - 16, 16);
    for (std::size_t i = 0; i + 16 < bytes; i += 16)
        std::memcpy(to + i, from + i, 16);
    std::memcpy(to + bytes - 16, tail, 16);
}

}  // namespace tagwire::ucs
