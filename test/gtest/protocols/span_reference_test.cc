// SPDX-License-Identifier: BSD-3-Clause
// The reference of threads accepts what some order of the calls explains, and nothing else.
#include "protocols/span_reference.hpp"

#include <gtest/gtest.h>

namespace tagwire::test {
namespace {

class SpanReferences : public ::testing::Test {
  protected:
    std::size_t message(Span call, std::uint64_t tag = 1) {
        SpanMessage one;
        one.envelope = {.sender = 0, .tag = tag, .imm = 0, .length = 8};
        one.call = call;
        return add(one);
    }
    std::size_t add(const SpanMessage& one) {
        envelopes_.push_back(one.envelope);
        return reference_.add(one);
    }
    SpanReceive receive(Span call, std::uint64_t tag = 1) {
        SpanReceive one;
        one.tag = tag;
        one.call = call;
        return one;
    }
    void got(SpanReceive one, std::size_t message, Tick told) {
        one.matches.push_back({envelopes_[message], message, told});
        reference_.add(one);
    }
    bool is_right() { return reference_.check().empty(); }

    SpanReference reference_;
    std::vector<RefEnvelope> envelopes_;
};

TEST_F(SpanReferences, calls_at_the_same_time_may_take_effect_in_either_order) {
    const std::size_t one = message({1, 6}), other = message({2, 5});
    got(receive({10, 11}), other, 20);
    got(receive({12, 13}), one, 20);
    EXPECT_TRUE(is_right());
}

TEST_F(SpanReferences, calls_one_after_the_other_take_effect_in_their_order) {
    const std::size_t one = message({1, 2}), other = message({3, 4});
    got(receive({10, 11}), other, 20);
    got(receive({12, 13}), one, 20);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, of_receives_at_the_same_time_each_may_be_the_first) {
    const std::size_t one = message({1, 2}), other = message({3, 4});
    got(receive({10, 15}), other, 20);
    got(receive({11, 13}), one, 20);
    EXPECT_TRUE(is_right());
}

TEST_F(SpanReferences, a_receive_that_was_posted_before_gets_the_first_that_it_matches) {
    const std::size_t one = message({20, 21}), other = message({22, 23});
    SpanReceive any = receive({1, 2}, 0);
    any.mask = 0;
    got(any, other, 30);
    got(receive({3, 4}), one, 30);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, another_tag_may_overtake) {
    const std::size_t one = message({1, 2}, 1), other = message({3, 4}, 2);
    got(receive({10, 11}, 2), other, 12);
    got(receive({12, 13}, 1), one, 14);
    EXPECT_TRUE(is_right());
}

TEST_F(SpanReferences, a_message_is_not_lost) {
    message({1, 2});
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_message_of_a_broken_connection_may_be_lost) {
    SpanMessage one;
    one.is_excused = true;
    add(one);
    EXPECT_TRUE(is_right());
}

TEST_F(SpanReferences, a_message_is_not_received_twice) {
    const std::size_t one = message({1, 2});
    got(receive({3, 4}), one, 5);
    got(receive({6, 7}), one, 8);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_message_that_was_cancelled_is_not_received) {
    SpanMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.is_cancelled = true;
    got(receive({3, 4}), add(one), 5);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_receive_gets_nothing_that_it_does_not_match) {
    const std::size_t one = message({1, 2}, 1);
    got(receive({3, 4}, 2), one, 5);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_withdrawn_receive_has_not_left_out_what_was_there) {
    SpanMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.taken = 5;  // a flush has ended
    const std::size_t message = add(one);
    SpanReceive early = receive({6, 7});
    early.withdrawn = 8;
    reference_.add(early);
    got(receive({9, 10}), message, 11);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_peek_behind_a_flush_finds_the_message) {
    SpanMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.taken = 8;
    const std::size_t message = add(one);
    SpanReceive peek = receive({6, 10});
    peek.takes = false;
    peek.withdrawn = 6;
    reference_.add(peek);  // at the same time as the end of the flush: it may have been before
    got(receive({11, 12}), message, 13);
    EXPECT_TRUE(is_right());
    peek.call = {9, 10};
    peek.withdrawn = 9;
    reference_.add(peek);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_peek_shows_the_first) {
    const std::size_t one = message({1, 2}), other = message({3, 4});
    SpanReceive peek = receive({5, 6});
    peek.takes = false;
    got(peek, other, 7);
    got(receive({8, 9}), one, 10);
    got(receive({11, 12}), other, 13);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_fenced_message_comes_behind_the_match_of_those_before_it) {
    SpanMessage one, fenced;
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

TEST_F(SpanReferences, a_match_is_not_told_before_the_receive_is_called) {
    SpanMessage one;
    one.envelope.tag = 1;
    one.call = {1, 2};
    one.matched = 3;
    got(receive({5, 6}), add(one), 7);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, a_message_without_data_is_before_the_one_at_its_place) {
    SpanMessage empty;
    empty.envelope.tag = 1;
    empty.call = {1, 2};
    const std::size_t first = add(empty), second = message({3, 4});
    SpanReceive many = receive({5, 6});
    many.kind = RefKind::kMany;
    many.matches = {{envelopes_[second], second, 7, 0}, {envelopes_[first], first, 8, 0}};
    reference_.add(many);
    EXPECT_TRUE(is_right());
}

TEST_F(SpanReferences, messages_of_one_receive_have_arrived_in_their_order_in_its_buffer) {
    const std::size_t first = message({1, 2}), second = message({3, 4});
    SpanReceive many = receive({5, 6});
    many.kind = RefKind::kMany;
    many.matches = {{envelopes_[second], second, 7, 0}, {envelopes_[first], first, 8, 8}};
    reference_.add(many);
    EXPECT_FALSE(is_right());
}

TEST_F(SpanReferences, messages_that_cannot_be_told_apart_are_counted) {
    message({1, 2});
    message({3, 4});
    const RefEnvelope envelope = envelopes_[0];
    SpanReceive one = receive({5, 6});
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
