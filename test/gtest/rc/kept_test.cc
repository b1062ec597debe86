// SPDX-License-Identifier: BSD-3-Clause
// Messages that the program keeps for longer than the endpoint that they came by lives.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "entity.hpp"

namespace tagwire::test {
namespace {

class RcKept : public ::testing::Test {
  protected:
    RcKept() {
        receiver_.on_am = [this](const AmMessage& message) {
            kept_ = message.data;
            return (message.flags & UCT_CB_PARAM_FLAG_DESC) != 0 ? UCS_INPROGRESS : UCS_OK;
        };
    }
    static EntityOptions options() {
        EntityOptions with;
        with.iface_config = {{"RC_TX_DEPTH", "4"}};
        return with;
    }
    bool has_endpoints(long count) {
        return run_until([&] {
            return fact_of(receiver_, "qps") == count * fact_of(receiver_, "qps_per_peer");
        });
    }
    template <class Predicate>
    bool run_until(Predicate&& predicate) {
        for (int i = 0; i < 20'000'000; ++i) {
            if (predicate())
                return true;
            sender_.progress();
            receiver_.progress();
        }
        return false;
    }
    /// An endpoint of the receiver, which is not connected.
    Endpoint make() {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = receiver_.iface();
        uct_ep_h ep = nullptr;
        EXPECT_EQ(uct_ep_create(&params, &ep), UCS_OK);
        return Endpoint(ep);
    }

    Entity sender_{resource_of("rc"), options()}, receiver_{resource_of("rc"), options()};
    void* kept_ = nullptr;
};

// The id of an endpoint has an index, which the next endpoint gets. Requests have room for 12 bits
// more of it.
TEST_F(RcKept, a_message_of_a_destroyed_endpoint_is_none_of_a_later_one) {
    Connection link = connect(sender_, receiver_);
    ASSERT_EQ(uct_ep_am_short(link.forward, Entity::kAmId, 0, nullptr, 0), UCS_OK);
    ASSERT_TRUE(run_until([&] { return kept_ != nullptr; }));
    link = {};
    ASSERT_TRUE(has_endpoints(0));
    {
        // The index stays the one that is free since the last endpoint went.
        const Endpoint holder = make();
        constexpr std::size_t kOthers = 4094, kAtOnce = 1023;
        for (std::size_t made = 0; made < kOthers;) {
            const std::size_t count = std::min(kAtOnce, kOthers - made);
            std::vector<Endpoint> others(count);
            std::ranges::generate(others, [this] { return make(); });
            made += count;
            others.clear();
            ASSERT_TRUE(has_endpoints(1));
        }
    }
    ASSERT_TRUE(has_endpoints(0));
    link = connect(sender_, receiver_);
    uct_iface_release_desc(kept_);
    EXPECT_EQ(fact_of(link.backward, "messages_unhandled"), 0);
    EXPECT_EQ(fact_of(link.backward, "credits"), fact_of(link.forward, "credits"));
}

}  // namespace
}  // namespace tagwire::test
