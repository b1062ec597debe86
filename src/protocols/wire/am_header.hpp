// SPDX-License-Identifier: BSD-3-Clause
// Active messages of the program: a Header whose tag is an AmWord, then the program's own header.
//
//     +--------+-----------+-------------+----------------+------+
//     | Header | ack (u64) | total (u64) | program header | data |             eager
//     +--------+-----------+-------------+----------------+------+
//     +--------+----------------+----------+------+
//     | Header | program header | Rts (24) | keys |                            rendezvous
//     +--------+----------------+----------+------+
//
// `total` counts the program's header, too. The first part has all of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocols/api/tw_am.h"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

/// In place of a tag.
struct AmWord {
    std::uint16_t handler;
    std::uint16_t header_bytes;  // of the program's header; at most TW_AM_HEADER_MAX
    std::uint32_t space;         // whose handlers: 0, or kOwnAmSpace

    static std::uint64_t encode(std::uint32_t id, std::size_t header_bytes) {
        return std::uint64_t{id & UINT16_MAX} | std::uint64_t{header_bytes} << 16 |
               std::uint64_t{id >> 16} << 32;
    }
    /// A word of the id alone.
    static AmWord of(std::uint32_t id) {
        return {static_cast<std::uint16_t>(id & UINT16_MAX), 0, id >> 16};
    }
    static AmWord of(const Header& header) {
        AmWord word;
        static_assert(sizeof word == sizeof header.tag);
        std::memcpy(&word, &header.tag, sizeof word);
        return word;
    }
    bool is_of_program() const { return space == 0; }
    /// Ids of the program's handlers are at most TW_AM_ID_MAX.
    std::uint32_t id() const { return space << 16 | handler; }
    /// With so many bytes behind it.
    bool is_sound(std::size_t behind) const {
        return header_bytes <= behind && header_bytes <= TW_AM_HEADER_MAX;
    }
};
static_assert(sizeof(AmWord) == 8);

/// Ids of the library's own handlers begin here.
inline constexpr std::uint32_t kOwnAmSpace = 1;
inline constexpr std::uint32_t kFirstOwnAmId = kOwnAmSpace << 16;
static_assert(TW_AM_ID_MAX < kFirstOwnAmId);

struct AmBody {
    AmWord word;
    EagerBody eager;   // its data begins with the program's header
    WireBytes header;  // the program's, where the transport has it
};
[[nodiscard]] bool decode(const Header& header, WireBytes behind, AmBody* body);

struct AmRtsBody {
    AmWord word;
    WireBytes header;  // likewise
    RtsBody rndv;
};
[[nodiscard]] bool decode(const Header& header, WireBytes behind, AmRtsBody* body);

}  // namespace tagwire::proto
