// SPDX-License-Identifier: BSD-3-Clause
// `tagwire info`: what the library finds on this machine, its options, and how it was built.
// Everything is gathered first, as a tree of named facts, then printed or written as JSON.
#pragma once

#include "cli/info_tree.hpp"
#include "tools/options.hpp"

namespace tagwire::tools {

InfoNode gather_devices();
InfoNode gather_config();
InfoNode gather_progress();
InfoNode gather_build();

struct InfoFacts {
    const InfoNode& build;
    const InfoNode& devices;
    const InfoNode& config;
    const InfoNode& progress;
};

/// Ten lines for a newcomer.
void print_summary(const InfoFacts& facts);
void print_config(const InfoNode& config);

/// Throws Failure.
void run_info(const InfoArguments& arguments);

}  // namespace tagwire::tools
