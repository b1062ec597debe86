// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/options.hpp"

#include <cstddef>
#include <iterator>

#include "protocols/api/tw_worker.h"

namespace tagwire::proto {

namespace {

using ucs::Option;
using ucs::OptionType;

/// In the order of RndvScheme.
constexpr const char* kSchemes[] = {"auto", "get", "put", "copy", nullptr};
/// auto, and CopyKind in its order.
constexpr const char* kCopyChoices[] = {"auto", "libc", "vector", "nontemporal", nullptr};
static_assert(std::size(kCopyChoices) == ucs::kCopyKinds + 2);
/// The index is the number (kStripeRailsMax).
constexpr const char* kRails[] = {"auto", "1", "2", "3", "4", nullptr};

constexpr Option kOptions[] = {
    {.name = "TRANSPORTS",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc =
         "Transports of the messaging layer, separated by commas, each with or without a "
         "device: sm,rc:mlx5_0:1. auto: sm, the transports of real RDMA devices, and tcp; all: "
         "those of virtual devices, too. A list that begins with ^ names what is left out of auto: "
         "^tcp,ud; in another list ^ leaves out one name: all,^tcp.",
     .offset = offsetof(Options, transports)},
    {.name = "RNDV_THRESHOLD",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "inf",
     .doc = "Length from which messages go by rendezvous, at most UNEXPECTED_BYTES; inf: chosen by "
            "cost, over shared memory as the receiver measures it. A message sent as a short one "
            "stays short, and a tagged message for a matching device goes by rendezvous if it "
            "exceeds the transport's buffer.",
     .offset = offsetof(Options, rndv_threshold)},
    {.name = "INJECT_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "4k",
     .doc = "Longest message that may be injected.",
     .offset = offsetof(Options, inject_bytes),
     .min = 64,
     .max = 1 << 20},
    {.name = "REQUESTS_MAX",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "1048576",
     .doc = "Outstanding operations of a worker for which it allocates the requests; also the "
            "number of injected messages that may wait to be sent.",
     .offset = offsetof(Options, requests_max),
     .min = 64,
     .max = std::uint64_t{1} << 24},
    {.name = "QUEUED_MAX",
     .type = OptionType::kCount,
     .unit = "operations",
     .default_value = "65536",
     .doc = "Operations with TW_OP_QUEUE that a worker, or a transmit context, keeps at a time "
            "where their calls would otherwise answer TW_ERR_NO_RESOURCE; 0: none.",
     .offset = offsetof(Options, queued_max),
     .min = 0,
     .max = std::uint64_t{1} << 24},
    {.name = "TX_CONTEXTS",
     .type = OptionType::kCount,
     .unit = "contexts",
     .default_value = "1",
     .doc = "Transmit contexts of a worker of mode TW_THREAD_MULTI: with more than 1, as many "
            "connections to each peer carry its messages beside the one that receives, each with "
            "a lock, requests and queues of its own. The threads of the program take turns in "
            "getting them; the messages of one thread stay in order.",
     .offset = offsetof(Options, tx_contexts),
     .min = 1,
     .max = TW_TX_CONTEXTS_MAX},
    {.name = "UNEXPECTED_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128m",
     .doc = "Memory of a worker for unexpected messages of all peers, and for notices of puts that "
            "nobody has polled. Eager data is paused above 1/4 of it, or above half of a peer's "
            "quota; all messages, and puts with a notice, are paused above 3/4. When it is used "
            "up, messages of departed peers are dropped, and an endpoint whose peer keeps sending "
            "fails.",
     .offset = offsetof(Options, unexpected_bytes),
     .min = 4096},
    {.name = "UNEXPECTED_MAX",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "2097152",
     .doc = "Unexpected messages of all peers that a worker keeps. All messages are paused above "
            "half of it. When it is used up, messages of departed peers are dropped, and an "
            "endpoint whose peer keeps sending fails.",
     .offset = offsetof(Options, envelopes_max),
     .min = 16,
     .max = std::uint64_t{1} << 30},
    {.name = "UNASKED_PEERS_MAX",
     .type = OptionType::kCount,
     .unit = "peers",
     .default_value = "16384",
     .doc = "Connected peers to which the program has made no endpoint; transmit contexts count. "
            "The connection of one more is ended (TW_ERR_CONNECTION_RESET).",
     .offset = offsetof(Options, unasked_peers_max),
     .min = 1,
     .max = std::uint64_t{1} << 24},
    {.name = "RNDV_SCHEME",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Movement of rendezvous data: the receiver reads it (get), the sender writes it (put) "
            "or sends it in messages (copy); auto: get if possible, else put if its key can be "
            "revoked, else copy.",
     .offset = offsetof(Options, rndv_scheme),
     .choices = kSchemes},
    {.name = "RNDV_RAILS",
     .type = OptionType::kEnum,
     .unit = "rails",
     .default_value = "auto",
     .doc = "Rails (a transport on a device) over which the data of one rendezvous is divided "
            "regardless of cost, as far as they reach the peer; 1: not divided; auto: up to 4 if "
            "that costs less. Creating a worker with fewer rails fails.",
     .offset = offsetof(Options, rndv_rails),
     .choices = kRails},
    {.name = "RNDV_RAIL_MIN",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "64k",
     .doc = "Shortest part of a divided rendezvous that is moved over one rail.",
     .offset = offsetof(Options, rndv_rail_min),
     .min = 4096,
     .max = std::uint64_t{1} << 40},
    {.name = "REG_CACHE",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Memory of buffers without a handle that stays registered for later messages; 0: no "
            "cache, and such buffers are copied where registration is expensive.",
     .offset = offsetof(Options, reg_cache_bytes)},
    {.name = "TAG_OFFLOAD",
     .type = OptionType::kBool,
     .unit = "",
     .default_value = "n",
     .doc = "Match tagged messages on devices with tag-matching SRQs. Both sides need the same "
            "value; creating a worker without such a device fails.",
     .offset = offsetof(Options, tag_offload)},
    {.name = "CALL_REQUESTS_MAX",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "65536",
     .doc = "Requests of remote calls that a worker keeps until its program replies. Calls beyond "
            "end with TW_ERR_NO_RESOURCE.",
     .offset = offsetof(Options, call_requests_max),
     .min = 1,
     .max = std::uint64_t{1} << 24},
    {.name = "CALL_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "256m",
     .doc = "Memory of a worker for requests of remote calls that come by rendezvous, and as much "
            "for copies of requests that are sent with a deadline. A longer request ends with "
            "TW_ERR_EXCEEDS_LIMIT at its server, one that finds no room with TW_ERR_NO_RESOURCE; "
            "one that finds no room for its copy is sent without one.",
     .offset = offsetof(Options, call_bytes),
     .min = 4096},
    {.name = "LIVENESS_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "500ms",
     .doc = "Interval at which a worker checks that its peers are alive; the time that the "
            "transport needs to detect a failure is added.",
     .offset = offsetof(Options, liveness_interval_ns),
     .min = 1000000},
    {.name = "CALIBRATION",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc = "File of costs measured on this machine, as tagwire tune writes it; auto: "
            "tagwire/calibration.json below XDG_CONFIG_HOME or ~/.config, if it exists; none: "
            "modelled costs.",
     .offset = offsetof(Options, calibration)},
    {.name = "COPY_IN",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Copies of messages of 1 KiB and more into shared memory: memcpy (libc), loads and "
            "stores of 32 bytes (vector, x86-64 with AVX), or stores that leave no cache line "
            "behind (nontemporal, x86-64); auto: begins as tagwire tune has measured, without that "
            "with vector on AMD's processors, and from 2 KiB on follows the sender's own copies.",
     .offset = offsetof(Options, copy_in),
     .choices = kCopyChoices},
    {.name = "COPY_OUT",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Copies of messages of 1 KiB and more out of shared memory, with the values of "
            "COPY_IN; auto: as tagwire tune has measured, without that vector on AMD's "
            "processors from 2 KiB on.",
     .offset = offsetof(Options, copy_out),
     .choices = kCopyChoices},
};

constexpr ucs::OptionTable kTable{"messaging", kOptions, sizeof(Options)};

}  // namespace

const ucs::OptionTable& option_table() {
    return kTable;
}

}  // namespace tagwire::proto
