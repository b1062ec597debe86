// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_options.hpp"

#include <cstddef>

namespace tagwire::rc {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr const char* kTagChoices[] = {"auto", "device", "software", nullptr};

constexpr Option kOptions[] = {
    {.name = "RC_TX_DEPTH",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "256",
     .doc = "Requests that the send queue of an endpoint holds.",
     .offset = offsetof(RcOptions, messages.tx_depth),
     .min = 4,
     .max = 32768},
    {.name = "RC_TX_CQ_DEPTH",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "4096",
     .doc = "Requests of all endpoints that may be under way: each may end in a completion.",
     .offset = offsetof(RcOptions, messages.tx_cq_depth),
     .min = 4,
     .max = 1 << 20},
    {.name = "RC_TX_SIGNAL",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "64",
     .doc = "At least one of so many requests asks for a completion; at most a quarter of the send "
            "queue.",
     .offset = offsetof(RcOptions, messages.tx_signal),
     .min = 1,
     .max = 8192},
    {.name = "RC_TX_BUFFERS",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Registered buffers for data that is packed, of all endpoints; made when needed.",
     .offset = offsetof(RcOptions, messages.tx_buffers),
     .min = 1,
     .max = 1 << 20},
    {.name = "RC_INLINE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128",
     .doc = "Wanted bytes of a message that travel within the request; the device may give more or "
            "less.",
     .offset = offsetof(RcOptions, messages.inline_bytes),
     .min = 24,
     .max = 4096},
    {.name = "RC_RX_DEPTH",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Receive buffers posted at most for all endpoints of an interface; fewer where their "
            "credits do not ask for so many. With tag matching by the device at least 33.",
     .offset = offsetof(RcOptions, messages.rx_depth),
     .min = 2,
     .max = 32768},
    {.name = "RC_RX_HELD",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc = "Receive buffers beyond those posted that the program may hold at a time.",
     .offset = offsetof(RcOptions, messages.rx_held),
     .min = 0,
     .max = 1 << 20},
    {.name = "RC_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "8256",
     .doc = "The longest eager message, and with tag matching by the device the least that a "
            "receive may be posted with. The same on both sides.",
     .offset = offsetof(RcOptions, messages.seg_bytes),
     .min = 128,
     .max = 1 << 20},
    {.name = "RC_CREDITS",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "512",
     .doc = "Messages of one peer that may wait to be handled; it sends no more before. With long "
            "segments fewer: 5 MiB of them, at least 16.",
     .offset = offsetof(RcOptions, messages.credits),
     .min = 1,
     .max = 32768},
    {.name = "RC_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "134ms",
     .doc = "Time without an acknowledgement after which a packet is sent again (the next of 4.096 "
            "us times a power of two; a device may wait four times as long).",
     .offset = offsetof(RcOptions, retries.timeout_ns),
     .min = 8192,
     .max = 8'000'000'000'000},
    {.name = "RC_RETRY_COUNT",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "6",
     .doc = "Times that a packet is sent again before the endpoint fails. 7 is refused: soft-RoCE "
            "takes it for ever.",
     .offset = offsetof(RcOptions, retries.retry_count),
     .min = 0,
     .max = 6},
    {.name = "RC_RNR_RETRY",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "7",
     .doc = "Times that a message is sent again to a peer without receive buffers before the "
            "endpoint fails. 7: for ever, since a peer that pauses is no failed one.",
     .offset = offsetof(RcOptions, retries.rnr_retry),
     .min = 0,
     .max = 7},
    {.name = "RC_RNR_TIMER",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "20ms",
     .doc = "Time that a peer shall wait when we have no receive buffer (the next of the 32 that "
            "InfiniBand has).",
     .offset = offsetof(RcOptions, retries.rnr_timer_ns),
     .min = 10'000,
     .max = 655'360'000},
    {.name = "RC_READS",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "16",
     .doc = "Reads and atomics that a queue pair has under way, at most what both devices have.",
     .offset = offsetof(RcOptions, messages.reads),
     .min = 1,
     .max = 128},
    {.name = "RC_KEEPALIVE_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "An endpoint that waits for its peer, or has an error handler, is probed once in this "
            "time; 0: never.",
     .offset = offsetof(RcOptions, messages.keepalive_ns),
     .min = 0,
     .max = 3'600'000'000'000},
    {.name = "RC_TAG_MATCHING",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Who matches tags: the device where it has tag-matching SRQs and can make one, else "
            "software (auto); the device or nobody; software. The same on both sides.",
     .offset = offsetof(RcOptions, messages.tag_matching),
     .choices = kTagChoices},
    {.name = "RC_TAG_DEPTH",
     .type = OptionType::kCount,
     .unit = "receives",
     .default_value = "1023",
     .doc = "Receives that may be posted; with tag matching by the device at most what it has.",
     .offset = offsetof(RcOptions, messages.tag_depth),
     .min = 1,
     .max = 1 << 24},
    {.name = "RC_RNDV_MAX",
     .type = OptionType::kCount,
     .unit = "operations",
     .default_value = "1024",
     .doc = "Rendezvous sends of an interface that may be under way. One receive buffer each is "
            "kept for the message that ends it.",
     .offset = offsetof(RcOptions, messages.rndv_max),
     .min = 1,
     .max = 65536},
};

}  // namespace

const ucs::OptionTable& rc_option_table() {
    static const ucs::OptionTable table{"reliable connections", kOptions, sizeof(RcOptions)};
    return table;
}

}  // namespace tagwire::rc
