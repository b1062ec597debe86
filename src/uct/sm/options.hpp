// SPDX-License-Identifier: BSD-3-Clause
// The options of the shared-memory transport.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::sm {

enum class CmaMode : int { kAuto, kOff, kAllowAny };

struct SmMdOptions {
    std::uint64_t arena_bytes;
};

struct SmOptions {
    std::uint64_t ring_slots;
    std::uint64_t seg_bytes;
    std::uint64_t pool_bytes;
    std::uint64_t prefetch_from_ns;
    std::uint64_t prefetch_max;
    std::uint64_t tag_depth;
    std::uint64_t both_copy_min;
    std::uint64_t liveness_interval_ns;
    int cma;
    ucs::OptionString directory;
    ucs::OptionString force;  // force.hpp
};

const ucs::OptionTable& sm_md_options();
const ucs::OptionTable& sm_options();

}  // namespace tagwire::sm
