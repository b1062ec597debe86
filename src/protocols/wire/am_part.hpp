// SPDX-License-Identifier: BSD-3-Clause
// Parameters of a call that sends an active message, besides buffer and op.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/wire/am_header.hpp"

namespace tagwire::proto {

struct AmPart {
    std::uint32_t id;  // of the program, or of the library
    const void* header;
    std::size_t header_bytes;

    std::uint64_t word() const { return AmWord::encode(id, header_bytes); }
};

/// Bytes of header and data, as fast paths compare them: SIZE_MAX where one is too long.
inline std::size_t bytes_of(const AmPart& am, std::size_t length) {
    return am.header_bytes > TW_AM_HEADER_MAX || length > SIZE_MAX / 2 ? SIZE_MAX
                                                                       : am.header_bytes + length;
}

}  // namespace tagwire::proto
