// SPDX-License-Identifier: BSD-3-Clause
// The curves of this library in a report: `tagwire perf` runs for them as a process of its own.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/plot.hpp"
#include "tools/report_measure.hpp"

namespace tagwire::tools {

/// Sizes that are measured with as many iterations each.
struct Batch {
    const char* sizes;
    const char* iterations;
};

/// One of this machine's transports with the device that stands for it.
struct Lane {
    std::string transport, device;
    std::string tl() const { return transport == "sm" ? "sm" : transport + ":" + device; }
    std::string name() const { return transport == "sm" ? "sm" : transport + " " + device; }
    bool is_tcp() const { return transport == "tcp"; }
    bool is_virtual() const { return device.starts_with("vhca"); }
};

/// The first of each kind that has tagged messages, a real device before a virtual one; of tcp the
/// loopback interface, which both sides of a measurement are on. None is over tcp but the last.
std::vector<Lane> lanes();

/// Which figure of a result is drawn.
enum class Figure { kLatency, kMessages, kBytes };

class OwnRuns {
  public:
    /// `program`: the command. `log` gets every command line that ran, without the sizes.
    OwnRuns(std::string program, int timeout_ms, std::set<std::string>* log)
        : program_(std::move(program)), timeout_ms_(timeout_ms), log_(log) {}

    /// `arguments`: of `tagwire perf`, but sizes and iterations. `setting`: NAME=VALUE for the
    /// environment, or empty.
    /// The p99 of latencies is read, too.
    Reading by_size(const std::vector<std::string>& arguments, Figure figure,
                    const std::vector<Batch>& batches, const std::string& setting = "") const;
    /// Over the number of receives posted, or of messages waiting.
    Points by_depth(const std::vector<std::string>& arguments,
                    const std::vector<const char*>& depths, const char* iterations) const;
    /// The messages per second of all threads over their number.
    Points by_threads(const std::vector<std::string>& arguments,
                      const std::vector<const char*>& threads, const char* iterations) const;
    double floor_ns() const;

  private:
    /// The JSON of its results.
    std::string run(const std::vector<std::string>& arguments, const std::string& setting) const;

    std::string program_;
    int timeout_ms_;
    std::set<std::string>* log_;
};

}  // namespace tagwire::tools
