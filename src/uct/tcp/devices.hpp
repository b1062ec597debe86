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
    std::string problem;  // why it is not used; empty: it is
};

struct Speed {
    double bytes_per_s = 0;   // in one direction
    bool is_assumed = false;  // the kernel knows none
};

/// In the kernel's order, loopback last.
std::vector<Device> list_devices();
Speed speed_of(const Device& device);

}  // namespace tagwire::tcp
