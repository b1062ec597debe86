// SPDX-License-Identifier: BSD-3-Clause
// mlx5dv_create_qp(): DCI and DCT.
#include <cerrno>

#include "ucs/log/log.hpp"
#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"

namespace tagwire::vhca {
namespace {

constexpr std::uint64_t kDcSendOps =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// Checks the requests besides DC. One creation flag is accepted, because it has no effect here.
int check_extras(const mlx5dv_qp_init_attr& dv) {
    constexpr std::uint64_t kKnown =
        MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
        MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    constexpr std::uint32_t kHarmless = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
    const bool has_flags = (dv.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) != 0;
    const bool has_ops = (dv.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) != 0;
    const bool is_known = (dv.comp_mask & ~kKnown) == 0 &&
                          (!has_flags || (dv.create_flags & ~kHarmless) == 0) &&
                          (!has_ops || dv.send_ops_flags == 0);
    return is_known ? 0 : EOPNOTSUPP;
}

int check_initiator(const ibv_qp_init_attr_ex& attr) {
    const bool has_ops = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (has_ops && (attr.send_ops_flags & ~kDcSendOps) != 0)
        return EOPNOTSUPP;
    return attr.send_cq == nullptr ? EINVAL : 0;
}

int check_target(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr& dv) {
    const bool is_target = attr.comp_mask == IBV_QP_INIT_ATTR_PD &&
                           (dv.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) == 0;
    if (attr.send_cq == nullptr) {
        TW_LOG_ERROR(
            "mlx5dv_create_qp: a DCT needs a send_cq although it sends nothing: libibverbs reads "
            "its handle, and crashes without one");
        return EINVAL;
    }
    return is_target && attr.recv_cq != nullptr && attr.srq != nullptr ? 0 : EINVAL;
}

int check(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr& dv) {
    constexpr std::uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if (attr.qp_type != IBV_QPT_DRIVER)
        return EINVAL;
    const bool has_flags = (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0;
    if ((attr.comp_mask & ~kKnown) != 0 || (has_flags && attr.create_flags != 0))
        return EOPNOTSUPP;
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr)
        return EINVAL;
    switch (dv.dc_init_attr.dc_type) {
        case MLX5DV_DCTYPE_DCI:
            return check_initiator(attr);
        case MLX5DV_DCTYPE_DCT:
            return check_target(attr, dv);
        default:
            return EINVAL;
    }
}

DcConfig config_of(const mlx5dv_qp_init_attr& dv) {
    if (dv.dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT)
        return {.kind = DcKind::kTarget, .key = dv.dc_init_attr.dct_access_key};
    DcConfig config{.kind = DcKind::kInitiator};
    if ((dv.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0) {
        config.has_streams = true;
        config.streams_log = dv.dc_init_attr.dci_streams.log_num_concurent;
        config.errored_log = dv.dc_init_attr.dci_streams.log_num_errored;
    }
    return config;
}

}  // namespace
}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_qp* tagwire_vhca_mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                                      mlx5dv_qp_init_attr* dv) {
    if (dv != nullptr) {
        if (const int error = check_extras(*dv))
            return fail(error);
    }
    if (dv == nullptr || (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) == 0) {
        const bool has_streams =
            dv != nullptr && (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0;
        return has_streams ? fail(EINVAL) : create_qp_ex_op(context, attr);
    }
    if (!face(context).engine->device().config().has_dc)
        return fail(EOPNOTSUPP);
    if (const int error = check(*attr, *dv))
        return fail(error);
    return make_qp(context, attr, config_of(*dv));
}

mlx5dv_qp_ex* tagwire_vhca_mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
    return &face(qp).dv;
}

int tagwire_vhca_mlx5dv_dci_stream_id_reset(ibv_qp* qp, std::uint16_t stream) {
    FaceQp& pair = face(qp);
    const auto guard = pair.engine->lock();
    return pair.core->reset_stream(stream);
}
