// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/options.hpp"

#include <cstddef>

namespace tagwire::ib {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr Option kLibraryOptions[] = {
    {.name = "IB_VERBS_LIBRARY",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "libibverbs.so.1",
     .doc = "The system's verbs library, by name or path; empty: not loaded.",
     .offset = offsetof(LibraryOptions, verbs_library)},
    {.name = "IB_VHCA_LIBRARY",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "libtagwire-vhca.so",
     .doc = "Library of the virtual HCA: a path, or a name that is looked up beside this library "
            "and in the system's library path; empty: not loaded.",
     .offset = offsetof(LibraryOptions, vhca_library)},
    {.name = "IB_DEVICES",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "*",
     .doc = "RDMA devices to use: names or patterns (mlx5_*), separated by commas; a leading ^ "
            "excludes them instead.",
     .offset = offsetof(LibraryOptions, devices)},
};

constexpr const char* kMtuChoices[] = {"256", "512", "1024", "2048", "4096", "auto", nullptr};

constexpr const char* kForkChoices[] = {"n", "y", "try", nullptr};
constexpr const char* kRelaxedChoices[] = {"n", "y", "auto", nullptr};

constexpr Option kMdOptions[] = {
    {.name = "IB_FORK",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "try",
     .doc =
         "Keep registered memory intact when the process forks (ibv_fork_init): n, y, or try (y, "
         "unless the library refuses). Kernels before 5.12 need it; there it costs time at each "
         "registration, and a child has no registered memory.",
     .offset = offsetof(IbMdOptions, fork),
     .choices = kForkChoices},
    {.name = "IB_RELAXED_ORDERING",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Let PCIe reorder writes of the device to registered memory, where kernel and device "
            "can: n, y, or auto (memory that peers have no right to write to). Some processors "
            "need it for the full rate. With y a program that watches memory for puts of peers may "
            "see a later one first.",
     .offset = offsetof(IbMdOptions, relaxed_ordering),
     .choices = kRelaxedChoices},
    {.name = "IB_GID_INDEX",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc = "Index of the local address in the port's GID table: a number, or auto: the first RoCE "
            "v2 entry with an IPv4 address, else the first RoCE v2 entry, else the first entry.",
     .offset = offsetof(IbMdOptions, gid_index)},
    {.name = "IB_PKEY",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc = "Partition of all packets: its key in hexadecimal digits (0x8001; the membership bit "
            "is not looked at), or auto: the first one that the port is a full member of. Both "
            "sides need the same partition.",
     .offset = offsetof(IbMdOptions, pkey)},
    {.name = "IB_TRAFFIC_CLASS",
     .type = OptionType::kCount,
     .unit = "",
     .default_value = "0",
     .doc = "Traffic class of packets that carry a GID; with RoCE v2 that of the IP header.",
     .offset = offsetof(IbMdOptions, traffic_class),
     .min = 0,
     .max = 255},
    {.name = "IB_SERVICE_LEVEL",
     .type = OptionType::kCount,
     .unit = "",
     .default_value = "0",
     .doc = "Service level of all packets.",
     .offset = offsetof(IbMdOptions, service_level),
     .min = 0,
     .max = 15},
    {.name = "IB_MTU",
     .type = OptionType::kEnum,
     .unit = "bytes",
     .default_value = "auto",
     .doc = "Longest packet; auto: the smaller active MTU of the two ports. Over dc both sides "
            "need the same value.",
     .offset = offsetof(IbMdOptions, mtu_max),
     .choices = kMtuChoices},
    {.name = "IB_TX_SGES",
     .type = OptionType::kCount,
     .unit = "elements",
     .default_value = "8",
     .doc = "Gather elements of a request over rc and dc: a message, put or get has one piece of "
            "memory less. Each adds 16 bytes to each place of a send queue.",
     .offset = offsetof(IbMdOptions, tx_sges),
     .min = 2,
     .max = 16},
};

}  // namespace

const ucs::OptionTable& library_options() {
    static constexpr ucs::OptionTable table{
        "verbs devices", kLibraryOptions, sizeof(LibraryOptions),
        "verbs libraries and their devices are looked up for all contexts; name devices in the "
        "list of transports, as in rc:mlx5_0:1, or set it in the environment"};
    return table;
}

const ucs::OptionTable& md_options() {
    static constexpr ucs::OptionTable table{"verbs memory domain", kMdOptions, sizeof(IbMdOptions)};
    return table;
}

}  // namespace tagwire::ib
