// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/tag_matcher.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

namespace tagwire::test {
namespace {

using ucs::PostedReceive;
using ucs::PostedReceives;
using ucs::UnexpectedMessage;
using ucs::UnexpectedMessages;

constexpr std::uint64_t kLowHalf = 0x00000000ffffffffU;

PostedReceive receive(std::uint64_t tag, std::uint64_t mask = ucs::kExactMask) {
    PostedReceive made;
    made.tag = tag;
    made.mask = mask;
    return made;
}

TEST(PostedReceivesTest, nothing_matches_when_nothing_is_posted) {
    PostedReceives posted;
    EXPECT_EQ(posted.match(0), nullptr);
    EXPECT_EQ(posted.take_any(), nullptr);
    EXPECT_TRUE(posted.empty());
}

TEST(PostedReceivesTest, a_lone_receive_matches_only_its_tag) {
    PostedReceives posted;
    PostedReceive only = receive(7);
    posted.post(only);
    EXPECT_EQ(posted.match(8), nullptr);
    EXPECT_EQ(posted.match(7), &only);
    EXPECT_EQ(posted.match(7), nullptr);
}

TEST(PostedReceivesTest, a_lone_wildcard_matches_in_the_bits_of_its_mask) {
    PostedReceives posted;
    PostedReceive any_sender = receive(0xabc00000007, kLowHalf);
    posted.post(any_sender);
    EXPECT_EQ(posted.match(0x500000008), nullptr);
    EXPECT_EQ(posted.match(0x500000007), &any_sender);
}

TEST(PostedReceivesTest, equal_tags_match_in_the_order_of_posting) {
    PostedReceives posted;
    std::vector<PostedReceive> receives(1000, receive(42));
    for (auto& each : receives)
        posted.post(each);
    for (auto& each : receives)
        ASSERT_EQ(posted.match(42), &each);
    EXPECT_TRUE(posted.empty());
}

TEST(PostedReceivesTest, the_earliest_posted_wins_among_exact_and_wildcards) {
    PostedReceives posted;
    PostedReceive first = receive(5), second = receive(5, kLowHalf), third = receive(0, 0),
                  fourth = receive(5);
    for (PostedReceive* each : {&first, &second, &third, &fourth})
        posted.post(*each);
    EXPECT_EQ(posted.match(5), &first);
    EXPECT_EQ(posted.match(5), &second);
    EXPECT_EQ(posted.match(5), &third);
    EXPECT_EQ(posted.match(5), &fourth);
}

TEST(PostedReceivesTest, order_holds_across_the_wrap_of_the_sequence) {
    PostedReceives posted(~std::uint64_t{0} - 1);
    PostedReceive before = receive(5, kLowHalf), at = receive(0, 0), after = receive(5),
                  later = receive(5, kLowHalf);
    for (PostedReceive* each : {&before, &at, &after, &later})
        posted.post(*each);
    EXPECT_EQ(posted.match(5), &before);
    EXPECT_EQ(posted.match(5), &at);
    EXPECT_EQ(posted.match(5), &after);
    EXPECT_EQ(posted.match(5), &later);
}

TEST(PostedReceivesTest, a_cancelled_receive_is_skipped) {
    PostedReceives posted;
    std::vector<PostedReceive> same(4, receive(9));
    PostedReceive wildcard = receive(0, 0);
    for (auto& each : same)
        posted.post(each);
    posted.post(wildcard);
    posted.cancel(same[0]);  // the head of its ring
    posted.cancel(same[2]);  // in the middle
    EXPECT_EQ(posted.match(9), &same[1]);
    EXPECT_EQ(posted.match(9), &same[3]);
    posted.cancel(wildcard);
    EXPECT_EQ(posted.match(9), nullptr);
    EXPECT_TRUE(posted.empty());
}

TEST(PostedReceivesTest, a_cancelled_lone_receive_may_be_posted_again) {
    PostedReceives posted;
    PostedReceive only = receive(3);
    posted.post(only);
    posted.cancel(only);
    EXPECT_EQ(posted.match(3), nullptr);
    posted.post(only);
    EXPECT_EQ(posted.match(3), &only);
}

TEST(PostedReceivesTest, many_masks_come_and_go) {
    PostedReceives posted;
    for (unsigned round = 0; round < 3; ++round) {
        std::deque<PostedReceive> receives;
        for (unsigned bit = 0; bit < 64; ++bit)
            posted.post(receives.emplace_back(receive(~0ULL, 1ULL << ((bit + round) % 64))));
        EXPECT_EQ(posted.match(0), nullptr);
        for (auto& each : receives)
            ASSERT_EQ(posted.match(~0ULL), &each);
    }
}

TEST(PostedReceivesTest, random_tags_match_at_every_depth_while_tables_grow) {
    constexpr std::size_t kDepth = 100'000;
    PostedReceives posted;
    std::mt19937_64 random(1);
    std::vector<PostedReceive> receives(kDepth);
    for (auto& each : receives) {
        each.tag = random();
        posted.post(each);
        ASSERT_EQ(posted.match(each.tag), &each);
        posted.post(each);
    }
    for (auto& each : receives)
        ASSERT_EQ(posted.match(each.tag), &each);
    EXPECT_TRUE(posted.empty());
}

TEST(PostedReceivesTest, structured_tags_do_not_pile_up) {
    // Tags that differ in a few high bits only, and strided ones; a degenerate hash would take
    // minutes here.
    for (const unsigned shift : {0U, 8U, 32U, 44U}) {
        constexpr std::size_t kDepth = 1 << 18;
        PostedReceives posted;
        std::vector<PostedReceive> receives(kDepth);
        for (std::size_t i = 0; i < kDepth; ++i) {
            receives[i].tag = i << shift;
            posted.post(receives[i]);
        }
        for (auto& each : receives)
            ASSERT_EQ(posted.match(each.tag), &each);
    }
}

TEST(PostedReceivesTest, reserve_keeps_what_is_posted) {
    PostedReceives posted;
    std::vector<PostedReceive> receives;
    for (std::uint64_t tag = 0; tag < 500; ++tag)
        receives.push_back(receive(tag));
    for (std::size_t i = 0; i < 250; ++i)
        posted.post(receives[i]);
    EXPECT_TRUE(posted.reserve(10'000));
    for (std::size_t i = 250; i < 500; ++i)
        posted.post(receives[i]);
    for (auto& each : receives)
        ASSERT_EQ(posted.match(each.tag), &each);
}

TEST(PostedReceivesTest, take_any_drains_everything) {
    PostedReceives posted;
    std::deque<PostedReceive> receives;
    for (std::uint64_t tag = 0; tag < 3000; ++tag)
        posted.post(receives.emplace_back(receive(tag / 2, tag % 3 == 0 ? kLowHalf : ~0ULL)));
    std::size_t taken = 0;
    while (posted.take_any() != nullptr)
        ++taken;
    EXPECT_EQ(taken, receives.size());
}

std::vector<UnexpectedMessage> messages_with_tags(std::initializer_list<std::uint64_t> tags) {
    std::vector<UnexpectedMessage> messages(tags.size());
    std::size_t i = 0;
    for (const std::uint64_t tag : tags)
        messages[i++].tag = tag;
    return messages;
}

TEST(UnexpectedMessagesTest, nothing_is_taken_when_nothing_came) {
    UnexpectedMessages unexpected;
    EXPECT_EQ(unexpected.take(1, ucs::kExactMask), nullptr);
    EXPECT_EQ(unexpected.take(1, 0), nullptr);
}

TEST(UnexpectedMessagesTest, a_lone_message_is_found_by_tag_and_by_mask) {
    UnexpectedMessages unexpected;
    auto messages = messages_with_tags({0x100000005});
    unexpected.add(messages[0]);
    EXPECT_EQ(unexpected.take(5, ucs::kExactMask), nullptr);
    EXPECT_EQ(unexpected.find(5, kLowHalf), &messages[0]);
    EXPECT_EQ(unexpected.take(0x100000005, ucs::kExactMask), &messages[0]);
    EXPECT_TRUE(unexpected.empty());
}

TEST(UnexpectedMessagesTest, exact_and_wildcard_receives_take_the_earliest_arrival) {
    UnexpectedMessages unexpected;
    auto messages = messages_with_tags({1, 2, 1, 0x100000002, 2, 1});
    for (auto& each : messages)
        unexpected.add(each);
    EXPECT_EQ(unexpected.take(2, kLowHalf), &messages[1]);
    EXPECT_EQ(unexpected.take(2, kLowHalf), &messages[3]);
    EXPECT_EQ(unexpected.take(0, 0), &messages[0]);
    EXPECT_EQ(unexpected.take(1, ucs::kExactMask), &messages[2]);
    EXPECT_EQ(unexpected.take(7, ucs::kExactMask), nullptr);
    EXPECT_EQ(unexpected.take(0, 0), &messages[4]);
    EXPECT_EQ(unexpected.take(0, 0), &messages[5]);
}

TEST(UnexpectedMessagesTest, a_removed_message_is_skipped_everywhere) {
    UnexpectedMessages unexpected;
    auto messages = messages_with_tags({4, 4, 4});
    for (auto& each : messages)
        unexpected.add(each);
    unexpected.remove(messages[0]);
    EXPECT_EQ(unexpected.oldest(), &messages[1]);
    EXPECT_EQ(unexpected.take(4, ucs::kExactMask), &messages[1]);
    unexpected.remove(messages[2]);
    EXPECT_TRUE(unexpected.empty());
}

/// With the multiplier that other libraries use, known to everybody.
std::uint64_t public_hash(std::uint64_t tag) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(tag) * 0x9e3779b97f4a7c15U;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Tags that a peer has chosen so that all of them have one home, by a hash that it knows.
TEST(TagIndexTest, is_searched_for_a_few_buckets_whatever_tags_a_peer_chooses) {
    constexpr std::size_t kTags = 4000;
    constexpr std::uint64_t kHomeBits = 0xfff;
    std::deque<PostedReceive> nodes;
    for (std::uint64_t tag = 0; nodes.size() < kTags; ++tag)
        if ((public_hash(tag) & kHomeBits) == 0)
            nodes.push_back(receive(tag));
    ucs::detail::TagIndex<ucs::detail::TagKeys<PostedReceive>> index;
    for (PostedReceive& each : nodes)
        index.insert(each);
    EXPECT_LE(index.longest_search(), 32U) << "of " << kTags / 7 << " if one bucket was the home";
    for (PostedReceive& each : nodes)
        EXPECT_EQ(&each, index.pop(each.tag));
    EXPECT_TRUE(index.empty());
}

}  // namespace
}  // namespace tagwire::test
