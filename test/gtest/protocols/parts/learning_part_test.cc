// SPDX-License-Identifier: BSD-3-Clause
// Learning from the times of messages, alone: which are learnt from, who leads, and what the sender
// hears.
#include "protocols/rndv/learning.hpp"

#include <cstddef>

#include <gtest/gtest.h>

#include "protocols/parts/fake_worker.hpp"

namespace tagwire::test {
namespace {

class LearningPart : public testing::Test {
  protected:
    LearningPart() {
        lane_.over = &rail_;
        lane_.state = proto::EpState::kReady;
    }

    FakeWorker worker_;
    FakeMatchPeer peer_{1};
    FakeRail rail_{worker_.options};
    proto::LaneState lane_;
    proto::CopyChooser copies_;
    proto::SendWindow window_{peer_.fake.port};
    proto::RequestList messages_;
    proto::RndvSender sender_{{worker_.port, peer_, lane_, copies_, window_, messages_}};
    proto::Learning learning_{{worker_.port, peer_.fake.port, lane_, sender_, true}};
};

TEST_F(LearningPart, nothing_is_learnt_of_a_rail_whose_device_moves_the_data) {
    learning_.add(false, proto::Advisor::kFirst, {.since = 1});
    EXPECT_FALSE(learning_.is_on());
    EXPECT_FALSE(sender_.has_own_advice());
    EXPECT_TRUE(peer_.fake.sent.empty());
}

TEST_F(LearningPart, one_of_two_peers_leads_from_the_first_message_in_turns_on) {
    rail_.set_learning();
    proto::Learning follower({worker_.port, peer_.fake.port, lane_, sender_, false});
    follower.add(false, proto::Advisor::kFirst, {.since = 1});
    learning_.add(false, proto::Advisor::kFirst, {.since = 1, .pattern = proto::Pattern::kStream});
    EXPECT_FALSE(sender_.has_own_advice());
    learning_.add(false, proto::Advisor::kFirst, {.since = 1});
    EXPECT_TRUE(sender_.has_own_advice());
}

TEST_F(LearningPart, a_sender_is_told_of_news_alone_and_hears_all_anew_on_another_connection) {
    rail_.set_learning();
    const auto until_told = [&] {
        const std::size_t before = peer_.fake.sent.size();
        unsigned messages = 0;
        while (peer_.fake.sent.size() == before && ++messages < 1000)
            learning_.add(false, proto::Advisor::kFirst, {.since = 1});
        return messages;
    };
    const unsigned first = until_told();
    ASSERT_LT(first, 1000U);
    EXPECT_GT(first, 1U);
    EXPECT_EQ(peer_.fake.sent.back().operation(), proto::ControlOp::kAdvice);
    EXPECT_EQ(worker_.count(proto::WorkerCounter::kAdvice), 1U);
    learning_.begin_anew();
    EXPECT_EQ(until_told(), first);
}

}  // namespace
}  // namespace tagwire::test
