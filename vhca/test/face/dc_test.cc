// SPDX-License-Identifier: BSD-3-Clause
// DC as a program of libmlx5 sees it.
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstdint>

#include "vhca/face/extension.hpp"
#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kKey = 0x1122334455667788;
constexpr std::uint64_t kOps = std::uint64_t{IBV_QP_EX_WITH_SEND} | IBV_QP_EX_WITH_RDMA_WRITE |
                               IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kDctRtr = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER;

/// A side with an SRQ, and DC queue pairs beside its own.
class DcSide : public Side {
  public:
    DcSide() : Side({.has_srq = true}) {}
    ~DcSide() {
        for (ibv_qp* made : {dci, dct})
            EXPECT_TRUE(made == nullptr || ibv_destroy_qp(made) == 0);
    }
    DcSide(const DcSide&) = delete;
    DcSide& operator=(const DcSide&) = delete;

    ibv_qp_init_attr_ex attr(bool is_target) {
        ibv_qp_init_attr_ex wanted{};
        wanted.send_cq = wanted.recv_cq = cq;
        wanted.srq = srq;
        wanted.cap = {16, 0, 2, 0, 64};
        wanted.qp_type = IBV_QPT_DRIVER;
        wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
        wanted.pd = pd;
        if (!is_target) {
            wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            wanted.send_ops_flags = kOps;
        }
        return wanted;
    }
    static mlx5dv_qp_init_attr dv_attr(mlx5dv_dc_type type) {
        mlx5dv_qp_init_attr wanted{};
        wanted.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        wanted.dc_init_attr.dc_type = type;
        if (type == MLX5DV_DCTYPE_DCT)
            wanted.dc_init_attr.dct_access_key = kKey;
        return wanted;
    }
    static ibv_qp_attr values(ibv_qp_state state) {
        ibv_qp_attr wanted{};
        wanted.qp_state = state;
        wanted.port_num = wanted.ah_attr.port_num = 1;
        wanted.qp_access_flags = kAllRights;
        wanted.path_mtu = IBV_MTU_1024;
        wanted.min_rnr_timer = 1;
        wanted.timeout = 14;
        wanted.retry_cnt = wanted.rnr_retry = 7;
        wanted.max_rd_atomic = 4;
        return wanted;
    }
    static int modify(ibv_qp* which, ibv_qp_state state, int mask) {
        ibv_qp_attr wanted = values(state);
        return ibv_modify_qp(which, &wanted, mask);
    }

    void make_dct() {
        ibv_qp_init_attr_ex wanted = attr(true);
        mlx5dv_qp_init_attr dv = dv_attr(MLX5DV_DCTYPE_DCT);
        dct = mlx5dv_create_qp(context, &wanted, &dv);
        ASSERT_NE(dct, nullptr);
        EXPECT_EQ(dct->qp_num, 0U);
        EXPECT_EQ(modify(dct, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS), 0);
        EXPECT_EQ(dct->qp_num, 0U);
        EXPECT_EQ(modify(dct, IBV_QPS_RTR, kDctRtr), 0);
        EXPECT_NE(dct->qp_num, 0U);
    }
    void make_dci(bool has_streams = false) {
        ibv_qp_init_attr_ex wanted = attr(false);
        mlx5dv_qp_init_attr dv = dv_attr(MLX5DV_DCTYPE_DCI);
        if (has_streams) {
            dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
            dv.dc_init_attr.dci_streams = {.log_num_concurent = 2, .log_num_errored = 1};
        }
        dci = mlx5dv_create_qp(context, &wanted, &dv);
        ASSERT_NE(dci, nullptr);
        EXPECT_NE(dci->qp_num, 0U);
        to_rts();
    }
    void to_rts() const {
        EXPECT_EQ(modify(dci, IBV_QPS_INIT, kInit), 0);
        EXPECT_EQ(modify(dci, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
        EXPECT_EQ(modify(dci, IBV_QPS_RTS,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN),
                  0);
    }
    /// Where `other` is.
    void aim(const Side& other) {
        ibv_port_attr port{};
        ASSERT_EQ(ibv_query_port(other.context, 1, &port), 0);
        ibv_ah_attr address{};
        address.dlid = port.lid;
        address.port_num = 1;
        ah = ibv_create_ah(pd, &address);
        ASSERT_NE(ah, nullptr);
    }
    /// Ends what was begun with ibv_wr_*(): the target, and `bytes` from `offset` of the buffer.
    int finish(const DcSide& to, std::size_t offset, std::uint32_t bytes,
               std::uint64_t key = kKey) {
        ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci);
        mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ah, to.dct->qp_num, key);
        ibv_wr_set_sge(ex, mr->lkey, reinterpret_cast<std::uintptr_t>(buffer.data() + offset),
                       bytes);
        return ibv_wr_complete(ex);
    }
    ibv_qp_ex* begin(std::uint64_t wr_id) const {
        ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci);
        ibv_wr_start(ex);
        ex->wr_id = wr_id;
        ex->wr_flags = IBV_SEND_SIGNALED;
        return ex;
    }

    ibv_qp* dci = nullptr;
    ibv_qp* dct = nullptr;
};

struct DcPair {
    DcPair() {
        a.make_dci();
        b.make_dct();
        a.aim(b);
    }
    DcSide a, b;
};

std::uint64_t address_of(const DcSide& side, std::size_t offset) {
    return reinterpret_cast<std::uintptr_t>(side.buffer.data() + offset);
}

TEST(VhcaDv, a_message_a_write_a_read_and_an_atomic_reach_the_target) {
    DcPair pair;
    DcSide &a = pair.a, &b = pair.b;
    EXPECT_EQ(b.post_recv(7, 0, 64), 0);
    std::memcpy(a.buffer.data(), "through DC", 10);
    std::memcpy(b.buffer.data() + 512, "readable", 8);
    ibv_wr_send(a.begin(1));
    EXPECT_EQ(a.finish(b, 0, 10), 0);
    ibv_wr_rdma_write(a.begin(2), b.mr->rkey, address_of(b, 256));
    EXPECT_EQ(a.finish(b, 0, 10), 0);
    ibv_wr_rdma_read(a.begin(3), b.mr->rkey, address_of(b, 512));
    EXPECT_EQ(a.finish(b, 1024, 8), 0);
    ibv_wr_atomic_fetch_add(a.begin(4), b.mr->rkey, address_of(b, 2048), 5);
    EXPECT_EQ(a.finish(b, 2048, 8), 0);
    for (std::uint64_t id = 1; id <= 4; ++id) {
        const ibv_wc wc = a.wait();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.qp_num, a.dci->qp_num);
    }
    const ibv_wc got = b.wait();
    EXPECT_EQ(got.wr_id, 7U);
    EXPECT_EQ(got.qp_num, b.dct->qp_num);
    EXPECT_EQ(std::memcmp(b.buffer.data(), "through DC", 10), 0);
    EXPECT_EQ(std::memcmp(b.buffer.data() + 256, "through DC", 10), 0);
    EXPECT_EQ(std::memcmp(a.buffer.data() + 1024, "readable", 8), 0);
    EXPECT_EQ(b.buffer[2048], 5);
}

TEST(VhcaDv, error_flushes_and_reset_heals) {
    DcPair pair;
    DcSide &a = pair.a, &b = pair.b;
    ibv_wr_rdma_write(a.begin(1), b.mr->rkey ^ 0x100, address_of(b, 0));
    EXPECT_EQ(a.finish(b, 0, 8), 0);
    EXPECT_EQ(a.wait().status, IBV_WC_REM_ACCESS_ERR);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(a.dci, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
    EXPECT_EQ(init.qp_type, IBV_QPT_DRIVER);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(b.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event.element.qp, b.dct);
    ibv_ack_async_event(&event);
    EXPECT_EQ(DcSide::modify(a.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
    a.to_rts();
    ibv_wr_rdma_write(a.begin(2), b.mr->rkey, address_of(b, 0));
    EXPECT_EQ(a.finish(b, 0, 8), 0);
    EXPECT_EQ(a.wait().status, IBV_WC_SUCCESS);
}

TEST(VhcaDv, wrong_key_fails) {
    DcPair pair;
    ibv_wr_rdma_write(pair.a.begin(1), pair.b.mr->rkey, address_of(pair.b, 0));
    EXPECT_EQ(pair.a.finish(pair.b, 0, 8, kKey + 1), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDv, streams_are_told_and_fail_alone) {
    DcSide a, b;
    mlx5dv_context caps{};
    caps.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    ASSERT_EQ(mlx5dv_query_device(a.context, &caps), 0);
    EXPECT_EQ(caps.comp_mask, std::uint64_t{MLX5DV_CONTEXT_MASK_DCI_STREAMS});
    EXPECT_GE(caps.dci_streams_caps.max_log_num_concurent, 2);
    EXPECT_GE(caps.dci_streams_caps.max_log_num_errored, 1);
    a.make_dci(true);
    b.make_dct();
    a.aim(b);
    const auto write = [&](std::uint16_t stream, std::uint32_t rkey) {
        ibv_qp_ex* ex = a.begin(stream);
        ibv_wr_rdma_write(ex, rkey, address_of(b, 0));
        mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(ex), a.ah, b.dct->qp_num, kKey,
                                     stream);
        ibv_wr_set_inline_data(ex, a.buffer.data(), 8);
        EXPECT_EQ(ibv_wr_complete(ex), 0);
        return a.wait().status;
    };
    EXPECT_EQ(write(1, b.mr->rkey ^ 0x100), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(write(1, b.mr->rkey), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(write(2, b.mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(a.dci, 2), EINVAL);
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(a.dci, 1), 0);
    EXPECT_EQ(write(1, b.mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(b.dct, 1), EINVAL);
}

TEST(VhcaDv, dct_can_be_asked_in_rtr_only_and_not_for_all) {
    DcSide side;
    side.make_dct();
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(side.dct, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTR);
    EXPECT_EQ(attr.min_rnr_timer, 1);
    EXPECT_EQ(ibv_query_qp(side.dct, &attr, IBV_QP_TIMEOUT, &init), EINVAL);
    ibv_qp_init_attr_ex wanted = side.attr(true);
    mlx5dv_qp_init_attr dv = DcSide::dv_attr(MLX5DV_DCTYPE_DCT);
    ibv_qp* fresh = mlx5dv_create_qp(side.context, &wanted, &dv);
    ASSERT_NE(fresh, nullptr);
    EXPECT_EQ(ibv_query_qp(fresh, &attr, IBV_QP_STATE, &init), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(fresh), 0);
}

TEST(VhcaDv, what_cannot_be_is_refused) {
    DcSide side;
    const auto expect_refused = [&](ibv_qp_init_attr_ex wanted, mlx5dv_qp_init_attr dv, int error) {
        errno = 0;
        EXPECT_EQ(mlx5dv_create_qp(side.context, &wanted, &dv), nullptr);
        EXPECT_EQ(errno, error);
    };
    const mlx5dv_qp_init_attr target = DcSide::dv_attr(MLX5DV_DCTYPE_DCT);
    const mlx5dv_qp_init_attr initiator = DcSide::dv_attr(MLX5DV_DCTYPE_DCI);
    ibv_qp_init_attr_ex wanted = side.attr(true);
    wanted.srq = nullptr;
    expect_refused(wanted, target, EINVAL);
    wanted = side.attr(true);
    wanted.send_cq = nullptr;  // libibverbs would read its handle
    expect_refused(wanted, target, EINVAL);
    expect_refused(side.attr(false), target, EINVAL);  // a DCT does not send
    wanted = side.attr(false);
    wanted.qp_type = IBV_QPT_RC;
    expect_refused(wanted, initiator, EINVAL);
    wanted = side.attr(false);
    wanted.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV;
    expect_refused(wanted, initiator, EOPNOTSUPP);
    mlx5dv_qp_init_attr dv = initiator;
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    dv.create_flags = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS;
    expect_refused(side.attr(false), dv, EOPNOTSUPP);
    dv = initiator;
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    dv.dc_init_attr.dci_streams.log_num_concurent = 30;
    expect_refused(side.attr(false), dv, EINVAL);
}

TEST(VhcaDv, plain_posting_is_refused) {
    DcPair pair;
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    EXPECT_EQ(ibv_post_send(pair.a.dci, &wr, &bad), EINVAL);
    EXPECT_EQ(ibv_post_send(pair.b.dct, &wr, &bad), EINVAL);
    ibv_recv_wr recv{}, *bad_recv = nullptr;
    EXPECT_NE(ibv_post_recv(pair.a.dci, &recv, &bad_recv), 0);
}

TEST(VhcaDv, without_dc_attributes_it_is_an_ordinary_queue_pair) {
    DcSide side;
    ibv_qp_init_attr_ex wanted = side.attr(false);
    wanted.qp_type = IBV_QPT_RC;
    ibv_qp* made = mlx5dv_create_qp(side.context, &wanted, nullptr);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(made->qp_type, IBV_QPT_RC);
    EXPECT_EQ(ibv_destroy_qp(made), 0);
}

TEST(VhcaDv, tag_matching_over_dc_is_a_named_extension) {
    Side side(SideOptions{});
    tagwire_vhca_tm_caps caps{};
    EXPECT_EQ(tagwire_vhca_query_tm(side.context, &caps), 0);
    EXPECT_EQ(caps.flags, TAGWIRE_VHCA_TM_DC | TAGWIRE_VHCA_TM_DC_RENDEZVOUS);
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(side.context, nullptr, &attr), 0);
    EXPECT_EQ(attr.tm_caps.flags, unsigned{IBV_TM_CAP_RC}) << "verbs have no word for it";
}

}  // namespace
}  // namespace tagwire::test
