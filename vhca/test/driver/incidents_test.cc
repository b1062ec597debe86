// SPDX-License-Identifier: BSD-3-Clause
// Events of a port that goes down, and of a device that dies, on the driver face.
#include "uverbs_fixture.hpp"

namespace tagwire::vhca::driver::test {
namespace {

class VhcaUverbsIncidents : public VhcaUverbs {
  protected:
    ib_uverbs_async_event_desc next_event() {
        ib_uverbs_async_event_desc event{};
        ::fcntl(commander_->async_fd, F_SETFL, O_NONBLOCK);
        EXPECT_EQ(::read(commander_->async_fd, &event, sizeof event), ssize_t{sizeof event});
        return event;
    }
    ib_uverbs_query_port_resp query_port(int error) {
        ib_uverbs_query_port request{};
        request.port_num = 1;
        ib_uverbs_query_port_resp facts{};
        EXPECT_EQ(commander_->plain(IB_USER_VERBS_CMD_QUERY_PORT, request, &facts), error);
        return facts;
    }
};

TEST_F(VhcaUverbsIncidents, port_that_goes_down_and_comes_back_is_told) {
    use();
    ASSERT_EQ(context_->engine.happen(Incident::kPortDown), 0);
    const ib_uverbs_async_event_desc event = next_event();
    EXPECT_EQ(event.event_type, std::uint32_t{IBV_EVENT_PORT_ERR});
    EXPECT_EQ(event.element, 1U);
    EXPECT_EQ(query_port(0).state, IBV_PORT_DOWN);
    ASSERT_EQ(context_->engine.happen(Incident::kPortUp), 0);
    EXPECT_EQ(next_event().event_type, std::uint32_t{IBV_EVENT_PORT_ACTIVE});
    EXPECT_EQ(query_port(0).state, IBV_PORT_ACTIVE);
}

TEST_F(VhcaUverbsIncidents, dead_device_destroys_and_refuses_all_else) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t qp =
        commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings(), nullptr);
    ASSERT_EQ(commander.error, 0);
    ASSERT_EQ(context_->engine.happen(Incident::kDeviceFatal), 0);
    EXPECT_EQ(next_event().event_type, std::uint32_t{IBV_EVENT_DEVICE_FATAL});
    EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), EIO);
    query_port(EIO);
    commander.make_pd();
    EXPECT_EQ(commander.error, EIO);
    ib_uverbs_destroy_qp request{};
    request.qp_handle = qp;
    ib_uverbs_destroy_qp_resp response{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_QP, request, &response), 0);
    ib_uverbs_destroy_cq end_of_cq{};
    end_of_cq.cq_handle = parts.cq;
    ib_uverbs_destroy_cq_resp end{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ, end_of_cq, &end), 0);
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{.pd_handle = parts.pd}),
        0);
    EXPECT_EQ(open_context(0), nullptr);
    EXPECT_EQ(errno, EIO);
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
