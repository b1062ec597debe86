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

constexpr unsigned kAccessFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | unsigned{IBV_ACCESS_OPTIONAL_RANGE};

}  // namespace

int QueuePair::check_values(const ibv_qp_attr& attr, int mask) const {
    const DeviceConfig& limits = device.config;
    const auto exceeds = [mask](int bit, bool is_bad) { return (mask & bit) != 0 && is_bad; };
    const auto is_port = [&limits](unsigned port) { return port >= 1 && port <= limits.ports; };
    const bool is_bad =
        exceeds(IBV_QP_CUR_STATE, attr.cur_qp_state != state_) ||
        exceeds(IBV_QP_PKEY_INDEX, attr.pkey_index != 0) ||
        exceeds(IBV_QP_PORT, !is_port(attr.port_num)) ||
        exceeds(IBV_QP_AV, !is_port(attr.ah_attr.port_num)) ||
        exceeds(IBV_QP_ALT_PATH, attr.alt_port_num > limits.ports) ||
        exceeds(IBV_QP_ACCESS_FLAGS, (attr.qp_access_flags & ~kAccessFlags) != 0) ||
        exceeds(IBV_QP_PATH_MTU,
                attr.path_mtu < IBV_MTU_256 || attr.path_mtu > limits.active_mtu) ||
        exceeds(IBV_QP_DEST_QPN, attr.dest_qp_num > kQpnMask) ||
        exceeds(IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic > limits.rd_atom_max) ||
        exceeds(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic > limits.rd_atom_max) ||
        exceeds(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer > 31) ||
        exceeds(IBV_QP_TIMEOUT, attr.timeout > 31) ||
        exceeds(IBV_QP_RETRY_CNT, attr.retry_cnt > 7) ||
        exceeds(IBV_QP_RNR_RETRY, attr.rnr_retry > 7) ||
        exceeds(IBV_QP_PATH_MIG_STATE, attr.path_mig_state > IBV_MIG_ARMED);
    return is_bad ? EINVAL : 0;
}

void QueuePair::take_values(const ibv_qp_attr& attr, int mask, Route route) {
    const auto take = [mask](int bit, auto& to, const auto& from) {
        if ((mask & bit) != 0)
            to = from;
    };
    take(IBV_QP_PKEY_INDEX, attr_.pkey_index, attr.pkey_index);
    take(IBV_QP_PORT, attr_.port_num, attr.port_num);
    take(IBV_QP_QKEY, attr_.qkey, attr.qkey);
    take(IBV_QP_ACCESS_FLAGS, attr_.qp_access_flags, attr.qp_access_flags);
    take(IBV_QP_AV, attr_.ah_attr, attr.ah_attr);
    take(IBV_QP_AV, route_, route);
    take(IBV_QP_PATH_MTU, attr_.path_mtu, attr.path_mtu);
    take(IBV_QP_PATH_MTU, mtu_bytes_, 128U << attr.path_mtu);
    take(IBV_QP_DEST_QPN, attr_.dest_qp_num, attr.dest_qp_num);
    take(IBV_QP_RQ_PSN, attr_.rq_psn, attr.rq_psn & kPsnMask);
    take(IBV_QP_SQ_PSN, attr_.sq_psn, attr.sq_psn & kPsnMask);
    take(IBV_QP_MAX_DEST_RD_ATOMIC, attr_.max_dest_rd_atomic, attr.max_dest_rd_atomic);
    take(IBV_QP_MAX_QP_RD_ATOMIC, attr_.max_rd_atomic, attr.max_rd_atomic);
    take(IBV_QP_MIN_RNR_TIMER, attr_.min_rnr_timer, attr.min_rnr_timer);
    take(IBV_QP_TIMEOUT, attr_.timeout, attr.timeout);
    take(IBV_QP_RETRY_CNT, attr_.retry_cnt, attr.retry_cnt);
    take(IBV_QP_RNR_RETRY, attr_.rnr_retry, attr.rnr_retry);
    take(IBV_QP_PATH_MIG_STATE, attr_.path_mig_state, attr.path_mig_state);
    take(IBV_QP_ALT_PATH, attr_.alt_ah_attr, attr.alt_ah_attr);
    take(IBV_QP_ALT_PATH, attr_.alt_port_num, attr.alt_port_num);
    take(IBV_QP_ALT_PATH, attr_.alt_pkey_index, attr.alt_pkey_index);
    take(IBV_QP_ALT_PATH, attr_.alt_timeout, attr.alt_timeout);
}

int QueuePair::modify(const ibv_qp_attr& attr, int mask, Route route, Time now) {
    const ibv_qp_state next = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : state_;
    const Masks* masks = config.type == IBV_QPT_DRIVER ? dc_masks_of(config.dc.kind, state_, next)
                                                       : masks_of(config.type, state_, next);
    const int given = mask & ~IBV_QP_STATE;
    if (masks == nullptr || (given & masks->required) != masks->required ||
        (given & ~(masks->required | masks->optional)) != 0 || check_values(attr, mask) != 0) {
        return EINVAL;
    }
    device.now = now;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
        if (const int error = responder_.replies().set_requests_max(attr.max_dest_rd_atomic);
            error != 0)
            return error;
    }
    take_values(attr, mask, route);
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
            number_ = table_number_;
            responder_.start(attr_.rq_psn);
            break;
        case IBV_QPS_RTS:
            if (before == IBV_QPS_RTR)
                requester_.start(attr_.sq_psn);
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
