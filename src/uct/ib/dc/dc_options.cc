// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_options.hpp"

#include <cstddef>

namespace tagwire::dc {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr const char* kTagChoices[] = {"auto", "device", "software", nullptr};
constexpr const char* kPolicyChoices[] = {"dcs", "dcs_quota", "rand", "hash", nullptr};

constexpr Option kOptions[] = {
    {.name = "DC_TX_DEPTH",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "256",
     .doc = "Outstanding requests in the send queue of a DCI, divided evenly among its streams.",
     .offset = offsetof(DcOptions, messages.tx_depth),
     .min = 4,
     .max = 32768},
    {.name = "DC_TX_BUFFERS",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Registered buffers for packed (bcopy) data, shared by all endpoints of an interface; "
            "allocated when needed.",
     .offset = offsetof(DcOptions, messages.tx_buffers),
     .min = 1,
     .max = 1 << 20},
    {.name = "DC_INLINE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128",
     .doc = "Inline bytes of a send that are requested from the device; it may grant more or less.",
     .offset = offsetof(DcOptions, messages.inline_bytes),
     .min = 64,
     .max = 4096},
    {.name = "DC_RX_DEPTH",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Receive buffers posted for all endpoints of an interface; fewer are posted if their "
            "credits need fewer. Raised to 33 with tag matching by the device.",
     .offset = offsetof(DcOptions, messages.rx_depth),
     .min = 2,
     .max = 32768},
    {.name = "DC_RX_HELD",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc = "Receive buffers that the program may hold at a time, in addition to those posted.",
     .offset = offsetof(DcOptions, messages.rx_held),
     .min = 0,
     .max = 1 << 20},
    {.name = "DC_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "8256",
     .doc =
         "Longest message that is sent in one piece (bcopy). With tag matching by the device also "
         "the smallest buffer with which a receive may be posted. Both sides need the same value.",
     .offset = offsetof(DcOptions, messages.seg_bytes),
     .min = 128,
     .max = 1 << 20},
    {.name = "DC_CREDITS",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "512",
     .doc = "Messages that a peer may send before this side has handled them. Limited to 5 MiB of "
            "messages of DC_SEG_BYTES, but not to fewer than 16.",
     .offset = offsetof(DcOptions, messages.credits),
     .min = 1,
     .max = 32768},
    {.name = "DC_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Time without an acknowledgement after which a packet is sent again, rounded up to "
            "4.096 us times a power of two; a device may wait four times as long.",
     .offset = offsetof(DcOptions, retries.timeout_ns),
     .min = 8192,
     .max = 8'000'000'000'000},
    {.name = "DC_RETRY_COUNT",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "6",
     .doc = "Times that a packet is sent again before the endpoint fails. 7 is refused, because "
            "soft-RoCE then retries forever.",
     .offset = offsetof(DcOptions, retries.retry_count),
     .min = 0,
     .max = 6},
    {.name = "DC_RNR_RETRY",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "7",
     .doc = "Times that a message is repeated to a peer without receive buffers before the "
            "endpoint fails; 7: without limit, because any number of peers may send to one target.",
     .offset = offsetof(DcOptions, retries.rnr_retry),
     .min = 0,
     .max = 7},
    {.name = "DC_RNR_TIMER",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1ms",
     .doc = "Time that a peer waits before it repeats a message for which this side had no receive "
            "buffer, rounded up to one of the 32 values of InfiniBand.",
     .offset = offsetof(DcOptions, retries.rnr_timer_ns),
     .min = 10'000,
     .max = 655'360'000},
    {.name = "DC_READS",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "16",
     .doc = "Outstanding reads and atomics of a queue pair, limited to what both devices support.",
     .offset = offsetof(DcOptions, messages.reads),
     .min = 1,
     .max = 128},
    {.name = "DC_KEEPALIVE_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "Silence of a peer after which it is probed, if the endpoint waits for it or the "
            "interface has an error handler; 0: never. An endpoint that waits for credit asks "
            "again after two intervals, in case the answer was lost; with 0 it does not.",
     .offset = offsetof(DcOptions, messages.keepalive_ns),
     .min = 0,
     .max = 3'600'000'000'000},
    {.name = "DC_TAG_MATCHING",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Side that matches tags: device (opening the interface fails if it cannot), software, "
            "or auto (the device if it can create a tag-matching SRQ, else software). Both peers "
            "must match on the same side.",
     .offset = offsetof(DcOptions, messages.tag_matching),
     .choices = kTagChoices},
    {.name = "DC_TAG_DEPTH",
     .type = OptionType::kCount,
     .unit = "receives",
     .default_value = "1023",
     .doc = "Tagged receives that may be posted on an interface; with tag matching by the device "
            "limited to the device's maximum.",
     .offset = offsetof(DcOptions, messages.tag_depth),
     .min = 1,
     .max = 1 << 24},
    {.name = "DC_RNDV_MAX",
     .type = OptionType::kCount,
     .unit = "operations",
     .default_value = "1024",
     .doc = "Outstanding rendezvous sends of an interface. Each reserves a receive buffer for the "
            "message that completes it.",
     .offset = offsetof(DcOptions, messages.rndv_max),
     .min = 1,
     .max = 65536},
    {.name = "DC_DCIS",
     .type = OptionType::kCount,
     .unit = "queue pairs",
     .default_value = "8",
     .doc = "Initiators (DCIs) of an interface, created when needed.",
     .offset = offsetof(DcOptions, dci.dcis),
     .min = 1,
     .max = 1024},
    {.name = "DC_STREAMS",
     .type = OptionType::kCount,
     .unit = "streams",
     .default_value = "8",
     .doc = "Streams used in each DCI, if the device supports them. Each serves one endpoint as a "
            "separate DCI would, with an equal part of DC_TX_DEPTH. 1: no streams.",
     .offset = offsetof(DcOptions, dci.streams),
     .min = 1,
     .max = 64},
    {.name = "DC_POLICY",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "dcs_quota",
     .doc = "Assignment of DCIs (or streams) to endpoints: until the endpoint is idle (dcs), also "
            "at most DC_QUOTA requests while others wait (dcs_quota), or shared for the life of "
            "the endpoint, chosen at random (rand) or by the target's number (hash).",
     .offset = offsetof(DcOptions, dci.policy),
     .choices = kPolicyChoices},
    {.name = "DC_QUOTA",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "32",
     .doc = "Requests that an endpoint may post before it must release its DCI to an endpoint that "
            "waits (DC_POLICY=dcs_quota).",
     .offset = offsetof(DcOptions, dci.quota),
     .min = 1,
     .max = 32768},
};

}  // namespace

const ucs::OptionTable& dc_option_table() {
    static const ucs::OptionTable table{"dynamic connections", kOptions, sizeof(DcOptions)};
    return table;
}

}  // namespace tagwire::dc
