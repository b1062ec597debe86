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
     .doc = "Method by which the processes of a job find each other: auto, pmix, dir:PATH or "
            "single.",
     .offset = offsetof(Options, method)},
    {.name = "RANK",
     .type = OptionType::kCount,
     .unit = "",
     .default_value = "inf",
     .doc = "Rank of this process, counted from 0, for dir; inf: not set.",
     .offset = offsetof(Options, rank)},
    {.name = "SIZE",
     .type = OptionType::kCount,
     .unit = "processes",
     .default_value = "0",
     .doc = "Number of processes of the job, for dir; 0: not set.",
     .offset = offsetof(Options, size),
     .max = kRanksMax},
    {.name = "BOOTSTRAP_TIMEOUT",
     .type = OptionType::kTimeNs,
     .unit = "",
     .default_value = "60s",
     .doc = "Longest time that a call of the bootstrap waits for other processes.",
     .offset = offsetof(Options, timeout_ns),
     .min = 1'000'000,
     .max = 86'400'000'000'000},
    {.name = "BOOTSTRAP_JOB",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "default",
     .doc = "Name of the job, by which dir distinguishes it from other jobs.",
     .offset = offsetof(Options, job)},
};

constexpr ucs::OptionTable kTable{
    "bootstrap", kOptions, sizeof(Options),
    "the processes of a job meet before they open contexts; set it in the environment"};

}  // namespace

const ucs::OptionTable& option_table() {
    return kTable;
}

}  // namespace tagwire::bootstrap
