// SPDX-License-Identifier: BSD-3-Clause
// The end of a connection in agreement, alone: one side with a peer that says anything, and two
// sides in every order of their calls and messages.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/connect/closing.hpp"
#include "protocols/parts/fakes.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::test {
namespace {

using proto::Back;
using proto::Bye;
using proto::Control;
using proto::ControlOp;
using proto::EpState;
using proto::Flush;
using proto::Flushed;
using proto::Leave;
using proto::Left;
using proto::Reset;

constexpr std::uint64_t kLower = 1, kHigher = 2;

/// One end of a connection.
struct ClosingSide {
    explicit ClosingSide(std::uint64_t id = kLower, std::uint64_t peer_id = kHigher)
        : closing(lane.port, peer.port, hold, id, peer_id) {}

    /// The program closes it, and all that it has sent has been taken.
    void close() {
        closing.begin();
        closing.closed();
    }
    /// Both programs have closed it.
    void close_both() {
        close();
        closing.on_bye();
    }

    FakeLane lane;
    FakePeer peer;
    proto::EpHold hold;
    proto::Closing closing;
};

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

// ---- Two sides

/// Both ends of a connection, and what is on its way between them.
class ClosingPair {
  public:
    enum Step : std::uint8_t { kOpen, kClose, kSend, kTake, kLook, kSteps };

    explicit ClosingPair(std::array<bool, 2> opened) {
        for (std::size_t i = 0; i < 2; ++i)
            if (opened[i])
                sides_[i].closing.open(nullptr);
    }

    /// False: that is not possible now.
    bool step(std::size_t who, Step what) {
        ClosingSide& side = sides_[who];
        if (gone_[who] && what != kTake)
            return false;
        switch (what) {
            case kOpen:
                return open(who);
            case kClose:
                if (!side.closing.is_open() || side.closing.is_closing())
                    return false;
                side.closing.begin();
                side.lane.is_quiet = false;
                side.lane.sent.add(Control::of(Flush{1, 1}));
                return true;
            case kSend:
                // While it has asked, messages wait.
                if (data_[who] == kDataMax || !side.closing.is_open() ||
                    side.closing.is_closing() || side.closing.has_asked())
                    return false;
                ++data_[who];
                side.lane.sent.add(Control::of(proto::Ack{0}));
                return true;
            case kTake:
                return take(who);
            case kLook:
                if (!std::exchange(side.peer.is_retired, false))
                    return false;
                gone_[who] = side.closing.leave();
                return true;
            default:
                return false;
        }
    }

    /// Everything arrives, and progress looks at everything.
    void settle() {
        for (bool has_moved = true; has_moved;) {
            has_moved = false;
            for (std::size_t who = 0; who < 2; ++who)
                for (const Step what : {kTake, kLook})
                    has_moved |= step(who, what);
            ASSERT_LT(++passes_, 1000);
        }
    }

    void expect_agreement() const {
        EXPECT_EQ(lost_, 0U) << "messages of a program have met nobody";
        EXPECT_EQ(gone_[0], gone_[1]) << "one side is there alone";
        if (gone_[0] || gone_[1])
            return;
        EXPECT_TRUE(sides_[0].closing.is_open() || sides_[1].closing.is_open())
            << "nobody has it, and it stays";
        for (std::size_t who = 0; who < 2; ++who) {
            const ClosingSide& side = sides_[who];
            const bool other_has = sides_[1 - who].closing.is_open();
            EXPECT_FALSE(side.closing.has_asked());
            EXPECT_FALSE(side.closing.has_left());
            EXPECT_EQ(side.closing.peer_is_closed(), !other_has && was_heard_[1 - who]);
            if (side.closing.is_open() && was_heard_[1 - who]) {
                EXPECT_EQ(!side.peer.events.empty() && side.peer.events.back() == TW_PEER_LEFT,
                          !other_has);
            }
        }
    }

    /// Equal for states from which the same can come.
    std::string key() const {
        std::string text;
        for (std::size_t who = 0; who < 2; ++who) {
            const ClosingSide& side = sides_[who];
            const proto::Closing& closing = side.closing;
            for (const bool flag :
                 {closing.is_open(), closing.is_closing(), closing.is_closed(),
                  closing.peer_is_closed(), closing.peer_may_go(), closing.has_asked(),
                  closing.has_left(), side.lane.is_quiet, side.peer.is_retired, gone_[who],
                  !side.peer.events.empty() && side.peer.events.back() == TW_PEER_LEFT,
                  was_heard_[who]})
                text += flag ? '1' : '0';
            text += std::to_string(opens_[who]) + "," + std::to_string(data_[who]) + ":";
            for (const Control& message : side.lane.sent.all())
                text += std::to_string(message.op) + (message.body[0] == std::byte{0} ? "-" : "+");
            text += ';';
        }
        return text;
    }

  private:
    static constexpr unsigned kOpensMax = 2, kDataMax = 1;

    bool open(std::size_t who) {
        ClosingSide& side = sides_[who];
        if (side.closing.is_open() || opens_[who] == kOpensMax)
            return false;
        ++opens_[who];
        side.peer.events.clear();  // they are of an endpoint of the program
        if (side.closing.has_left())
            gone_[who] = true;  // its program gets another connection
        else
            side.closing.open(nullptr);
        return true;
    }

    bool take(std::size_t who) {
        ClosingSide& side = sides_[who];
        Sent& sent = sides_[1 - who].lane.sent;
        if (sent.empty())
            return false;
        const Control message = sent.pop();
        if (gone_[who]) {
            lost_ += message.operation() == ControlOp::kAck ? 1U : 0U;
            return true;
        }
        switch (message.operation()) {
            case ControlOp::kFlush:
                side.closing.on_flush(true);
                side.lane.sent.add(Control::of(Flushed{1}));
                break;
            case ControlOp::kFlushed:
                side.lane.is_quiet = true;
                side.closing.closed();
                break;
            case ControlOp::kBye:
                was_heard_[1 - who] = true;
                side.closing.on_bye();
                break;
            case ControlOp::kBack:
                side.closing.on_back();
                break;
            case ControlOp::kLeave:
                side.closing.on_leave();
                break;
            case ControlOp::kLeft:
                side.closing.on_left(message.as<Left>().is_gone != 0);
                break;
            default:
                break;
        }
        if (side.lane.state == EpState::kFailed || side.peer.reconnects > 0)
            gone_[who] = true;
        return true;
    }

    std::array<ClosingSide, 2> sides_{ClosingSide(kLower, kHigher), ClosingSide(kHigher, kLower)};
    std::array<bool, 2> gone_{}, was_heard_{};  // its Bye
    std::array<unsigned, 2> opens_{}, data_{};
    unsigned lost_ = 0;
    int passes_ = 0;
};

using ClosingSteps = std::vector<std::pair<std::uint8_t, ClosingPair::Step>>;

/// False: the last step is not possible.
bool replay(ClosingPair& pair, const ClosingSteps& steps) {
    bool is_possible = true;
    for (const auto& [who, what] : steps)
        is_possible = pair.step(who, what);
    return is_possible;
}

std::string text_of(const ClosingSteps& steps) {
    constexpr const char* kNames[] = {"open", "close", "send", "take", "look"};
    std::string text;
    for (const auto& [who, what] : steps)
        text += std::string(text.empty() ? "" : ", ") + (who == 0 ? "lower " : "higher ") +
                kNames[what];
    return text;
}

/// Visits every state once, by the shortest way to it. Returns their number.
std::size_t explore(std::array<bool, 2> opened) {
    std::set<std::string> seen;
    std::deque<ClosingSteps> open{{}};
    while (!open.empty() && !testing::Test::HasFailure()) {
        const ClosingSteps steps = std::move(open.front());
        open.pop_front();
        SCOPED_TRACE(text_of(steps));
        ClosingPair settled(opened);
        replay(settled, steps);
        settled.settle();
        settled.expect_agreement();
        for (std::uint8_t who = 0; who < 2; ++who) {
            for (std::uint8_t what = 0; what < ClosingPair::kSteps; ++what) {
                ClosingSteps next = steps;
                next.emplace_back(who, static_cast<ClosingPair::Step>(what));
                ClosingPair pair(opened);
                if (replay(pair, next) && seen.insert(pair.key()).second)
                    open.push_back(std::move(next));
            }
        }
    }
    return seen.size();
}

TEST(ClosingPart, both_sides_agree_in_every_order_of_calls_and_messages) {
    std::size_t states = 0;
    for (const auto opened : {std::array{true, true}, {true, false}, {false, true}})
        states += explore(opened);
    EXPECT_GT(states, 1000U);
}

}  // namespace
}  // namespace tagwire::test
