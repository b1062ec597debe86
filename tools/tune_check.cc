// SPDX-License-Identifier: BSD-3-Clause
#include "tools/tune_check.hpp"

#include <algorithm>
#include <iterator>

#include "cli/failure.hpp"
#include "tools/report.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr double kFloorIsSteady = 1.25;
constexpr double kCostsLess = 0.8;

bool has_moved(const FloorPair& floor) {
    const auto [low, high] = std::minmax(floor.before, floor.after);
    return high > low * kFloorIsSteady;
}

}  // namespace

std::vector<std::string> doubts_of(const Costs& costs, const std::vector<FloorPair>& floors) {
    std::vector<std::string> doubts;
    const auto moved = static_cast<std::size_t>(std::ranges::count_if(floors, has_moved));
    if (2 * moved > floors.size()) {
        doubts.push_back(
            text("around %zu of %zu measurements the floor (a cache line between the "
                 "two cpus) moved by more than a quarter",
                 moved, floors.size()));
    }
    for (auto at = costs.begin(); at != costs.end(); ++at) {
        const auto longer = std::next(at);
        if (longer != costs.end() && longer->first.first == at->first.first &&
            longer->second < at->second * kCostsLess) {
            doubts.push_back(
                text("%s of %s takes %s, of %s only %s", at->first.first.c_str(),
                     size_name(at->first.second).c_str(), time_text(at->second).c_str(),
                     size_name(longer->first.second).c_str(), time_text(longer->second).c_str()));
        }
    }
    return doubts;
}

}  // namespace tagwire::tools
