// SPDX-License-Identifier: BSD-3-Clause
// Sizes as the command line writes them: `8`, `64k`, lists `8,1k,64k` and ranges `1:4m` (powers of
// two). k m g are powers of 1024.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tagwire::tools {

inline constexpr std::uint64_t kSizeMax = std::uint64_t{1} << 40;

struct Size {
    std::uint64_t bytes;
    /// Part of a range: a test that cannot do it skips it instead of refusing the whole list.
    bool from_range;
};

/// One number with an optional unit. Throws UsageError with the accepted form.
std::uint64_t parse_size(std::string_view size);

/// A comma-separated list of sizes and ranges, in the order given. Throws UsageError.
std::vector<Size> parse_sizes(std::string_view list);

/// "8", "64k", "4m": the shortest exact spelling.
std::string size_name(std::uint64_t bytes);

}  // namespace tagwire::tools
