// SPDX-License-Identifier: BSD-3-Clause
// The reference accepts what some order of the calls explains by the rules, and nothing else.
#include "protocols/reference.hpp"

#include <gtest/gtest.h>

namespace tagwire::test {
namespace {

constexpr std::uint64_t kTag = 5;
constexpr std::uint64_t kAll = 0;  // mask of a receive of any tag

class ReferenceTest : public ::testing::Test {
  protected:
    std::size_t send(unsigned sender, Tick sent, std::uint64_t tag = kTag) {
        return reference.add(RefMessage{.envelope = {sender, tag, 0, 8}, .call = {sent, sent}});
    }
    std::size_t receive(Tick posted, std::uint64_t mask = ~std::uint64_t{0}) {
        return reference.add(RefReceive{.tag = kTag, .mask = mask, .call = {posted, posted}});
    }
    void match(std::size_t receive, std::size_t message, Tick told = 1000) {
        reference.receive(receive).matches.push_back(
            {reference.message(message).envelope, message, told});
    }
    Reference reference{Reference::Calls::kOfOneThread};
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
    RefReceive wanted{.tag = 5, .call = {5, 5}};
    const auto five = reference.add(wanted);
    wanted.call = {6, 6};
    const auto five_later = reference.add(wanted);
    wanted.tag = 6;
    wanted.call = {7, 7};
    const auto six = reference.add(wanted);
    wanted.call = {8, 8};
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
    reference.add(RefReceive{.kind = RefKind::kPeek, .tag = kTag, .call = {6, 6}, .withdrawn = 6});
    const auto first = receive(7);
    match(first, a);
    EXPECT_NE(reference.check(), "");
    reference.message(a).taken = kNever;
    EXPECT_EQ(reference.check(), "");
}

TEST_F(ReferenceTest, what_a_peek_found_arrived_before_what_is_behind_it) {
    const auto a = send(0, 1), b = send(1, 2);
    RefReceive peek{.kind = RefKind::kPeek, .tag = kTag, .call = {6, 6}};
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
    const auto many =
        reference.add(RefReceive{.kind = RefKind::kMany, .tag = kTag, .call = {4, 4}});
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

// ---- Calls of threads, which may take effect at the same time

class ReferenceOfThreads : public ::testing::Test {
  protected:
    std::size_t message(Span call, std::uint64_t tag = 1) {
        RefMessage one;
        one.envelope = {.sender = 0, .tag = tag, .imm = 0, .length = 8};
        one.call = call;
        return add(one);
    }
    std::size_t add(const RefMessage& one) {
        envelopes_.push_back(one.envelope);
        return reference_.add(one);
    }
    RefReceive receive(Span call, std::uint64_t tag = 1) {
        RefReceive one;
        one.tag = tag;
        one.call = call;
        return one;
    }
    void got(RefReceive one, std::size_t message, Tick told) {
        one.matches.push_back({envelopes_[message], message, told});
        reference_.add(one);
    }
    bool is_right() { return reference_.check().empty(); }

    Reference reference_{Reference::Calls::kOfThreads};
    std::vector<RefEnvelope> envelopes_;
};

TEST_F(ReferenceOfThreads, calls_at_the_same_time_may_take_effect_in_either_order) {
    const std::size_t one = message({1, 6}), other = message({2, 5});
    got(receive({10, 11}), other, 20);
    got(receive({12, 13}), one, 20);
    EXPECT_TRUE(is_right());
}

TEST_F(ReferenceOfThreads, calls_one_after_the_other_take_effect_in_their_order) {
    const std::size_t one = message({1, 2}), other = message({3, 4});
    got(receive({10, 11}), other, 20);
    got(receive({12, 13}), one, 20);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, of_receives_at_the_same_time_each_may_be_the_first) {
    const std::size_t one = message({1, 2}), other = message({3, 4});
    got(receive({10, 15}), other, 20);
    got(receive({11, 13}), one, 20);
    EXPECT_TRUE(is_right());
}

TEST_F(ReferenceOfThreads, a_receive_that_was_posted_before_gets_the_first_that_it_matches) {
    const std::size_t one = message({20, 21}), other = message({22, 23});
    RefReceive any = receive({1, 2}, 0);
    any.mask = 0;
    got(any, other, 30);
    got(receive({3, 4}), one, 30);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, another_tag_may_overtake) {
    const std::size_t one = message({1, 2}, 1), other = message({3, 4}, 2);
    got(receive({10, 11}, 2), other, 12);
    got(receive({12, 13}, 1), one, 14);
    EXPECT_TRUE(is_right());
}

TEST_F(ReferenceOfThreads, a_message_is_not_lost) {
    message({1, 2});
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_message_of_a_broken_connection_may_be_lost) {
    RefMessage one;
    one.is_excused = true;
    add(one);
    EXPECT_TRUE(is_right());
}

TEST_F(ReferenceOfThreads, a_message_is_not_received_twice) {
    const std::size_t one = message({1, 2});
    got(receive({3, 4}), one, 5);
    got(receive({6, 7}), one, 8);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_message_that_was_cancelled_is_not_received) {
    RefMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.is_cancelled = true;
    got(receive({3, 4}), add(one), 5);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_receive_gets_nothing_that_it_does_not_match) {
    const std::size_t one = message({1, 2}, 1);
    got(receive({3, 4}, 2), one, 5);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_withdrawn_receive_has_not_left_out_what_was_there) {
    RefMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.taken = 5;  // a flush has ended
    const std::size_t message = add(one);
    RefReceive early = receive({6, 7});
    early.withdrawn = 8;
    reference_.add(early);
    got(receive({9, 10}), message, 11);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_peek_behind_a_flush_finds_the_message) {
    RefMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.taken = 8;
    const std::size_t message = add(one);
    RefReceive peek = receive({6, 10});
    peek.kind = RefKind::kPeek;
    peek.withdrawn = 6;
    reference_.add(peek);  // at the same time as the end of the flush: it may have been before
    got(receive({11, 12}), message, 13);
    EXPECT_TRUE(is_right());
    peek.call = {9, 10};
    peek.withdrawn = 9;
    reference_.add(peek);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_peek_shows_the_first) {
    const std::size_t one = message({1, 2}), other = message({3, 4});
    RefReceive peek = receive({5, 6});
    peek.kind = RefKind::kPeek;
    got(peek, other, 7);
    got(receive({8, 9}), one, 10);
    got(receive({11, 12}), other, 13);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_fenced_message_comes_behind_the_match_of_those_before_it) {
    RefMessage one, fenced;
    one.envelope.tag = 1;
    fenced.envelope.tag = 2;
    one.call = {1, 2};
    one.tells_match = true;
    fenced.call = {3, 4};
    fenced.is_fenced = true;
    const std::size_t first = add(one), second = add(fenced);
    got(receive({5, 6}, 2), second, 7);
    got(receive({8, 9}, 1), first, 10);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_match_is_not_told_before_the_receive_is_called) {
    RefMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.matched = 3;
    got(receive({5, 6}), add(one), 7);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, a_message_without_data_is_before_the_one_at_its_place) {
    RefMessage empty;
    empty.envelope.tag = 1;
    empty.call = {1, 2};
    const std::size_t first = add(empty), second = message({3, 4});
    RefReceive many = receive({5, 6});
    many.kind = RefKind::kMany;
    many.matches = {{envelopes_[second], second, 7, 0}, {envelopes_[first], first, 8, 0}};
    reference_.add(many);
    EXPECT_TRUE(is_right());
}

TEST_F(ReferenceOfThreads, messages_of_one_receive_have_arrived_in_their_order_in_its_buffer) {
    const std::size_t first = message({1, 2}), second = message({3, 4});
    RefReceive many = receive({5, 6});
    many.kind = RefKind::kMany;
    many.matches = {{envelopes_[second], second, 7, 0}, {envelopes_[first], first, 8, 8}};
    reference_.add(many);
    EXPECT_FALSE(is_right());
}

TEST_F(ReferenceOfThreads, messages_that_cannot_be_told_apart_are_counted) {
    message({1, 2});
    message({3, 4});
    const RefEnvelope envelope = envelopes_[0];
    RefReceive one = receive({5, 6});
    one.matches.push_back({envelope, kNone, 7});
    reference_.add(one);
    EXPECT_FALSE(is_right()) << "one was lost";
    reference_.add(one);
    EXPECT_TRUE(is_right());
    reference_.add(one);
    EXPECT_FALSE(is_right()) << "one more than was sent";
}

}  // namespace
}  // namespace tagwire::test
