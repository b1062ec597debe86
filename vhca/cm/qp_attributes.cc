// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/qp_attributes.hpp"

#include <cerrno>
#include <cstring>

namespace tagwire::vhca::cm {

namespace {

void fill_vector(const ib_uverbs_ah_attr& from, ibv_ah_attr* to) {
    std::memcpy(&to->grh.dgid, from.grh.dgid, sizeof to->grh.dgid);
    to->grh.hop_limit = from.grh.hop_limit;
    to->grh.traffic_class = from.grh.traffic_class;
    to->dlid = from.dlid;
    to->is_global = from.is_global;
    to->port_num = from.port_num;
}

}  // namespace

ib_uverbs_ah_attr address_vector(const Identity& identity, const LocalPort& port) {
    ib_uverbs_ah_attr attr{};
    attr.port_num = 1;
    attr.dlid = identity.peer.lid;
    if (port.is_ethernet) {
        attr.is_global = 1;
        std::memcpy(attr.grh.dgid, &identity.peer.gid, sizeof attr.grh.dgid);
        attr.grh.hop_limit = 64;
        attr.grh.traffic_class = identity.type_of_service;
        attr.dlid = 0;
    }
    return attr;
}

// As rdma_init_qp_attr() and ib_cm_init_qp_attr().
int init_qp_attr(const Identity& identity, const LocalPort& port, ibv_qp_attr* attr_p,
                 int* mask_p) {
    ibv_qp_attr& attr = *attr_p;
    const bool is_rc = identity.qp_type == IBV_QPT_RC;
    attr.port_num = 1;
    attr.rq_psn = attr.qp_state == IBV_QPS_RTR ? identity.psn : 0;
    if (identity.exchange == Exchange::kNone || identity.is_datagram()) {
        attr.qkey = identity.qkey != 0 ? identity.qkey : kDatagramQkey;
        *mask_p = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                  (identity.is_datagram() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
        return 0;
    }
    const bool knows_peer = identity.exchange == Exchange::kReqReceived ||
                            identity.exchange == Exchange::kRepReceived ||
                            identity.exchange == Exchange::kRepSent ||
                            identity.exchange == Exchange::kEstablished;
    switch (attr.qp_state) {
        case IBV_QPS_INIT:
            if (!knows_peer && identity.exchange != Exchange::kReqSent)
                return EINVAL;
            attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
            if (identity.responder_resources != 0)
                attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            *mask_p = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            return 0;
        case IBV_QPS_RTR:
            if (!knows_peer)
                return EINVAL;
            fill_vector(address_vector(identity, port), &attr.ah_attr);
            attr.path_mtu = identity.mtu;
            attr.dest_qp_num = identity.remote_qpn;
            attr.max_dest_rd_atomic = identity.responder_resources;
            *mask_p = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
            return 0;
        case IBV_QPS_RTS:
            if (!knows_peer)
                return EINVAL;
            attr.sq_psn = identity.remote_psn;
            attr.timeout = identity.timeout;
            attr.retry_cnt = identity.retry_count;
            attr.rnr_retry = identity.rnr_retry_count;
            attr.max_rd_atomic = identity.initiator_depth;
            *mask_p = IBV_QP_STATE | IBV_QP_SQ_PSN |
                      (is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_MAX_QP_RD_ATOMIC
                             : 0);
            return 0;
        default:
            return EINVAL;
    }
}

}  // namespace tagwire::vhca::cm
