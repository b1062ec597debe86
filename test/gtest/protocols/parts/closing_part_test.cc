// SPDX-License-Identifier: BSD-3-Clause
// The end of a connection in agreement, alone: one side with a peer that says anything.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/closing_part.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::test {
namespace {

using proto::Back;
using proto::Bye;
using proto::EpState;
using proto::Leave;
using proto::Left;
using proto::Reset;

// ---- One side

TEST(ClosingPart, an_endpoint_is_open_until_its_close_has_ended) {
    ClosingSide side;
    int data = 0;
    side.closing.open(&data);
    EXPECT_TRUE(side.closing.is_open());
    EXPECT_EQ(side.closing.user_data(), &data);
    EXPECT_EQ(side.peer.asked, 1U);
    EXPECT_EQ(side.lane.opened, 1U);
    EXPECT_TRUE(side.lane.sent.empty());
    side.closing.begin();
    EXPECT_TRUE(side.closing.is_open());
    EXPECT_TRUE(side.closing.is_closing());
    side.closing.closed();
    EXPECT_FALSE(side.closing.is_open());
    EXPECT_FALSE(side.closing.is_closing());
    EXPECT_TRUE(side.closing.is_closed());
    EXPECT_EQ(side.lane.sent.count<Bye>(), 1U);
    EXPECT_EQ(side.peer.released, 1U);
    EXPECT_TRUE(side.peer.is_retired);
}

TEST(ClosingPart, one_that_is_opened_again_says_so) {
    ClosingSide side;
    side.closing.open(nullptr);
    side.close();
    side.closing.open(nullptr);
    EXPECT_EQ(side.lane.sent.count<Back>(), 1U);
    EXPECT_FALSE(side.closing.leave());
}

TEST(ClosingPart, one_that_is_lost_tells_nobody) {
    ClosingSide side;
    side.closing.open(nullptr);
    side.closing.lose();
    EXPECT_FALSE(side.closing.is_open());
    EXPECT_FALSE(side.closing.is_closed());
    EXPECT_EQ(side.peer.released, 1U);
    EXPECT_TRUE(side.lane.sent.empty());
}

TEST(ClosingPart, the_program_hears_that_the_peer_has_left_and_is_back_once_each) {
    ClosingSide side;
    side.closing.on_bye();
    EXPECT_TRUE(side.peer.events.empty());  // it has no endpoint yet
    side.closing.open(nullptr);
    side.closing.on_bye();
    side.closing.on_back();
    side.closing.on_back();
    EXPECT_EQ(side.peer.events, (std::vector{TW_PEER_LEFT, TW_PEER_BACK}));
}

TEST(ClosingPart, the_lower_side_asks_once_both_have_closed) {
    ClosingSide side;
    side.closing.open(nullptr);
    side.close();
    EXPECT_FALSE(side.closing.leave());
    EXPECT_EQ(side.lane.sent.count<Leave>(), 0U);
    side.closing.on_bye();
    EXPECT_FALSE(side.closing.leave());
    EXPECT_EQ(side.lane.sent.count<Leave>(), 1U);
    EXPECT_TRUE(side.closing.has_asked());
    EXPECT_FALSE(side.closing.leave());
    EXPECT_EQ(side.lane.sent.count<Leave>(), 1U);
    side.closing.on_left(true);
    EXPECT_EQ(side.lane.failures, std::vector{UCS_ERR_NOT_CONNECTED});
    EXPECT_EQ(side.peer.ends, std::vector{UCS_OK});
    EXPECT_TRUE(side.closing.leave());
}

TEST(ClosingPart, the_higher_side_waits_to_be_asked) {
    ClosingSide side(kHigher, kLower);
    side.close_both();
    EXPECT_FALSE(side.closing.leave());
    EXPECT_EQ(side.lane.sent.count<Leave>(), 0U);
    side.closing.on_leave();
    EXPECT_EQ(side.lane.sent.back().as<Left>().is_gone, 1U);
    EXPECT_EQ(side.closing.farewell, UCS_ERR_NOT_CONNECTED);
    EXPECT_EQ(side.lane.flushes, 1U);
    EXPECT_TRUE(side.closing.leave());
}

TEST(ClosingPart, it_leaves_when_its_answer_has_arrived) {
    ClosingSide side(kHigher, kLower);
    side.close_both();
    side.closing.on_leave();
    side.peer.is_retired = false;
    for (const ucs_status_t status : {UCS_INPROGRESS, UCS_ERR_NO_RESOURCE}) {
        side.lane.arrived = status;
        EXPECT_FALSE(side.closing.leave());
        EXPECT_TRUE(std::exchange(side.peer.is_retired, false));  // it is asked again
    }
    side.lane.is_quiet = false;
    side.lane.arrived = UCS_OK;
    EXPECT_FALSE(side.closing.leave());
    EXPECT_TRUE(side.peer.is_retired);
    side.lane.is_quiet = true;
    side.lane.arrived = UCS_ERR_CONNECTION_RESET;  // nothing will arrive any more
    EXPECT_TRUE(side.closing.leave());
}

TEST(ClosingPart, one_that_is_in_use_does_not_leave) {
    ClosingSide open(kHigher, kLower), busy(kHigher, kLower);
    open.closing.open(nullptr);
    open.closing.on_leave();
    EXPECT_EQ(open.lane.sent.back().as<Left>().is_gone, 0U);
    EXPECT_FALSE(open.closing.has_left());
    busy.close_both();
    busy.lane.is_quiet = false;
    busy.closing.on_leave();
    EXPECT_EQ(busy.lane.sent.back().as<Left>().is_gone, 0U);
    EXPECT_FALSE(busy.closing.leave());
    EXPECT_TRUE(busy.peer.is_retired);
}

TEST(ClosingPart, a_refused_one_asks_again) {
    ClosingSide side;
    side.close_both();
    EXPECT_FALSE(side.closing.leave());
    side.peer.is_retired = false;
    side.closing.on_left(false);
    EXPECT_TRUE(side.lane.failures.empty());
    EXPECT_TRUE(side.peer.is_retired);
    EXPECT_EQ(side.lane.runs, 1U);
    EXPECT_FALSE(side.closing.leave());
    EXPECT_EQ(side.lane.sent.count<Leave>(), 2U);
}

TEST(ClosingPart, a_program_that_came_back_meanwhile_gets_a_new_connection_or_keeps_this_one) {
    for (const bool is_gone : {false, true}) {
        ClosingSide side;
        side.close_both();
        EXPECT_FALSE(side.closing.leave());
        side.closing.open(nullptr);
        EXPECT_EQ(side.lane.sent.count<Back>(), 0U);  // before the answer nothing is sent
        side.closing.on_left(is_gone);
        EXPECT_EQ(side.lane.sent.count<Back>(), is_gone ? 0U : 1U);
        EXPECT_EQ(side.peer.reconnects, is_gone ? 1U : 0U);
        EXPECT_TRUE(side.lane.failures.empty());
    }
}

TEST(ClosingPart, a_connection_to_itself_ends_without_a_question) {
    ClosingSide side(kLower, kLower);
    side.close_both();
    side.lane.is_quiet = false;
    EXPECT_FALSE(side.closing.leave());
    side.lane.is_quiet = true;
    EXPECT_TRUE(side.closing.leave());
    EXPECT_EQ(side.lane.sent.count<Leave>(), 0U);
    side.closing.end(UCS_ERR_CANCELED);
    EXPECT_EQ(side.lane.sent.count<Reset>(), 0U);
}

TEST(ClosingPart, the_peer_hears_of_an_end_by_force) {
    ClosingSide side;
    side.closing.end(UCS_ERR_CANCELED);
    ASSERT_EQ(side.lane.sent.count<Reset>(), 1U);
    EXPECT_EQ(side.lane.sent.back().as<Reset>().connection, FakeLane::kConnection);
    EXPECT_EQ(side.lane.sent.back().as<Reset>().is_in_order, 0U);
    EXPECT_EQ(side.lane.failures, std::vector{UCS_ERR_CANCELED});
    EXPECT_EQ(side.peer.told_anew + side.peer.lingers, 0U);
    side.closing.end(UCS_ERR_NO_MEMORY);
    EXPECT_EQ(side.lane.sent.size(), 1U);
    EXPECT_EQ(side.lane.failures.size(), 1U);
}

TEST(ClosingPart, the_peer_hears_of_an_end_by_another_connection_if_this_one_is_full) {
    ClosingSide side;
    side.lane.room = UCS_ERR_NO_RESOURCE;
    side.closing.end(UCS_ERR_CANCELED);
    EXPECT_EQ(side.peer.told_anew, 1U);
    EXPECT_EQ(side.peer.lingers, 0U);
    EXPECT_EQ(side.lane.failures, std::vector{UCS_ERR_CANCELED});
}

TEST(ClosingPart, a_lane_stays_until_the_end_has_arrived_if_nothing_is_under_way) {
    for (const bool is_quiet : {false, true}) {
        ClosingSide side;
        side.lane.is_quiet = is_quiet;
        side.lane.arrived = UCS_INPROGRESS;
        side.closing.end(UCS_ERR_CANCELED);
        EXPECT_EQ(side.peer.lingers, is_quiet ? 1U : 0U);
    }
}

TEST(ClosingPart, a_worker_that_goes_says_whether_that_is_in_order) {
    for (const bool is_quiet : {false, true}) {
        ClosingSide side;
        side.lane.is_quiet = is_quiet;
        EXPECT_TRUE(side.closing.say_reset(true));
        EXPECT_EQ(side.lane.sent.back().as<Reset>().is_in_order, is_quiet ? 1U : 0U);
    }
    ClosingSide connecting;
    connecting.lane.state = EpState::kConnecting;
    EXPECT_TRUE(connecting.closing.say_reset(true));
    EXPECT_TRUE(connecting.lane.sent.empty());
    EXPECT_TRUE(connecting.closing.has_arrived());
}

TEST(ClosingPart, a_close_at_level_sent_says_bye_once_and_when_there_is_room) {
    ClosingSide side;
    side.closing.open(nullptr);
    side.closing.begin();
    side.lane.room = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(side.closing.say_bye(), UCS_ERR_NO_RESOURCE);
    side.lane.room = UCS_OK;
    EXPECT_EQ(side.closing.say_bye(), UCS_OK);
    EXPECT_EQ(side.closing.say_bye(), UCS_OK);
    EXPECT_TRUE(side.closing.is_open());
    side.closing.closed();
    EXPECT_EQ(side.lane.sent.count<Bye>(), 1U);
    EXPECT_TRUE(side.closing.is_closed());
    side.closing.open(nullptr);
    EXPECT_EQ(side.lane.sent.count<Back>(), 1U);
}

TEST(ClosingPart, a_peer_may_go_in_order_behind_its_bye_or_where_neither_has_it) {
    ClosingSide side;
    side.closing.open(nullptr);
    side.closing.on_flush(true);
    EXPECT_FALSE(side.closing.may_be_left()) << "it has not closed yet";
    side.closing.on_bye();
    EXPECT_TRUE(side.closing.may_be_left());
    side.closing.on_back();
    EXPECT_FALSE(side.closing.may_be_left());
    side.close();
    side.closing.on_flush(true);
    EXPECT_TRUE(side.closing.may_be_left());
}

TEST(ClosingPart, another_connection_knows_nothing_of_the_one_before) {
    ClosingSide side(kHigher, kLower);
    side.close_both();
    side.closing.on_flush(true);
    side.closing.on_leave();
    side.closing.begin_anew();
    EXPECT_FALSE(side.closing.has_left() || side.closing.has_asked());
    EXPECT_FALSE(side.closing.peer_is_closed() || side.closing.peer_may_go());
    EXPECT_FALSE(side.closing.is_closed());
    EXPECT_EQ(side.closing.farewell, UCS_OK);
    EXPECT_FALSE(side.closing.leave());
}

// ---- A peer that says anything

enum class AnyStep {
    kOpen,
    kClose,
    kBusy,
    kQuiet,
    kLook,
    kBye,
    kBack,
    kLeave,
    kStays,
    kGone,
    kEnd
};
constexpr int kAnySteps = static_cast<int>(AnyStep::kEnd);

void take(ClosingSide& side, AnyStep step) {
    proto::Closing& closing = side.closing;
    switch (step) {
        case AnyStep::kOpen:
            if (!closing.is_open() && !closing.has_left())
                closing.open(nullptr);
            break;
        case AnyStep::kClose:
            if (closing.is_open())
                side.close();
            break;
        case AnyStep::kBusy:
            side.lane.is_quiet = false;
            break;
        case AnyStep::kQuiet:
            side.lane.is_quiet = true;
            break;
        case AnyStep::kLook:
            if (closing.leave()) {
                EXPECT_FALSE(closing.is_open());
                side.lane.state = EpState::kFailed;  // it is destroyed
            }
            break;
        case AnyStep::kBye:
            closing.on_bye();
            break;
        case AnyStep::kBack:
            closing.on_back();
            break;
        case AnyStep::kLeave:
            closing.on_leave();
            break;
        case AnyStep::kStays:
        case AnyStep::kGone:
            closing.on_left(step == AnyStep::kGone);
            break;
        case AnyStep::kEnd:
            break;
    }
}

/// Each side keeps to this, whatever its peer says.
void expect_sane(const ClosingSide& side, std::uint64_t id, unsigned answers) {
    const std::size_t questions = side.lane.sent.count<Leave>();
    EXPECT_TRUE(questions == 0 || id == kLower);
    EXPECT_LE(questions, answers + 1U);
    for (std::size_t i = 1; i < side.peer.events.size(); ++i)
        EXPECT_FALSE(side.peer.events[i] == TW_PEER_BACK &&
                     side.peer.events[i - 1] == TW_PEER_BACK);
    EXPECT_FALSE(side.closing.has_left() && side.closing.is_open());
    EXPECT_LE(side.lane.failures.size(), 1U);
}

TEST(ClosingPart, a_peer_may_say_anything_in_any_order) {
    constexpr int kLength = 5;
    int sequences = 1;
    for (int i = 0; i < kLength; ++i)
        sequences *= kAnySteps;
    for (const std::uint64_t id : {kLower, kHigher}) {
        for (int which = 0; which < sequences && !testing::Test::HasFailure(); ++which) {
            ClosingSide side(id, kLower + kHigher - id);
            unsigned answers = 0;
            int rest = which;
            for (int i = 0; i < kLength && side.lane.state == EpState::kReady; ++i) {
                const auto step = static_cast<AnyStep>(rest % kAnySteps);
                rest /= kAnySteps;
                const std::size_t sent = side.lane.sent.size();
                const bool was_free = !side.closing.is_open() && side.lane.is_quiet;
                answers += step == AnyStep::kStays || step == AnyStep::kGone ? 1U : 0U;
                take(side, step);
                expect_sane(side, id, answers);
                if (step == AnyStep::kLeave) {
                    ASSERT_EQ(side.lane.sent.size(), sent + 1);
                    EXPECT_TRUE(side.lane.sent.back().as<Left>().is_gone == 0 || was_free) << which;
                }
            }
        }
    }
}

}  // namespace
}  // namespace tagwire::test
