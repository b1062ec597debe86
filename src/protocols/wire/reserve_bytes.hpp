// SPDX-License-Identifier: BSD-3-Clause
// Bytes that are kept in progress (ucs/memory/reserve.hpp); bytes of the heap become such, and the
// other way round, by copy.
#pragma once

#include <cstddef>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

struct ReserveBytes : ucs::ReserveVector<std::byte> {
    using ucs::ReserveVector<std::byte>::vector;
    ReserveBytes() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a copy of the same bytes
    ReserveBytes(const std::vector<std::byte>& bytes) : vector(bytes.begin(), bytes.end()) {}
    // NOLINTNEXTLINE(google-explicit-constructor): likewise
    operator std::vector<std::byte>() const { return {begin(), end()}; }
};

}  // namespace tagwire::proto
