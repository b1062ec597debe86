// SPDX-License-Identifier: BSD-3-Clause
// Posting lists of requests.
#include <cerrno>

#include "vhca/face/context.hpp"

namespace tagwire::vhca {
namespace {

bool is_atomic(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

SendWork translate(const FaceQp& qp, const ibv_send_wr& wr) {
    SendWork work{};
    work.wr_id = wr.wr_id;
    work.opcode = wr.opcode;
    work.flags = wr.send_flags;
    work.imm = wr.imm_data;
    work.sges = {wr.sg_list, static_cast<std::size_t>(wr.num_sge)};
    if (qp.qp.qp_base.qp_type == IBV_QPT_UD) {
        if (wr.wr.ud.ah != nullptr)
            work.route = face(wr.wr.ud.ah).route;
        work.remote_qpn = wr.wr.ud.remote_qpn;
        work.remote_qkey = wr.wr.ud.remote_qkey;
    } else if (is_atomic(wr.opcode)) {
        work.remote_addr = wr.wr.atomic.remote_addr;
        work.rkey = wr.wr.atomic.rkey;
        work.compare_add = wr.wr.atomic.compare_add;
        work.swap = wr.wr.atomic.swap;
    } else {
        work.remote_addr = wr.wr.rdma.remote_addr;
        work.rkey = wr.wr.rdma.rkey;
    }
    return work;
}

int post_one(FaceQp& qp, const ibv_send_wr& wr) {
    if (qp.dc != DcKind::kNone)
        return EINVAL;  // here is no place for the target
    if (wr.num_sge < 0 || (qp.qp.qp_base.qp_type == IBV_QPT_UD && wr.wr.ud.ah == nullptr))
        return EINVAL;
    return qp.core->enqueue_send(translate(qp, wr));
}

}  // namespace

int post_send_op(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
    FaceQp& pair = face(qp);
    const auto guard = pair.engine->lock();
    int error = 0;
    for (; wr != nullptr; wr = wr->next) {
        error = post_one(pair, *wr);
        if (error != 0) {
            *bad_wr = wr;
            break;
        }
    }
    pair.core->ring(pair.engine->now());
    return error;
}

int post_recv_op(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    FaceQp& pair = face(qp);
    const auto guard = pair.engine->lock();
    for (; wr != nullptr; wr = wr->next) {
        const RecvWork work{wr->wr_id, {wr->sg_list, static_cast<std::size_t>(wr->num_sge)}};
        const int error = wr->num_sge < 0 ? EINVAL : pair.core->post_recv(work);
        if (error != 0) {
            *bad_wr = wr;
            return error;
        }
    }
    return 0;
}

}  // namespace tagwire::vhca
