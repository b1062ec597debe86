// SPDX-License-Identifier: BSD-3-Clause
// Announced messages alone: their places in every order, a peer that names any, and bytes that are
// counted out once.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/seeds.hpp"
#include "protocols/match/announcements.hpp"

namespace tagwire::test {
namespace {

using proto::Announced;
using proto::Announcements;

Announced announced(std::uint64_t tag, std::size_t bytes = 3) {
    Announced message;
    message.header.tag = tag;
    message.bytes.resize(bytes);
    return message;
}

TEST(AnnouncementsPart, places_come_in_every_order_and_each_message_is_taken_once) {
    std::array<std::uint32_t, 5> order{0, 1, 2, 3, 4};
    do {
        Announcements all;
        for (const std::uint32_t number : {0U, 1U, 2U, 3U, 4U})
            all.add(announced(100 + number));
        for (const std::uint32_t number : order) {
            const std::optional<Announced> message = all.take(number);
            ASSERT_TRUE(message);
            EXPECT_EQ(message->header.tag, 100 + number);
            EXPECT_FALSE(message->has_come);
            EXPECT_FALSE(all.take(number));
        }
        EXPECT_TRUE(all.empty());
    } while (std::ranges::next_permutation(order).found);
}

TEST(AnnouncementsPart, a_place_of_no_message_is_none) {
    Announcements all;
    EXPECT_FALSE(all.take(0));
    all.add(announced(1));
    for (const std::uint32_t number : {1U, 2U, UINT32_MAX})
        EXPECT_FALSE(all.take(number));
    EXPECT_TRUE(all.take(0));
    EXPECT_FALSE(all.take(0));
    all.add(announced(2));
    EXPECT_TRUE(all.take(1));
}

TEST(AnnouncementsPart, those_that_are_dropped_return_what_they_hold_and_taken_ones_nothing) {
    Announcements all;
    for (const std::size_t bytes : {10U, 20U, 30U})
        all.add(announced(1, bytes));
    EXPECT_TRUE(all.take(1));
    EXPECT_EQ(all.size(), 3U);
    EXPECT_EQ(all.drop_oldest(), announced(1, 10).held());
    EXPECT_EQ(all.drop_oldest(), 0U);
    EXPECT_EQ(all.drop_oldest(), announced(1, 30).held());
    EXPECT_TRUE(all.empty());
}

TEST(AnnouncementsPart, another_connection_counts_anew) {
    Announcements all;
    all.add(announced(1));
    EXPECT_TRUE(all.take(0));
    all.begin_anew();
    all.add(announced(2));
    EXPECT_EQ(all.take(0)->header.tag, 2U);
}

TEST(AnnouncementsPart, what_is_held_is_counted_out_once_whatever_the_peer_names) {
    for_each_seed(100, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        Announcements all;
        std::size_t held = 0;
        std::uint32_t next = 0;
        for (int i = 0; i < 500; ++i) {
            if (random() % 2 == 0) {
                const Announced message = announced(next++, random() % 100);
                held += message.held();
                all.add(message);
            } else if (random() % 20 == 0 && !all.empty()) {
                held -= all.drop_oldest();
            } else {
                const auto number = static_cast<std::uint32_t>(next + 2 - random() % 20);
                if (const std::optional<Announced> message = all.take(number)) {
                    EXPECT_EQ(message->header.tag, number);
                    held -= message->held();
                }
            }
        }
        while (!all.empty())
            held -= all.drop_oldest();
        EXPECT_EQ(held, 0U);
    });
}

}  // namespace
}  // namespace tagwire::test
