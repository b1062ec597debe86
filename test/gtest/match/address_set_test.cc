// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/address_set.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <unordered_set>

namespace tagwire::ucs {
namespace {

const void* address(std::uint64_t value) {
    return reinterpret_cast<const void*>(value);
}

TEST(AddressSet, an_address_is_inside_once) {
    AddressSet set;
    ASSERT_TRUE(set.reserve(1));
    EXPECT_EQ(UCS_OK, set.insert(address(4096)));
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, set.insert(address(4096)));
    EXPECT_EQ(UCS_OK, set.insert(address(4097)));
    EXPECT_EQ(2u, set.size());
    set.erase(address(4096));
    EXPECT_EQ(UCS_OK, set.insert(address(4096)));
    EXPECT_EQ(2u, set.size());
}

TEST(AddressSet, an_erased_address_is_outside_at_once) {
    AddressSet set;
    ASSERT_TRUE(set.reserve(1));
    ASSERT_EQ(UCS_OK, set.insert(address(4096)));
    set.erase(address(4096));
    EXPECT_EQ(0u, set.size());
    EXPECT_EQ(UCS_OK, set.insert(address(4096)));
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, set.insert(address(4096)));
    EXPECT_EQ(1u, set.size());
}

TEST(AddressSet, an_erased_address_stays_outside_when_more_room_is_made) {
    AddressSet set;
    ASSERT_TRUE(set.reserve(1));
    ASSERT_EQ(UCS_OK, set.insert(address(4096)));
    ASSERT_EQ(UCS_OK, set.insert(address(8192)));
    set.erase(address(4096));
    ASSERT_TRUE(set.reserve(1000));
    EXPECT_EQ(1u, set.size());
    EXPECT_EQ(UCS_OK, set.insert(address(4096)));
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, set.insert(address(8192)));
}

TEST(AddressSet, others_take_the_room_of_erased_ones) {
    AddressSet set;
    ASSERT_TRUE(set.reserve(1));
    for (std::uint64_t value = 1; value <= 1000; ++value) {
        ASSERT_EQ(UCS_OK, set.insert(address(value)));
        ASSERT_EQ(UCS_OK, set.insert(address(value + 5000)));
        set.erase(address(value));
        set.erase(address(value + 5000));
        ASSERT_EQ(0u, set.size());
    }
}

// Against a set of the C++ library; few addresses, so that chains of neighbours form, wrap and are
// taken apart, beyond the room that was reserved too.
TEST(AddressSet, answers_as_a_set_whatever_comes_and_goes) {
    for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random(seed);
        AddressSet set;
        ASSERT_TRUE(set.reserve(seed));
        std::unordered_set<std::uint64_t> model;
        const std::uint64_t stride = std::uint64_t{1} << random() % 20;
        const std::uint64_t addresses = 4 + random() % 400;
        for (int step = 0; step < 20'000; ++step) {
            const std::uint64_t value = (1 + random() % addresses) * stride;
            // Phases that mostly fill and phases that mostly empty.
            if (random() % 4 < (step % 4000 < 2000 ? 3U : 1U)) {
                const ucs_status_t expected =
                    model.insert(value).second ? UCS_OK : UCS_ERR_ALREADY_EXISTS;
                ASSERT_EQ(expected, set.insert(address(value))) << step;
            } else if (model.erase(value) == 1) {
                set.erase(address(value));
            }
            ASSERT_EQ(model.size(), set.size()) << step;
        }
        for (const std::uint64_t value : model)
            ASSERT_EQ(UCS_ERR_ALREADY_EXISTS, set.insert(address(value)));
    }
}

}  // namespace
}  // namespace tagwire::ucs
