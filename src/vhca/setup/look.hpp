// SPDX-License-Identifier: BSD-3-Clause
// What the device looks like to programs: a card's identity, what it offers, and its limits.
//
// A look is what programs can read of a device. How requests, errors and retries work is the same
// for all; a look has none of the faults of what it is named after.
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

/// That of the options of this process, read when it is first asked for.
const Look& look();

/// The limits of the look where `options` has none of its own.
DeviceConfig limits_of(const Look& look, const Options& options);

}  // namespace tagwire::vhca
