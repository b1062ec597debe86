// SPDX-License-Identifier: BSD-3-Clause
// `tagwire explain`: by which protocol messages go, why, and what each would cost.
#pragma once

#include <tagwire.h>

#include <optional>
#include <string>
#include <vector>

namespace tagwire::tools {

/// The command line as written: what was not given is empty.
struct ExplainArguments {
    std::optional<std::string> transports, sizes;
    std::string buffer = "plain";
    std::string json;  // file, "-" or empty
    std::string plot;  // file or empty
};

/// A transport on a device.
struct ExplainedRail {
    std::string name;  // "sm:memory"
    std::vector<tw_explanation_t> sizes;
    std::vector<tw_explanation_t> curve;  // for the plot: many sizes
};

void print_explanations(const std::vector<ExplainedRail>& rails);
void write_explanations_json(const std::string& file, const std::vector<ExplainedRail>& rails);
/// Draws cost over size, log-log, with gnuplot. Throws Failure.
void plot_explanations(const std::string& file, const std::vector<ExplainedRail>& rails);

/// Throws Failure and UsageError.
void run_explain(const ExplainArguments& arguments);

}  // namespace tagwire::tools
