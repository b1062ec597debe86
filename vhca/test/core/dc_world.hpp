// SPDX-License-Identifier: BSD-3-Clause
// One host with DCIs, several with a DCT each.
#pragma once

#include <deque>

#include "vhca/core/dc_initiator.hpp"
#include "vhca/core/dc_target.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

constexpr std::uint64_t kDcKey = 0xfeed0123456789ab;

struct DcOptions {
    SimConfig fabric{};
    NodeOptions node{};
    std::uint64_t seed = 1;
    std::size_t targets = 2;
    ibv_qp_cap cap{64, 0, 4, 0, 64};
    DcConfig dci{.kind = DcKind::kInitiator};
    Connection connection{};
    std::uint32_t receives = 64;  // of an SRQ
};

class DcWorld {
  public:
    explicit DcWorld(const DcOptions& given = {})
        : options(given), fabric(given.fabric, given.seed) {
        options.node.device.has_dc = true;
        options.dci.kind = DcKind::kInitiator;
        for (std::size_t number = 0; number <= options.targets; ++number)
            hosts.emplace_back(fabric, number, options.node);
        dci = &make_dci(a());
        for (std::size_t number = 1; number <= options.targets; ++number) {
            srqs.push_back(make_srq(hosts[number]));
            dcts.push_back(&make_dct(hosts[number], srqs.back()));
            numbers.push_back(dcts.back()->number());
        }
    }

    [[nodiscard]] Host& a() { return hosts.front(); }
    [[nodiscard]] Host& target(std::size_t index) { return hosts[index + 1]; }

    Srq* make_srq(Host& host) const {
        Srq* srq = nullptr;
        const SrqConfig config{.pd = host.pd, .wr_max = options.receives, .sge_max = 2};
        EXPECT_EQ(host.device.create_srq(config, &srq), 0);
        return srq;
    }
    Qp& make_dci(Host& host) {
        Qp& qp = host.create_qp({.type = IBV_QPT_DRIVER, .cap = options.cap, .dc = options.dci});
        to_rts(qp);
        return qp;
    }
    Qp& make_dct(Host& host, Srq* srq, Pd* pd = nullptr) {
        Qp* qp = nullptr;
        const QpConfig config{.type = IBV_QPT_DRIVER,
                              .pd = pd == nullptr ? host.pd : pd,
                              .send_cq = host.cq,
                              .recv_cq = host.cq,
                              .srq = srq,
                              .dc = {.kind = DcKind::kTarget, .key = kDcKey}};
        EXPECT_EQ(host.device.create_qp(config, &qp), 0);
        EXPECT_EQ(modify(*qp, IBV_QPS_INIT, kDctInit), 0);
        EXPECT_EQ(modify(*qp, IBV_QPS_RTR, kDctRtr), 0);
        return *qp;
    }

    static constexpr int kDciInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    static constexpr int kDciRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN;
    static constexpr int kDctInit = kDciInit | IBV_QP_ACCESS_FLAGS;
    static constexpr int kDctRtr = IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;

    int modify(Qp& qp, ibv_qp_state state, int mask) {
        const Connection& wanted = options.connection;
        ibv_qp_attr attr{};
        attr.qp_state = state;
        attr.port_num = attr.ah_attr.port_num = 1;
        attr.qp_access_flags = wanted.access;
        attr.path_mtu = wanted.mtu;
        attr.min_rnr_timer = wanted.min_rnr_timer;
        attr.timeout = wanted.timeout;
        attr.retry_cnt = wanted.retry_cnt;
        attr.rnr_retry = wanted.rnr_retry;
        attr.max_rd_atomic = wanted.rd_atomic;
        attr.sq_psn = wanted.psn;
        return qp.modify(attr, mask | IBV_QP_STATE, {}, fabric.now());
    }
    void to_rts(Qp& qp) {
        EXPECT_EQ(modify(qp, IBV_QPS_INIT, kDciInit), 0);
        EXPECT_EQ(modify(qp, IBV_QPS_RTR, IBV_QP_PATH_MTU), 0);
        EXPECT_EQ(modify(qp, IBV_QPS_RTS, kDciRts), 0);
    }

    /// To the target with that index; `offset` and `bytes` are those of a's memory.
    int send(std::size_t index, std::uint64_t wr_id, std::size_t offset, std::size_t bytes,
             SendWork work = {}) {
        const ibv_sge sge = a().sge(offset, bytes);
        work.wr_id = wr_id;
        work.flags |= IBV_SEND_SIGNALED;
        work.route = target(index).route();
        work.remote_qpn = work.remote_qpn == 0 ? numbers[index] : work.remote_qpn;
        work.dc_key = work.dc_key == 0 ? kDcKey : work.dc_key;
        work.sges = {&sge, bytes == 0 ? 0U : 1U};
        return dci->post_send(work, fabric.now());
    }
    int receive(std::size_t index, std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
        const ibv_sge sge = target(index).sge(offset, bytes);
        return srqs[index]->post({wr_id, {&sge, bytes == 0 ? 0U : 1U}});
    }
    [[nodiscard]] SendWork remote(std::size_t index, ibv_wr_opcode opcode, std::size_t offset) {
        SendWork work;
        work.opcode = opcode;
        work.remote_addr = target(index).address(offset);
        work.rkey = target(index).mr->key;
        return work;
    }
    void settle() {
        fabric.run([] { return false; });
    }

    DcOptions options;
    SimFabric fabric;
    std::deque<Host> hosts;
    std::vector<Srq*> srqs;
    std::vector<Qp*> dcts;
    std::vector<std::uint32_t> numbers;  // of them, also when their host has crashed
    Qp* dci = nullptr;
};

}  // namespace tagwire::vhca
