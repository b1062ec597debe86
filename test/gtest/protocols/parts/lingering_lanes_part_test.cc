// SPDX-License-Identifier: BSD-3-Clause
// Lanes that linger, alone: each stays until what it was given has arrived, for a while at most.
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include "protocols/connect/lingering_lanes.hpp"
#include "protocols/parts/fake_rail.hpp"

namespace tagwire::test {
namespace {

using proto::LingeringLanes;

class LingeringLanesPart : public testing::Test {
  protected:
    LingeringLanesPart() { rails_.add({}); }

    uct_ep_h lane() {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = rails_.rails[0]->iface();
        uct_ep_h ep = nullptr;
        EXPECT_EQ(uct_ep_create(&params, &ep), UCS_OK);
        return ep;
    }
    ucs_status_t& flushed() { return rails_.iface(0).settings.flush; }

    WirelessRails rails_;
    LingeringLanes lingering_;
};

TEST_F(LingeringLanesPart, one_goes_when_all_has_arrived_or_nothing_will) {
    for (const ucs_status_t status : {UCS_OK, UCS_ERR_CONNECTION_RESET}) {
        lingering_.add(lane(), 0);
        for (const ucs_status_t waits : {UCS_INPROGRESS, UCS_ERR_NO_RESOURCE}) {
            flushed() = waits;
            lingering_.destroy_arrived(1);
            EXPECT_EQ(rails_.eps(), 1U);
        }
        flushed() = status;
        lingering_.destroy_arrived(1);
        EXPECT_TRUE(lingering_.empty());
        EXPECT_EQ(rails_.eps(), 0U);
    }
}

TEST_F(LingeringLanesPart, each_goes_at_its_time) {
    flushed() = UCS_INPROGRESS;
    lingering_.add(lane(), 0);
    lingering_.add(lane(), 10);
    lingering_.destroy_arrived(LingeringLanes::kLingerNs - 1);
    EXPECT_EQ(rails_.eps(), 2U);
    lingering_.destroy_arrived(LingeringLanes::kLingerNs);
    EXPECT_EQ(rails_.eps(), 1U);
    lingering_.destroy_arrived(LingeringLanes::kLingerNs + 10);
    EXPECT_EQ(rails_.eps(), 0U);
}

TEST_F(LingeringLanesPart, the_oldest_give_way_to_more_than_a_few) {
    flushed() = UCS_INPROGRESS;
    for (std::size_t i = 0; i < 3 * LingeringLanes::kLanesMax; ++i) {
        lingering_.add(lane(), i);
        EXPECT_LE(rails_.eps(), LingeringLanes::kLanesMax);
    }
    lingering_.clear();
    EXPECT_EQ(rails_.eps(), 0U);
}

}  // namespace
}  // namespace tagwire::test
