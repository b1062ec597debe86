// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kFigureWidth = 9;  // "999.9 M/s": of columns whose rows are still to come

struct Scale {
    double factor;
    const char* unit;
};

template <std::size_t n>
std::string scaled(std::optional<double> value, const Scale (&scales)[n]) {
    if (!value)
        return "-";
    const Scale* scale = &scales[0];
    for (const Scale& candidate : scales)
        if (*value >= candidate.factor)
            scale = &candidate;
    const double shown = *value / scale->factor;
    return text("%.*f %s", shown < 10 ? 2 : 1, shown, scale->unit);
}

std::string above_text(std::optional<double> ns) {
    if (!ns)
        return "-";
    return *ns < 0 ? "-" + time_text(-*ns) : "+" + time_text(ns);
}

/// The rate of the slowest thread while it has a processor.
std::optional<double> slowest_by_cpu_time(const Measurement& measured) {
    const std::vector<double>& rates = measured.thread_messages_per_cpu_s;
    return rates.empty() ? std::nullopt : std::optional(*std::ranges::min_element(rates));
}

std::vector<std::string> row_of(const Result& result) {
    const Measurement& measured = result.measured;
    const auto& latency = measured.latency_ns;
    const auto part = [&latency](double LatencySummary::*field) {
        return latency ? time_text((*latency).*field) : "-";
    };
    std::vector<std::string> row{result.test, size_name(result.size), result.op.value_or("-"),
                                 std::to_string(measured.iterations)};
    if (latency) {
        for (const auto field :
             {&LatencySummary::min, &LatencySummary::p50, &LatencySummary::p99,
              &LatencySummary::p999, &LatencySummary::max, &LatencySummary::mean}) {
            row.push_back(part(field));
        }
        row.push_back(time_text(measured.floor_ns));
        row.push_back(above_text(measured.above_floor_ns));
    }
    if (!latency)
        row.push_back(rate_text(measured.messages_per_s));
    if (!latency || measured.bytes_per_s)
        row.push_back(bandwidth_text(measured.bytes_per_s));
    if (measured.rank_messages_per_s) {
        row.push_back(rate_text(measured.rank_messages_per_s->min));
        row.push_back(rate_text(measured.rank_messages_per_s->max));
    }
    if (const std::optional<double> fairness = measured.fairness()) {
        const auto [slowest, fastest] = std::ranges::minmax_element(measured.thread_messages_per_s);
        row.push_back(rate_text(*slowest));
        row.push_back(rate_text(*fastest));
        row.push_back(text("%.2f", *fairness));
    }
    if (result.pollers > 0)
        row.push_back(rate_text(slowest_by_cpu_time(measured)));
    row.push_back(result.validated ? std::to_string(measured.validated) : "-");
    return row;
}

std::vector<std::string> head_of(const Result& result) {
    std::vector<std::string> head{"test", "size", "op", "iterations"};
    if (result.measured.latency_ns)
        for (const char* name : {"min", "p50", "p99", "p99.9", "max", "mean", "floor", "above"})
            head.emplace_back(name);
    else
        head.emplace_back("messages");
    if (!result.measured.latency_ns || result.measured.bytes_per_s)
        head.emplace_back("bandwidth");
    if (result.measured.rank_messages_per_s) {
        head.emplace_back("slowest rank");
        head.emplace_back("fastest rank");
    }
    if (result.measured.fairness())
        for (const char* name : {"slowest thread", "fastest thread", "fairness"})
            head.emplace_back(name);
    if (result.pollers > 0)
        head.emplace_back("by cpu time");
    head.emplace_back("validated");
    return head;
}

/// "cpus 0 and 1", or those of each rank: "cpus 0, 1, 0, 1".
std::string cpus_text(const std::vector<int>& cpus) {
    if (cpus.size() == 2)
        return text("cpus %d and %d", cpus[0], cpus[1]);
    std::string list;
    for (const int cpu : cpus)
        list += (list.empty() ? "cpus " : ", ") + std::to_string(cpu);
    return list;
}

std::string title_of(const Result& first) {
    std::string title = first.test + ": ";
    if (first.transport) {
        title += text("%s/%s, %s memory, ", first.transport->c_str(), first.device->c_str(),
                      first.memory->c_str());
    }
    if (first.data == name_of(DataKind::kFresh))
        title += "fresh data, ";
    if (first.window > 1)
        title += text("window %llu, ", static_cast<unsigned long long>(first.window));
    if (first.depth > 0)
        title += text("depth %llu, ", static_cast<unsigned long long>(first.depth));
    if (first.beside > 0)
        title += text("beside %llu busy programs, ", static_cast<unsigned long long>(first.beside));
    if (first.threads > 1) {
        const char* const share = !first.share                ? "a connection each"
                                  : *first.share == "context" ? "a worker each"
                                                              : "one worker";
        title +=
            text("%llu threads with %s, ", static_cast<unsigned long long>(first.threads), share);
    }
    if (first.tx_contexts > 0) {
        title +=
            text("%llu transmit context%s, ", static_cast<unsigned long long>(first.tx_contexts),
                 first.tx_contexts == 1 ? "" : "s");
    }
    if (first.pollers > 0)
        title += text("%llu pollers, ", static_cast<unsigned long long>(first.pollers));
    return title + cpus_text(first.cpus);
}

/// Makes columns as wide as the cells of this row.
void widen(const std::vector<std::string>& row, std::vector<std::size_t>* widths) {
    widths->resize(std::max(widths->size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
        (*widths)[i] = std::max((*widths)[i], row[i].size());
}

void print_row(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - std::min(widths[i], row[i].size()), ' ');
        line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    std::printf("%s\n", line.c_str());
}

/// Prints the cost of many peers, where it is known.
void print_footprint(const Result& result) {
    if (result.peers == 1 || !result.bytes_per_peer)
        return;
    std::string line =
        text("%llu peers: %llu bytes each", static_cast<unsigned long long>(result.peers),
             static_cast<unsigned long long>(*result.bytes_per_peer));
    if (result.buffer_bytes)
        line +=
            text(", %llu bytes for buffers", static_cast<unsigned long long>(*result.buffer_bytes));
    if (result.qps)
        line += text(", %llu queue pairs in all", static_cast<unsigned long long>(*result.qps));
    std::printf("%s\n", line.c_str());
}

/// Prints how messages went at last, and why.
void print_protocol(const Result& result) {
    if (result.protocol) {
        std::printf("%s: %s; %s\n", size_name(result.size).c_str(), result.protocol->c_str(),
                    result.reason->c_str());
    }
}

std::atomic<bool> has_results = false;
std::atomic<bool> is_json_lost = false;

/// Says what is left of the results, then ends the process as the signal would have done.
void tell_interruption(int number) {
    const char* const words =
        is_json_lost
            ? "\ntagwire: interrupted: no JSON was written: --json - writes only at the end; "
              "--json FILE writes after each row\n"
        : has_results ? "\ntagwire: interrupted: the rows above are complete\n"
                      : "\ntagwire: interrupted before the first row\n";
    [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, words, std::strlen(words));
    raise(number);  // whose default action SA_RESETHAND has restored
}

constexpr int kInterruptions[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

std::string time_text(std::optional<double> ns) {
    static constexpr Scale kScales[] = {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
    return scaled(ns, kScales);
}

std::string rate_text(std::optional<double> per_s) {
    static constexpr Scale kScales[] = {{1, "/s"}, {1e3, "k/s"}, {1e6, "M/s"}};
    return scaled(per_s, kScales);
}

std::string bandwidth_text(std::optional<double> bytes_per_s) {
    static constexpr Scale kScales[] = {{1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}};
    return scaled(bytes_per_s, kScales);
}

void Table::print() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_)
        widen(row, &widths);
    for (const auto& row : rows_)
        print_row(row, widths);
}

void check_writable(const ResultFiles& files) {
    check_writable(files.json);
    check_writable(files.csv);
}

Results::Results(ResultFiles files) : files_(std::move(files)) {
    check_writable(files_);
    has_results = false;
    is_json_lost = files_.json == "-";
    struct sigaction action {};
    action.sa_handler = tell_interruption;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int number : kInterruptions) {
        struct sigaction old {};
        if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(number, &action, nullptr);
    }
}

Results::~Results() {
    for (const int number : kInterruptions) {
        struct sigaction old {};
        if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == tell_interruption)
            signal(number, SIG_DFL);
    }
}

void Results::add(const std::vector<Result>& measured) {
    all_.insert(all_.end(), measured.begin(), measured.end());
    if (!files_.take_standard_output())
        print(measured);
    if (!files_.json.empty() && files_.json != "-")
        write_json(files_.json, all_);
    if (!files_.csv.empty())
        write_csv(measured);
    has_results = true;
}

void Results::write_csv(const std::vector<Result>& measured) {
    const std::size_t written = csv_.size();
    if (csv_.empty())
        csv_ = csv_head();
    for (const Result& result : measured)
        csv_ += csv_line(result);
    write_text_file(files_.csv, files_.csv == "-" ? csv_.substr(written) : csv_);
}

void Results::finish() const {
    if (files_.json == "-" || (!files_.json.empty() && all_.empty()))
        write_json(files_.json, all_);
    if (!files_.take_standard_output() && !all_.empty()) {
        print_footprint(all_.back());
        print_protocol(all_.back());
    }
}

void Results::print(const std::vector<Result>& measured) {
    // A test has a table of its own, whose columns fit its figures.
    if (const std::string title = title_of(measured.front()); title != title_) {
        const std::vector<std::string> head = head_of(measured.front());
        std::printf("%s%s\n", title_.empty() ? "" : "\n", title.c_str());
        title_ = title;
        widths_.assign(head.size(), kFigureWidth);
        widen(head, &widths_);
        for (const Result& result : measured)
            widen(row_of(result), &widths_);
        print_row(head, widths_);
    }
    for (const Result& result : measured)
        print_row(row_of(result), widths_);
    std::fflush(stdout);  // a pipe gets each row when it is there, too
}

ProgressLine::ProgressLine() : on_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
    hide();
}

void ProgressLine::hide() {
    if (shown_) {
        std::fprintf(stderr, "\r\033[K");
        std::fflush(stderr);
        shown_ = false;
    }
}

void ProgressLine::show(const std::string& what, double share) {
    constexpr std::uint64_t kEveryNs = 200000000;
    const std::uint64_t now = now_ns();
    if (!on_ || (shown_ && now - last_ns_ < kEveryNs))
        return;
    std::fprintf(stderr, "\r\033[K%s: %.0f %%", what.c_str(), share * 100);
    std::fflush(stderr);
    shown_ = true;
    last_ns_ = now;
}

}  // namespace tagwire::tools
