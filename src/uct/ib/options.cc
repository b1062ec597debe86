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
     .doc = "The system's verbs library, by name or path; empty: none.",
     .offset = offsetof(LibraryOptions, verbs_library)},
    {.name = "IB_VHCA_LIBRARY",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "libtagwire-vhca.so",
     .doc = "The virtual HCA, by path, or by name beside this library or where the system looks; "
            "empty: none.",
     .offset = offsetof(LibraryOptions, vhca_library)},
    {.name = "IB_DEVICES",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "*",
     .doc = "RDMA devices to use: names or patterns (mlx5_*) with commas between; after a ^ those "
            "not to use.",
     .offset = offsetof(LibraryOptions, devices)},
};

constexpr Option kMdOptions[] = {
    {.name = "IB_FORK",
     .type = OptionType::kBool,
     .unit = "",
     .default_value = "n",
     .doc = "Keeps registered memory intact when the process forks (ibv_fork_init); costs time at "
            "each registration.",
     .offset = offsetof(IbMdOptions, fork)},
};

}  // namespace

const ucs::OptionTable& library_options() {
    static constexpr ucs::OptionTable table{"verbs devices", kLibraryOptions,
                                            sizeof(LibraryOptions)};
    return table;
}

const ucs::OptionTable& md_options() {
    static constexpr ucs::OptionTable table{"verbs memory domain", kMdOptions, sizeof(IbMdOptions)};
    return table;
}

}  // namespace tagwire::ib
