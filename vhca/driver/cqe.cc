// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/cqe.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tagwire::vhca::driver {

namespace {

static_assert(sizeof(mlx5_cqe64) == kCqeBytes && sizeof(mlx5_err_cqe) == kCqeBytes);
static_assert(offsetof(mlx5_cqe64, sop_drop_qpn) == offsetof(mlx5_err_cqe, s_wqe_opcode_qpn));
static_assert(offsetof(mlx5_cqe64, wqe_counter) == offsetof(mlx5_err_cqe, wqe_counter));
static_assert(offsetof(mlx5_cqe64, op_own) == kCqeBytes - 1);

constexpr std::uint32_t kNumberMask = 0xffffff;
constexpr std::uint8_t kAppTagMatching = 1;
constexpr std::uint8_t kSolicited = 2;  // in op_own

/// app_op of completions of a tag-matching SRQ.
enum class AppOp : std::uint8_t {
    kNone = 0,
    kConsumed = 1,  // matched; the data come with kExpected
    kExpected = 2,
    kUnexpected = 3,
    kNoTag = 4,
    kAppend = 5,
    kRemove = 6,
    kNop = 7,
    kConsumedForSoftware = 9,  // a rendezvous that software carries out
    kConsumedMessage = 0xa,
    kConsumedMessageForSoftware = 0xb,
    kCanceled = 0xc,  // the receive is used up, its data are not valid
};

AppOp received(const ibv_wc& wc) {
    const bool is_match = (wc.wc_flags & IBV_WC_TM_MATCH) != 0;
    const bool has_data = (wc.wc_flags & IBV_WC_TM_DATA_VALID) != 0;
    if (wc.status == IBV_WC_TM_RNDV_INCOMPLETE)
        return has_data ? AppOp::kConsumedMessageForSoftware : AppOp::kConsumedForSoftware;
    if (wc.status != IBV_WC_SUCCESS)
        return AppOp::kCanceled;  // an error entry names a receive that has no tag
    if (is_match)
        return has_data ? AppOp::kConsumedMessage : AppOp::kConsumed;
    return has_data ? AppOp::kExpected : AppOp::kUnexpected;
}

AppOp app_op_of(const ibv_wc& wc) {
    switch (wc.opcode) {
        case IBV_WC_TM_ADD:
            return AppOp::kAppend;
        case IBV_WC_TM_DEL:
            return AppOp::kRemove;
        case IBV_WC_TM_SYNC:
            return AppOp::kNop;
        case IBV_WC_TM_NO_TAG:
            return AppOp::kNoTag;
        case IBV_WC_TM_RECV:
            return received(wc);
        default:
            return AppOp::kNone;
    }
}

bool is_operation(AppOp op) {
    return op == AppOp::kAppend || op == AppOp::kRemove || op == AppOp::kNop;
}
bool is_untagged(AppOp op) {
    return op == AppOp::kUnexpected || op == AppOp::kNoTag;
}

struct Fault {
    std::uint8_t syndrome, vendor;
};

/// The vendor's part is as cards are seen to tell it.
Fault fault_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
            return {MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x32};
        case IBV_WC_LOC_QP_OP_ERR:
            return {MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0x68};
        case IBV_WC_LOC_PROT_ERR:
            return {MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51};
        case IBV_WC_WR_FLUSH_ERR:
            return {MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0xf9};
        case IBV_WC_MW_BIND_ERR:
            return {MLX5_CQE_SYNDROME_MW_BIND_ERR, 0x5f};
        case IBV_WC_BAD_RESP_ERR:
            return {MLX5_CQE_SYNDROME_BAD_RESP_ERR, 0x84};
        case IBV_WC_LOC_ACCESS_ERR:
            return {MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, 0x53};
        case IBV_WC_REM_INV_REQ_ERR:
            return {MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0x8a};
        case IBV_WC_REM_ACCESS_ERR:
            return {MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88};
        case IBV_WC_REM_OP_ERR:
            return {MLX5_CQE_SYNDROME_REMOTE_OP_ERR, 0x89};
        case IBV_WC_RETRY_EXC_ERR:
            return {MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0x81};
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return {MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, 0x87};
        case IBV_WC_REM_ABORT_ERR:
            return {MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, 0x86};
        default:
            return {0, 0};  // IBV_WC_GENERAL_ERR is what the driver makes of any other
    }
}

CqeImage image_of(const mlx5_cqe64& cqe) {
    CqeImage image;
    std::memcpy(image.data(), &cqe, sizeof cqe);
    return image;
}

std::uint8_t response_opcode(const ibv_wc& wc) {
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
        return MLX5_CQE_RESP_WR_IMM;
    if ((wc.wc_flags & IBV_WC_WITH_INV) != 0)
        return MLX5_CQE_RESP_SEND_INV;
    return (wc.wc_flags & IBV_WC_WITH_IMM) != 0 ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;
}

/// The sender, and the immediate or key beside the data.
void tell_sender(const ibv_wc& wc, PacketKind kind, mlx5_cqe64& cqe) {
    const std::uint32_t grh = (wc.wc_flags & IBV_WC_GRH) != 0 ? 1U << 28 : 0U;
    const bool is_ethernet = kind != PacketKind::kInfiniband;
    const std::uint32_t level =
        (is_ethernet ? static_cast<std::uint32_t>(kind) : std::uint32_t{wc.sl}) << 24;
    cqe.flags_rqpn = htobe32(grh | (level & 0xf000000) | (wc.src_qp & kNumberMask));
    cqe.slid = is_ethernet ? 0 : htobe16(wc.slid);
    cqe.ml_path = wc.dlid_path_bits & 0x7f;
    if ((wc.wc_flags & IBV_WC_WITH_INV) != 0)
        cqe.imm_inval_pkey = htobe32(wc.invalidated_rkey);
    else if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0)
        cqe.imm_inval_pkey = wc.imm_data;
}

void tell_tag(const Completion& completion, AppOp op, mlx5_cqe64& cqe) {
    const bool is_tagged = !is_untagged(op);
    const std::uint16_t entry = EntryName::unpack(completion.wc.wr_id).counter;
    cqe.app = kAppTagMatching;
    cqe.app_op = static_cast<std::uint8_t>(op);
    cqe.app_info = is_tagged ? htobe16(entry) : 0;
    cqe.wqe_counter = is_tagged ? 0 : htobe16(entry);
    if (is_operation(op)) {
        const bool is_done = completion.wc.status == IBV_WC_SUCCESS;
        cqe.tm_cqe.success = is_done ? htobe32(MLX5_TMC_SUCCESS) : 0;
        cqe.tm_cqe.hw_phase_cnt = htobe16(completion.tm_count);
    } else if ((completion.wc.wc_flags & IBV_WC_TM_MATCH) != 0) {
        const bool is_eager = op == AppOp::kConsumedMessage;
        cqe.tmh.opcode = is_eager ? IBV_TMH_EAGER : IBV_TMH_RNDV;
        cqe.tmh.app_ctx = htobe32(completion.tm_priv);
        cqe.tmh.tag = htobe64(completion.tm_tag);
    }
}

}  // namespace

CqeImage make_cqe(const Completion& completion, const CqeOwner& owner) {
    const ibv_wc& wc = completion.wc;
    const EntryName entry = EntryName::unpack(wc.wr_id);
    const AppOp op = app_op_of(wc);
    const bool is_request = wc.opcode < IBV_WC_RECV;
    const bool is_error = wc.status != IBV_WC_SUCCESS && op == AppOp::kNone;
    const std::uint32_t opcode = is_request ? entry.opcode : 0;
    mlx5_cqe64 cqe{};
    cqe.srqn_uidx = htobe32(owner.user_index & kNumberMask);
    cqe.sop_drop_qpn = htobe32(opcode << 24 | (owner.qpn & kNumberMask));
    cqe.wqe_counter = htobe16(entry.counter);
    std::uint8_t kind = is_request ? std::uint8_t{MLX5_CQE_REQ} : response_opcode(wc);
    if (is_error) {
        kind = is_request ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR;
    } else {
        cqe.byte_cnt = htobe32(wc.byte_len);
        cqe.timestamp = htobe64(completion.time);
    }
    if (!is_request && !is_error)
        tell_sender(wc, owner.kind, cqe);
    if (op != AppOp::kNone) {
        tell_tag(completion, op, cqe);
        const bool is_packet = !is_operation(op) && op != AppOp::kConsumed;
        kind = is_packet ? kind : std::uint8_t{MLX5_CQE_NO_PACKET};
    }
    cqe.op_own = static_cast<std::uint8_t>(kind << 4 | (completion.is_solicited ? kSolicited : 0));
    CqeImage image = image_of(cqe);
    if (!completion.data.empty() && !owner.has_room_before) {
        image[kCqeBytes - 1] |= std::byte{MLX5_INLINE_SCATTER_32};
        std::ranges::copy(completion.data, image.begin());
    } else if (!completion.data.empty()) {
        image[kCqeBytes - 1] |= std::byte{MLX5_INLINE_SCATTER_64};
    }
    if (is_error) {
        const Fault fault = fault_of(wc.status);
        image[offsetof(mlx5_err_cqe, vendor_err_synd)] = std::byte{fault.vendor};
        image[offsetof(mlx5_err_cqe, syndrome)] = std::byte{fault.syndrome};
    }
    return image;
}

CqeImage make_resize_cqe() {
    mlx5_cqe64 cqe{};
    cqe.op_own = MLX5_CQE_RESIZE_CQ << 4;
    return image_of(cqe);
}

}  // namespace tagwire::vhca::driver
