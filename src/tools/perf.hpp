// SPDX-License-Identifier: BSD-3-Clause
// `tagwire perf`: from the command line to jobs, and from jobs to results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/job.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {

inline constexpr std::uint16_t kDefaultPort = 13377;

/// The command line as written: what was not given is empty.
struct PerfArguments {
    std::string test;
    std::optional<std::string> level, transport, device, op, memory, size, wait, cpu, connect, json;
    std::optional<std::uint64_t> iterations, warmup, window, peers, depth, threads;
    bool unexpected = false;
    bool bidir = false;
    bool validate = false;
    bool server = false;
    std::string server_port;  // empty: kDefaultPort
};

/// Checked, with defaults filled in. Transports and sizes that depend on them are checked when
/// connected.
struct PerfPlan {
    const TestInfo* test = nullptr;  // null: a server that takes any
    Setup setup;                     // many_to_one, all_to_all: peers 0 when not given
    Job job;                         // size, op and the default counts differ from size to size
    Op op = Op::kAuto;
    std::vector<Size> sizes;
    std::optional<std::uint64_t> iterations, warmup;
    std::vector<int> cpus;  // as given
    bool self = false;      // one process whose threads send to themselves
    bool server = false;
    std::uint16_t port = kDefaultPort;
    std::string host;  // of the server; empty: start the peer here
    std::string json;  // file, "-" or empty
};

/// Throws UsageError that names the option and what it takes.
PerfPlan make_plan(const PerfArguments& arguments);

/// "A,B" or "A". Throws UsageError.
std::vector<int> parse_cpus(const std::string& list);

/// Iterations when the user names none: short enough for every size.
std::uint64_t default_iterations(const TestInfo& test, std::uint64_t size);

/// Runs the command; its exit status. Throws Failure or UsageError.
int run_perf(const PerfPlan& plan);

}  // namespace tagwire::tools
