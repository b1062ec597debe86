// SPDX-License-Identifier: BSD-3-Clause
// `tagwire perf`: from the command line to jobs, and from jobs to results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/job.hpp"
#include "tools/measure.hpp"
#include "tools/report.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {

inline constexpr std::uint16_t kDefaultPort = 13377;
inline constexpr double kDefaultSeconds = 0.5;

/// The command line as written: what was not given is empty.
struct PerfArguments {
    std::string test;
    std::optional<std::string> level, transport, device, op, memory, data, size, wait, cpu, connect,
        json, csv, share;
    std::optional<std::uint64_t> iterations, warmup, window, peers, ranks, beside, depth, threads,
        pollers, tx_contexts;
    std::optional<double> seconds;
    bool unexpected = false;
    bool bidir = false;
    bool between = false;
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
    double seconds = kDefaultSeconds;  // of each row, unless iterations says how many
    std::vector<int> cpus;             // as given
    bool self = false;                 // one process whose threads send to themselves
    std::uint64_t beside = 0;          // busy programs of others
    std::uint64_t pollers = 0;         // threads beside these that only progress their worker
    bool server = false;
    std::uint16_t port = kDefaultPort;
    std::string host;  // of the server; empty: start the peer here
    ResultFiles files;
};

/// Throws UsageError that names the option and what it takes.
PerfPlan make_plan(const PerfArguments& arguments);

/// Those of one command. Throws UsageError, also for tests that run alone.
std::vector<PerfPlan> make_plans(const std::vector<PerfArguments>& tests);

/// "A,B" or "A". Throws UsageError.
std::vector<int> parse_cpus(const std::string& list);

/// Fills in the transport and its device from --tl and --device. Throws UsageError.
void plan_transport(const PerfArguments& arguments, Setup* setup);

/// Sets the number of iterations and of untimed ones before. Unless the plan names the former,
/// `run(job)` measures how long one takes, so that the job lasts the plan's seconds.
void set_counts(const PerfPlan& plan, Job* job, const std::function<Measurement(const Job&)>& run);

/// More threads than cpus: they yield while nothing arrives, and that is told.
void take_turns(Setup* setup, std::size_t threads, std::size_t cpus);

/// Measures the tests one after the other, between one pair of processes. Returns the exit status.
/// Throws Failure or UsageError.
int run_perf(const std::vector<PerfPlan>& plans);

/// Prints the tests, one a line.
void list_tests();

}  // namespace tagwire::tools
