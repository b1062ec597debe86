// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_options.hpp"

#include <cstddef>

namespace tagwire::ud {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr Option kOptions[] = {
    {.name = "UD_TX_DEPTH",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "512",
     .doc = "Outstanding requests in the send queue of an interface.",
     .offset = offsetof(UdOptions, tx_depth),
     .min = 4,
     .max = 32768},
    {.name = "UD_TX_BUFFERS",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc =
         "Registered buffers for unacknowledged packets, shared by all endpoints of an interface: "
         "this number of long ones and this number of short ones, allocated when needed.",
     .offset = offsetof(UdOptions, tx_buffers),
     .min = 8,
     .max = 1 << 20},
    {.name = "UD_INLINE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128",
     .doc =
         "Inline bytes of a packet that are requested from the device; it may grant more or less.",
     .offset = offsetof(UdOptions, inline_bytes),
     .min = 0,
     .max = 4096},
    {.name = "UD_RX_DEPTH",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Receive buffers posted by an interface. A packet that arrives when none is left is "
            "lost, and the sender repeats it.",
     .offset = offsetof(UdOptions, rx_depth),
     .min = 8,
     .max = 32768},
    {.name = "UD_RX_HELD",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc = "Receive buffers that the program may hold at a time, in addition to those posted; "
            "beyond that, messages are delivered without a descriptor.",
     .offset = offsetof(UdOptions, rx_held),
     .min = 0,
     .max = 1 << 20},
    {.name = "UD_WINDOW",
     .type = OptionType::kCount,
     .unit = "packets",
     .default_value = "256",
     .doc = "Packets that an endpoint may have sent without an acknowledgement; also the limit of "
            "packets kept that arrive out of order.",
     .offset = offsetof(UdOptions, window),
     .min = 1,
     .max = 16384},
    {.name = "UD_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "10ms",
     .doc = "Shortest time without an acknowledgement after which a packet is sent again. It grows "
            "with the measured round trip, and doubles at each retry up to UD_TIMEOUT_MAX.",
     .offset = offsetof(UdOptions, timeout_ns),
     .min = 100'000,
     .max = 60'000'000'000},
    {.name = "UD_TIMEOUT_MAX",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Longest time without an acknowledgement after which a packet is sent again.",
     .offset = offsetof(UdOptions, timeout_max_ns),
     .min = 100'000,
     .max = 60'000'000'000},
    {.name = "UD_PEER_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Silence of a peer on this host after which its process is checked; the endpoint fails "
            "if the process has exited. A process that is stopped or does not call progress is "
            "waited for. inf: never checked.",
     .offset = offsetof(UdOptions, peer_timeout_ns),
     .min = 1'000'000,
     .max = UINT64_MAX},
    {.name = "UD_REMOTE_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "30s",
     .doc = "Silence after which the endpoint to a peer on another host, or one whose process "
            "cannot be seen, fails; at least UD_PEER_TIMEOUT. A live peer that does not call "
            "progress is silent, too. inf: never.",
     .offset = offsetof(UdOptions, remote_timeout_ns),
     .min = 1'000'000,
     .max = UINT64_MAX},
    {.name = "UD_ACK_DELAY",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "20us",
     .doc = "Longest time that an acknowledgement waits for a packet that can carry it.",
     .offset = offsetof(UdOptions, ack_delay_ns),
     .min = 0,
     .max = 1'000'000'000},
    {.name = "UD_KEEPALIVE_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Silence of a peer after which it is probed, on interfaces with an error handler; 0: "
            "never.",
     .offset = offsetof(UdOptions, keepalive_ns),
     .min = 0,
     .max = 3'600'000'000'000},
};

}  // namespace

const ucs::OptionTable& ud_option_table() {
    static const ucs::OptionTable table{"unreliable datagrams made reliable", kOptions,
                                        sizeof(UdOptions)};
    return table;
}

}  // namespace tagwire::ud
