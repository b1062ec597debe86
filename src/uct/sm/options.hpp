// SPDX-License-Identifier: BSD-3-Clause
// The options of the shared-memory transport.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::sm {

enum class CmaMode : int { kAuto, kOff, kAllowAny };
enum class DeathMode : int { kAuto, kPeerPidfd, kPidfd, kHangup };
/// Memory that an idle call of progress polls.
enum class PollMode : int { kAuto, kRings, kBell };
enum class WakeupMode : int { kAuto, kMembarrier, kFence };

struct SmMdOptions {
    std::uint64_t arena_bytes;
};

struct SmOptions {
    std::uint64_t ring_slots;
    std::uint64_t ring_start;
    std::uint64_t seg_bytes;
    std::uint64_t pool_bytes;
    std::uint64_t prefetch_from_ns;
    std::uint64_t prefetch_max;
    std::uint64_t tag_depth;
    std::uint64_t both_copy_min;
    std::uint64_t liveness_interval_ns;
    int cma;
    int death;
    int wakeup;
    int poll;
    ucs::OptionString directory;
};

const ucs::OptionTable& sm_md_options();
const ucs::OptionTable& sm_options();

}  // namespace tagwire::sm
