// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/face/options.hpp"

#include <cstddef>

namespace tagwire::vhca {
namespace {

using ucs::OptionType;

constexpr const char* kFabrics[] = {"shm", nullptr};
constexpr const char* kDcKeyErrors[] = {"retry", "access", nullptr};

constexpr ucs::Option kOptions[] = {
    {.name = "VHCA_FABRIC",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "shm",
     .doc = "What carries packets: shared memory between processes of one user.",
     .offset = offsetof(Options, fabric),
     .choices = kFabrics},
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
    {.name = "VHCA_DC",
     .type = OptionType::kBool,
     .unit = "",
     .default_value = "y",
     .doc = "The device has DC.",
     .offset = offsetof(Options, dc)},
    {.name = "VHCA_DC_RNDV",
     .type = OptionType::kBool,
     .unit = "",
     .default_value = "y",
     .doc = "Tag matching over DC reads the data of a rendezvous; an extension of this device.",
     .offset = offsetof(Options, dc_rendezvous)},
    {.name = "VHCA_DC_KEY_ERROR",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "retry",
     .doc = "A request with a wrong DC access key: retry, no answer; access, REM_ACCESS_ERR.",
     .offset = offsetof(Options, dc_key_error),
     .choices = kDcKeyErrors},
};

constexpr ucs::OptionTable kTable{"virtual HCA", kOptions, sizeof(Options)};

}  // namespace

const ucs::OptionTable& option_table() {
    return kTable;
}

}  // namespace tagwire::vhca
