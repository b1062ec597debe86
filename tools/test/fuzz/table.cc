// SPDX-License-Identifier: BSD-3-Clause
// The fuzz targets of this program, each defined by the source of its name.
#include "targets.hpp"

namespace tagwire::fuzz {

namespace control_channel_fuzz {
extern const Target kTarget;
}

std::span<const Target* const> all_targets() {
    static constexpr const Target* kTargets[] = {&control_channel_fuzz::kTarget};
    return kTargets;
}

}  // namespace tagwire::fuzz
