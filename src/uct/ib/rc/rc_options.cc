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
     .doc = "Outstanding requests in the send queue of an endpoint.",
     .offset = offsetof(RcOptions, messages.tx_depth),
     .min = 4,
     .max = 32768},
    {.name = "RC_TX_CQ_DEPTH",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "4096",
     .doc = "Outstanding requests of all endpoints of an interface: the depth of the completion "
            "queue that they share.",
     .offset = offsetof(RcOptions, messages.tx_cq_depth),
     .min = 4,
     .max = 1 << 20},
    {.name = "RC_TX_SIGNAL",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "64",
     .doc = "Send requests among which at least one asks for a completion; limited to a quarter of "
            "the send queue.",
     .offset = offsetof(RcOptions, messages.tx_signal),
     .min = 1,
     .max = 8192},
    {.name = "RC_TX_BUFFERS",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Registered buffers for packed (bcopy) data, shared by all endpoints of an interface; "
            "allocated when needed.",
     .offset = offsetof(RcOptions, messages.tx_buffers),
     .min = 1,
     .max = 1 << 20},
    {.name = "RC_INLINE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128",
     .doc = "Inline bytes of a send that are requested from the device; it may grant more or less.",
     .offset = offsetof(RcOptions, messages.inline_bytes),
     .min = 24,
     .max = 4096},
    {.name = "RC_RX_DEPTH",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Receive buffers posted for all endpoints of an interface; fewer are posted if their "
            "credits need fewer. Raised to 33 with tag matching by the device.",
     .offset = offsetof(RcOptions, messages.rx_depth),
     .min = 2,
     .max = 32768},
    {.name = "RC_RX_HELD",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc = "Receive buffers that the program may hold at a time, in addition to those posted.",
     .offset = offsetof(RcOptions, messages.rx_held),
     .min = 0,
     .max = 1 << 20},
    {.name = "RC_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "8256",
     .doc =
         "Longest message that is sent in one piece (bcopy). With tag matching by the device also "
         "the smallest buffer with which a receive may be posted. Both sides need the same value.",
     .offset = offsetof(RcOptions, messages.seg_bytes),
     .min = 128,
     .max = 1 << 20},
    {.name = "RC_CREDITS",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "512",
     .doc = "Messages that a peer may send before this side has handled them. Limited to 5 MiB of "
            "messages of RC_SEG_BYTES, but not to fewer than 16.",
     .offset = offsetof(RcOptions, messages.credits),
     .min = 1,
     .max = 32768},
    {.name = "RC_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Time without an acknowledgement after which a packet is sent again, rounded up to "
            "4.096 us times a power of two; a device may wait four times as long.",
     .offset = offsetof(RcOptions, retries.timeout_ns),
     .min = 8192,
     .max = 8'000'000'000'000},
    {.name = "RC_RETRY_COUNT",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "6",
     .doc = "Times that a packet is sent again before the endpoint fails. 7 is refused, because "
            "soft-RoCE then retries forever.",
     .offset = offsetof(RcOptions, retries.retry_count),
     .min = 0,
     .max = 6},
    {.name = "RC_RNR_RETRY",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "7",
     .doc = "Times that a message is repeated to a peer without receive buffers before the "
            "endpoint fails; 7: without limit, because a paused peer has not failed.",
     .offset = offsetof(RcOptions, retries.rnr_retry),
     .min = 0,
     .max = 7},
    {.name = "RC_RNR_TIMER",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1ms",
     .doc = "Time that a peer waits before it repeats a message for which this side had no receive "
            "buffer, rounded up to one of the 32 values of InfiniBand.",
     .offset = offsetof(RcOptions, retries.rnr_timer_ns),
     .min = 10'000,
     .max = 655'360'000},
    {.name = "RC_READS",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "16",
     .doc = "Outstanding reads and atomics of a queue pair, limited to what both devices support.",
     .offset = offsetof(RcOptions, messages.reads),
     .min = 1,
     .max = 128},
    {.name = "RC_KEEPALIVE_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Silence of a peer after which it is probed, if the endpoint waits for it or the "
            "interface has an error handler; 0: never.",
     .offset = offsetof(RcOptions, messages.keepalive_ns),
     .min = 0,
     .max = 3'600'000'000'000},
    {.name = "RC_TAG_MATCHING",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Side that matches tags: device (opening the interface fails if it cannot), software, "
            "or auto (the device if it can create a tag-matching SRQ, else software). Both peers "
            "must match on the same side.",
     .offset = offsetof(RcOptions, messages.tag_matching),
     .choices = kTagChoices},
    {.name = "RC_TAG_DEPTH",
     .type = OptionType::kCount,
     .unit = "receives",
     .default_value = "1023",
     .doc = "Tagged receives that may be posted on an interface; with tag matching by the device "
            "limited to the device's maximum.",
     .offset = offsetof(RcOptions, messages.tag_depth),
     .min = 1,
     .max = 1 << 24},
    {.name = "RC_RNDV_MAX",
     .type = OptionType::kCount,
     .unit = "operations",
     .default_value = "1024",
     .doc = "Outstanding rendezvous sends of an interface. Each reserves a receive buffer for the "
            "message that completes it.",
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
