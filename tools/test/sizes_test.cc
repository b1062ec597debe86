// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sizes.hpp"

#include <gtest/gtest.h>

#include "cli/failure.hpp"

namespace tagwire::test {
namespace {

using tools::parse_sizes;
using tools::Size;
using tools::size_name;
using tools::UsageError;

std::vector<std::uint64_t> bytes_of(const char* list) {
    std::vector<std::uint64_t> bytes;
    for (const Size& size : parse_sizes(list))
        bytes.push_back(size.bytes);
    return bytes;
}

using Bytes = std::vector<std::uint64_t>;

TEST(Sizes, one_number_is_bytes) {
    EXPECT_EQ(bytes_of("8"), Bytes{8});
}

TEST(Sizes, units_are_powers_of_1024) {
    EXPECT_EQ(bytes_of("1k,2M,3g"), (Bytes{1024, 2097152, 3221225472}));
}

TEST(Sizes, list_keeps_its_order) {
    EXPECT_EQ(bytes_of("64k,8,0"), (Bytes{65536, 8, 0}));
}

TEST(Sizes, range_has_all_powers_of_two) {
    EXPECT_EQ(bytes_of("1:8"), (Bytes{1, 2, 4, 8}));
    EXPECT_EQ(bytes_of("1:4m").size(), 23U);
    EXPECT_EQ(bytes_of("4:9"), (Bytes{4, 8}));
}

TEST(Sizes, only_range_members_may_be_left_out) {
    const std::vector<Size> sizes = parse_sizes("8,1:2");
    EXPECT_FALSE(sizes[0].from_range);
    EXPECT_TRUE(sizes[1].from_range);
}

TEST(Sizes, nonsense_is_refused) {
    for (const char* list : {"", "x", "8,", ",8", "8q", "-1", "8kk", "1:", ":4", "3:8", "8:4",
                             "0:8", "1 k", "99999999999999999999", "2048g", "0x10"}) {
        EXPECT_THROW(parse_sizes(list), UsageError) << list;
    }
}

TEST(Sizes, name_is_the_shortest_exact_spelling) {
    EXPECT_EQ(size_name(0), "0");
    EXPECT_EQ(size_name(1000), "1000");
    EXPECT_EQ(size_name(8192), "8k");
    EXPECT_EQ(size_name(4 << 20), "4m");
    EXPECT_EQ(size_name((1 << 20) + 1), "1048577");
}

}  // namespace
}  // namespace tagwire::test
