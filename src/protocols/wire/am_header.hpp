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
    std::uint16_t id;
    std::uint16_t header_bytes;  // of the program's header; at most TW_AM_HEADER_MAX
    std::uint32_t reserved;

    static std::uint64_t encode(std::uint16_t id, std::size_t header_bytes) {
        return std::uint64_t{id} | std::uint64_t{header_bytes} << 16;
    }
    static AmWord of(const Header& header) {
        AmWord word;
        static_assert(sizeof word == sizeof header.tag);
        std::memcpy(&word, &header.tag, sizeof word);
        return word;
    }
    /// With so many bytes behind it.
    bool is_sound(std::size_t behind) const {
        return reserved == 0 && header_bytes <= behind && header_bytes <= TW_AM_HEADER_MAX;
    }
};
static_assert(sizeof(AmWord) == 8);

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
