// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/qp_context.hpp"

#include <cerrno>

namespace tagwire::vhca {

namespace {

unsigned transport_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
            return kTransportRc;
        case IBV_QPT_UC:
            return kTransportUc;
        case IBV_QPT_DRIVER:
            return kTransportDc;
        default:
            return kTransportUd;
    }
}

constexpr unsigned kAccessFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | unsigned{IBV_ACCESS_OPTIONAL_RANGE};

}  // namespace

QpContext::QpContext(ibv_qp_type type)
    : transport_(static_cast<std::uint8_t>(transport_of(type))),
      is_reliable_(type == IBV_QPT_RC || type == IBV_QPT_DRIVER) {}

void QpContext::reset(ibv_mtu port_mtu) {
    attr_ = {};
    attr_.path_mtu = port_mtu;
    mtu_bytes_ = 128U << port_mtu;
}

void QpContext::copy(const ibv_qp_attr& attr) {
    attr_ = attr;
    mtu_bytes_ = 128U << attr.path_mtu;
}

void QpContext::set_peer(Route route, std::uint32_t qpn, const DcPeer& peer) {
    route_ = route;
    attr_.dest_qp_num = qpn;
    peer_ = peer;
}

int QpContext::check(const ibv_qp_attr& attr, int mask, const DeviceConfig& limits) {
    const auto exceeds = [mask](int bit, bool is_bad) { return (mask & bit) != 0 && is_bad; };
    const auto is_port = [&limits](unsigned port) { return port >= 1 && port <= limits.ports; };
    const bool is_bad =
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

void QpContext::set(const ibv_qp_attr& attr, int mask, Route route) {
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

}  // namespace tagwire::vhca
