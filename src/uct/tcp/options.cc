// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/options.hpp"

#include <cstddef>

#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr const char* kFamilyChoices[] = {"auto", "inet", "inet6", nullptr};

constexpr Option kDeviceOptions[] = {
    {.name = "TCP_DEVICES",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "*",
     .doc = "Network interfaces to use for TCP: names or patterns (eth*), separated by commas; a "
            "leading ^ excludes them instead.",
     .offset = offsetof(DeviceOptions, devices)},
    {.name = "TCP_AF",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Addresses to use for TCP: IPv4 (inet), IPv6 (inet6), or IPv4 where the network "
            "interface has such an address (auto).",
     .offset = offsetof(DeviceOptions, family),
     .choices = kFamilyChoices},
};

constexpr Option kIfaceOptions[] = {
    {.name = "TCP_PORTS",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "0",
     .doc = "Port to listen on, or a range of ports (20000-20100) of which the first free one is "
            "taken; 0: any port.",
     .offset = offsetof(TcpOptions, ports)},
    {.name = "TCP_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "65600",
     .doc = "Longest active message and eager tagged message over TCP.",
     .offset = offsetof(TcpOptions, seg_bytes),
     .min = 1024,
     .max = kSegBytesMax},
    {.name = "TCP_QUEUE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "256k",
     .doc = "Messages of one connection that wait, outside of the kernel, for room in its socket.",
     .offset = offsetof(TcpOptions, queue_bytes),
     .min = 2 * kSegBytesMax,
     .max = 16 << 20},
    {.name = "TCP_TAG_DEPTH",
     .type = OptionType::kCount,
     .unit = "receives",
     .default_value = "262144",
     .doc = "Tagged receives that can be posted on one interface.",
     .offset = offsetof(TcpOptions, tag_depth),
     .min = 1,
     .max = std::uint64_t{1} << 24},
    {.name = "TCP_SNDBUF",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Size of a socket's send buffer (SO_SNDBUF); 0: the kernel's, which grows by itself.",
     .offset = offsetof(TcpOptions, socket_send_bytes),
     .min = 4096,
     .max = 1 << 30,
     .flags = ucs::kOptionOrZero},
    {.name = "TCP_RCVBUF",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Size of a socket's receive buffer (SO_RCVBUF); 0: the kernel's, which grows by "
            "itself.",
     .offset = offsetof(TcpOptions, socket_receive_bytes),
     .min = 4096,
     .max = 1 << 30,
     .flags = ucs::kOptionOrZero},
    {.name = "TCP_CONGESTION",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc =
         "Congestion control of connections (tcp(7), TCP_CONGESTION), by its name in the kernel; "
         "auto: reno between processes of one host, where pacing only costs, and the system's "
         "between hosts, whatever congctl of a route says.",
     .offset = offsetof(TcpOptions, congestion)},
    {.name = "TCP_HALF_OPEN",
     .type = OptionType::kCount,
     .unit = "connections",
     .default_value = "64",
     .doc =
         "Accepted connections whose peer has not proved itself yet; one more ends one of the host "
         "that has most of them.",
     .offset = offsetof(TcpOptions, half_open_max),
     .min = 1,
     .max = 4096},
    {.name = "TCP_HELLO_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "5s",
     .doc = "Time within which the peer of an accepted connection proves itself.",
     .offset = offsetof(TcpOptions, hello_timeout_ns),
     .min = 1'000'000,
     .max = 3'600'000'000'000},
    {.name = "TCP_CONNECT_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "10s",
     .doc = "Time within which the peer's host takes a connection that this side opens.",
     .offset = offsetof(TcpOptions, connect_timeout_ns),
     .min = 1'000'000,
     .max = 3'600'000'000'000},
    {.name = "TCP_PEER_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "30s",
     .doc = "Silence of a peer's host, in spite of retransmissions and probes, after which the "
            "peer counts as dead; 0: never.",
     .offset = offsetof(TcpOptions, peer_timeout_ns),
     .min = 3'000'000'000,
     .max = 3'600'000'000'000,
     .flags = ucs::kOptionOrZero},
};

}  // namespace

const ucs::OptionTable& device_option_table() {
    static constexpr ucs::OptionTable kTable{
        "TCP devices", kDeviceOptions, sizeof(DeviceOptions),
        "network interfaces are looked up for all contexts; name them in the list of transports, "
        "as in tcp:eth0, or set it in the environment"};
    return kTable;
}

const ucs::OptionTable& tcp_option_table() {
    static constexpr ucs::OptionTable kTable{"TCP", kIfaceOptions, sizeof(TcpOptions)};
    return kTable;
}

}  // namespace tagwire::tcp
