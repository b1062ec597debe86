// SPDX-License-Identifier: BSD-3-Clause
// Streams of a DCI that are reset by a command of the device, through the genuine libmlx5.
#include "vhca/test/driver/devx_program.hpp"

namespace tagwire::vhca::driver::test {
namespace {

class DevxStreams : public DevxProgram {
  protected:
    static constexpr std::uint64_t kKey = 0x1234;

    void SetUp() override {
        DevxProgram::SetUp();
        ibv_srq_init_attr receives{};
        receives.attr = {16, 1, 0};
        srq.reset(ibv_create_srq(pd.get(), &receives));
        ASSERT_NE(srq, nullptr);
        make_target();
        make_initiator();
        ibv_ah_attr path{};
        path.dlid = port.lid;
        path.port_num = 1;
        ah = ibv_create_ah(pd.get(), &path);
        ASSERT_NE(ah, nullptr);
    }
    void TearDown() override {
        ibv_destroy_ah(ah);
        dci.reset();
        dct.reset();
        srq.reset();
    }
    void make_target() {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.send_cq = init.recv_cq = cq.get();
        init.srq = srq.get();
        init.pd = pd.get();
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        mlx5dv_qp_init_attr more{};
        more.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
        more.dc_init_attr.dct_access_key = kKey;
        dct.reset(mlx5dv_create_qp(context.get(), &init, &more));
        ASSERT_NE(dct, nullptr);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = kAllRights;
        ASSERT_EQ(
            ibv_modify_qp(dct.get(), &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.min_rnr_timer = 1;
        attr.ah_attr.port_num = 1;
        ASSERT_EQ(ibv_modify_qp(dct.get(), &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER),
                  0);
    }
    void make_initiator() {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.send_cq = init.recv_cq = cq.get();
        init.pd = pd.get();
        init.cap = {16, 0, 1, 0, 0};
        init.sq_sig_all = 1;
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
        mlx5dv_qp_init_attr more{};
        more.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
        more.dc_init_attr.dci_streams = {.log_num_concurent = 2, .log_num_errored = 2};
        dci.reset(mlx5dv_create_qp(context.get(), &init, &more));
        ASSERT_NE(dci, nullptr);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        ASSERT_EQ(ibv_modify_qp(dci.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
                  0);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        ASSERT_EQ(ibv_modify_qp(dci.get(), &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        ASSERT_EQ(ibv_modify_qp(dci.get(), &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }
    ibv_wc_status write_by(std::uint16_t stream, std::uint32_t rkey) {
        ibv_qp_ex* qp = ibv_qp_to_qp_ex(dci.get());
        mlx5dv_qp_ex* more = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
        ibv_wr_start(qp);
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(qp, rkey, address(kPage));
        mlx5dv_wr_set_dc_addr_stream(more, ah, dct->qp_num, kKey, stream);
        ibv_wr_set_sge(qp, mr->lkey, address(0), 8);
        EXPECT_EQ(ibv_wr_complete(qp), 0);
        return wait().status;
    }

    Owned<ibv_srq> srq;
    Owned<ibv_qp> dct, dci;
    ibv_ah* ah = nullptr;
};

TEST_F(DevxStreams, a_stream_that_failed_works_again_after_its_reset) {
    EXPECT_EQ(write_by(1, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(write_by(1, mr->rkey ^ 1), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(write_by(1, mr->rkey), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(write_by(2, mr->rkey), IBV_WC_SUCCESS) << "the others go on";
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(dci.get(), 1), 0);
    EXPECT_EQ(write_by(1, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_NE(mlx5dv_dci_stream_id_reset(dci.get(), 2), 0) << "it did not fail";
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
