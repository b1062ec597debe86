// SPDX-License-Identifier: BSD-3-Clause
// ibv_modify_qp(3): which transitions there are, what they need and what they allow. The table is
// that of the Linux kernel's verbs layer (ib_modify_qp_is_ok).
#include <array>
#include <cerrno>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/queue_pair.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

namespace {

struct Masks {
    int required = 0;
    int optional = 0;
};

struct Transition {
    ibv_qp_state from, to;
    Masks rc, uc, ud;
};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kConnect = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kConnectOptions = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
constexpr int kUcOptions =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kRcOptions = kUcOptions | IBV_QP_MIN_RNR_TIMER;
constexpr int kUdOptions = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kUcPath = IBV_QP_AV | kConnectOptions | IBV_QP_PATH_MIG_STATE;
constexpr int kRcPath = kUcPath | IBV_QP_PORT | kRetries | IBV_QP_MAX_QP_RD_ATOMIC |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

constexpr Masks kNothing{};
constexpr Masks kNotify{0, IBV_QP_EN_SQD_ASYNC_NOTIFY};

constexpr std::array kTransitions = {
    Transition{IBV_QPS_RESET, IBV_QPS_RESET, kNothing, kNothing, kNothing},
    Transition{IBV_QPS_RESET,
               IBV_QPS_INIT,
               {kInit | IBV_QP_ACCESS_FLAGS, 0},
               {kInit | IBV_QP_ACCESS_FLAGS, 0},
               {kInit | IBV_QP_QKEY, 0}},
    Transition{IBV_QPS_INIT,
               IBV_QPS_INIT,
               {0, kInit | IBV_QP_ACCESS_FLAGS},
               {0, kInit | IBV_QP_ACCESS_FLAGS},
               {0, kInit | IBV_QP_QKEY}},
    Transition{IBV_QPS_INIT,
               IBV_QPS_RTR,
               {kConnect | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, kConnectOptions},
               {kConnect, kConnectOptions},
               {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    Transition{IBV_QPS_RTR,
               IBV_QPS_RTS,
               {kRetries | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, kRcOptions},
               {IBV_QP_SQ_PSN, kUcOptions},
               {IBV_QP_SQ_PSN, kUdOptions}},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, kRcOptions}, {0, kUcOptions}, {0, kUdOptions}},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, kNotify, kNotify, kNotify},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, {0, kRcOptions}, {0, kUcOptions}, {0, kUdOptions}},
    Transition{
        IBV_QPS_SQD, IBV_QPS_SQD, {0, kRcPath}, {0, kUcPath}, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
};

struct DcTransition {
    ibv_qp_state from, to;
    Masks masks;
};

// As modify_dci_qp_is_ok() and mlx5_ib_modify_dct() of the Linux kernel have it.
constexpr std::array kDciTransitions = {
    DcTransition{IBV_QPS_RESET, IBV_QPS_INIT, {kInit, 0}},
    DcTransition{IBV_QPS_INIT, IBV_QPS_INIT, {0, kInit}},
    DcTransition{IBV_QPS_INIT, IBV_QPS_RTR, {IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV}},
    DcTransition{IBV_QPS_RTR,
                 IBV_QPS_RTS,
                 {kRetries | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER}},
    DcTransition{IBV_QPS_RTS, IBV_QPS_RTS, {0, IBV_QP_MIN_RNR_TIMER}},
};
constexpr std::array kDctTransitions = {
    DcTransition{IBV_QPS_RESET, IBV_QPS_INIT, {kInit | IBV_QP_ACCESS_FLAGS, 0}},
    DcTransition{
        IBV_QPS_INIT, IBV_QPS_RTR, {IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER, 0}},
};

template <typename T>
const Masks* find_dc(const T& table, ibv_qp_state from, ibv_qp_state to) {
    for (const DcTransition& row : table)
        if (row.from == from && row.to == to)
            return &row.masks;
    return nullptr;
}

const Masks* dc_masks_of(DcKind kind, ibv_qp_state from, ibv_qp_state to) {
    if (kind == DcKind::kTarget)
        return find_dc(kDctTransitions, from, to);
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
        return &kNothing;
    return find_dc(kDciTransitions, from, to);
}

/// nullptr: not a legal transition of this type.
const Masks* masks_of(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    static constexpr Masks kUcRepair{0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS};
    static constexpr Masks kUdRepair{0, kUdOptions};
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
        return &kNothing;
    if (from == IBV_QPS_SQE && to == IBV_QPS_RTS && type != IBV_QPT_RC)
        return type == IBV_QPT_UC ? &kUcRepair : &kUdRepair;
    for (const Transition& row : kTransitions)
        if (row.from == from && row.to == to)
            return type == IBV_QPT_RC ? &row.rc : type == IBV_QPT_UC ? &row.uc : &row.ud;
    return nullptr;
}

}  // namespace

int QueuePair::modify(const ibv_qp_attr& attr, int mask, Route route, Time now) {
    if (device.is_dead) [[unlikely]]
        return EIO;
    const ibv_qp_state next = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : state_;
    const Masks* masks = config.type == IBV_QPT_DRIVER ? dc_masks_of(config.dc.kind, state_, next)
                                                       : masks_of(config.type, state_, next);
    const int given = mask & ~IBV_QP_STATE;
    if (masks == nullptr || (given & masks->required) != masks->required ||
        (given & ~(masks->required | masks->optional)) != 0 ||
        QpContext::check(attr, mask, device.config) != 0) {
        return EINVAL;
    }
    if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != state_)
        return EINVAL;
    device.now = now;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
        if (const int error = responder_.replies().set_requests_max(attr.max_dest_rd_atomic);
            error != 0)
            return error;
    }
    context_.set(attr, mask, route);
    change_state(next, attr, mask);
    device.settle();
    return 0;
}

void QueuePair::change_state(ibv_qp_state next, const ibv_qp_attr& attr, int mask) {
    const ibv_qp_state before = state_;
    switch (next) {
        case IBV_QPS_RESET:
            retire();
            return;
        case IBV_QPS_ERR:
            enter_error(false);
            return;
        case IBV_QPS_RTR:
            context_.set_number(table_number_);
            responder_.start(context_.attr().rq_psn);
            break;
        case IBV_QPS_RTS:
            if (before == IBV_QPS_RTR)
                requester_.start(context_.attr().sq_psn);
            else
                device.schedule(*this);
            break;
        case IBV_QPS_SQD:
            tells_drained_ = before == IBV_QPS_RTS && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 &&
                             attr.en_sqd_async_notify != 0;
            break;
        default:
            break;
    }
    state_ = next;
    if (next == IBV_QPS_SQD)
        note_drained();
}

}  // namespace tagwire::vhca
