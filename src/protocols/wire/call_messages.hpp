// SPDX-License-Identifier: BSD-3-Clause
// Headers of remote calls. They travel as the program's header of an active message (am_header.hpp)
// whose id is kCallAmId or kReplyAmId, the library's own. Data follows.
//
//     0       2       4           8                       16                      24
//     +-------+-------+-----------+-----------------------+-----------------------+
//     | vers. | 0     | method    | id of the call        | timeout (ns), 0: none |    request
//     +-------+-------+-----------+-----------------------+-----------------------+
//     | vers. | flags | status    | id of the call        | 0                     |    reply
//     +-------+-------+-----------+-----------------------+-----------------------+
//
// The status of a reply is the program's number, or with kReplyRefused a tw_status_t.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/wire/am_header.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

inline constexpr std::uint32_t kCallAmId = kFirstOwnAmId;
inline constexpr std::uint32_t kReplyAmId = kFirstOwnAmId + 1;

struct CallHeader {
    static constexpr std::uint16_t kVersion = 1;

    std::uint16_t version = kVersion;
    std::uint16_t reserved = 0;
    std::uint32_t method = 0;
    std::uint64_t id = 0;
    std::uint64_t timeout_ns = 0;
};
static_assert(sizeof(CallHeader) == 24 && offsetof(CallHeader, method) == 4 &&
              offsetof(CallHeader, id) == 8 && offsetof(CallHeader, timeout_ns) == 16);

struct ReplyHeader {
    static constexpr std::uint16_t kVersion = 1;
    /// The library replies for a server that cannot take the request.
    static constexpr std::uint16_t kRefused = 1;

    std::uint16_t version = kVersion;
    std::uint16_t flags = 0;
    std::int32_t status = 0;
    std::uint64_t id = 0;
    std::uint64_t reserved = 0;

    bool is_refusal() const { return (flags & kRefused) != 0; }
};
static_assert(sizeof(ReplyHeader) == 24 && offsetof(ReplyHeader, status) == 4 &&
              offsetof(ReplyHeader, id) == 8);

/// False: malformed.
[[nodiscard]] bool decode(WireBytes bytes, CallHeader* header);
/// A refusal has the status of one.
[[nodiscard]] bool decode(WireBytes bytes, ReplyHeader* header);

}  // namespace tagwire::proto
