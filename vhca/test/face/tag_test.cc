// SPDX-License-Identifier: BSD-3-Clause
// Tag matching as a program sees it: capabilities, creation, operations, one message of each kind.
#include <endian.h>
#include <infiniband/tm_types.h>

#include <cerrno>
#include <cstdlib>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kWcFlags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_TM_INFO;
constexpr std::size_t kMessageAt = 0, kDataAt = 4096, kTaggedAt = 8192;
constexpr std::uint32_t kContext = 77, kDataBytes = 3000;
constexpr std::uint32_t kUntagged = 33;  // a card matches nothing before it has so many

ibv_srq_init_attr_ex tm_attr(ibv_pd* pd, ibv_cq* cq) {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = kUntagged, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = IBV_SRQT_TM;
    attr.pd = pd;
    attr.cq = cq;
    attr.tm_cap = {.max_num_tags = 8, .max_ops = 8};
    return attr;
}

/// One completion as an extended CQ reports it.
struct Seen {
    std::uint64_t wr_id;
    ibv_wc_status status;
    ibv_wc_opcode opcode;
    unsigned flags;
    ibv_wc_tm_info tm;
};

/// a sends to b, whose queue pair has a tag-matching SRQ.
class TagPair {
  public:
    TagPair() : a(SideOptions{}), b({.wc_flags = kWcFlags}) {
        EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
        ibv_srq_init_attr_ex attr = tm_attr(b.pd, b.cq);
        b.srq = ibv_create_srq_ex(b.context, &attr);
        EXPECT_NE(b.srq, nullptr);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = b.cq;
        init.srq = b.srq;
        init.cap = {4, 4, 1, 1, 0};
        init.qp_type = IBV_QPT_RC;
        b.qp = ibv_create_qp(b.pd, &init);
        EXPECT_NE(b.qp, nullptr);
        EXPECT_EQ(init.cap.max_send_wr, 0U) << "the device sends, not the program";
        a.connect(b);
        b.connect(a);
        EXPECT_EQ(a.post_recv(1, 16384, 64), 0);
        for (std::uint32_t i = 0; i < kUntagged; ++i)
            EXPECT_EQ(b.post_recv(2, 16384, 4096), 0);
    }

    std::uint32_t add(std::uint64_t tag, std::uint64_t recv_wr_id, std::uint32_t bytes) {
        ibv_sge sge{reinterpret_cast<std::uint64_t>(&b.buffer[kTaggedAt]), bytes, b.mr->lkey};
        ibv_ops_wr wr{}, *bad = nullptr;
        wr.wr_id = 3;
        wr.opcode = IBV_WR_TAG_ADD;
        wr.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
        wr.tm.add = {recv_wr_id, &sge, 1, tag, ~std::uint64_t{0}};
        EXPECT_EQ(ibv_post_srq_ops(b.srq, &wr, &bad), 0);
        EXPECT_EQ(wait().opcode, IBV_WC_TM_ADD);
        return wr.tm.handle;
    }
    void send(ibv_tmh_op opcode, std::uint64_t tag, std::uint32_t bytes) {
        const ibv_tmh header{
            static_cast<std::uint8_t>(opcode), {}, htobe32(kContext), htobe64(tag)};
        std::memcpy(&a.buffer[kMessageAt], &header, sizeof header);
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        EXPECT_EQ(a.post_send(wr, kMessageAt, bytes), 0);
    }
    Seen wait() {
        ibv_poll_cq_attr attr{};
        int polls = 0;
        while (ibv_start_poll(b.cq_ex, &attr) != 0) {
            if (++polls == kPollsMax) {
                ADD_FAILURE() << "no completion";
                return {};
            }
        }
        Seen seen{b.cq_ex->wr_id,
                  b.cq_ex->status,
                  ibv_wc_read_opcode(b.cq_ex),
                  ibv_wc_read_wc_flags(b.cq_ex),
                  {}};
        ibv_wc_read_tm_info(b.cq_ex, &seen.tm);
        ibv_end_poll(b.cq_ex);
        return seen;
    }

    Side a, b;
};

TEST(VhcaTags, device_tells_what_it_can) {
    Side side(SideOptions{});
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(side.context, nullptr, &attr), 0);
    EXPECT_EQ(attr.tm_caps.flags, unsigned{IBV_TM_CAP_RC});
    EXPECT_GE(attr.tm_caps.max_num_tags, 1023U);
    EXPECT_EQ(attr.tm_caps.max_rndv_hdr_size, 64U);
    EXPECT_EQ(attr.tm_caps.max_sge, 1U);
    EXPECT_GT(attr.tm_caps.max_ops, 0U);
}

TEST(VhcaTags, srq_needs_an_extended_cq_and_its_limits) {
    Side plain(SideOptions{}), extended({.wc_flags = kWcFlags});
    ibv_srq_init_attr_ex attr = tm_attr(plain.pd, plain.cq);
    EXPECT_EQ(ibv_create_srq_ex(plain.context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr = tm_attr(extended.pd, extended.cq);
    attr.tm_cap.max_num_tags = 1 << 20;
    EXPECT_EQ(ibv_create_srq_ex(extended.context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST(VhcaTags, srq_is_only_there_where_libmlx5_can_make_it) {
    Side side({.wc_flags = kWcFlags});
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(side.context, 1, &port), 0);
    const bool is_wanted = std::getenv("TAGWIRE_VHCA_TM_ETHERNET") != nullptr;
    const bool is_possible = port.link_layer == IBV_LINK_LAYER_INFINIBAND || is_wanted;
    ibv_srq_init_attr_ex attr = tm_attr(side.pd, side.cq);
    ibv_srq* srq = ibv_create_srq_ex(side.context, &attr);
    EXPECT_EQ(srq != nullptr, is_possible);
    if (srq == nullptr) {
        EXPECT_EQ(errno, EINVAL);
    } else {
        EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
}

TEST(VhcaTags, eager_message_goes_to_its_receive) {
    TagPair pair;
    pair.add(5, 99, 64);
    std::memcpy(&pair.a.buffer[kMessageAt + sizeof(ibv_tmh)], "payload", 7);
    pair.send(IBV_TMH_EAGER, 5, sizeof(ibv_tmh) + 7);
    const Seen seen = pair.wait();
    EXPECT_EQ(seen.status, IBV_WC_SUCCESS);
    EXPECT_EQ(seen.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(seen.wr_id, 99U);
    EXPECT_EQ(seen.flags, unsigned{IBV_WC_TM_MATCH} | IBV_WC_TM_DATA_VALID);
    EXPECT_EQ(seen.tm.tag, 5U);
    EXPECT_EQ(seen.tm.priv, kContext);
    EXPECT_EQ(std::memcmp(&pair.b.buffer[kTaggedAt], "payload", 7), 0);
}

// It takes a receive before the first message: as many as a card wants have been posted even so.
TEST(VhcaTags, matching_starts_although_a_write_took_a_receive) {
    TagPair pair;
    ibv_send_wr write{};
    write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.wr.rdma = {reinterpret_cast<std::uint64_t>(&pair.b.buffer[kDataAt]), pair.b.mr->rkey};
    EXPECT_EQ(pair.a.post_send(write, kMessageAt, 8), 0);
    EXPECT_EQ(pair.wait().opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    pair.send(IBV_TMH_EAGER, 5, sizeof(ibv_tmh) + 7);
    const Seen seen = pair.wait();
    EXPECT_EQ(seen.status, IBV_WC_SUCCESS);
    EXPECT_EQ(seen.opcode, IBV_WC_TM_RECV);
}

TEST(VhcaTags, unexpected_message_and_a_removed_receive) {
    TagPair pair;
    const std::uint32_t handle = pair.add(5, 99, 64);
    ibv_ops_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_TAG_DEL;
    wr.flags = IBV_OPS_SIGNALED;
    wr.tm.handle = handle;
    ASSERT_EQ(ibv_post_srq_ops(pair.b.srq, &wr, &bad), 0);
    EXPECT_EQ(pair.wait().opcode, IBV_WC_TM_DEL);
    pair.send(IBV_TMH_EAGER, 5, sizeof(ibv_tmh));
    const Seen seen = pair.wait();
    EXPECT_EQ(seen.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(seen.wr_id, 2U);
    EXPECT_EQ(seen.flags, 0U);
    ASSERT_EQ(ibv_post_srq_ops(pair.b.srq, &wr, &bad), 0);
    EXPECT_EQ(pair.wait().status, IBV_WC_TM_ERR);
}

TEST(VhcaTags, bad_operation_is_pointed_at) {
    TagPair pair;
    ibv_ops_wr good{}, wrong{}, *bad = nullptr;
    good.opcode = IBV_WR_TAG_SYNC;
    good.next = &wrong;
    wrong.opcode = IBV_WR_TAG_ADD;
    wrong.tm.add.num_sge = 2;
    EXPECT_EQ(ibv_post_srq_ops(pair.b.srq, &good, &bad), EINVAL);
    EXPECT_EQ(bad, &wrong);
}

TEST(VhcaTags, rendezvous_is_read_and_finished_by_the_device) {
    TagPair pair;
    pair.add(5, 99, kDataBytes);
    std::memset(&pair.a.buffer[kDataAt], 'r', kDataBytes);
    const ibv_rvh source{htobe64(reinterpret_cast<std::uint64_t>(&pair.a.buffer[kDataAt])),
                         htobe32(pair.a.mr->rkey), htobe32(kDataBytes)};
    std::memcpy(&pair.a.buffer[kMessageAt + sizeof(ibv_tmh)], &source, sizeof source);
    pair.send(IBV_TMH_RNDV, 5, sizeof(ibv_tmh) + sizeof(ibv_rvh));
    const Seen match = pair.wait();
    EXPECT_EQ(match.flags, unsigned{IBV_WC_TM_MATCH});
    EXPECT_EQ(match.tm.tag, 5U);
    const Seen data = pair.wait();
    EXPECT_EQ(data.flags, unsigned{IBV_WC_TM_DATA_VALID});
    EXPECT_EQ(data.wr_id, 99U);
    EXPECT_EQ(std::memcmp(&pair.b.buffer[kTaggedAt], &pair.a.buffer[kDataAt], kDataBytes), 0);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_SEND);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_RECV) << "the FIN";
}

}  // namespace
}  // namespace tagwire::test
