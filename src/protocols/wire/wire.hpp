// SPDX-License-Identifier: BSD-3-Clause
// Messages of workers to each other: their ids, and how they are read.
// docs/internals/formats/messaging.md has the tables. Little endian.
//
// Everything travels as active messages. The formats:
//
//     eager_header.hpp      messages of the program: header, parts, placeholders
//     am_header.hpp         active messages of the program
//     rndv_messages.hpp     requests, offers and data of rendezvous
//     control_message.hpp   operations of endpoints on each other
//     wireup_messages.hpp   hellos and offers
//     rma_messages.hpp      one-sided operations, where the transport has none
//
// A peer may change the memory that a message lies in while it is read. So each message has one
// decode() function, which copies everything but the program's data and checks the copy; only the
// copy is used. It returns false for messages that no well-behaved peer sends. Whether the names,
// requests and rails in it exist, and are in a state that fits the message, its receiver checks,
// once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tagwire::proto {

static_assert(std::endian::native == std::endian::little);

/// Identifiers of active messages.
enum class AmId : std::uint8_t {
    kEager = 1,       // Header ...
    kPart = 2,        // Part, data: a further part of an eager message
    kRts = 3,         // Header, ... Rts, keys: request of a rendezvous
    kData = 4,        // RndvData, data: of a rendezvous that is copied
    kControl = 5,     // Control
    kWireup = 6,      // Wireup ...
    kRtr = 7,         // Rtr, keys: the data of a rendezvous can be written
    kPut = 8,         // PutPart, data: of a put by messages
    kRmaRequest = 9,  // RmaRequest: a get or an atomic by messages
    kGetData = 10,    // GetData, data
    kNotice = 11,     // Notice: of a put
    kAm = 12,         // Header ...: active message of the program
    kAmRts = 13,      // Header, ... Rts, keys: ... whose data goes by rendezvous
};
inline constexpr auto kAmIdLast = AmId::kAmRts;

using WireBytes = std::span<const std::byte>;

/// Takes a T from the front. False: there are too few bytes.
template <class T>
[[nodiscard]] bool take(WireBytes* bytes, T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes->size() < sizeof *value)
        return false;
    std::memcpy(value, bytes->data(), sizeof *value);
    *bytes = bytes->subspan(sizeof *value);
    return true;
}

/// The bytes are a T, and nothing more.
template <class T>
[[nodiscard]] bool take_all(WireBytes bytes, T* value) {
    return bytes.size() == sizeof *value && take(&bytes, value);
}

}  // namespace tagwire::proto
