// SPDX-License-Identifier: BSD-3-Clause
// Results as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/measure.hpp"

namespace tagwire::tools {

/// One measurement and everything that it depends on.
struct Result {
    std::string test;
    std::optional<std::string> level, transport, device, op, memory;
    std::uint64_t size = 0;
    std::uint64_t window = 1;
    std::uint64_t depth = 0;
    std::uint64_t peers = 1;
    std::uint64_t threads = 1;
    std::vector<int> cpus;
    std::optional<std::uint64_t> bytes_per_peer, qps;
    bool validated = false;
    Measurement measured;
};

/// "48.2 ns", "1.73 us", "12.1 ms"; "-" for nothing.
std::string time_text(std::optional<double> ns);
/// "31.4 M/s"
std::string rate_text(std::optional<double> per_s);
/// "12.9 GB/s" (powers of 1000)
std::string bandwidth_text(std::optional<double> bytes_per_s);

/// A table whose columns are as wide as their widest cell; the first column is left-aligned.
class Table {
  public:
    explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    void print() const;

  private:
    std::vector<std::vector<std::string>> rows_;
};

/// Replaces `file` ("-": standard output) by the results. Throws Failure when it cannot be written.
void write_json(const std::string& file, const std::vector<Result>& results);

/// The results of one command. Each is told when it is measured, as a row of a table and in the
/// JSON file, so that a run which is interrupted or fails keeps those that it had.
class Results {
  public:
    /// `json`: a file, or "-" for standard output, which then gets the JSON alone and at the end;
    /// empty: none. Throws Failure when it cannot be written.
    explicit Results(std::string json);

    void add(const std::vector<Result>& measured);
    /// Behind the last one.
    void finish() const;

  private:
    void print(const std::vector<Result>& measured);

    std::string json_;
    std::vector<Result> all_;
    std::vector<std::size_t> widths_;  // of the table's columns, by its head and its first rows
};

/// A line on the error stream that shows how far a long run is, when that is a terminal.
class ProgressLine {
  public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(const std::string& what, double share);
    /// Before something else is printed.
    void hide();

  private:
    bool on_;
    bool shown_ = false;
    std::uint64_t last_ns_ = 0;
};

}  // namespace tagwire::tools
