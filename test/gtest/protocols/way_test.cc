// SPDX-License-Identifier: BSD-3-Clause
// Eager or rendezvous: each rule of the table, and which goes before which.
#include "protocols/cost/way.hpp"

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

namespace tagwire::test {
namespace {

using proto::choose;
using proto::MessageState;
using proto::threshold;
using proto::Trial;
using proto::Way;
using proto::WayRule;

constexpr std::size_t kWayFrom = 4096;
constexpr Way kEagerByLength{false, WayRule::kLength};
constexpr Way kRndvByLength{true, WayRule::kLength};

constexpr MessageState plain_state() {
    return {.rndv_from = kWayFrom};
}
constexpr MessageState state_with(auto&& change) {
    MessageState state = plain_state();
    change(state);
    return state;
}

TEST(MessageWay, a_message_goes_by_rendezvous_from_the_threshold_on) {
    EXPECT_EQ(choose(0, plain_state()), kEagerByLength);
    EXPECT_EQ(choose(kWayFrom - 1, plain_state()), kEagerByLength);
    EXPECT_EQ(choose(kWayFrom, plain_state()), kRndvByLength);
    EXPECT_EQ(choose(SIZE_MAX, plain_state()), kRndvByLength);
    // An option says so for each message, but an empty one has nothing to fetch.
    EXPECT_EQ(choose(0, {.rndv_from = 1}), kEagerByLength);
    EXPECT_EQ(choose(1, {.rndv_from = 1}), kRndvByLength);
}

TEST(MessageWay, the_receivers_times_go_before_the_costs) {
    EXPECT_EQ(threshold({.rndv_from = kWayFrom, .advised_from = 2 * kWayFrom}), 2 * kWayFrom);
    EXPECT_EQ(threshold({.rndv_from = kWayFrom, .advised_from = kWayFrom / 2}), kWayFrom / 2);
}

TEST(MessageWay, no_eager_message_is_longer_than_what_the_peer_keeps) {
    for (const std::size_t advised : {std::size_t{0}, 2 * kWayFrom}) {
        const MessageState state{.rndv_from = kWayFrom, .advised_from = advised, .eager_end = 100};
        EXPECT_EQ(threshold(state), 100U);
        EXPECT_EQ(choose(99, state), kEagerByLength);
        EXPECT_EQ(choose(100, state), kRndvByLength);
    }
}

TEST(MessageWay, while_eager_data_is_paused_all_but_empty_messages_go_by_rendezvous) {
    const MessageState state = state_with([](MessageState& s) { s.is_eager_paused = true; });
    EXPECT_EQ(choose(0, state), kEagerByLength);
    EXPECT_EQ(choose(1, state), (Way{true, WayRule::kPaused}));
    EXPECT_EQ(choose(kWayFrom, state), (Way{true, WayRule::kPaused}));
}

TEST(MessageWay, one_that_waits_for_its_place_is_no_longer_than_its_peers_buffer) {
    const MessageState state = state_with([](MessageState& s) { s.in_order_max = 100; });
    EXPECT_EQ(choose(100, state), kEagerByLength);
    EXPECT_EQ(choose(101, state), (Way{true, WayRule::kOrder}));
}

TEST(MessageWay, an_urgent_message_is_eager_whatever_else_holds) {
    const MessageState state = state_with([](MessageState& s) {
        s.is_urgent = s.is_eager_paused = true;
        s.in_order_max = 0;
        s.trial_max = SIZE_MAX;
        s.trial = Trial::kRndv;
    });
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, kWayFrom, SIZE_MAX})
        EXPECT_EQ(choose(length, state), (Way{false, WayRule::kUrgent}));
}

TEST(MessageWay, one_that_has_begun_goes_on_as_it_has_begun) {
    for (const bool is_rndv : {false, true}) {
        const MessageState state = state_with([&](MessageState& s) {
            s.has_begun = s.is_eager_paused = true;
            s.is_rndv = is_rndv;
            s.in_order_max = 0;
            s.trial = Trial::kSame;
        });
        for (const std::size_t length : {std::size_t{0}, std::size_t{1}, kWayFrom})
            EXPECT_EQ(choose(length, state), (Way{is_rndv, WayRule::kBegun}));
    }
}

TEST(MessageWay, a_trial_turns_messages_that_would_go_the_other_way_and_no_others) {
    const auto tried = [](Trial trial) {
        return state_with([&](MessageState& s) {
            s.trial = trial;
            s.trial_max = 2 * kWayFrom;
        });
    };
    EXPECT_EQ(choose(kWayFrom, tried(Trial::kEager)), (Way{false, WayRule::kTrial}));
    EXPECT_EQ(choose(kWayFrom - 1, tried(Trial::kEager)), kEagerByLength);
    EXPECT_EQ(choose(kWayFrom - 1, tried(Trial::kRndv)), (Way{true, WayRule::kTrial}));
    EXPECT_EQ(choose(kWayFrom, tried(Trial::kRndv)), kRndvByLength);
    // Too long to be sent eager.
    EXPECT_EQ(choose(2 * kWayFrom, tried(Trial::kEager)), (Way{false, WayRule::kTrial}));
    EXPECT_EQ(choose(2 * kWayFrom + 1, tried(Trial::kEager)), kRndvByLength);
}

TEST(MessageWay, a_trial_sends_nothing_eager_that_the_peer_does_not_keep) {
    const MessageState state{.rndv_from = kWayFrom,
                             .eager_end = kWayFrom + 1,
                             .trial_max = SIZE_MAX,
                             .trial = Trial::kEager};
    EXPECT_EQ(choose(kWayFrom, state), (Way{false, WayRule::kTrial}));
    EXPECT_EQ(choose(kWayFrom + 1, state), kRndvByLength);
}

TEST(MessageWay, a_message_of_a_trial_that_is_asked_again_goes_the_same_way) {
    const MessageState state = state_with([](MessageState& s) { s.trial = Trial::kSame; });
    EXPECT_EQ(choose(kWayFrom, state), (Way{false, WayRule::kTrial}));
    EXPECT_EQ(choose(kWayFrom - 1, state), (Way{true, WayRule::kTrial}));
    // Its peer has paused eager data meanwhile.
    MessageState paused = state;
    paused.is_eager_paused = true;
    EXPECT_EQ(choose(kWayFrom, paused), (Way{true, WayRule::kPaused}));
}

/// All combinations at three lengths below the highest threshold, and at it.
TEST(MessageWay, no_state_sends_eager_what_must_not_be) {
    std::size_t states = 0;
    for (const std::size_t length : {std::size_t{1}, std::size_t{50}, std::size_t{150}, kWayFrom}) {
        for (unsigned bits = 0; bits < 1U << 7; ++bits) {
            for (const Trial trial : {Trial::kNone, Trial::kEager, Trial::kRndv, Trial::kSame}) {
                const auto is_set = [&](unsigned i) { return (bits >> i & 1) != 0; };
                const MessageState state{.rndv_from = is_set(0) ? kWayFrom : 100,
                                         .advised_from = is_set(1) ? kWayFrom / 2 : 0,
                                         .eager_end = is_set(2) ? 100 : SIZE_MAX,
                                         .in_order_max = is_set(3) ? 120 : SIZE_MAX,
                                         .trial_max = SIZE_MAX,
                                         .trial = trial,
                                         .has_begun = is_set(4),
                                         .is_urgent = is_set(5),
                                         .is_eager_paused = is_set(6)};
                ++states;
                const Way way = choose(length, state);
                if (state.has_begun || state.is_urgent) {
                    EXPECT_FALSE(way.is_rndv);
                    continue;
                }
                EXPECT_TRUE(way.is_rndv ||
                            (!state.is_eager_paused && length <= state.in_order_max));
                EXPECT_TRUE(way.is_rndv || length < state.eager_end || trial == Trial::kSame);
                EXPECT_TRUE(way.rule != WayRule::kLength ||
                            way.is_rndv == (length >= threshold(state)));
            }
        }
    }
    EXPECT_EQ(states, 4U * 128 * 4);
}

}  // namespace
}  // namespace tagwire::test
