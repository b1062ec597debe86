// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/edit_distance.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tagwire::ucs {

// The restricted Damerau-Levenshtein distance, by rows: two above, above, and the one being filled.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> two_above(b.size() + 1);
    std::vector<std::size_t> above(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        above[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped)
                row[j] = std::min(row[j], two_above[j - 2] + 1);
        }
        std::swap(two_above, above);
        std::swap(above, row);
    }
    return above[b.size()];
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
    std::string_view nearest;
    std::size_t least = SIZE_MAX;
    for (const std::string_view candidate : candidates) {
        const std::size_t distance = edit_distance(name, candidate);
        if (distance < least) {
            least = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

}  // namespace tagwire::ucs
