// SPDX-License-Identifier: BSD-3-Clause
// Options of the transport tcp.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::tcp {

enum class Family : int { kAuto, kInet, kInet6 };

/// The devices that the family as a whole uses.
struct DeviceOptions {
    ucs::OptionString devices;
    int family;  // Family
};

struct TcpOptions {
    ucs::OptionString ports;
    ucs::OptionString congestion;
    std::uint64_t seg_bytes;
    std::uint64_t queue_bytes;
    std::uint64_t tag_depth;
    std::uint64_t socket_send_bytes;
    std::uint64_t socket_receive_bytes;
    std::uint64_t half_open_max;
    std::uint64_t hello_timeout_ns;
    std::uint64_t connect_timeout_ns;
    std::uint64_t peer_timeout_ns;
};

const ucs::OptionTable& device_option_table();
const ucs::OptionTable& tcp_option_table();

}  // namespace tagwire::tcp
