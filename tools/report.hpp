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
    std::optional<std::string> level, transport, device, op, memory, data;
    // At level msg: how such messages go over the connection at the end, and why.
    std::optional<std::string> protocol, reason;
    std::uint64_t size = 0;
    std::uint64_t window = 1;
    std::uint64_t depth = 0;
    std::uint64_t peers = 1;
    std::uint64_t beside = 0;  // busy processes of others on these cpus
    std::uint64_t threads = 1;
    std::optional<std::string> share;  // what threads at level msg share
    std::uint64_t pollers = 0;         // threads that only progress what these share
    std::uint64_t tx_contexts = 0;     // of the worker that these share; 0: not given
    std::vector<int> cpus;
    std::optional<std::uint64_t> bytes_per_peer, buffer_bytes, qps;
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

/// The line that names the columns, and a line for each result: the keys of the JSON form, those of
/// an object within it as latency_ns_p50.
std::string csv_head();
std::string csv_line(const Result& result);

/// Files that get the results: a name, "-" for standard output, which then gets no table, or empty.
struct ResultFiles {
    std::string json, csv;

    bool take_standard_output() const { return json == "-" || csv == "-"; }
};

/// Throws Failure when one of them cannot be written.
void check_writable(const ResultFiles& files);

/// The results of one command. Each is told when it is measured, as a row of a table and in the
/// files, so that a run which is interrupted or fails keeps those that it had; JSON on standard
/// output comes at the end. SIGINT, SIGTERM and SIGHUP end the process meanwhile with a word on
/// standard error. One object exists at a time.
class Results {
  public:
    /// Throws Failure when a file cannot be written.
    explicit Results(ResultFiles files);
    ~Results();
    Results(const Results&) = delete;
    Results& operator=(const Results&) = delete;

    void add(const std::vector<Result>& measured);
    /// Behind the last one.
    void finish() const;

  private:
    void print(const std::vector<Result>& measured);
    void write_csv(const std::vector<Result>& measured);

    ResultFiles files_;
    std::vector<Result> all_;
    std::string csv_;
    std::string title_;                // of the table that is being printed
    std::vector<std::size_t> widths_;  // of its columns, by its head and its first rows
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
