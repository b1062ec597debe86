// SPDX-License-Identifier: BSD-3-Clause
// Completion queue entries as libmlx5 reads them.
#include "vhca/test/driver/program.hpp"

namespace tagwire::vhca::driver {

namespace {

constexpr CqeOwner kOwner{.user_index = 0x123456, .qpn = 0x789abc};

mlx5_cqe64 make(const Completion& completion, const CqeOwner& owner = kOwner) {
    const CqeImage image = make_cqe(completion, owner);
    mlx5_cqe64 cqe;
    std::memcpy(&cqe, image.data(), sizeof cqe);
    EXPECT_EQ(mlx5dv_get_cqe_owner(&cqe), 0);
    EXPECT_EQ(mlx5dv_get_cqe_format(&cqe), 0);
    return cqe;
}

Completion completion_of(ibv_wc_opcode opcode, std::uint16_t counter, std::uint8_t name = 0) {
    Completion completion;
    completion.wc.opcode = opcode;
    completion.wc.wr_id = EntryName{counter, name}.pack();
    completion.time = 0x1020304050607080;
    return completion;
}

TEST(VhcaCqe, a_request_names_its_entry) {
    Completion completion = completion_of(IBV_WC_RDMA_READ, 0xfffe, MLX5_OPCODE_RDMA_READ);
    completion.wc.byte_len = 4711;
    mlx5_cqe64 cqe = make(completion);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_REQ);
    EXPECT_EQ(be32toh(cqe.srqn_uidx), kOwner.user_index);
    EXPECT_EQ(be32toh(cqe.sop_drop_qpn), unsigned{MLX5_OPCODE_RDMA_READ} << 24 | kOwner.qpn);
    EXPECT_EQ(be16toh(cqe.wqe_counter), 0xfffe);
    EXPECT_EQ(be32toh(cqe.byte_cnt), 4711U);
    EXPECT_EQ(be64toh(cqe.timestamp), completion.time);
    EXPECT_EQ(cqe.app, 0);
}

TEST(VhcaCqe, a_datagram_names_its_sender) {
    Completion completion = completion_of(IBV_WC_RECV, 7);
    completion.wc.byte_len = 140;
    completion.wc.src_qp = 0x314159;
    completion.wc.slid = 0xbeef;
    completion.wc.sl = 5;
    completion.wc.dlid_path_bits = 3;
    completion.wc.wc_flags = IBV_WC_GRH;
    completion.is_solicited = true;
    mlx5_cqe64 cqe = make(completion);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(mlx5dv_get_cqe_se(&cqe), 1);
    EXPECT_EQ(be32toh(cqe.flags_rqpn), 1U << 28 | 5U << 24 | 0x314159U);
    EXPECT_EQ(be16toh(cqe.slid), 0xbeef);
    EXPECT_EQ(cqe.ml_path, 3);
    EXPECT_EQ(be16toh(cqe.wqe_counter), 7);
    EXPECT_EQ(be32toh(cqe.sop_drop_qpn), kOwner.qpn);
    EXPECT_EQ(cqe.hds_ip_ext, 0);  // no checksum was looked at
    CqeOwner ethernet = kOwner;
    ethernet.kind = PacketKind::kRoceIpv4;
    cqe = make(completion, ethernet);
    EXPECT_EQ(cqe.slid, 0);
    EXPECT_EQ(be32toh(cqe.flags_rqpn), 1U << 28 | 2U << 24 | 0x314159U);
}

TEST(VhcaCqe, short_data_are_within_the_entry) {
    std::array<std::byte, 32> data;
    data.fill(std::byte{0xda});
    Completion completion = completion_of(IBV_WC_RECV, 7);
    completion.wc.byte_len = data.size();
    completion.data = data;
    CqeImage image = make_cqe(completion, kOwner);
    EXPECT_TRUE(std::ranges::equal(std::span(image).first(data.size()), data));
    mlx5_cqe64 cqe;
    std::memcpy(&cqe, image.data(), sizeof cqe);
    EXPECT_EQ(cqe.op_own & 0xc, MLX5_INLINE_SCATTER_32);
    EXPECT_EQ(be32toh(cqe.byte_cnt), data.size());
    EXPECT_EQ(be16toh(cqe.wqe_counter), 7);
    CqeOwner wide = kOwner;
    wide.has_room_before = true;
    image = make_cqe(completion, wide);
    EXPECT_EQ(image[0], std::byte{0});
    EXPECT_EQ(std::to_integer<unsigned>(image.back()) & 0xc, unsigned{MLX5_INLINE_SCATTER_64});
}

TEST(VhcaCqe, a_response_tells_what_came_beside_the_data) {
    Completion completion = completion_of(IBV_WC_RECV, 1);
    completion.wc.wc_flags = IBV_WC_WITH_IMM;
    completion.wc.imm_data = htobe32(0xa1b2c3d4);
    mlx5_cqe64 cqe = make(completion);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_RESP_SEND_IMM);
    EXPECT_EQ(be32toh(cqe.imm_inval_pkey), 0xa1b2c3d4);
    completion.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    cqe = make(completion);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_RESP_WR_IMM);
    EXPECT_EQ(be32toh(cqe.imm_inval_pkey), 0xa1b2c3d4);
    completion.wc.opcode = IBV_WC_RECV;
    completion.wc.wc_flags = IBV_WC_WITH_INV;
    completion.wc.invalidated_rkey = 0x55667788;  // in host order
    cqe = make(completion);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_RESP_SEND_INV);
    EXPECT_EQ(be32toh(cqe.imm_inval_pkey), 0x55667788U);
}

struct Error {
    ibv_wc_status status;
    std::uint8_t syndrome;
};

TEST(VhcaCqe, every_error_has_its_syndrome) {
    for (const auto& [status, syndrome] :
         {Error{IBV_WC_LOC_LEN_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR},
          Error{IBV_WC_LOC_QP_OP_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
          Error{IBV_WC_LOC_PROT_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
          Error{IBV_WC_WR_FLUSH_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR},
          Error{IBV_WC_MW_BIND_ERR, MLX5_CQE_SYNDROME_MW_BIND_ERR},
          Error{IBV_WC_BAD_RESP_ERR, MLX5_CQE_SYNDROME_BAD_RESP_ERR},
          Error{IBV_WC_LOC_ACCESS_ERR, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR},
          Error{IBV_WC_REM_INV_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR},
          Error{IBV_WC_REM_ACCESS_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR},
          Error{IBV_WC_REM_OP_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR},
          Error{IBV_WC_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR},
          Error{IBV_WC_RNR_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR},
          Error{IBV_WC_REM_ABORT_ERR, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR},
          Error{IBV_WC_GENERAL_ERR, 0}}) {
        for (const bool is_request : {true, false}) {
            Completion completion =
                completion_of(is_request ? IBV_WC_SEND : IBV_WC_RECV, 0x4321, MLX5_OPCODE_SEND);
            completion.wc.status = status;
            const CqeImage image = make_cqe(completion, kOwner);
            mlx5_err_cqe error;
            std::memcpy(&error, image.data(), sizeof error);
            EXPECT_EQ(error.op_own >> 4, is_request ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR);
            EXPECT_EQ(error.syndrome, syndrome) << status;
            EXPECT_NE(error.vendor_err_synd, MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT);
            EXPECT_EQ(be16toh(error.wqe_counter), 0x4321);
            EXPECT_EQ(be32toh(error.srqn), kOwner.user_index);
            const unsigned opcode = is_request ? unsigned{MLX5_OPCODE_SEND} : 0U;
            EXPECT_EQ(be32toh(error.s_wqe_opcode_qpn), opcode << 24 | kOwner.qpn);
        }
    }
}

constexpr unsigned kMatch = IBV_WC_TM_MATCH, kValid = IBV_WC_TM_DATA_VALID;

struct Tagged {
    ibv_wc_opcode opcode;
    ibv_wc_status status;
    unsigned flags;
    std::uint8_t app_op, kind;
};

TEST(VhcaCqe, completions_of_tag_matching_have_their_app_op) {
    for (const auto& [opcode, status, flags, app_op, kind] :
         {Tagged{IBV_WC_TM_RECV, IBV_WC_SUCCESS, kMatch, 1, MLX5_CQE_NO_PACKET},
          Tagged{IBV_WC_TM_RECV, IBV_WC_SUCCESS, kValid, 2, MLX5_CQE_RESP_SEND},
          Tagged{IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0, 3, MLX5_CQE_RESP_SEND},
          Tagged{IBV_WC_TM_NO_TAG, IBV_WC_SUCCESS, 0, 4, MLX5_CQE_RESP_SEND},
          Tagged{IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0, 5, MLX5_CQE_NO_PACKET},
          Tagged{IBV_WC_TM_DEL, IBV_WC_SUCCESS, 0, 6, MLX5_CQE_NO_PACKET},
          Tagged{IBV_WC_TM_DEL, IBV_WC_TM_ERR, 0, 6, MLX5_CQE_NO_PACKET},
          Tagged{IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 0, 7, MLX5_CQE_NO_PACKET},
          Tagged{IBV_WC_TM_RECV, IBV_WC_SUCCESS, kMatch | kValid, 0xa, MLX5_CQE_RESP_SEND},
          Tagged{IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, kMatch, 9, MLX5_CQE_RESP_SEND},
          Tagged{IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, kMatch | kValid, 0xb,
                 MLX5_CQE_RESP_SEND},
          Tagged{IBV_WC_TM_RECV, IBV_WC_LOC_LEN_ERR, 0, 0xc, MLX5_CQE_RESP_SEND}}) {
        Completion completion = completion_of(opcode, 0x21);
        completion.wc.status = status;
        completion.wc.wc_flags = flags;
        completion.wc.byte_len = 99;
        completion.tm_tag = 0xaabbccddeeff0011;
        completion.tm_priv = 0x13579bdf;
        completion.tm_count = 0x0102;
        mlx5_cqe64 cqe = make(completion);
        EXPECT_EQ(cqe.app, 1);
        EXPECT_EQ(cqe.app_op, app_op);
        EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), kind) << int{app_op};
        const bool is_untagged = app_op == 3 || app_op == 4;
        EXPECT_EQ(be16toh(cqe.app_info), is_untagged ? 0 : 0x21);
        EXPECT_EQ(be16toh(cqe.wqe_counter), is_untagged ? 0x21 : 0);
        EXPECT_EQ(be32toh(cqe.byte_cnt), 99U);
        if (kind == MLX5_CQE_NO_PACKET && app_op != 1) {
            EXPECT_EQ(be32toh(cqe.tm_cqe.success),
                      status == IBV_WC_SUCCESS ? unsigned{MLX5_TMC_SUCCESS} : 0U);
            EXPECT_EQ(be16toh(cqe.tm_cqe.hw_phase_cnt), 0x0102);
        } else {
            const bool has_header = (flags & kMatch) != 0;
            EXPECT_EQ(be64toh(cqe.tmh.tag), has_header ? completion.tm_tag : 0U);
            EXPECT_EQ(be32toh(cqe.tmh.app_ctx), has_header ? completion.tm_priv : 0U);
        }
    }
}

TEST(VhcaCqe, a_write_to_a_tag_matching_list_is_an_ordinary_receive) {
    Completion completion = completion_of(IBV_WC_RECV_RDMA_WITH_IMM, 3);
    completion.wc.wc_flags = IBV_WC_WITH_IMM;
    CqeOwner list = kOwner;
    list.is_tag_matching = true;
    mlx5_cqe64 cqe = make(completion, list);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_RESP_WR_IMM);
    EXPECT_EQ(cqe.app, 0);
    EXPECT_EQ(be16toh(cqe.wqe_counter), 3);
}

TEST(VhcaCqe, the_end_of_a_ring_that_was_resized) {
    const CqeImage image = make_resize_cqe();
    mlx5_cqe64 cqe;
    std::memcpy(&cqe, image.data(), sizeof cqe);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_RESIZE_CQ);
}

}  // namespace

}  // namespace tagwire::vhca::driver
