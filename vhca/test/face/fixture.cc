// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/test/face/fixture.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace tagwire::test {
namespace {
constexpr auto kPatience = std::chrono::seconds(50);  // what takes longer hangs

// With TAGWIRE_VHCA_FABRIC=udp this process needs an address that no other has; 127.0.0.0/8 has
// room for each process id.
const bool has_address = [] {
    const auto id = static_cast<unsigned>(::getpid()) << 2;
    const std::string net =
        "127." + std::to_string(id >> 16 & 0xff) + "." + std::to_string(id >> 8 & 0xff) + ".";
    // One for each of two devices.
    const std::string address =
        net + std::to_string((id & 0xff) | 1) + "," + net + std::to_string((id & 0xff) | 2);
    return ::setenv("TAGWIRE_VHCA_ADDRESS", address.c_str(), 1) == 0;
}();

}  // namespace

ibv_ah_attr path_to(ibv_context* context) {
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    ibv_ah_attr attr{};
    attr.port_num = 1;
    attr.dlid = port.lid;
    if ((port.flags & IBV_QPF_GRH_REQUIRED) != 0) {
        attr.is_global = 1;
        EXPECT_EQ(ibv_query_gid(context, 1, 0, &attr.grh.dgid), 0);
    }
    return attr;
}

Side::Side(const SideOptions& options) : type_(options.type) {
    ibv_device** list = ibv_get_device_list(nullptr);
    context = ibv_open_device(list[options.device]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    make_cq(options);
    make_qp(options);
    mr = ibv_reg_mr(pd, buffer.data(), buffer.size(), kAllRights);
    EXPECT_NE(mr, nullptr);
}

Side::~Side() {
    if (ah != nullptr) {
        EXPECT_EQ(ibv_destroy_ah(ah), 0);
    }
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    if (srq != nullptr) {
        EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    if (channel != nullptr) {
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
}

void Side::make_cq(const SideOptions& options) {
    if (options.has_channel)
        channel = ibv_create_comp_channel(context);
    if (options.wc_flags != 0) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 64;
        attr.channel = channel;
        attr.wc_flags = options.wc_flags;
        cq_ex = ibv_create_cq_ex(context, &attr);
        cq = ibv_cq_ex_to_cq(cq_ex);
    } else {
        cq = ibv_create_cq(context, 64, this, channel, 0);
    }
    EXPECT_NE(cq, nullptr);
}

void Side::make_qp(const SideOptions& options) {
    if (options.has_srq) {
        ibv_srq_init_attr attr{.srq_context = this,
                               .attr = {.max_wr = 32, .max_sge = 2, .srq_limit = 0}};
        srq = ibv_create_srq(pd, &attr);
        EXPECT_NE(srq, nullptr);
    }
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {16, 16, 4, 4, options.inline_bytes};
    attr.qp_type = options.type;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd;
    if (options.send_ops != 0) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = options.send_ops;
    }
    qp = ibv_create_qp_ex(context, &attr);
    EXPECT_NE(qp, nullptr);
}

int Side::modify_to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (type_ == IBV_QPT_UD) {
        attr.qkey = kQkey;
        mask |= IBV_QP_QKEY;
    } else {
        attr.qp_access_flags = type_ == IBV_QPT_UC ? kUcRights : kAllRights;
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    return ibv_modify_qp(qp, &attr, mask);
}

void Side::connect(const ibv_ah_attr& path, std::uint32_t qpn, const Patience& patience) {
    ASSERT_EQ(modify_to_init(), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qpn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = path;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type_ == IBV_QPT_RC)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = patience.timeout;
    attr.retry_cnt = patience.retry_cnt;
    attr.rnr_retry = patience.rnr_retry;
    attr.max_rd_atomic = 4;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type_ == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

void Side::connect(const Side& other) {
    ibv_ah_attr path = path_to(other.context);
    if (type_ != IBV_QPT_UD) {
        connect(path, other.qp->qp_num);
        return;
    }
    ASSERT_EQ(modify_to_init(), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    ah = ibv_create_ah(pd, &path);
    ASSERT_NE(ah, nullptr);
}

int Side::post_recv(std::uint64_t wr_id, std::size_t offset, std::uint32_t bytes) const {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data() + offset), bytes, mr->lkey};
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

int Side::post_send(ibv_send_wr wr, std::size_t offset, std::uint32_t bytes) const {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data() + offset), bytes, mr->lkey};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp, &wr, &bad);
    EXPECT_TRUE(error == 0 || bad == &wr);
    return error;
}

ibv_wc Side::wait() const {
    ibv_wc wc{};
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
        const int got = ibv_poll_cq(cq, 1, &wc);
        if (got == 1)
            return wc;
        EXPECT_EQ(got, 0);
    }
    ADD_FAILURE() << "no completion came";
    return wc;
}

ibv_send_wr Side::remote(ibv_wr_opcode opcode, const Side& other, std::size_t offset) const {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(other.buffer.data() + offset);
    wr.wr.rdma.rkey = other.mr->rkey;
    return wr;
}

}  // namespace tagwire::test
