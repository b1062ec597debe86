// SPDX-License-Identifier: BSD-3-Clause
// The network interfaces of this host: those that the transport uses, and why it does not use the
// others. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "uct/tcp/address.hpp"

namespace tagwire::tcp {

struct Device {
    std::string name;
    IpAddress address;
    unsigned index = 0;             // the kernel's
    std::string problem;            // why it is not used; empty: it is
    double bytes_per_s = 0;         // in one direction
    bool is_speed_assumed = false;  // the kernel knows none
};

/// In the kernel's order, loopback last.
std::vector<Device> list_devices();

}  // namespace tagwire::tcp
