// SPDX-License-Identifier: BSD-3-Clause
// What nodes say to each other over their sockets. All messages begin with `magic` and `version`
// in every version.
//
//     sender   -- Hello, descriptor of the ring's segment -->  receiver
//     sender   -- Knock (there are packets, wake up) ------->  receiver
//     sender   <-- Refusal (of another version), hang-up ----  receiver
#pragma once

#include <cstdint>

namespace tagwire::vhca {

inline constexpr std::uint32_t kHelloMagic = 0x61637677;
/// Changes with the messages, the ring and the packets in it.
inline constexpr std::uint32_t kFabricVersion = 1;

struct Hello {
    std::uint32_t magic = kHelloMagic;
    std::uint32_t version = kFabricVersion;
    std::uint64_t segment_bytes = 0;
    std::uint32_t lid = 0;             // of the sender
    std::uint32_t has_membarrier = 0;  // the sender is registered for membarrier(2)
};
static_assert(sizeof(Hello) == 24);

struct Refusal {
    std::uint32_t magic = kHelloMagic;
    std::uint32_t version = kFabricVersion;
    std::uint64_t segment_bytes = 0;
};
static_assert(sizeof(Refusal) == 16);

using Knock = std::uint8_t;

}  // namespace tagwire::vhca
