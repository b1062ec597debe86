// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/options.hpp"

#include <cstddef>

namespace tagwire::proto {

namespace {

using ucs::Option;
using ucs::OptionType;

/// In the order of RndvScheme.
constexpr const char* kSchemes[] = {"auto", "get", "put", "copy", nullptr};
/// The index is the number (kStripeRailsMax).
constexpr const char* kRails[] = {"auto", "1", "2", "3", "4", nullptr};

constexpr Option kOptions[] = {
    {.name = "TRANSPORTS",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc = "Transports of the messaging layer: names, with or without a device, by commas: "
            "sm,rc:mlx5_0:1; auto is sm and those of real RDMA devices.",
     .offset = offsetof(Options, transports)},
    {.name = "RNDV_THRESHOLD",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "inf",
     .doc = "Messages of so many bytes and more go by rendezvous, shorter ones do not, whatever is "
            "cheaper; what goes as a short message stays one, and a tagged message that a device "
            "shall "
            "match is never longer than its buffer. inf: what is cheapest.",
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
     .doc = "Operations of a worker's pool under way, and injected messages that wait.",
     .offset = offsetof(Options, requests_max),
     .min = 64,
     .max = std::uint64_t{1} << 24},
    {.name = "UNEXPECTED_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "128m",
     .doc = "Memory that a worker takes for messages that nobody has received, whoever sent them. "
            "From a quarter on, or half of a peer's share, data stays with its senders; from three "
            "quarters on peers send nothing. When all is in use, messages of peers that are gone "
            "are dropped, and a peer that sends on ends.",
     .offset = offsetof(Options, unexpected_bytes),
     .min = 4096},
    {.name = "UNEXPECTED_MAX",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "2097152",
     .doc =
         "Messages that nobody has received that a worker keeps; from half of them on peers send "
         "nothing, and a peer that sends on ends when all are there.",
     .offset = offsetof(Options, envelopes_max),
     .min = 16,
     .max = std::uint64_t{1} << 30},
    {.name = "MULTI_RECV_MIN",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "4k",
     .doc = "A receive of many messages ends when less is free.",
     .offset = offsetof(Options, multi_recv_min),
     .min = 1,
     .max = std::uint64_t{1} << 30},
    {.name = "BUFFERED_LIMIT",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "64k",
     .doc = "Longest message that a buffered receive has all of.",
     .offset = offsetof(Options, buffered_limit),
     .max = std::uint64_t{1} << 30},
    {.name = "BUFFERED_MIN",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "1k",
     .doc = "Bytes that a buffered receive has of a longer message; at most BUFFERED_LIMIT.",
     .offset = offsetof(Options, buffered_min),
     .max = std::uint64_t{1} << 30},
    {.name = "RNDV_FRAGMENTS",
     .type = OptionType::kCount,
     .unit = "requests",
     .default_value = "4",
     .doc = "Pieces of one rendezvous that are read at a time.",
     .offset = offsetof(Options, rndv_fragments),
     .min = 1,
     .max = 64},
    {.name = "RNDV_SCHEME",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "How data of a rendezvous moves: the receiver reads it (get), the sender writes it "
            "(put) or sends it in messages (copy).",
     .offset = offsetof(Options, rndv_scheme),
     .choices = kSchemes},
    {.name = "RNDV_RAILS",
     .type = OptionType::kEnum,
     .unit = "rails",
     .default_value = "auto",
     .doc =
         "Rails (a transport on a device) that the data of one rendezvous is divided over, as far "
         "as they lead to the peer, whatever costs less; 1: never; auto: up to 4 where that "
         "costs less. A worker with fewer is refused.",
     .offset = offsetof(Options, rndv_rails),
     .choices = kRails},
    {.name = "RNDV_RAIL_MIN",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "64k",
     .doc = "No rail has less of a rendezvous that is divided.",
     .offset = offsetof(Options, rndv_rail_min),
     .min = 4096,
     .max = std::uint64_t{1} << 40},
    {.name = "REG_CACHE",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Memory of buffers without a handle that stays registered for the next message; 0: "
            "such buffers are copied where registering is dear.",
     .offset = offsetof(Options, reg_cache_bytes)},
    {.name = "TAG_OFFLOAD",
     .type = OptionType::kBool,
     .unit = "",
     .default_value = "n",
     .doc =
         "Devices with tag-matching SRQs match tagged messages; both sides must have the same. A "
         "worker that has no such device is refused.",
     .offset = offsetof(Options, tag_offload)},
    {.name = "LIVENESS_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "500ms",
     .doc = "Time between two looks whether a peer is alive; what its transport needs to find out "
            "comes on top.",
     .offset = offsetof(Options, liveness_interval_ns),
     .min = 1000000},
    {.name = "CALIBRATION",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc = "File of costs that were measured here, as tagwire tune writes it; auto: "
            "tagwire/calibration.json below XDG_CONFIG_HOME or ~/.config, if it is there; none.",
     .offset = offsetof(Options, calibration)},
};

constexpr ucs::OptionTable kTable{"messaging", kOptions, sizeof(Options)};

}  // namespace

const ucs::OptionTable& option_table() {
    return kTable;
}

}  // namespace tagwire::proto
