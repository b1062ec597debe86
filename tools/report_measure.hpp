// SPDX-License-Identifier: BSD-3-Clause
// Measurements for the curves of a report: sources are read in turn, round after round, with the
// floor before and after each round; a point is the median of its readings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/plot.hpp"

namespace tagwire::tools {

/// The points of one round, and what 99 % of the batches were below, where that is known.
struct Reading {
    Reading(Points points) : middle(std::move(points)) {}  // NOLINT(google-explicit-constructor)
    Reading(Points points, Points p99) : middle(std::move(points)), upper(std::move(p99)) {}

    Points middle, upper;
};

/// One curve: it is read once in every round.
struct Source {
    std::string name;
    Line line = Line::kSolid;
    int colour = -1;
    bool is_ours = true;            // what fails makes the report fail
    std::function<Reading()> read;  // throws what is said of the failure
};

struct Pace {
    int rounds;
    double seconds;  // behind which no further round begins; each source is read once even so
    double limit;    // seconds behind which nothing is read: what is left out is told
};

class Meter {
  public:
    using Floor = std::function<double()>;

    /// `floor`: nanoseconds that a cache line takes; throws when it cannot be measured. The time
    /// begins now.
    Meter(const Pace& pace, Floor floor);

    /// Medians by x, one curve per source. One that failed is told and not read again.
    std::vector<Curve> curves(const std::string& what, const std::vector<Source>& sources);

    /// Problems, also printed on the terminal.
    const std::vector<std::string>& notes() const { return notes_; }
    void note(const std::string& words);
    bool has_failure_of_ours() const { return ours_failed_; }
    /// The readings of the floor, in order.
    const std::vector<double>& floors() const { return floors_; }

  private:
    bool read_floor();
    void tell_left_out(const std::string& what, const std::string& names);
    void tell_noise(const std::string& what, std::size_t first_floor);

    int rounds_;
    std::uint64_t deadline_, limit_;
    Floor floor_;
    std::vector<double> floors_;
    std::vector<std::string> notes_;
    bool ours_failed_ = false;
};

}  // namespace tagwire::tools
