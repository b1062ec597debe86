// SPDX-License-Identifier: BSD-3-Clause
// Receives of tagged messages at both levels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/job.hpp"

namespace tagwire::tools {

/// A receive that was posted: it waits, or has ended in its call, or was refused for now.
enum class Posted { kWaits, kHasCome, kNoResource };

/// A receive with this number is for the message that comes next, whatever its number.
inline constexpr std::uint64_t kByArrival = ~std::uint64_t{0};

struct ReceiverOptions {
    std::size_t slots;
    std::size_t size;
    bool validate;
    std::uint64_t stream;  // of the sender, for validation
    MemoryKind memory = MemoryKind::kUser;
};

/// Called inside the completion of a slot, which may be posted again at once.
using OnReceived = void (*)(void* arg, std::size_t slot);

}  // namespace tagwire::tools
