// SPDX-License-Identifier: BSD-3-Clause
// `tagwire explain`: the protocol that messages go by, the reason, and the cost of each protocol.
#pragma once

#include <tagwire.h>

#include <optional>
#include <string>
#include <vector>

namespace tagwire::tools {

/// The command line as written: what was not given is empty, or false.
struct ExplainArguments {
    std::optional<std::string> transports, sizes;
    std::string buffer = "plain";
    std::string op;  // empty: messages
    bool live = false;
    std::optional<std::string> cpu;  // with live
    std::string json;                // file, "-" or empty
    std::string plot;                // file or empty
};

/// A transport on a device.
struct ExplainedRail {
    std::string name;  // "sm:memory"
    std::vector<tw_explanation_t> sizes;
};

void print_explanations(const std::vector<ExplainedRail>& rails);
std::string explanations_json(const std::vector<ExplainedRail>& rails);

/// Cost over size, by protocol, of all rails in one file, drawn by the program `explain_plot.py`.
/// Throws Failure.
void plot_explanations(const std::string& file, const std::vector<ExplainedRail>& rails);

/// With `op`: one-sided operations on memory of a process that is started for that. Throws Failure
/// and UsageError.
void explain_rma(const ExplainArguments& arguments);

/// Throws Failure and UsageError.
void run_explain(const ExplainArguments& arguments);

}  // namespace tagwire::tools
