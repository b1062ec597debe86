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
     .doc = "Requests that the send queue of an interface holds.",
     .offset = offsetof(UdOptions, tx_depth),
     .min = 4,
     .max = 32768},
    {.name = "UD_TX_SIGNAL",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "32",
     .doc = "At least one of so many requests asks for a completion; at most a quarter of the send "
            "queue.",
     .offset = offsetof(UdOptions, tx_signal),
     .min = 1,
     .max = 8192},
    {.name = "UD_TX_BUFFERS",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc = "Registered buffers for packets that are not acknowledged, of all endpoints; so many "
            "long ones and so many short ones, made when needed.",
     .offset = offsetof(UdOptions, tx_buffers),
     .min = 8,
     .max = 1 << 20},
    {.name = "UD_INLINE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128",
     .doc = "Wanted bytes of a packet that travel within the request; the device may give more or "
            "less.",
     .offset = offsetof(UdOptions, inline_bytes),
     .min = 0,
     .max = 4096},
    {.name = "UD_RX_DEPTH",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Receive buffers posted. What comes when there are none is lost, and sent again.",
     .offset = offsetof(UdOptions, rx_depth),
     .min = 8,
     .max = 32768},
    {.name = "UD_RX_HELD",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc =
         "Receive buffers beyond those posted that the program may hold at a time; when it does, "
         "messages come without a descriptor.",
     .offset = offsetof(UdOptions, rx_held),
     .min = 0,
     .max = 1 << 20},
    {.name = "UD_WINDOW",
     .type = OptionType::kCount,
     .unit = "packets",
     .default_value = "256",
     .doc = "Packets that an endpoint has sent and the peer has not acknowledged; also those that "
            "are kept when they come ahead of order.",
     .offset = offsetof(UdOptions, window),
     .min = 1,
     .max = 16384},
    {.name = "UD_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "10ms",
     .doc = "A packet is sent again after this time without acknowledgement, or longer where round "
            "trips were; then after twice the time before.",
     .offset = offsetof(UdOptions, timeout_ns),
     .min = 100'000,
     .max = 60'000'000'000},
    {.name = "UD_TIMEOUT_MAX",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "The longest time before a packet is sent again.",
     .offset = offsetof(UdOptions, timeout_max_ns),
     .min = 100'000,
     .max = 60'000'000'000},
    {.name = "UD_PEER_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "When a peer on this host has not replied for this time, its process is looked at, and "
            "the endpoint fails if it has ended. A process that is stopped or does not call "
            "progress is waited for; inf: never looked at.",
     .offset = offsetof(UdOptions, peer_timeout_ns),
     .min = 1'000'000,
     .max = UINT64_MAX},
    {.name = "UD_REMOTE_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "30s",
     .doc = "An endpoint fails when its peer is on another host (or its process cannot be seen) "
            "and has not replied for this time, or UD_PEER_TIMEOUT if that is longer. A live peer "
            "that does not call progress does not reply either; inf: wait forever.",
     .offset = offsetof(UdOptions, remote_timeout_ns),
     .min = 1'000'000,
     .max = UINT64_MAX},
    {.name = "UD_ACK_DELAY",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "20us",
     .doc = "Acknowledgements wait so long for a packet that takes them along.",
     .offset = offsetof(UdOptions, ack_delay_ns),
     .min = 0,
     .max = 1'000'000'000},
    {.name = "UD_KEEPALIVE_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Endpoints of an interface with an error handler ask a peer that was silent for so "
            "long; 0: never.",
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
