// SPDX-License-Identifier: BSD-3-Clause
// Shared memory as an Ethernet port, with a second port and a short GID table; the program runs
// with TAGWIRE_VHCA_LINK_LAYER=ethernet, TAGWIRE_VHCA_PORTS=2 and TAGWIRE_VHCA_GIDS=3.
#include <cerrno>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

TEST(VhcaEthernet, first_port_is_up_and_needs_a_gid) {
    const Side side({});
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(side.context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.lid, 0);
    EXPECT_NE(port.flags & IBV_QPF_GRH_REQUIRED, 0);
    EXPECT_EQ(port.gid_tbl_len, 3);
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(side.context, 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    EXPECT_EQ(entry.gid.raw[0], 0xfe);
    EXPECT_EQ(ibv_query_gid_ex(side.context, 1, 2, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(side.context, 1, 3, &entry, 0), EINVAL);
    ibv_ah_attr attr = path_to(side.context);
    attr.is_global = 0;
    EXPECT_EQ(ibv_create_ah(side.pd, &attr), nullptr);
}

TEST(VhcaEthernet, second_port_is_down_and_there_is_no_third) {
    const Side side({});
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(side.context, &device), 0);
    EXPECT_EQ(device.phys_port_cnt, 2);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(side.context, 2, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    EXPECT_EQ(ibv_query_port(side.context, 3, &port), EINVAL);
    EXPECT_EQ(ibv_query_port(side.context, 0, &port), EINVAL);
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(side.context, 2, 0, &gid), 0);
    EXPECT_EQ(gid.global.interface_id, 0U);
    EXPECT_NE(ibv_query_gid(side.context, 3, 0, &gid), 0);
    __be16 key = 0;
    EXPECT_EQ(ibv_query_pkey(side.context, 2, 0, &key), 0);
    EXPECT_NE(ibv_query_pkey(side.context, 3, 0, &key), 0);
}

TEST(VhcaEthernet, nothing_leaves_through_the_second_port) {
    Side a({}), b({});
    ibv_ah_attr path = path_to(b.context);
    path.port_num = 2;
    a.connect(path, b.qp->qp_num, {.timeout = 8, .retry_cnt = 1});
    b.connect(path_to(a.context), a.qp->qp_num);
    ASSERT_EQ(b.post_recv(1, 0, 64), 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(a.post_send(wr, 0, 8), 0);
    EXPECT_EQ(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    path.port_num = 3;
    EXPECT_EQ(ibv_create_ah(a.pd, &path), nullptr);
}

TEST(VhcaEthernet, datagram_stands_behind_a_grh_and_can_be_answered) {
    Pair pair({.type = IBV_QPT_UD});
    ASSERT_EQ(pair.b.post_recv(1, 0, 1024), 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {pair.a.ah, pair.b.qp->qp_num, kQkey};
    ASSERT_EQ(pair.a.post_send(wr, 0, 100), 0);
    ibv_wc received = pair.b.wait();
    EXPECT_NE(received.wc_flags & IBV_WC_GRH, 0U);
    EXPECT_EQ(received.slid, 0);
    auto* grh = reinterpret_cast<ibv_grh*>(pair.b.buffer.data());
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(pair.a.context, 1, 0, &gid), 0);
    EXPECT_EQ(std::memcmp(&grh->sgid, &gid, sizeof gid), 0);
    EXPECT_EQ(grh->version_tclass_flow, htobe32(6U << 28));
    EXPECT_EQ(be16toh(grh->paylen), 8 + 12 + 8 + 100 + 4) << "UDP, BTH, DETH, payload, CRC";
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    ibv_ah* back = ibv_create_ah_from_wc(pair.b.pd, &received, grh, 1);
    ASSERT_NE(back, nullptr);
    ASSERT_EQ(pair.a.post_recv(2, 0, 1024), 0);
    wr.wr.ud = {back, received.src_qp, kQkey};
    ASSERT_EQ(pair.b.post_send(wr, 2048, 10), 0);
    EXPECT_EQ(pair.a.wait().byte_len, 50U);
    EXPECT_EQ(ibv_destroy_ah(back), 0);
}

}  // namespace
}  // namespace tagwire::test
