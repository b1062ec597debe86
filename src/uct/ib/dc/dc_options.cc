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
     .doc = "Requests that the send queue of a DCI holds; its streams share it evenly.",
     .offset = offsetof(DcOptions, messages.tx_depth),
     .min = 4,
     .max = 32768},
    {.name = "DC_TX_BUFFERS",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Registered buffers for data that is packed, of all endpoints; made when needed.",
     .offset = offsetof(DcOptions, messages.tx_buffers),
     .min = 1,
     .max = 1 << 20},
    {.name = "DC_INLINE_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128",
     .doc = "Wanted bytes of a message that travel within the request; the device may give more or "
            "less.",
     .offset = offsetof(DcOptions, messages.inline_bytes),
     .min = 64,
     .max = 4096},
    {.name = "DC_RX_DEPTH",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "4096",
     .doc = "Receive buffers posted at most for all endpoints of an interface; fewer where their "
            "credits do not ask for so many. With tag matching by the device at least 33.",
     .offset = offsetof(DcOptions, messages.rx_depth),
     .min = 2,
     .max = 32768},
    {.name = "DC_RX_HELD",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "16384",
     .doc = "Receive buffers beyond those posted that the program may hold at a time.",
     .offset = offsetof(DcOptions, messages.rx_held),
     .min = 0,
     .max = 1 << 20},
    {.name = "DC_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "8256",
     .doc = "The longest eager message, and with tag matching by the device the least that a "
            "receive may be posted with. The same on both sides.",
     .offset = offsetof(DcOptions, messages.seg_bytes),
     .min = 128,
     .max = 1 << 20},
    {.name = "DC_CREDITS",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "512",
     .doc = "Messages of one peer that may wait to be handled; it sends no more before.",
     .offset = offsetof(DcOptions, messages.credits),
     .min = 1,
     .max = 32768},
    {.name = "DC_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "134ms",
     .doc = "Time without an acknowledgement after which a packet is sent again (the next of 4.096 "
            "us times a power of two; a device may wait four times as long).",
     .offset = offsetof(DcOptions, retries.timeout_ns),
     .min = 8192,
     .max = 8'000'000'000'000},
    {.name = "DC_RETRY_COUNT",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "6",
     .doc = "Times that a packet is sent again before the endpoint fails. 7 is refused: soft-RoCE "
            "takes it for ever.",
     .offset = offsetof(DcOptions, retries.retry_count),
     .min = 0,
     .max = 6},
    {.name = "DC_RNR_RETRY",
     .type = OptionType::kCount,
     .unit = "times",
     .default_value = "7",
     .doc = "Times that a message is sent again to a peer without receive buffers before the "
            "endpoint fails. 7: for ever, since nobody bounds how many send to one.",
     .offset = offsetof(DcOptions, retries.rnr_retry),
     .min = 0,
     .max = 7},
    {.name = "DC_RNR_TIMER",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1ms",
     .doc = "Time that a peer shall wait when we have no receive buffer (the next of the 32 that "
            "InfiniBand has).",
     .offset = offsetof(DcOptions, retries.rnr_timer_ns),
     .min = 10'000,
     .max = 655'360'000},
    {.name = "DC_READS",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "16",
     .doc = "Reads and atomics that a queue pair has under way, at most what both devices have.",
     .offset = offsetof(DcOptions, messages.reads),
     .min = 1,
     .max = 128},
    {.name = "DC_KEEPALIVE_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1s",
     .doc = "An endpoint that waits for its peer, or has an error handler, is probed once in this "
            "time; 0: never.",
     .offset = offsetof(DcOptions, messages.keepalive_ns),
     .min = 0,
     .max = 3'600'000'000'000},
    {.name = "DC_TAG_MATCHING",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Who matches tags: the device where it has tag-matching SRQs and can make one, else "
            "software (auto); the device or nobody; software. The same on both sides.",
     .offset = offsetof(DcOptions, messages.tag_matching),
     .choices = kTagChoices},
    {.name = "DC_TAG_DEPTH",
     .type = OptionType::kCount,
     .unit = "receives",
     .default_value = "1023",
     .doc = "Receives that may be posted; with tag matching by the device at most what it has.",
     .offset = offsetof(DcOptions, messages.tag_depth),
     .min = 1,
     .max = 1 << 24},
    {.name = "DC_RNDV_MAX",
     .type = OptionType::kCount,
     .unit = "operations",
     .default_value = "1024",
     .doc = "Rendezvous sends of an interface that may be under way. One receive buffer each is "
            "kept for the message that ends it.",
     .offset = offsetof(DcOptions, messages.rndv_max),
     .min = 1,
     .max = 65536},
    {.name = "DC_DCIS",
     .type = OptionType::kCount,
     .unit = "queue pairs",
     .default_value = "8",
     .doc = "Initiators (DCIs) of an interface, made when needed.",
     .offset = offsetof(DcOptions, dci.dcis),
     .min = 1,
     .max = 1024},
    {.name = "DC_STREAMS",
     .type = OptionType::kCount,
     .unit = "streams",
     .default_value = "8",
     .doc = "Streams of each DCI that are used, where the device has them: each serves an endpoint "
            "as a DCI of its own would, with its share of DC_TX_DEPTH. 1: none.",
     .offset = offsetof(DcOptions, dci.streams),
     .min = 1,
     .max = 64},
    {.name = "DC_POLICY",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "dcs_quota",
     .doc = "How endpoints come to a DCI (or stream): they have it until it is idle (dcs), at most "
            "for a number of requests while others wait (dcs_quota), or share one for good, drawn "
            "(rand) or by the target's number (hash).",
     .offset = offsetof(DcOptions, dci.policy),
     .choices = kPolicyChoices},
    {.name = "DC_QUOTA",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "32",
     .doc = "Requests that an endpoint may post in its turn while others wait (dcs_quota).",
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
