// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: creation, destruction, states. Posting is in qp_datapath.cc and send_builder.cc.
#include <cerrno>
#include <new>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca {
namespace {

constexpr std::uint64_t kSendOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kWriteOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr std::uint64_t kRcOnlyOps = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                     IBV_QP_EX_WITH_SEND_WITH_INV;

std::uint64_t send_ops_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
            return kSendOps | kWriteOps | kRcOnlyOps;
        case IBV_QPT_UC:
            return kSendOps | kWriteOps;
        case IBV_QPT_UD:
            return kSendOps;
        default:
            return 0;
    }
}

int check(const ibv_qp_init_attr_ex& attr) {
    constexpr std::uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if (attr.qp_type != IBV_QPT_RC && attr.qp_type != IBV_QPT_UC && attr.qp_type != IBV_QPT_UD)
        return EOPNOTSUPP;
    if ((attr.comp_mask & ~kKnown) != 0)
        return EOPNOTSUPP;
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0)
        return EOPNOTSUPP;
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 &&
        (attr.send_ops_flags & ~send_ops_of(attr.qp_type)) != 0) {
        return EOPNOTSUPP;
    }
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr ||
        attr.send_cq == nullptr || attr.recv_cq == nullptr) {
        return EINVAL;
    }
    return 0;
}

// The parts of a queue pair cannot belong to another device.
bool are_of_one_device(ibv_context& context, const ibv_qp_init_attr_ex& attr) {
    const ibv_device* device = context.device;
    const auto is_ours = [&](const auto* part) {
        return part == nullptr || part->context->device == device;
    };
    return is_ours(attr.pd) && is_ours(attr.send_cq) && is_ours(attr.recv_cq) && is_ours(attr.srq);
}

Cq* core_of(ibv_cq* cq) {
    return cq != nullptr ? face(cq).core : nullptr;
}

int create_core(FaceContext& context, const ibv_qp_init_attr_ex& attr, const DcConfig& dc,
                FaceQp* made) {
    const QpConfig config{.type = attr.qp_type,
                          .pd = face(attr.pd).core,
                          .send_cq = core_of(attr.send_cq),
                          .recv_cq = core_of(attr.recv_cq),
                          .srq = attr.srq != nullptr ? face(attr.srq).core : nullptr,
                          .cap = attr.cap,
                          .signals_all = attr.sq_sig_all != 0,
                          .dc = dc,
                          .user = made};
    const auto guard = context.engine->lock();
    const int error = context.engine->device().create_qp(config, &made->core);
    if (error == 0)
        context.qps.push_back(*made);
    return error;
}

void fill(FaceQp& made, ibv_context* context, const ibv_qp_init_attr_ex& attr) {
    ibv_qp& qp = made.qp.qp_base;
    made.engine = face(context).engine;
    made.signals_all = attr.sq_sig_all != 0;
    qp.context = context;
    qp.qp_context = attr.qp_context;
    qp.pd = attr.pd;
    qp.send_cq = attr.send_cq;
    qp.recv_cq = attr.recv_cq;
    qp.srq = attr.srq;
    qp.handle = qp.qp_num = made.core->number();
    qp.state = IBV_QPS_RESET;
    qp.qp_type = attr.qp_type;
    pthread_mutex_init(&qp.mutex, nullptr);
    pthread_cond_init(&qp.cond, nullptr);
}

}  // namespace

ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    if (const int error = check(*attr))
        return fail(error);
    return make_qp(context, attr, {});
}

ibv_qp* make_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, const DcConfig& dc) {
    if (!are_of_one_device(*context, *attr))
        return fail(EINVAL);
    auto* made = new (std::nothrow) FaceQp{};
    if (made == nullptr)
        return fail(ENOMEM);
    const bool has_ops = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    int error = 0;
    if (has_ops && (made->builder = new (std::nothrow) SendBuilder{}) == nullptr)
        error = ENOMEM;
    else
        error = create_core(face(context), *attr, dc, made);
    if (error != 0) {
        delete made->builder;
        delete made;
        return fail(error);
    }
    fill(*made, context, *attr);
    if (has_ops) {
        fill_qp_ex(&made->qp);
        fill_dv_qp_ex(&made->dv);
    }
    made->dc = dc.kind;
    attr->cap = made->core->cap();
    return &made->qp.qp_base;
}

int remove(FaceQp& qp) {
    FaceContext& owner = face(qp.qp.qp_base.context);
    {
        const auto guard = qp.engine->lock();
        if (const int error = qp.engine->device().destroy_qp(*qp.core))
            return error;
        owner.qps.erase(qp);
    }
    owner.async_events.erase_if(
        [&](const AsyncEvent& event) { return event.delivered == &qp.events_delivered; });
    return 0;
}

void dispose(FaceQp& qp) {
    pthread_cond_destroy(&qp.qp.qp_base.cond);
    pthread_mutex_destroy(&qp.qp.qp_base.mutex);
    delete qp.builder;
    delete &qp;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_qp* tagwire_vhca_ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    ibv_qp_init_attr_ex extended{};
    extended.qp_context = attr->qp_context;
    extended.send_cq = attr->send_cq;
    extended.recv_cq = attr->recv_cq;
    extended.srq = attr->srq;
    extended.cap = attr->cap;
    extended.qp_type = attr->qp_type;
    extended.sq_sig_all = attr->sq_sig_all;
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    ibv_qp* qp = create_qp_ex_op(pd->context, &extended);
    if (qp != nullptr)
        attr->cap = extended.cap;
    return qp;
}

ibv_qp_ex* tagwire_vhca_ibv_qp_to_qp_ex(ibv_qp* qp) {
    FaceQp& pair = face(qp);
    return pair.builder != nullptr ? &pair.qp : nullptr;
}

int tagwire_vhca_ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    FaceQp& pair = face(qp);
    Engine& engine = *pair.engine;
    Route route{};
    if ((mask & IBV_QP_AV) != 0) {
        if (!is_path(engine, attr->ah_attr))
            return EINVAL;
        route = engine.port().route_of(attr->ah_attr);
    }
    const auto guard = engine.lock();
    const int error = pair.core->modify(*attr, mask, route, engine.now());
    if (error == 0 && (mask & IBV_QP_STATE) != 0) {
        qp->state = attr->qp_state;
        // A DCT gets it now. Threads that take the device's events may read that of others.
        if (const std::uint32_t number = pair.core->number(); qp->qp_num != number)
            qp->handle = qp->qp_num = number;
    }
    return error;
}

int tagwire_vhca_ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask,
                              ibv_qp_init_attr* init_attr) {
    FaceQp& pair = face(qp);
    // The mlx5 driver asks the card, which knows a DCT in RTR only, and not all of it.
    constexpr int kOfDct = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_MIN_RNR_TIMER |
                           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX;
    if (pair.dc == DcKind::kTarget && ((mask & ~kOfDct) != 0 || qp->state != IBV_QPS_RTR))
        return EINVAL;
    *attr = {};
    {
        const auto guard = pair.engine->lock();
        if (pair.engine->device().is_dead())
            return EIO;
        pair.core->query(attr);
    }
    attr->cap = pair.core->cap();
    qp->state = attr->qp_state;
    *init_attr = {};
    init_attr->qp_context = qp->qp_context;
    init_attr->send_cq = qp->send_cq;
    init_attr->recv_cq = qp->recv_cq;
    init_attr->srq = qp->srq;
    init_attr->cap = attr->cap;
    init_attr->qp_type = qp->qp_type;
    init_attr->sq_sig_all = pair.signals_all ? 1 : 0;
    return 0;
}

int tagwire_vhca_ibv_destroy_qp(ibv_qp* qp) {
    FaceQp& pair = face(qp);
    if (const int error = remove(pair))
        return error;
    wait_for_acks(&qp->mutex, &qp->cond, qp->events_completed, pair.events_delivered);
    dispose(pair);
    return 0;
}

// "No": what a device says that promises nothing about the order of a message's bytes.
int tagwire_vhca_ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
    return 0;
}

int tagwire_vhca_ibv_query_ece(ibv_qp*, ibv_ece* ece) {
    *ece = {};
    return EOPNOTSUPP;
}

int tagwire_vhca_ibv_set_ece(ibv_qp*, ibv_ece* ece) {
    return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}
