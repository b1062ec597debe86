// SPDX-License-Identifier: BSD-3-Clause
// Chooses how the data of a rendezvous moves. The receiver decides.
#pragma once

#include <cstdint>

namespace tagwire::proto {

struct RailCosts;

/// In the order of the choices of TAGWIRE_RNDV_SCHEME.
enum class RndvScheme : std::uint8_t {
    kAuto,
    kGet,   // the receiver reads the sender's buffer
    kPut,   // the sender writes the receiver's buffer
    kCopy,  // the sender sends it in messages
};

/// Properties of both sides' buffers.
struct RndvFacts {
    bool can_write_here;  // our buffer has what a read into it asks for
    bool can_give_key;    // our buffer is one piece, and a peer can be given a key of it
    bool takes_key_back;  // the key ends with the operation, or with its endpoint
    bool has_peer_key;    // the sender's buffer has a key that the lane can use
    bool peer_can_put;    // the sender's buffer has what a write from it asks for
};

constexpr unsigned scheme_bit(RndvScheme scheme) {
    return 1U << static_cast<unsigned>(scheme);
}

/// Schemes that would work over the lane, as bits.
unsigned available_schemes(const RailCosts& rail, const RndvFacts& facts);

/// Picks from `available`: `wanted`, else a copy; for kAuto a read, else a write whose key is taken
/// back, else a copy.
RndvScheme pick_scheme(unsigned available, RndvScheme wanted, const RndvFacts& facts);

}  // namespace tagwire::proto
