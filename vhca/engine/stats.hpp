// SPDX-License-Identifier: BSD-3-Clause
// The summary of a device at the end of its process: one line on standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "vhca/core/device.hpp"
#include "vhca/fabric/fabric.hpp"
#include "vhca/fabric/faulty_wire.hpp"

namespace tagwire::vhca {

struct DeviceFigures {
    unsigned index = 0;
    DeviceCounters device;
    FabricCounters fabric;
    std::optional<FaultCounters> faults;  // where some are asked for
    std::uint64_t seed = 0;               // repeats the faults
};

/// "tagwire: vhca0 of PROGRAM (pid N): ..." and a newline.
std::string summary_of(const DeviceFigures& figures);

}  // namespace tagwire::vhca
