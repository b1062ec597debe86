// SPDX-License-Identifier: BSD-3-Clause
// `tagwire soak`: two processes exchange random messages through the messaging layer, both ways at
// once, and check every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/job.hpp"
#include "tools/random.hpp"

namespace tagwire::tools {

struct SoakArguments {
    std::uint64_t seconds = 10;
    std::optional<std::uint64_t> seed;
    std::optional<std::string> transports;  // else TAGWIRE_TRANSPORTS, where it is set, else sm
};

enum class SoakReceive { kPosted, kClaimed, kDiscarded };

/// One message and how it is received: both sides draw the same from the seed.
struct SoakMessage {
    std::uint64_t sequence = 0;  // of its direction
    std::uint64_t tag = 0, ignore = 0;
    std::uint64_t imm = 0;
    std::size_t size = 0;
    std::uint32_t send_flags = 0;  // TW_OP_x
    SoakReceive receive = SoakReceive::kPosted;
    std::size_t room = 0;  // bytes of the receive buffer beyond the message
    bool is_tagged = true;
    bool is_directed = false;
    bool has_callback = false;
};

/// Counts of what one side has received.
struct SoakCounts {
    enum Kind {
        kTagged,
        kUntagged,
        kInject,
        kImm,
        kDirected,
        kWildcard,
        kClaim,
        kDiscard,
        kPut,
        kGet,
        kAtomic,
        kActive,
        kKinds
    };

    std::uint64_t messages = 0, bytes = 0, cancels = 0;
    std::uint64_t kinds[kKinds] = {};

    void add(const SoakMessage& message);
    void add(const SoakCounts& other);
};

/// The next message; `inject_max` is the least of both sides.
SoakMessage draw_message(Random& random, std::uint64_t sequence, std::size_t inject_max);

/// Nothing if `data` is this message of the direction, else which byte is the first that is wrong.
std::optional<std::string> wrong_byte(const SoakMessage& message, Side sender, const void* data);

/// Throws Failure with the reason, UsageError for transports that are not there.
void run_soak(const SoakArguments& arguments);

}  // namespace tagwire::tools
