// SPDX-License-Identifier: BSD-3-Clause
// Messages between nodes over their sockets. Hello and Refusal begin with the same fields in every
// version: a node that does not understand its peer can still tell the peer's version.
//
//     sender   -- Hello, descriptor of the ring's segment -->  receiver
//     sender   -- Knock (there are packets, wake up) ------->  receiver
//     sender   <-- Refusal (of another version), hang-up ----  receiver
#pragma once

#include <tagwire_version.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tagwire::vhca {

inline constexpr std::uint32_t kHelloMagic = 0x61637677;
/// Changes with the messages, the ring and the packets in it.
inline constexpr std::uint32_t kFabricVersion = 3;

/// Release of the library, "0.1.0", padded with zeros. Devices of two releases may send different
/// packets, so only equal ones talk to each other.
using Release = std::array<char, 16>;
inline constexpr Release kRelease = [] {
    constexpr std::string_view kText = TAGWIRE_VERSION_STRING;
    Release release{};
    static_assert(kText.size() <= std::tuple_size_v<Release>);
    kText.copy(release.data(), release.size());
    return release;
}();

struct Hello {
    std::uint32_t magic = kHelloMagic;
    std::uint32_t version = kFabricVersion;
    std::uint64_t segment_bytes = 0;
    Release release = kRelease;
    std::uint32_t lid = 0;             // of the sender
    std::uint32_t has_membarrier = 0;  // the sender is registered for membarrier(2)
};
static_assert(sizeof(Hello) == 40);

struct Refusal {
    std::uint32_t magic = kHelloMagic;
    std::uint32_t version = kFabricVersion;
    std::uint64_t segment_bytes = 0;
    Release release = kRelease;
};
static_assert(sizeof(Refusal) == 32 && offsetof(Refusal, release) == offsetof(Hello, release));

using Knock = std::uint8_t;

}  // namespace tagwire::vhca
