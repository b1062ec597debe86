// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/core_options.hpp"

namespace tagwire::ucs {
namespace {

// In the order of LogLevel.
constexpr const char* kLogLevels[] = {"off", "error", "warn", "info", "debug", "trace", nullptr};

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

constexpr OptionTable kTable{"library", kOptions, sizeof(CoreOptions)};

}  // namespace

const OptionTable& core_option_table() {
    return kTable;
}

}  // namespace tagwire::ucs
