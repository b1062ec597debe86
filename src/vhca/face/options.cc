// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/face/options.hpp"

#include <cstddef>

namespace tagwire::vhca {
namespace {

using ucs::OptionType;

constexpr const char* kFabrics[] = {"shm", "udp", nullptr};

constexpr ucs::Option kOptions[] = {
    {.name = "VHCA_FABRIC",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "shm",
     .doc =
         "What carries packets: shared memory between processes of one user, or RoCEv2 over UDP.",
     .offset = offsetof(Options, fabric),
     .choices = kFabrics},
    {.name = "VHCA_ADDRESS",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "",
     .doc =
         "UDP: IPv4 address of this process, its alone; none: the machine's first, 127.0.0.1 last.",
     .offset = offsetof(Options, address)},
    {.name = "VHCA_LOSS",
     .type = OptionType::kDouble,
     .unit = "",
     .default_value = "0",
     .doc = "Share of packets that the fabric loses.",
     .offset = offsetof(Options, loss),
     .max = 1},
    {.name = "VHCA_DUP",
     .type = OptionType::kDouble,
     .unit = "",
     .default_value = "0",
     .doc = "Share of packets that the fabric delivers twice.",
     .offset = offsetof(Options, dup),
     .max = 1},
    {.name = "VHCA_REORDER",
     .type = OptionType::kDouble,
     .unit = "",
     .default_value = "0",
     .doc = "Share of packets that others overtake.",
     .offset = offsetof(Options, reorder),
     .max = 1},
    {.name = "VHCA_DELAY",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "0ns",
     .doc = "Time that every packet takes longer.",
     .offset = offsetof(Options, delay_ns),
     .max = 10'000'000'000},
    {.name = "VHCA_SEED",
     .type = OptionType::kCount,
     .unit = "",
     .default_value = "0",
     .doc = "Seed of what happens to packets; 0 is another one each time.",
     .offset = offsetof(Options, seed)},
    {.name = "VHCA_TM",
     .type = OptionType::kCount,
     .unit = "",
     .default_value = "1023",
     .doc = "Receives that the list of a tag-matching SRQ may hold; 0: no tag matching.",
     .offset = offsetof(Options, tm),
     .max = 65535},
};

constexpr ucs::OptionTable kTable{"virtual HCA", kOptions, sizeof(Options)};

}  // namespace

const ucs::OptionTable& option_table() {
    return kTable;
}

}  // namespace tagwire::vhca
