// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/index/source_matcher.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <utility>
#include <vector>

namespace tagwire::test::source {
namespace {

using proto::kAnySource;
using proto::kExactMask;
using proto::PostedReceive;
using proto::PostedReceives;
using proto::UnexpectedMessage;
using proto::UnexpectedMessages;

constexpr std::uint64_t kLowHalf = 0x00000000ffffffffU;

PostedReceive receive_from(std::uint32_t source, std::uint64_t tag,
                           std::uint64_t mask = kExactMask) {
    PostedReceive made;
    made.tag = tag;
    made.mask = mask;
    made.source = source;
    return made;
}

void post_all(PostedReceives& posted, std::initializer_list<PostedReceive*> receives) {
    for (PostedReceive* each : receives)
        posted.post(*each);
}

TEST(SourcePostedReceives, nothing_matches_when_nothing_is_posted) {
    PostedReceives posted;
    EXPECT_EQ(posted.match(0, 0), nullptr);
    EXPECT_EQ(posted.find(0, 0), nullptr);
    EXPECT_EQ(posted.take_any(), nullptr);
    EXPECT_EQ(posted.take_directed(0), nullptr);
    EXPECT_TRUE(posted.empty());
}

TEST(SourcePostedReceives, a_lone_receive_takes_its_tag_from_any_source) {
    PostedReceives posted;
    PostedReceive only = receive_from(kAnySource, 7);
    posted.post(only);
    EXPECT_EQ(posted.match(8, 1), nullptr);
    EXPECT_EQ(posted.match(7, 1), &only);
    EXPECT_EQ(posted.match(7, 1), nullptr);
}

TEST(SourcePostedReceives, a_lone_directed_receive_takes_its_tag_from_its_source) {
    PostedReceives posted;
    PostedReceive only = receive_from(3, 7);
    posted.post(only);
    EXPECT_EQ(posted.match(7, 2), nullptr);
    EXPECT_EQ(posted.match(8, 3), nullptr);
    EXPECT_EQ(posted.match(7, 3), &only);
}

TEST(SourcePostedReceives, a_lone_wildcard_matches_in_the_bits_of_its_mask) {
    PostedReceives posted;
    PostedReceive only = receive_from(3, 0xabc00000007, kLowHalf);
    posted.post(only);
    EXPECT_EQ(posted.match(0x500000008, 3), nullptr);
    EXPECT_EQ(posted.match(0x500000007, 4), nullptr);
    EXPECT_EQ(posted.match(0x500000007, 3), &only);
}

TEST(SourcePostedReceives, directed_receives_of_one_tag_are_kept_apart) {
    PostedReceives posted;
    std::deque<PostedReceive> receives;
    for (std::uint32_t source = 0; source < 1000; ++source)
        posted.post(receives.emplace_back(receive_from(source, 42)));
    EXPECT_EQ(posted.match(42, 1000), nullptr);
    for (std::uint32_t source = 1000; source-- > 0;)
        ASSERT_EQ(posted.match(42, source), &receives[source]);
    EXPECT_TRUE(posted.empty());
}

TEST(SourcePostedReceives, the_earliest_posted_wins_among_all_classes) {
    PostedReceive any = receive_from(kAnySource, 5), directed = receive_from(1, 5),
                  wildcard = receive_from(kAnySource, 5, kLowHalf), both = receive_from(1, 0, 0),
                  last = receive_from(kAnySource, 5);
    const std::vector<std::vector<PostedReceive*>> orders = {
        {&any, &directed, &wildcard, &both, &last},
        {&both, &wildcard, &directed, &any, &last},
        {&wildcard, &any, &both, &last, &directed},
    };
    for (const auto& order : orders) {
        PostedReceives posted;
        for (PostedReceive* each : order)
            posted.post(*each);
        for (const PostedReceive* each : order)
            ASSERT_EQ(posted.match(5, 1), each);
        EXPECT_TRUE(posted.empty());
    }
}

TEST(SourcePostedReceives, another_source_skips_directed_receives) {
    PostedReceives posted;
    PostedReceive directed = receive_from(1, 5), directed_wildcard = receive_from(1, 0, 0),
                  any = receive_from(kAnySource, 5);
    post_all(posted, {&directed, &directed_wildcard, &any});
    EXPECT_EQ(posted.match(5, 2), &any);
    EXPECT_EQ(posted.match(5, 2), nullptr);
    EXPECT_EQ(posted.size(), 2U);
}

TEST(SourcePostedReceives, order_holds_across_the_wrap_of_the_sequence) {
    PostedReceives posted(~std::uint64_t{0} - 1);
    PostedReceive before = receive_from(1, 5), at = receive_from(kAnySource, 0, 0),
                  after = receive_from(kAnySource, 5), later = receive_from(1, 5, kLowHalf);
    post_all(posted, {&before, &at, &after, &later});
    for (const PostedReceive* each : {&before, &at, &after, &later})
        EXPECT_EQ(posted.match(5, 1), each);
}

TEST(SourcePostedReceives, a_found_receive_stays_at_its_place) {
    PostedReceives posted;
    PostedReceive first = receive_from(kAnySource, 5), second = receive_from(1, 5);
    posted.post(first);
    EXPECT_EQ(posted.find(6, 1), nullptr);
    EXPECT_EQ(posted.find(5, 1), &first);  // the lone one
    posted.post(second);
    EXPECT_EQ(posted.find(5, 1), &first);
    EXPECT_EQ(posted.find(5, 1), &first);
    EXPECT_EQ(posted.match(5, 1), &first);
    EXPECT_EQ(posted.find(5, 1), &second);
    EXPECT_EQ(posted.find(5, 2), nullptr);
}

TEST(SourcePostedReceives, a_cancelled_receive_is_skipped) {
    PostedReceives posted;
    std::deque<PostedReceive> receives;
    for (const std::uint32_t source : {kAnySource, 1U})
        for (const std::uint64_t mask : {kExactMask, kLowHalf})
            for (int twice = 0; twice < 2; ++twice)
                posted.post(receives.emplace_back(receive_from(source, 9, mask)));
    for (std::size_t i = 0; i < receives.size(); i += 2)
        posted.cancel(receives[i]);
    for (std::size_t i = 1; i < receives.size(); i += 2)
        EXPECT_EQ(posted.match(9, 1), &receives[i]);
    EXPECT_TRUE(posted.empty());
}

TEST(SourcePostedReceives, a_cancelled_lone_receive_may_be_posted_again) {
    PostedReceives posted;
    PostedReceive only = receive_from(1, 3);
    posted.post(only);
    posted.cancel(only);
    EXPECT_EQ(posted.match(3, 1), nullptr);
    posted.post(only);
    EXPECT_EQ(posted.match(3, 1), &only);
}

TEST(SourcePostedReceives, reserve_keeps_what_is_posted) {
    PostedReceives posted;
    std::deque<PostedReceive> receives;
    const auto post_until = [&](std::uint64_t count) {
        for (std::uint64_t i = receives.size(); i < count; ++i) {
            const auto source = i % 2 == 0 ? kAnySource : static_cast<std::uint32_t>(i);
            posted.post(receives.emplace_back(receive_from(source, i)));
        }
    };
    post_until(250);
    EXPECT_TRUE(posted.reserve(10'000));
    post_until(500);
    for (std::uint32_t i = 0; i < 500; ++i)
        ASSERT_EQ(posted.match(i, i), &receives[i]);
}

TEST(SourcePostedReceives, structured_tags_and_sources_do_not_pile_up) {
    // Grids whose tags differ in a few bits only; a degenerate hash would take minutes here.
    for (const unsigned shift : {0U, 8U, 32U, 54U}) {
        constexpr std::uint32_t kSide = 1 << 9;
        PostedReceives posted;
        std::vector<PostedReceive> receives(std::size_t{kSide} * kSide);
        for (std::uint32_t i = 0; i < receives.size(); ++i) {
            receives[i].tag = static_cast<std::uint64_t>(i % kSide) << shift;
            receives[i].source = i / kSide;
            posted.post(receives[i]);
        }
        for (auto& each : receives)
            ASSERT_EQ(posted.match(each.tag, each.source), &each);
    }
}

TEST(SourcePostedReceives, the_receives_of_a_dead_peer_are_taken_and_no_others) {
    PostedReceives posted;
    std::deque<PostedReceive> receives;
    for (std::uint32_t i = 0; i < 3000; ++i) {
        const std::uint32_t source = i % 10 == 9 ? kAnySource : i % 10;
        const std::uint64_t mask = i % 3 == 0 ? kLowHalf : kExactMask;
        posted.post(receives.emplace_back(receive_from(source, i / 20, mask)));
    }
    for (std::size_t taken = 0; taken < 300; ++taken) {
        const PostedReceive* receive = posted.take_directed(4);
        ASSERT_NE(receive, nullptr);
        ASSERT_EQ(receive->source, 4U);
    }
    EXPECT_EQ(posted.take_directed(4), nullptr);
    EXPECT_EQ(posted.size(), 2700U);
    EXPECT_EQ(posted.match(0, 9), &receives[9]);
}

TEST(SourcePostedReceives, a_lone_receive_is_taken_when_its_peer_dies) {
    PostedReceives posted;
    PostedReceive directed = receive_from(4, 1), any = receive_from(kAnySource, 1);
    posted.post(directed);
    EXPECT_EQ(posted.take_directed(5), nullptr);
    EXPECT_EQ(posted.take_directed(4), &directed);
    posted.post(any);
    EXPECT_EQ(posted.take_directed(4), nullptr);
    EXPECT_EQ(posted.size(), 1U);
}

TEST(SourcePostedReceives, take_any_drains_everything) {
    PostedReceives posted;
    std::deque<PostedReceive> receives;
    for (std::uint32_t i = 0; i < 3000; ++i)
        posted.post(receives.emplace_back(receive_from(i % 5 == 0 ? kAnySource : i % 5, i / 2,
                                                       i % 3 == 0 ? kLowHalf : kExactMask)));
    std::size_t taken = 0;
    while (posted.take_any() != nullptr)
        ++taken;
    EXPECT_EQ(taken, receives.size());
}

using SourceAndTag = std::pair<std::uint32_t, std::uint64_t>;

std::vector<UnexpectedMessage> messages_from(std::initializer_list<SourceAndTag> senders) {
    std::vector<UnexpectedMessage> messages(senders.size());
    std::size_t i = 0;
    for (const auto& [source, tag] : senders) {
        messages[i].source = source;
        messages[i++].tag = tag;
    }
    return messages;
}

void add_all(UnexpectedMessages& unexpected, std::vector<UnexpectedMessage>& messages) {
    for (auto& each : messages)
        unexpected.add(each);
}

/** Before the messages go. */
void remove_all(UnexpectedMessages& unexpected) {
    while (auto* message = unexpected.oldest())
        unexpected.remove(*message);
}

TEST(SourceUnexpectedMessages, nothing_is_taken_when_nothing_came) {
    UnexpectedMessages unexpected;
    EXPECT_EQ(unexpected.take(1, kExactMask, 1), nullptr);
    EXPECT_EQ(unexpected.take(1, kExactMask, kAnySource), nullptr);
    EXPECT_EQ(unexpected.take(1, 0, 1), nullptr);
    EXPECT_EQ(unexpected.oldest(), nullptr);
}

TEST(SourceUnexpectedMessages, a_lone_message_is_found_by_tag_mask_and_source) {
    UnexpectedMessages unexpected;
    auto messages = messages_from({{3, 0x100000005}});
    add_all(unexpected, messages);
    EXPECT_EQ(unexpected.find(5, kExactMask, 3), nullptr);
    EXPECT_EQ(unexpected.find(5, kLowHalf, 4), nullptr);
    EXPECT_EQ(unexpected.find(5, kLowHalf, 3), &messages[0]);
    EXPECT_EQ(unexpected.find(0x100000005, kExactMask, kAnySource), &messages[0]);
    EXPECT_EQ(unexpected.take(0x100000005, kExactMask, 3), &messages[0]);
    EXPECT_TRUE(unexpected.empty());
}

TEST(SourceUnexpectedMessages, every_kind_of_receive_takes_the_earliest_arrival) {
    UnexpectedMessages unexpected;
    auto messages = messages_from({{1, 1},
                                   {2, 2},
                                   {1, 2},
                                   {2, 1},
                                   {1, 0x100000002},
                                   {2, 0x100000002},
                                   {1, 2},
                                   {2, 1},
                                   {1, 1}});
    add_all(unexpected, messages);
    EXPECT_EQ(unexpected.take(2, kExactMask, 1), &messages[2]);
    EXPECT_EQ(unexpected.take(2, kExactMask, kAnySource), &messages[1]);
    EXPECT_EQ(unexpected.take(2, kLowHalf, 2), &messages[5]);
    EXPECT_EQ(unexpected.take(0, 0, 2), &messages[3]);
    EXPECT_EQ(unexpected.take(0, 0, kAnySource), &messages[0]);
    EXPECT_EQ(unexpected.take(2, kLowHalf, kAnySource), &messages[4]);
    EXPECT_EQ(unexpected.take(2, kExactMask, 2), nullptr);
    EXPECT_EQ(unexpected.take(1, kExactMask, 2), &messages[7]);
    EXPECT_EQ(unexpected.take(0, 0, 3), nullptr);
    EXPECT_EQ(unexpected.take(0, 0, 2), nullptr);
    EXPECT_EQ(unexpected.size(), 2U);
    remove_all(unexpected);
}

TEST(SourceUnexpectedMessages, indexes_serve_again_after_all_was_taken) {
    constexpr std::uint32_t kCount = UnexpectedMessages::kFew + 3;
    UnexpectedMessages unexpected;
    std::vector<UnexpectedMessage> messages(kCount);
    for (std::uint32_t i = 0; i < kCount; ++i) {
        messages[i].tag = i;
        messages[i].source = i / 2;
    }
    for (int round = 0; round < 3; ++round) {
        add_all(unexpected, messages);
        EXPECT_EQ(unexpected.take(5, kExactMask, kAnySource), &messages[5]);
        EXPECT_EQ(unexpected.take(3, kExactMask, 1), &messages[3]);
        EXPECT_EQ(unexpected.take(0, 0, 0), &messages[0]);
        for (const std::size_t left : {1U, 2U, 4U})
            EXPECT_EQ(unexpected.take(0, 0, kAnySource), &messages[left]);
        for (std::uint32_t left = 6; left < kCount; ++left)
            EXPECT_EQ(unexpected.take(left, kExactMask, kAnySource), &messages[left]);
        EXPECT_TRUE(unexpected.empty());
    }
}

TEST(SourceUnexpectedMessages, a_removed_message_is_skipped_everywhere) {
    for (const std::size_t count : {3U, 300U}) {
        UnexpectedMessages unexpected;
        std::vector<UnexpectedMessage> messages(count);
        add_all(unexpected, messages);
        EXPECT_EQ(unexpected.find(0, kExactMask, 0), &messages[0]);
        EXPECT_EQ(unexpected.find(0, kExactMask, kAnySource), &messages[0]);
        EXPECT_EQ(unexpected.find(0, 0, 0), &messages[0]);
        unexpected.remove(messages[0]);
        unexpected.remove(messages[2]);
        EXPECT_EQ(unexpected.oldest(), &messages[1]);
        EXPECT_EQ(unexpected.find(0, kExactMask, 0), &messages[1]);
        EXPECT_EQ(unexpected.find(0, kExactMask, kAnySource), &messages[1]);
        EXPECT_EQ(unexpected.find(0, 0, 0), &messages[1]);
        EXPECT_EQ(unexpected.size(), count - 2);
    }
}

// A peer could else make the first look-up of a program file all that it has sent.
TEST(SourceUnexpectedMessages, many_are_filed_as_they_come_before_the_first_look_up) {
    constexpr std::size_t kCount = UnexpectedMessages::kMany + 1000;
    UnexpectedMessages messages;
    std::deque<UnexpectedMessage> all;
    for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(messages.is_filed(), i > UnexpectedMessages::kMany) << i;
        UnexpectedMessage& each = all.emplace_back();
        each.tag = i / 2;
        each.source = static_cast<std::uint32_t>(i % 2);
        messages.add(each);
    }
    for (const std::size_t tag : {std::size_t{0}, kCount / 4, kCount / 2 - 1}) {
        EXPECT_EQ(messages.find(tag, kExactMask, kAnySource), &all[2 * tag]);
        EXPECT_EQ(messages.find(tag, kExactMask, 1), &all[2 * tag + 1]);
        EXPECT_EQ(messages.take(tag, kExactMask, 0), &all[2 * tag]);
        EXPECT_EQ(messages.take(tag, kExactMask, kAnySource), &all[2 * tag + 1]);
        EXPECT_EQ(messages.take(tag, kExactMask, kAnySource), nullptr);
    }
    while (UnexpectedMessage* oldest = messages.oldest())
        messages.remove(*oldest);
    EXPECT_FALSE(messages.is_filed());
}

/** 300 000 messages of one source, then of one tag, before the one that is looked for 100 000
 * times: a walk would take minutes. */
TEST(SourceUnexpectedMessages, no_look_up_walks_what_its_receive_does_not_match) {
    constexpr std::uint32_t kCount = 150'000;
    UnexpectedMessages unexpected;
    std::vector<UnexpectedMessage> messages(2 * kCount + 1);
    for (std::uint32_t i = 0; i < kCount; ++i) {
        messages[i].tag = i;
        messages[kCount + i].tag = kCount;
        messages[kCount + i].source = 1 + i;
    }
    UnexpectedMessage& last = messages.back();
    last.tag = kCount + 1;
    last.source = kCount;
    add_all(unexpected, messages);
    for (int i = 0; i < 100'000; ++i) {
        ASSERT_EQ(unexpected.find(last.tag, kExactMask, kAnySource), &last);
        ASSERT_EQ(unexpected.find(last.tag, kExactMask, last.source), &last);
        ASSERT_EQ(unexpected.find(0, 0, last.source), &messages[2 * kCount - 1]);
        ASSERT_EQ(unexpected.find(1, 1, last.source), &last);
        ASSERT_EQ(unexpected.find(0, 0, kAnySource), &messages[0]);
    }
    remove_all(unexpected);
}

/** As MPI_ANY_TAG of a communicator, which is in the upper half of the tag, while many messages of
 * another one wait; and other masks, more than there are indexes for. */
TEST(SourceUnexpectedMessages, no_look_up_by_a_part_of_the_tag_walks_other_communicators) {
    constexpr std::uint32_t kCount = 150'000;
    constexpr std::uint64_t kCommunicator = ~std::uint64_t{0} << 32;
    UnexpectedMessages unexpected;
    std::vector<UnexpectedMessage> messages(kCount + 1);
    for (std::uint32_t i = 0; i < kCount; ++i) {
        messages[i].tag = std::uint64_t{1} << 32 | i;
        messages[i].source = i % 2;
    }
    UnexpectedMessage& last = messages.back();
    last.tag = std::uint64_t{2} << 32 | 7;
    last.source = 1;
    add_all(unexpected, messages);
    for (int i = 0; i < 30'000; ++i) {
        ASSERT_EQ(unexpected.find(std::uint64_t{2} << 32, kCommunicator, kAnySource), &last);
        ASSERT_EQ(unexpected.find(std::uint64_t{2} << 32, kCommunicator, 1), &last);
        ASSERT_EQ(unexpected.find(std::uint64_t{3} << 32, kCommunicator, kAnySource), nullptr);
        ASSERT_EQ(unexpected.find(std::uint64_t{2} << 32, kCommunicator, 0), nullptr);
        ASSERT_EQ(unexpected.find(std::uint64_t{1} << 32, kCommunicator, 1), &messages[1]);
    }
    for (std::uint64_t mask = 1; mask < 64; ++mask)
        for (int times = 0; times < 3; ++times)
            ASSERT_EQ(unexpected.find(mask, mask, kAnySource), &messages[mask]);
    EXPECT_EQ(unexpected.take(std::uint64_t{2} << 32, kCommunicator, kAnySource), &last);
    EXPECT_EQ(unexpected.take(std::uint64_t{2} << 32, kCommunicator, kAnySource), nullptr);
    remove_all(unexpected);
}

}  // namespace
}  // namespace tagwire::test::source
