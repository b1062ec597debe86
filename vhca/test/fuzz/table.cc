// SPDX-License-Identifier: BSD-3-Clause
// The fuzz targets of this program, each defined by the source of its name.
#include "targets.hpp"

namespace tagwire::fuzz {

namespace vhca_packets_fuzz {
extern const Target kTarget;
}
namespace vhca_shm_fuzz {
extern const Target kTarget;
}
namespace vhca_wqe_fuzz {
extern const Target kTarget;
}

std::span<const Target* const> all_targets() {
    static constexpr const Target* kTargets[] = {
        &vhca_packets_fuzz::kTarget,
        &vhca_shm_fuzz::kTarget,
        &vhca_wqe_fuzz::kTarget,
    };
    return kTargets;
}

}  // namespace tagwire::fuzz
