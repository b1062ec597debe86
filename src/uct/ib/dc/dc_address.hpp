// SPDX-License-Identifier: BSD-3-Clause
// Addresses of DC targets, and the contents of dc's control messages. The tables are in
// docs/internals/formats/verbs.md. Integers are big endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "uct/ib/address.hpp"

namespace tagwire::dc {

inline constexpr std::uint8_t kDcAddressVersion = 2;
inline constexpr std::uint8_t kDeviceMatches = 1;  // flag: tags are matched by the device

/// The interface address: its target.
struct [[gnu::packed]] DcAddress {
    std::uint8_t version;
    std::uint8_t flags;
    std::uint8_t reserved;
    std::uint8_t check;  // makes the sum of all bytes 0
    std::uint32_t seg_bytes;
    std::uint32_t number;  // of the DCT, 24 bits
    std::uint64_t key;     // that it asks for
};
static_assert(sizeof(DcAddress) == 20);

/// nullopt when the bytes are no such address; `*reason_p` says what is wrong.
std::optional<DcAddress> parse_address(std::span<const std::byte> bytes, std::string* reason_p);
/// Fields in the order of the machine on entry, in that of the wire and with its check on return.
DcAddress pack(DcAddress address);

/// The RAVH: follows the RVH for a device that carries out rendezvous over DC. There is no room
/// for more, so software finds the node in a field that the device does not read.
struct [[gnu::packed]] ReturnTarget {
    std::uint32_t number;  // of the target; the highest byte is the service level
    std::uint16_t reserved;
    std::uint16_t lid;  // of its port
    std::uint64_t key;
};
static_assert(sizeof(ReturnTarget) == 16);

/// Where an answer goes: behind what asks for one.
struct [[gnu::packed]] ReturnAddress {
    ReturnTarget target;
    ib::PortAddress port;
};
static_assert(sizeof(ReturnAddress) == 40);

/// The progress of the messages of an endpoint: asked for by the sender, answered by the target.
struct [[gnu::packed]] Progress {
    std::uint32_t ep_id;  // of the sender; foreign to the target
    std::uint32_t sent;   // messages of that endpoint, of all time
};
static_assert(sizeof(Progress) == 8);

/// The longest message that always travels within its request: behind a prefix of 8 bytes.
inline constexpr std::size_t kQuestionBytes = 8 + sizeof(Progress) + sizeof(ReturnAddress);

}  // namespace tagwire::dc
