// SPDX-License-Identifier: BSD-3-Clause
// A device that dies, and a port that goes down and comes back, as programs see them.
#include <fcntl.h>

#include <cerrno>

#include "vhca/face/extension.hpp"
#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

/// The next event of the context; fails the test when there is none.
ibv_async_event next_event(ibv_context* context) {
    ibv_async_event event{};
    EXPECT_EQ(::fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(ibv_get_async_event(context, &event), 0);
    ibv_ack_async_event(&event);
    return event;
}

void expect_no_event(ibv_context* context) {
    ibv_async_event event{};
    EXPECT_EQ(::fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(ibv_get_async_event(context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST(VhcaIncidents, name_that_is_none_is_refused) {
    const Side side({});
    EXPECT_EQ(tagwire_vhca_inject(side.context, "device-fatale"), EINVAL);
    EXPECT_EQ(tagwire_vhca_inject(side.context, ""), EINVAL);
    expect_no_event(side.context);
}

TEST(VhcaIncidents, dead_device_tells_every_context_and_does_nothing_any_more) {
    Pair pair;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(tagwire_vhca_inject(pair.a.context, "device-fatal"), 0);
    for (ibv_context* context : {pair.a.context, pair.b.context}) {
        EXPECT_EQ(next_event(context).event_type, IBV_EVENT_DEVICE_FATAL);
        expect_no_event(context);
    }
    EXPECT_EQ(pair.a.post_send(wr, 0, 8), 0);
    ibv_wc wc{};
    for (int i = 0; i < 1000; ++i)
        ASSERT_EQ(ibv_poll_cq(pair.a.cq, 1, &wc), 0);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), EIO);
    EXPECT_EQ(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, &init), EIO);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(pair.a.context, 1, &port), EIO);
    EXPECT_EQ(ibv_alloc_pd(pair.a.context), nullptr);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ibv_reg_mr(pair.a.pd, pair.a.buffer.data(), 8, 0), nullptr);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ibv_open_device(pair.a.context->device), nullptr);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(tagwire_vhca_inject(pair.a.context, "port-up"), EIO);
}  // and all is destroyed without an error

TEST(VhcaIncidents, port_goes_down_and_comes_back) {
    Pair pair;
    ASSERT_EQ(tagwire_vhca_inject(pair.a.context, "port-down"), 0);
    const ibv_async_event down = next_event(pair.b.context);
    EXPECT_EQ(down.event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(down.element.port_num, 1);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(pair.a.context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    ASSERT_EQ(pair.b.post_recv(1, 0, 8), 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(pair.a.post_send(wr, 0, 8), 0);
    ASSERT_EQ(tagwire_vhca_inject(pair.a.context, "port-up"), 0);
    EXPECT_EQ(next_event(pair.b.context).event_type, IBV_EVENT_PORT_ACTIVE);
    ASSERT_EQ(ibv_query_port(pair.a.context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);  // repeated after the first timeout
    EXPECT_EQ(pair.b.wait().status, IBV_WC_SUCCESS);
}

TEST(VhcaIncidents, closed_context_is_told_nothing) {
    Pair pair;
    { const Side other({}); }
    ASSERT_EQ(tagwire_vhca_inject(pair.a.context, "gid-change"), 0);
    EXPECT_EQ(next_event(pair.a.context).event_type, IBV_EVENT_GID_CHANGE);
    EXPECT_EQ(next_event(pair.b.context).event_type, IBV_EVENT_GID_CHANGE);
}

TEST(VhcaIncidents, failed_srq_is_an_event_that_is_acknowledged) {
    const Side side({.has_srq = true});
    ASSERT_EQ(tagwire_vhca_inject(side.context, "srq-error"), 0);
    const ibv_async_event event = next_event(side.context);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_ERR);
    EXPECT_EQ(event.element.srq, side.srq);
}

}  // namespace
}  // namespace tagwire::test
