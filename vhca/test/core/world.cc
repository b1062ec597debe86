// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

Qp& Host::create_qp(QpConfig config) {
    config.pd = pd;
    config.send_cq = config.send_cq == nullptr ? cq : config.send_cq;
    config.recv_cq = config.recv_cq == nullptr ? cq : config.recv_cq;
    Qp* qp = nullptr;
    EXPECT_EQ(device.create_qp(config, &qp), 0);
    return *qp;
}

World::World(const WorldOptions& given)
    : options(given),
      fabric(options.fabric, options.seed),
      a(fabric, 0, options.node),
      b(fabric, 1, options.node) {
    QpConfig config{.type = options.type, .cap = options.cap, .signals_all = options.signals_all};
    qa = &a.create_qp(config);
    if (options.uses_srq) {
        const SrqConfig shared{
            .pd = b.pd, .wr_max = options.cap.max_recv_wr, .sge_max = options.cap.max_recv_sge};
        EXPECT_EQ(b.device.create_srq(shared, &srq), 0);
        config.srq = srq;
    }
    qb = &b.create_qp(config);
    const std::uint32_t psn_a = options.connection.psn, psn_b = psn_a + 0x100;
    connect(*qa, b.route(), qb->number(), psn_a, psn_b);
    connect(*qb, a.route(), qa->number(), psn_b, psn_a);
}

int World::to_state(Qp& qp, ibv_qp_state state, int mask, ibv_qp_attr attr) {
    attr.qp_state = state;
    return qp.modify(attr, mask | IBV_QP_STATE, {}, fabric.now());
}

int World::to_init(Qp& qp) {
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = options.connection.access;
    const int last = qp.type() == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return to_state(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last, attr);
}

int World::to_rtr(Qp& qp, Route to, std::uint32_t remote_qpn, std::uint32_t remote_psn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr.port_num = 1;
    attr.path_mtu = options.connection.mtu;
    attr.dest_qp_num = remote_qpn;
    attr.rq_psn = remote_psn;
    attr.max_dest_rd_atomic = options.connection.dest_rd_atomic;
    attr.min_rnr_timer = options.connection.min_rnr_timer;
    int mask = IBV_QP_STATE;
    if (qp.type() != IBV_QPT_UD)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp.type() == IBV_QPT_RC)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return qp.modify(attr, mask, to, fabric.now());
}

int World::to_rts(Qp& qp, std::uint32_t psn) {
    ibv_qp_attr attr{};
    attr.sq_psn = psn;
    attr.timeout = options.connection.timeout;
    attr.retry_cnt = options.connection.retry_cnt;
    attr.rnr_retry = options.connection.rnr_retry;
    attr.max_rd_atomic = options.connection.rd_atomic;
    int mask = IBV_QP_SQ_PSN;
    if (qp.type() == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return to_state(qp, IBV_QPS_RTS, mask, attr);
}

void World::connect(Qp& qp, Route to, std::uint32_t remote_qpn, std::uint32_t psn,
                    std::uint32_t remote_psn) {
    EXPECT_EQ(to_init(qp), 0);
    EXPECT_EQ(to_rtr(qp, to, remote_qpn, remote_psn), 0);
    EXPECT_EQ(to_rts(qp, psn), 0);
}

int World::send(std::uint64_t wr_id, std::size_t offset, std::size_t bytes, SendWork work) {
    const ibv_sge sge = a.sge(offset, bytes);
    work.wr_id = wr_id;
    work.flags |= work.flags == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U;
    work.sges = {&sge, bytes == 0 ? 0U : 1U};
    if (options.type == IBV_QPT_UD) {
        work.route = b.route();
        work.remote_qpn = work.remote_qpn == 0 ? qb->number() : work.remote_qpn;
        work.remote_qkey = work.remote_qkey == 0 ? kQkey : work.remote_qkey;
    }
    return qa->post_send(work, fabric.now());
}

int World::receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
    const ibv_sge sge = b.sge(offset, bytes);
    const RecvWork work{wr_id, {&sge, bytes == 0 ? 0U : 1U}};
    return srq != nullptr ? srq->post(work) : qb->post_recv(work);
}

SendWork World::remote(ibv_wr_opcode opcode, std::size_t remote_offset) const {
    SendWork work;
    work.opcode = opcode;
    work.remote_addr = b.address(remote_offset);
    work.rkey = b.mr->key;
    return work;
}

}  // namespace tagwire::vhca
