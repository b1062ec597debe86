// SPDX-License-Identifier: BSD-3-Clause
// The network interfaces of this host: those that the transport uses, and why it does not use the
// others. Any thread.
//
//  1. TAGWIRE_TCP_DEVICES as it is by default uses no interface that has but a link-local address:
//     a node of a cluster has hundreds (an end of each container's wire), and peers of other hosts
//     reach none of them. One that the option names is used.
//  2. By default the kDevicesMax best are used, in the order of list_devices().
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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

/// Each worker listens and has three descriptors for each.
constexpr std::size_t kDevicesMax = 16;

/// Devices, those first that peers of other hosts are most likely to reach: of a default route,
/// then of hardware, then the fastest, then in the kernel's order. The loopback comes last.
std::vector<Device> list_devices();
Speed speed_of(const Device& device);

/// The list of the last second: an interface that is opened looks for its device,
/// and each look costs time for every device.
class DeviceList {
  public:
    using Devices = std::shared_ptr<const std::vector<Device>>;
    Devices now();
    /// Listed anew.
    Devices renew();

  private:
    std::mutex lock_;
    Devices devices_;
    std::uint64_t listed_ = 0;  // ns
};

}  // namespace tagwire::tcp
