// SPDX-License-Identifier: BSD-3-Clause
// Streams of a DCI share one ring of requests: one that waits for its target keeps the others from
// going round the ring, and nobody fails for it.
#include <gtest/gtest.h>

#include <string>

#include "entity.hpp"

namespace tagwire::test {
namespace {

constexpr int kStreamStepsMax = 10'000'000;
constexpr std::uint64_t kRing = 32;  // requests, of all streams

class DcStreams : public ::testing::TestWithParam<const char*> {
  protected:
    static EntityOptions options() {
        EntityOptions options;
        options.iface_config = {{"DC_POLICY", GetParam()}, {"DC_DCIS", "1"},
                                {"DC_STREAMS", "4"},       {"DC_TX_DEPTH", std::to_string(kRing)},
                                {"DC_RX_DEPTH", "2"},      {"DC_RNDV_MAX", "1"}};
        return options;
    }
};

TEST_P(DcStreams, who_waits_for_a_paused_target_is_not_overrun) {
    Entity sender(resource_of("dc"), options());
    Entity paused(resource_of("dc"), options());
    Entity peer(resource_of("dc"), options());
    Connection to_paused = connect(sender, paused);
    // Under `rand` one of these has another stream than that.
    std::vector<Connection> to_peer;
    for (int i = 0; i < 8; ++i)
        to_peer.push_back(connect(sender, peer));

    std::uint64_t waiting = 0;
    for (int i = 0; i < 100; ++i, sender.progress())
        waiting += uct_ep_am_short(to_paused.forward, Entity::kAmId, 0, nullptr, 0) == UCS_OK;
    ASSERT_LT(2U, waiting) << "more than it has buffers for";
    std::uint64_t sent = 0;
    for (int i = 0; i < 20'000; ++i) {
        for (const Connection& each : to_peer) {
            const ucs_status_t status = uct_ep_am_short(each.forward, Entity::kAmId, 0, nullptr, 0);
            ASSERT_TRUE(status == UCS_OK || status == UCS_ERR_NO_RESOURCE);
            sent += status == UCS_OK ? 1 : 0;
        }
        sender.progress();
        peer.progress();
    }
    EXPECT_LT(0U, sent) << "streams go on by themselves";
    EXPECT_GE(kRing, sent) << "they went round the ring";

    const auto all_arrived = [&] { return peer.am_count == sent && paused.am_count == waiting; };
    for (int i = 0; i < kStreamStepsMax && !all_arrived(); ++i) {
        sender.progress();
        peer.progress();
        paused.progress();
    }
    EXPECT_TRUE(all_arrived());
    EXPECT_TRUE(sender.errors.empty());
    // Now all of the ring is there for one of them.
    sent += 1000;
    for (int i = 0, left = 1000; i < kStreamStepsMax && peer.am_count < sent; ++i) {
        if (left > 0 && uct_ep_am_short(to_peer[0].forward, Entity::kAmId, 0, nullptr, 0) == UCS_OK)
            --left;
        sender.progress();
        peer.progress();
    }
    EXPECT_EQ(sent, peer.am_count);
}

// A callback that answers may count on room: what it answers has ended all that was before it.
TEST_P(DcStreams, places_that_others_keep_come_back_before_they_are_missed) {
    EntityOptions roomy;
    roomy.iface_config = {{"DC_POLICY", GetParam()}, {"DC_DCIS", "1"}, {"DC_STREAMS", "4"}};
    Entity sender(resource_of("dc"), roomy), peer(resource_of("dc"), roomy);
    std::vector<Connection> to_peer;
    for (int i = 0; i < 4; ++i)  // under `dcs` a stream for each
        to_peer.push_back(connect(sender, peer));
    // Each has sent something of which nobody asks whether it has ended.
    std::uint64_t sent = 0;
    const auto send = [&](const Connection& over) {
        ASSERT_EQ(UCS_OK, uct_ep_am_short(over.forward, Entity::kAmId, 0, nullptr, 0)) << sent;
        ++sent;
        for (int i = 0; i < kStreamStepsMax && peer.am_count < sent; ++i) {
            sender.progress();
            peer.progress();
        }
        ASSERT_EQ(sent, peer.am_count);
    };
    for (const Connection& each : to_peer)
        send(each);
    for (int i = 0; i < 2000 && !HasFatalFailure(); ++i)
        send(to_peer[0]);
}

INSTANTIATE_TEST_SUITE_P(Dc, DcStreams, ::testing::Values("dcs", "dcs_quota", "rand"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
