// SPDX-License-Identifier: BSD-3-Clause
// The secret of a job, which its processes alone know, and the proof by which each shows the other
// that it knows it: HMAC-SHA256 over the roles of both and a random number of either side. The
// secret itself does not go over the network.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bootstrap/options.hpp"
#include "bootstrap/result.hpp"

namespace tagwire::bootstrap {

inline constexpr std::size_t kDigestBytes = 32;
inline constexpr std::size_t kSecretBytesMin = 16;
inline constexpr std::size_t kSecretBytesMax = 4096;

using Digest = std::array<std::byte, kDigestBytes>;
using Nonce = std::array<std::byte, kDigestBytes>;

/// From /dev/urandom's generator.
Result make_nonce(Nonce* nonce_p);

/// The text of the option or of the file that it names; empty: the job has none. A file that others
/// can read is refused.
Result choose_secret(const Options& options, std::string* secret_p);

/// The facts of one connection, the same on both sides.
struct Introduction {
    std::string job;
    std::uint32_t size;
    std::uint32_t rank;  // of the one that joins
    Nonce coordinator_nonce;
    Nonce rank_nonce;
};

enum class Prover : std::uint8_t { kRank = 1, kCoordinator = 2 };

/// A proof for this connection that takes `secret` to make. The prover is part of it, so that
/// nobody is answered with his own words.
Digest prove(const std::string& secret, Prover prover, const Introduction& introduction);

/// In a time that does not depend on where they differ.
bool are_equal(const Digest& expected, std::span<const std::byte> given);

}  // namespace tagwire::bootstrap
