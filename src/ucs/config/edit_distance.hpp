// SPDX-License-Identifier: BSD-3-Clause
// Finds the name that a user probably meant to type.
#pragma once

#include <span>
#include <string_view>

namespace tagwire::ucs {

/// Number of letters that have to be inserted, deleted, replaced or swapped with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest distance, the first of several; empty when there is none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace tagwire::ucs
