// SPDX-License-Identifier: BSD-3-Clause
// Addresses of the rc transport. Their tables are in docs/internals/formats/verbs.md. Integers are
// big endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tagwire::rc {

inline constexpr std::uint8_t kRcAddressVersion = 2;
inline constexpr std::uint8_t kDeviceMatches = 1;  // flag: tags are matched by the device

/// Settings that must be equal at both ends of a connection.
struct [[gnu::packed]] RcIfaceAddress {
    std::uint8_t version;
    std::uint8_t flags;
    std::uint8_t reserved;
    std::uint8_t check;  // makes the sum of all bytes 0
    std::uint32_t seg_bytes;
};
static_assert(sizeof(RcIfaceAddress) == 8);

struct [[gnu::packed]] RcEpAddress {
    std::uint8_t version;
    std::uint8_t flags;
    std::uint8_t reads;  // that it answers at a time
    std::uint8_t check;
    std::uint32_t seg_bytes;
    std::uint32_t qp_num;         // the queue pair that sends
    std::uint32_t device_qp_num;  // the one that the device reads with; 0 without
    std::uint32_t psn;            // first packet number of both
    std::uint16_t credits;        // messages that the peer of this endpoint may have unhandled
};
static_assert(sizeof(RcEpAddress) == 22);

/// nullopt when the bytes are no such address; `*reason_p` says what is wrong.
std::optional<RcIfaceAddress> parse_iface_address(std::span<const std::byte> bytes,
                                                  std::string* reason_p);
std::optional<RcEpAddress> parse_ep_address(std::span<const std::byte> bytes,
                                            std::string* reason_p);

/// Fields in the order of the machine on entry, in that of the wire and with its check on return.
RcIfaceAddress pack(RcIfaceAddress address);
RcEpAddress pack(RcEpAddress address);

}  // namespace tagwire::rc
