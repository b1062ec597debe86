// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/qp_request.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace tagwire::vhca::driver {
namespace {

constexpr unsigned kTypeRawPacket = 8, kTypeXrcInitiator = 9, kTypeXrcTarget = 10;
constexpr std::uint32_t kReceiveShiftMin = 4, kReceiveShiftMax = 10;  // one list element, and 64

int check_type(unsigned type) {
    switch (type) {
        case IBV_QPT_RC:
        case IBV_QPT_UC:
        case IBV_QPT_UD:
        case IBV_QPT_DRIVER:
            return 0;
        case kTypeRawPacket:
            return EPERM;  // a card returns EOPNOTSUPP to privileged callers; not distinguished
        case kTypeXrcInitiator:
            return EOPNOTSUPP;
        case kTypeXrcTarget:  // it names a domain, and there is none
        default:
            return EINVAL;
    }
}

int find_parts(const Context& context, const Call& call, QpRequest* request) {
    const ib_uverbs_ex_create_qp& core = request->core;
    if (core.is_srq != 0) {
        request->srq = find_named(context.srqs, call, core.srq_handle);
        if (request->srq == nullptr)
            return EINVAL;
    }
    request->recv_cq = find_named(context.cqs, call, core.recv_cq_handle);
    request->send_cq = find_named(context.cqs, call, core.send_cq_handle);
    request->pd = context.pds.find(core.pd_handle);
    const bool are_all =
        request->recv_cq != nullptr && request->send_cq != nullptr && request->pd != nullptr;
    return are_all ? 0 : EINVAL;
}

/// The device has none of those that the kernel knows.
int check_create_flags(std::uint32_t flags, DcKind dc) {
    constexpr std::uint32_t kKnown = 0xf1e;  // IB_UVERBS_QP_CREATE_*, and what is for the kernel
    constexpr std::uint32_t kSourceQpn = 1 << 10;
    if ((flags & ~kKnown) != 0)
        return EINVAL;
    if ((flags & kSourceQpn) != 0)
        return EPERM;
    return flags == 0 ? 0 : dc == DcKind::kTarget ? EINVAL : EOPNOTSUPP;
}

int read_driver_part(const Call& call, mlx5_ib_create_qp* driver) {
    if (call.driver_in.bytes < offsetof(mlx5_ib_create_qp, ece_options))
        return EINVAL;
    if (const int error = read_user(call.driver_in, driver))
        return error;
    if (const int error = check_zeros(call.driver_in.from(sizeof *driver)))
        return error == EFAULT ? EFAULT : EINVAL;
    return 0;
}

int check_driver_flags(const Context& context, QpRequest* request) {
    constexpr std::uint32_t kHarmless = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                        MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX |
                                        MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI;
    const mlx5_ib_create_qp& driver = request->driver;
    std::uint32_t known = kHarmless;
    if (request->type == IBV_QPT_DRIVER) {
        switch (driver.flags & (MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI)) {
            case MLX5_QP_FLAG_TYPE_DCT:
                request->dc = {.kind = DcKind::kTarget, .key = driver.access_key};
                break;
            case MLX5_QP_FLAG_TYPE_DCI:
                request->dc = {.kind = DcKind::kInitiator};
                known |= MLX5_QP_FLAG_DCI_STREAM;
                break;
            default:
                return EINVAL;
        }
    }
    if ((driver.flags & ~known) != 0 || driver.uidx > kUserIndexMax)
        return EINVAL;
    if ((driver.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) != 0 &&
        !has_doorbell_page(context, driver.bfreg_index)) {
        return EINVAL;
    }
    if ((driver.flags & MLX5_QP_FLAG_DCI_STREAM) != 0) {
        request->dc.has_streams = true;
        request->dc.streams_log = driver.dci_streams.log_num_concurent;
        request->dc.errored_log = driver.dci_streams.log_num_errored;
    }
    return 0;
}

std::uint8_t carried_by(const CqObject& cq) {
    constexpr std::uint8_t kOfPlain = 32;
    return cq.ring->entry_bytes() > kCqeBytes ? std::uint8_t{kDataInCqeMax} : kOfPlain;
}

/// Short data go with the completion, and libmlx5 puts them where they belong. As mlx5_ib has it:
/// receives of RC and UC, and of a DCT whose entries are long; what reads and atomics bring where
/// all requests are signaled, or the program says that it knows.
DataInCqe choose_data_in_cqe(const QpRequest& request) {
    const std::uint32_t flags = request.driver.flags;
    DataInCqe chosen;
    if ((flags & MLX5_QP_FLAG_SCATTER_CQE) == 0)
        return chosen;
    const bool is_rc = request.type == IBV_QPT_RC;
    const std::uint8_t receives = carried_by(*request.recv_cq);
    if (is_rc || request.type == IBV_QPT_UC ||
        (request.dc.kind == DcKind::kTarget && receives == kDataInCqeMax)) {
        chosen.received = receives;
    }
    const bool knows = (flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE) != 0;
    if ((is_rc || request.dc.kind == DcKind::kInitiator) && (knows || request.core.sq_sig_all != 0))
        chosen.read = carried_by(*request.send_cq);
    return chosen;
}

/// A DCT receives by an SRQ, a DCI not at all.
int check_dc(const QpRequest& request) {
    const ib_uverbs_ex_create_qp& core = request.core;
    switch (request.dc.kind) {
        case DcKind::kTarget:
            return request.srq == nullptr ? EINVAL : 0;
        case DcKind::kInitiator:
            return core.max_recv_wr != 0 || core.max_recv_sge != 0 ? EINVAL : 0;
        default:
            return 0;
    }
}

bool is_ring(std::uint32_t entries, std::uint32_t entries_max) {
    return std::has_single_bit(entries) && entries <= entries_max;
}

int take_receives(QpRequest* request, std::uint32_t entries_max) {
    const mlx5_ib_create_qp& driver = request->driver;
    const bool has_ring = request->srq == nullptr && request->core.max_recv_wr != 0;
    if (!has_ring) {
        request->reported.max_recv_wr = request->reported.max_recv_sge = 0;
        return 0;
    }
    if (request->core.max_recv_wr > entries_max || !is_ring(driver.rq_wqe_count, entries_max) ||
        driver.rq_wqe_shift < kReceiveShiftMin || driver.rq_wqe_shift > kReceiveShiftMax) {
        return EINVAL;
    }
    request->receives = {.address = driver.buf_addr,
                         .entries = driver.rq_wqe_count,
                         .entry_bytes = 1U << driver.rq_wqe_shift};
    request->needed.max_recv_wr = driver.rq_wqe_count;
    request->needed.max_recv_sge =
        request->receives.entry_bytes / static_cast<std::uint32_t>(kSegmentBytes);
    return 0;
}

int take_sends(QpRequest* request, const DeviceConfig& limits) {
    const mlx5_ib_create_qp& driver = request->driver;
    if (driver.sq_wqe_count == 0)
        return 0;
    if (!is_ring(driver.sq_wqe_count, limits.qp_wr_max))
        return EINVAL;
    request->sends = {.address = driver.buf_addr + request->receives.bytes(),
                      .entries = driver.sq_wqe_count,
                      .entry_bytes = kBlockBytes};
    request->needed.max_send_wr = driver.sq_wqe_count;
    request->needed.max_send_sge = limits.sge_max;
    return 0;
}

int take_rings(QpRequest* request, const DeviceConfig& limits) {
    if (request->dc.kind == DcKind::kTarget)
        return 0;
    if (const int error = take_receives(request, limits.qp_wr_max))
        return error;
    if (const int error = take_sends(request, limits))
        return error;
    return check_ring(request->driver.buf_addr, request->receives.bytes() + request->sends.bytes(),
                      request->driver.db_addr);
}

}  // namespace

int read_qp_request(const Context& context, const ib_uverbs_ex_create_qp& core, const Call& call,
                    QpRequest* request) {
    request->core = core;
    request->type = static_cast<ibv_qp_type>(core.qp_type);
    request->reported = {.max_send_wr = core.max_send_wr,
                         .max_recv_wr = core.max_recv_wr,
                         .max_send_sge = core.max_send_sge,
                         .max_recv_sge = core.max_recv_sge,
                         .max_inline_data = core.max_inline_data};
    int error = check_type(core.qp_type);
    if (error == 0)
        error = find_parts(context, call, request);
    if (error == 0)
        error = read_driver_part(call, &request->driver);
    if (error == 0)
        error = check_driver_flags(context, request);
    if (error == 0)
        error = check_create_flags(core.create_flags, request->dc.kind);
    if (error == 0) {
        const DataInCqe wanted =
            call.data_in_cqe != nullptr ? *call.data_in_cqe : choose_data_in_cqe(*request);
        request->data_in_cqe = {
            .received = std::min(wanted.received, carried_by(*request->recv_cq)),
            .read = std::min(wanted.read, carried_by(*request->send_cq))};
        error = check_dc(*request);
    }
    return error != 0 ? error : take_rings(request, context.engine.device().config());
}

}  // namespace tagwire::vhca::driver
