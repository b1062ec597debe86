// SPDX-License-Identifier: BSD-3-Clause
// The look of the device to programs: a card's identity, capabilities and limits.
//
// A look is what programs can read of a device. Requests, errors and retries work the same in all
// looks; a look has none of the faults of the device it is named after.
#pragma once

#include <cstdint>

#include "vhca/core/device.hpp"
#include "vhca/setup/options.hpp"

namespace tagwire::vhca {

struct Look {
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

/// The look that this process's options name; they are read at the first call.
const Look& look();

/// The limits of the look where `options` has none of its own.
DeviceConfig limits_of(const Look& look, const Options& options);

}  // namespace tagwire::vhca
