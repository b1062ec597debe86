// SPDX-License-Identifier: BSD-3-Clause
// A device that has fewer queue pairs than the pool may have: those that there are serve everybody.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "entity.hpp"

namespace tagwire::test {
namespace {

constexpr int kEndpoints = 20;
constexpr std::uint64_t kEach = 50;
constexpr int kFewStepsMax = 10'000'000;

class DcFew : public ::testing::TestWithParam<const char*> {};

TEST_P(DcFew, initiators_serve_everybody) {
    EntityOptions options;
    options.iface_config = {{"DC_POLICY", GetParam()}, {"DC_DCIS", "8"}, {"DC_STREAMS", "1"}};
    Entity receiver(resource_of("dc"), options);
    Entity sender(resource_of("dc"), options);
    std::vector<Connection> connections;
    for (int i = 0; i < kEndpoints; ++i)
        connections.push_back(connect(sender, receiver));
    std::vector<std::uint64_t> sent(kEndpoints, 0);
    const std::uint64_t all = kEach * kEndpoints;
    for (int step = 0; step < kFewStepsMax && receiver.am_count < all; ++step) {
        for (std::size_t i = 0; i < sent.size(); ++i) {
            if (sent[i] == kEach)
                continue;
            const ucs_status_t status =
                uct_ep_am_short(connections[i].forward, Entity::kAmId, sent[i], nullptr, 0);
            ASSERT_TRUE(status == UCS_OK || status == UCS_ERR_NO_RESOURCE);
            sent[i] += status == UCS_OK ? 1 : 0;
        }
        sender.progress();
        receiver.progress();
    }
    EXPECT_EQ(all, receiver.am_count);
    const bool has_one = GetParam() == std::string("hash");  // for one target
    EXPECT_LT(has_one ? 0 : 1, fact_of(sender, "dcis"));
    EXPECT_GT(7, fact_of(sender, "dcis")) << "the device has seven queue pairs in all";
}

INSTANTIATE_TEST_SUITE_P(Dc, DcFew, ::testing::Values("dcs", "dcs_quota", "rand", "hash"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
