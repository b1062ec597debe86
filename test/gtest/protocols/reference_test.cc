// SPDX-License-Identifier: BSD-3-Clause
// The reference accepts what the rules allow, and nothing else.
#include "protocols/reference.hpp"

#include <gtest/gtest.h>

namespace tagwire::test {
namespace {

constexpr std::uint64_t kTag = 5;
constexpr std::uint64_t kAll = 0;  // mask of a receive of any tag

class ReferenceTest : public ::testing::Test {
  protected:
    std::size_t send(unsigned sender, Tick sent, std::uint64_t tag = kTag) {
        return reference.add(RefMessage{.envelope = {sender, tag, 0, 8}, .sent = sent});
    }
    std::size_t receive(Tick posted, std::uint64_t mask = ~std::uint64_t{0}) {
        return reference.add(RefReceive{.tag = kTag, .mask = mask, .posted = posted});
    }
    void match(std::size_t receive, std::size_t message, Tick told = 1000) {
        reference.receive(receive).matches.push_back(
            {reference.message(message).envelope, message, told});
    }
    Reference reference;
};

TEST_F(ReferenceTest, two_senders_may_arrive_in_any_order) {
    const auto a = send(0, 1), b = send(1, 2);
    const auto first = receive(3), second = receive(4);
    match(first, b);
    match(second, a);
    EXPECT_EQ(reference.check(), "");
}

TEST_F(ReferenceTest, one_sender_may_not) {
    const auto a = send(0, 1), b = send(0, 2);
    const auto first = receive(3), second = receive(4);
    match(first, b);
    match(second, a);
    EXPECT_NE(reference.check(), "");
}

TEST_F(ReferenceTest, a_receive_of_another_tag_is_passed_by) {
    const auto a = send(0, 1, 6), b = send(0, 2);
    const auto exact = receive(3), any = receive(4, kAll);
    match(exact, b);
    match(any, a);
    EXPECT_EQ(reference.check(), "");
}

// Each pair is possible; together 0 would have to come before 1 and after it.
TEST_F(ReferenceTest, orders_of_several_senders_that_contradict_each_other_are_found) {
    const auto a1 = send(0, 1, 5), a2 = send(0, 2, 6);
    const auto b1 = send(1, 3, 6), b2 = send(1, 4, 5);
    RefReceive wanted{.tag = 5, .posted = 5};
    const auto five = reference.add(wanted);
    wanted.posted = 6;
    const auto five_later = reference.add(wanted);
    wanted.tag = 6;
    wanted.posted = 7;
    const auto six = reference.add(wanted);
    wanted.posted = 8;
    const auto six_later = reference.add(wanted);
    match(five, b2);
    match(five_later, a1);
    match(six, a2);
    match(six_later, b1);
    EXPECT_NE(reference.check(), "");
}

TEST_F(ReferenceTest, a_message_that_had_arrived_is_found_by_a_peek) {
    const auto a = send(0, 1);
    reference.message(a).taken = 5;
    reference.add(RefReceive{.kind = RefKind::kPeek, .tag = kTag, .posted = 6, .withdrawn = 6});
    const auto first = receive(7);
    match(first, a);
    EXPECT_NE(reference.check(), "");
    reference.message(a).taken = kNever;
    EXPECT_EQ(reference.check(), "");
}

TEST_F(ReferenceTest, what_a_peek_found_arrived_before_what_is_behind_it) {
    const auto a = send(0, 1), b = send(1, 2);
    RefReceive peek{.kind = RefKind::kPeek, .tag = kTag, .posted = 6};
    peek.matches.push_back({reference.message(a).envelope, kNone, kNever});
    reference.add(peek);
    const auto first = receive(7), second = receive(8);
    match(first, b);
    match(second, a);
    EXPECT_NE(reference.check(), "");
}

TEST_F(ReferenceTest, a_receive_that_was_cancelled_late_should_have_got_it) {
    const auto a = send(0, 1);
    const auto first = receive(2), second = receive(3);
    reference.receive(first).withdrawn = 9;
    match(second, a, 8);
    EXPECT_NE(reference.check(), "");
    reference.receive(first).withdrawn = 5;
    EXPECT_EQ(reference.check(), "");
}

TEST_F(ReferenceTest, a_receive_of_many_is_first_until_it_is_full) {
    const auto a = send(0, 1), b = send(0, 2), c = send(0, 3);
    const auto many = reference.add(RefReceive{.kind = RefKind::kMany, .tag = kTag, .posted = 4});
    const auto one = receive(5);
    match(many, a);
    match(many, c);
    match(one, b);
    EXPECT_NE(reference.check(), "");
}

TEST_F(ReferenceTest, messages_without_a_mark_are_told_apart_by_their_order) {
    send(0, 1);
    send(0, 2);
    const auto first = receive(3), second = receive(4);
    for (const auto each : {first, second})
        reference.receive(each).matches.push_back({{0, kTag, 0, 8}, kNone, 9});
    EXPECT_EQ(reference.check(), "");
    EXPECT_EQ(reference.receive(first).matches[0].message, 0U);
    EXPECT_EQ(reference.receive(second).matches[0].message, 1U);
}

TEST_F(ReferenceTest, nothing_is_lost_nor_received_twice_nor_after_its_cancel) {
    const auto a = send(0, 1);
    EXPECT_NE(reference.check(), "");
    const auto first = receive(3);
    match(first, a);
    EXPECT_EQ(reference.check(), "");
    reference.message(a).is_cancelled = true;
    EXPECT_NE(reference.check(), "");
    reference.message(a).is_cancelled = false;
    const auto second = receive(4);
    match(second, a);
    EXPECT_NE(reference.check(), "");
}

TEST_F(ReferenceTest, a_fenced_message_waits_for_the_match_of_those_before) {
    const auto a = send(0, 1, 6), b = send(0, 2);
    reference.message(a).tells_match = true;
    const auto early = receive(3), late = receive(10, kAll);
    match(late, a);
    match(early, b, 9);
    EXPECT_EQ(reference.check(), "");
    reference.message(b).is_fenced = true;
    EXPECT_NE(reference.check(), "");
}

}  // namespace
}  // namespace tagwire::test
