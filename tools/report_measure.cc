// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_measure.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <utility>

#include "cli/failure.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kFloorAgrees = 1.1;

/// The readings of one source.
struct Readings {
    using Values = std::map<double, std::vector<double>>;

    Values middle, upper;
    bool has_failed = false;

    void add(const Reading& reading) {
        for (const auto& [x, value] : reading.middle)
            middle[x].push_back(value);
        for (const auto& [x, value] : reading.upper)
            upper[x].push_back(value);
    }
};

Points medians_of(const Readings::Values& readings) {
    Points points;
    for (const auto& [x, values] : readings)
        points.emplace_back(x, median(values));
    return points;
}

/// Programs end their messages with a newline, or several lines.
std::string on_one_line(std::string words) {
    while (!words.empty() && words.back() == '\n')
        words.pop_back();
    std::ranges::replace(words, '\n', ' ');
    return words;
}

}  // namespace

Meter::Meter(const Pace& pace, Floor floor)
    : rounds_(pace.rounds),
      deadline_(now_ns() + static_cast<std::uint64_t>(pace.seconds * kNsPerSecond)),
      limit_(now_ns() + static_cast<std::uint64_t>(pace.limit * kNsPerSecond)),
      floor_(std::move(floor)) {}

void Meter::tell_left_out(const std::string& what, const std::string& names) {
    if (!names.empty())
        note(what + ": left out, the machine is too busy to measure in time: " + names);
}

void Meter::note(const std::string& words) {
    const std::string line = on_one_line(words);
    if (std::ranges::find(notes_, line) == notes_.end()) {
        std::printf("  %s\n", line.c_str());
        notes_.push_back(line);
    }
}

bool Meter::read_floor() {
    try {
        floors_.push_back(floor_());
        return true;
    } catch (const std::exception& error) {
        ours_failed_ = true;
        note(std::string("cacheline failed: ") + error.what());
        return false;
    }
}

void Meter::tell_noise(const std::string& what, std::size_t first_floor) {
    int noisy = 0;
    for (std::size_t i = first_floor + 1; i < floors_.size(); ++i) {
        const auto [low, high] = std::minmax(floors_[i - 1], floors_[i]);
        noisy += high > low * kFloorAgrees ? 1 : 0;
    }
    if (noisy > 0) {
        const auto begin = floors_.begin() + static_cast<std::ptrdiff_t>(first_floor);
        const auto [low, high] = std::minmax_element(begin, floors_.end());
        note(
            text("%s: noisy: around %d of %zu rounds the floor (a cache line between the two "
                 "cores) differed by more than 10 %%, %.0f to %.0f ns.",
                 what.c_str(), noisy, floors_.size() - first_floor - 1, *low, *high));
    }
}

std::vector<Curve> Meter::curves(const std::string& what, const std::vector<Source>& sources) {
    std::printf("%s ...\n", what.c_str());
    std::fflush(stdout);
    std::vector<Readings> all(sources.size());
    const std::size_t first_floor = floors_.size();
    std::string left_out;
    bool has_floor = read_floor();
    for (int round = 0; round < rounds_ && (round == 0 || now_ns() < deadline_); ++round) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            const bool is_late = now_ns() >= limit_;
            if (is_late && round == 0)
                left_out += (left_out.empty() ? "" : "; ") + sources[i].name;
            if (all[i].has_failed || is_late)
                continue;
            try {
                all[i].add(sources[i].read());
            } catch (const std::exception& error) {
                all[i].has_failed = true;
                ours_failed_ = ours_failed_ || sources[i].is_ours;
                note(what + ", " + sources[i].name + ": " + error.what());
            }
        }
        has_floor = has_floor && read_floor();
    }
    tell_left_out(what, left_out);
    tell_noise(what, first_floor);
    std::vector<Curve> curves;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        const Source& source = sources[i];
        curves.push_back({source.name, medians_of(all[i].middle), source.line, source.colour,
                          medians_of(all[i].upper)});
    }
    return curves;
}

}  // namespace tagwire::tools
