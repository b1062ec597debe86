// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/core_options.hpp"

namespace tagwire::ucs {
namespace {

// In the order of LogLevel.
constexpr const char* kLogLevels[] = {"off", "error", "warn", "info", "debug", "trace", nullptr};

// In the order of ProgressMode.
constexpr const char* kProgressModes[] = {"polite", "spin", nullptr};

constexpr Option kOptions[] = {
    {.name = "LOG_LEVEL",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "warn",
     .doc = "Least severe messages that are logged.",
     .offset = offsetof(CoreOptions, log_level),
     .choices = kLogLevels},
    {.name = "LOG_FILE",
     .type = OptionType::kString,
     .unit = "path",
     .default_value = "",
     .doc = "File that log lines are appended to; empty is standard error.",
     .offset = offsetof(CoreOptions, log_file)},
};

// A table of its own: a wrong value of the log's options fails no worker.
constexpr Option kProgressOptions[] = {
    {.name = "PROGRESS",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "polite",
     .doc = "What progress does while a peer that is waited for has no processor: give this one "
            "away, or spin.",
     .offset = offsetof(ProgressOptions, mode),
     .choices = kProgressModes},
};

constexpr OptionTable kTable{
    "library", kOptions, sizeof(CoreOptions),
    "the log is opened once; tw_context_params_t.log gives a context's lines to the program"};
constexpr OptionTable kProgressTable{"progress", kProgressOptions, sizeof(ProgressOptions)};

}  // namespace

const OptionTable& core_option_table() {
    return kTable;
}

const OptionTable& progress_option_table() {
    return kProgressTable;
}

}  // namespace tagwire::ucs
