// SPDX-License-Identifier: BSD-3-Clause
// A hardware profile gives the device a card's identity, capabilities and limits.
//
// Programs read a profile's values by queries. Requests, errors and retries work the same with all
// profiles; a profile has none of the faults of the hardware it is named after.
#pragma once

#include <cstdint>

#include "vhca/core/device.hpp"
#include "vhca/setup/options.hpp"

namespace tagwire::vhca {

struct HardwareProfile {
    const char* name;
    const char* board_id;
    const char* hca_type;
    std::uint32_t vendor_id;
    std::uint32_t vendor_part_id;
    bool is_mlx5;         // libmlx5 knows it
    bool has_timestamps;  // of completions
    bool is_ethernet;     // its port, unless the options say otherwise
    bool has_tags;        // tag-matching SRQs, as many tags as the options say
    DeviceConfig limits;
};

/// The profile that this process's options name; they are read at the first call.
const HardwareProfile& hardware_profile();

/// The limits of the profile where `options` has none of its own.
DeviceConfig limits_of(const HardwareProfile& profile, const Options& options);

}  // namespace tagwire::vhca
