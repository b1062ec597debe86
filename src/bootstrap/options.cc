// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/options.hpp"

#include "bootstrap/frame.hpp"

namespace tagwire::bootstrap {
namespace {

using ucs::Option;
using ucs::OptionType;

constexpr Option kOptions[] = {
    {.name = "BOOTSTRAP",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "auto",
     .doc = "How processes of a job meet: auto, pmix, tcp:HOST:PORT, dir:PATH or single.",
     .offset = offsetof(Options, method)},
    {.name = "RANK",
     .type = OptionType::kCount,
     .unit = "",
     .default_value = "inf",
     .doc = "Rank of this process, from 0, for tcp and dir; inf: not given.",
     .offset = offsetof(Options, rank)},
    {.name = "SIZE",
     .type = OptionType::kCount,
     .unit = "processes",
     .default_value = "0",
     .doc = "Number of processes of the job, for tcp and dir; 0: not given.",
     .offset = offsetof(Options, size),
     .max = kRanksMax},
    {.name = "BOOTSTRAP_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "",
     .default_value = "60s",
     .doc = "How long a call of the bootstrap waits for other processes.",
     .offset = offsetof(Options, timeout_ns),
     .min = 1'000'000,
     .max = 86'400'000'000'000},
    {.name = "BOOTSTRAP_JOB",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "default",
     .doc = "Name of the job, by which tcp and dir tell it from others.",
     .offset = offsetof(Options, job)},
    {.name = "BOOTSTRAP_SECRET",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "",
     .doc = "What tcp lets processes prove that they belong to the job; 16 bytes at least.",
     .offset = offsetof(Options, secret),
     .flags = ucs::kOptionSecret},
    {.name = "BOOTSTRAP_SECRET_FILE",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "",
     .doc = "File with that secret in its one line, which this user alone can read.",
     .offset = offsetof(Options, secret_file)},
};

constexpr ucs::OptionTable kTable{"bootstrap", kOptions, sizeof(Options)};

}  // namespace

const ucs::OptionTable& option_table() {
    return kTable;
}

}  // namespace tagwire::bootstrap
