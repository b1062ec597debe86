// SPDX-License-Identifier: BSD-3-Clause
// The end of a connection in agreement: two sides in every order of their calls and messages.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/closing_part.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::test {
namespace {

using proto::Bye;
using proto::Control;
using proto::ControlOp;
using proto::EpState;
using proto::Flush;
using proto::Flushed;
using proto::Left;

/// Both ends of a connection, and what is on its way between them.
class ClosingPair {
  public:
    /// kLeaves: a close at level sent says its Bye; kHasLeft: the transport has let go of that.
    enum Step : std::uint8_t { kOpen, kClose, kSend, kTake, kLook, kLeaves, kHasLeft, kSteps };

    /// The programs open again so often, and close at these levels.
    struct Calls {
        unsigned opens_max;
        bool closes, leaves;
    };

    ClosingPair(std::array<bool, 2> opened, const Calls& calls) : calls_(calls) {
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
                if (!calls_.closes || !side.closing.is_open() || side.closing.is_closing())
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
            case kLeaves:
                if (!calls_.leaves || !side.closing.is_open() || side.closing.is_closing())
                    return false;
                side.closing.begin();
                side.lane.is_quiet = false;
                EXPECT_EQ(side.closing.say_bye(), UCS_OK);
                return leaves_[who] = true;
            case kHasLeft:
                if (!std::exchange(leaves_[who], false))
                    return false;
                side.lane.is_quiet = true;
                side.closing.closed();
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
                for (const Step what : {kTake, kLook, kHasLeft})
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
                  leaves_[who],
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
    static constexpr unsigned kDataMax = 1;

    bool open(std::size_t who) {
        ClosingSide& side = sides_[who];
        if (side.closing.is_open() || opens_[who] == calls_.opens_max)
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

    const Calls calls_;
    std::array<ClosingSide, 2> sides_{ClosingSide(kLower, kHigher), ClosingSide(kHigher, kLower)};
    std::array<bool, 2> gone_{}, leaves_{}, was_heard_{};  // its Bye
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
    constexpr const char* kNames[] = {"open", "close",  "send",    "take",
                                      "look", "leaves", "has left"};
    std::string text;
    for (const auto& [who, what] : steps)
        text += std::string(text.empty() ? "" : ", ") + (who == 0 ? "lower " : "higher ") +
                kNames[what];
    return text;
}

/// Visits every state once, by the shortest way to it. Returns their number.
std::size_t explore(std::array<bool, 2> opened, const ClosingPair::Calls& calls) {
    std::set<std::string> seen;
    std::deque<ClosingSteps> open{{}};
    while (!open.empty() && !testing::Test::HasFailure()) {
        const ClosingSteps steps = std::move(open.front());
        open.pop_front();
        SCOPED_TRACE(text_of(steps));
        ClosingPair settled(opened, calls);
        replay(settled, steps);
        settled.settle();
        settled.expect_agreement();
        for (std::uint8_t who = 0; who < 2; ++who) {
            for (std::uint8_t what = 0; what < ClosingPair::kSteps; ++what) {
                ClosingSteps next = steps;
                next.emplace_back(who, static_cast<ClosingPair::Step>(what));
                ClosingPair pair(opened, calls);
                if (replay(pair, next) && seen.insert(pair.key()).second)
                    open.push_back(std::move(next));
            }
        }
    }
    return seen.size();
}

/// Whoever has it at first.
void expect_agreement(const ClosingPair::Calls& calls) {
    std::size_t states = 0;
    for (const auto opened : {std::array{true, true}, {true, false}, {false, true}})
        states += explore(opened, calls);
    EXPECT_GT(states, 1000U);
}

TEST(ClosingPairs, agree_in_every_order_of_calls_and_messages) {
    expect_agreement({.opens_max = 2, .closes = true, .leaves = false});
}

TEST(ClosingPairs, agree_in_every_order_of_closes_at_level_sent) {
    expect_agreement({.opens_max = 1, .closes = false, .leaves = true});
}

TEST(ClosingPairs, agree_whichever_level_each_side_closes_at) {
    expect_agreement({.opens_max = 1, .closes = true, .leaves = true});
}

}  // namespace
}  // namespace tagwire::test
