// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sizes.hpp"

#include <bit>
#include <charconv>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

[[noreturn]] void refuse(std::string_view size) {
    throw UsageError(
        text("'%.*s' is not a size: write 8, 64k, 4m (k m g are powers of 1024, at most 1024g), "
             "a list 8,1k,64k or a range of powers of two 1:4m",
             static_cast<int>(size.size()), size.data()));
}

unsigned unit_shift(std::string_view unit, std::string_view size) {
    if (unit.empty())
        return 0;
    if (unit.size() == 1) {
        switch (unit.front()) {
            case 'k':
            case 'K':
                return 10;
            case 'm':
            case 'M':
                return 20;
            case 'g':
            case 'G':
                return 30;
            default:
                break;
        }
    }
    refuse(size);
}

void add_range(std::string_view range, std::size_t colon, std::vector<Size>* sizes) {
    const std::uint64_t first = parse_size(range.substr(0, colon));
    const std::uint64_t last = parse_size(range.substr(colon + 1));
    if (!std::has_single_bit(first) || last < first) {
        throw UsageError(text(
            "'%.*s' is not a range: it starts at a power of two and ends at or above it, as 1:4m",
            static_cast<int>(range.size()), range.data()));
    }
    for (std::uint64_t bytes = first; bytes <= last; bytes *= 2)
        sizes->push_back({bytes, true});
}

}  // namespace

std::uint64_t parse_size(std::string_view size) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
    if (error != std::errc())
        refuse(size);
    const unsigned shift =
        unit_shift(size.substr(static_cast<std::size_t>(end - size.data())), size);
    if (number > (kSizeMax >> shift))
        refuse(size);
    return number << shift;
}

std::vector<Size> parse_sizes(std::string_view list) {
    std::vector<Size> sizes;
    for (;;) {
        const std::size_t comma = list.find(',');
        const std::string_view item = list.substr(0, comma);
        const std::size_t colon = item.find(':');
        if (colon != std::string_view::npos)
            add_range(item, colon, &sizes);
        else
            sizes.push_back({parse_size(item), false});
        if (comma == std::string_view::npos)
            return sizes;
        list.remove_prefix(comma + 1);
    }
}

std::string size_name(std::uint64_t bytes) {
    const char* const units[] = {"", "k", "m", "g"};
    std::size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit < 3) {
        bytes /= 1024;
        ++unit;
    }
    return std::to_string(bytes) + units[unit];
}

}  // namespace tagwire::tools
