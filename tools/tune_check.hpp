// SPDX-License-Identifier: BSD-3-Clause
// Checks whether the measurements of `tagwire tune` are plausible costs. On a busy machine a
// message waits for a CPU now and then, and a median of that is useless.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tagwire::tools {

/// Nanoseconds of a protocol at a size.
using Costs = std::map<std::pair<std::string, std::uint64_t>, double>;

/// The floor, in nanoseconds, before and after the measurements of one pair of processes.
struct FloorPair {
    double before = 0;
    double after = 0;
};

/// A sentence for each reason against them: the floor moved by more than a quarter around more than
/// half of the measurements, or a message costs less than 0.8 of what a shorter one does by the
/// same protocol. Empty: none.
std::vector<std::string> doubts_of(const Costs& costs, const std::vector<FloorPair>& floors);

}  // namespace tagwire::tools
