// SPDX-License-Identifier: BSD-3-Clause
// `tagwire tune`: measures the cost of the messaging layer's messages by each protocol, between two
// pinned processes, and stores it where the library looks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tagwire::tools {

/// The command line as written.
struct TuneArguments {
    std::optional<std::string> transports;  // else TAGWIRE_TRANSPORTS, where it is set, else sm
    unsigned rounds = 5;
    std::optional<std::string> cpu;
    std::string output;  // empty: where the library looks
    std::uint64_t seconds = 60;
    bool force = false;
};

/// Throws Failure and UsageError.
void run_tune(const TuneArguments& arguments);

}  // namespace tagwire::tools
