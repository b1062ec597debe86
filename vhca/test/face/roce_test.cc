// SPDX-License-Identifier: BSD-3-Clause
// The device as a RoCE port: over UDP. The program runs with TAGWIRE_VHCA_FABRIC=udp.
#include <cerrno>

#include "vhca/test/face/fixture.hpp"

// Exported, and declared for providers only.
extern "C" int ibv_read_sysfs_file(const char* directory, const char* file, char* out,
                                   std::size_t out_bytes);

namespace tagwire::test {
namespace {

bool is_mapped_ipv4(const ibv_gid& gid) {
    constexpr std::array<unsigned char, 13> kLoopback = {0, 0, 0, 0,    0,    0,  0,
                                                         0, 0, 0, 0xff, 0xff, 127};
    return std::memcmp(gid.raw, kLoopback.data(), kLoopback.size()) == 0;
}

TEST(VhcaRoce, port_is_ethernet_and_needs_a_gid) {
    const Side side({});
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(side.context, 1, &port), 0);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.lid, 0);
    EXPECT_NE(port.flags & IBV_QPF_GRH_REQUIRED, 0);
    EXPECT_EQ(port.active_mtu, IBV_MTU_4096) << "of the loopback interface";
}

TEST(VhcaRoce, gid_is_the_address_as_roce_version_2) {
    const Side side({});
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(side.context, 1, 0, &gid), 0);
    EXPECT_TRUE(is_mapped_ipv4(gid));
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(side.context, 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    EXPECT_NE(entry.ndev_ifindex, 0U);
    char text[64];
    EXPECT_GT(ibv_read_sysfs_file(side.context->device->ibdev_path, "ports/1/gid_attrs/types/0",
                                  text, sizeof text),
              0);
    EXPECT_STREQ(text, "RoCE v2");
}

TEST(VhcaRoce, address_without_a_gid_is_refused) {
    Pair pair;
    ibv_ah_attr attr = path_to(pair.a.context);
    attr.is_global = 0;
    errno = 0;
    EXPECT_EQ(ibv_create_ah(pair.a.pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr.is_global = 1;
    attr.grh.sgid_index = 1;
    EXPECT_EQ(ibv_create_ah(pair.a.pd, &attr), nullptr);
}

TEST(VhcaRoce, datagram_stands_behind_the_ipv4_header_and_can_be_answered) {
    Pair pair({.type = IBV_QPT_UD});
    ASSERT_EQ(pair.b.post_recv(1, 0, 1024), 0);
    std::memset(pair.b.buffer.data(), 0xee, 64);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {pair.a.ah, pair.b.qp->qp_num, kQkey};
    ASSERT_EQ(pair.a.post_send(wr, 0, 100), 0);
    ibv_wc received = pair.b.wait();
    EXPECT_NE(received.wc_flags & IBV_WC_GRH, 0U);
    EXPECT_EQ(received.slid, 0);
    const unsigned char* header = pair.b.buffer.data() + 20;
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(pair.b.buffer[static_cast<std::size_t>(i)], 0) << "byte " << i;
    EXPECT_EQ(header[0], 0x45);
    EXPECT_EQ(header[9], 17) << "UDP";
    EXPECT_EQ(header[2] << 8 | header[3], 20 + 8 + 12 + 8 + 100 + 4);
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(pair.a.context, 1, 0, &gid), 0);
    EXPECT_EQ(std::memcmp(header + 12, gid.raw + 12, 4), 0);
    auto* grh = reinterpret_cast<ibv_grh*>(pair.b.buffer.data());
    ibv_ah_attr attr{};
    ASSERT_EQ(ibv_init_ah_from_wc(pair.b.context, 1, &received, grh, &attr), 0);
    EXPECT_EQ(attr.is_global, 1);
    EXPECT_EQ(std::memcmp(&attr.grh.dgid, &gid, sizeof gid), 0);
    EXPECT_EQ(attr.grh.sgid_index, 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    ibv_ah* back = ibv_create_ah(pair.b.pd, &attr);
    ASSERT_NE(back, nullptr);
    ASSERT_EQ(pair.a.post_recv(2, 0, 1024), 0);
    wr.wr.ud = {back, received.src_qp, kQkey};
    ASSERT_EQ(pair.b.post_send(wr, 2048, 10), 0);
    EXPECT_EQ(pair.a.wait().byte_len, 50U);
    EXPECT_EQ(ibv_destroy_ah(back), 0);
}

TEST(VhcaRoce, traffic_class_of_a_path_stands_in_the_ipv4_header) {
    constexpr std::uint8_t kClass = 106;
    Pair pair({.type = IBV_QPT_UD});
    ibv_ah_attr path = path_to(pair.b.context);
    path.grh.traffic_class = kClass;
    ibv_ah* ah = ibv_create_ah(pair.a.pd, &path);
    ASSERT_NE(ah, nullptr);
    ASSERT_EQ(pair.b.post_recv(1, 0, 1024), 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, pair.b.qp->qp_num, kQkey};
    ASSERT_EQ(pair.a.post_send(wr, 0, 100), 0);
    ibv_wc received = pair.b.wait();
    EXPECT_EQ(pair.b.buffer[21], kClass);
    auto* grh = reinterpret_cast<ibv_grh*>(pair.b.buffer.data());
    ibv_ah_attr back{};
    ASSERT_EQ(ibv_init_ah_from_wc(pair.b.context, 1, &received, grh, &back), 0);
    EXPECT_EQ(back.grh.traffic_class, kClass);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
}  // namespace tagwire::test
