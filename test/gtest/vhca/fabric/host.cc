// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/host.hpp"

#include <unistd.h>

namespace tagwire::test {

using vhca::Completion;
using vhca::Route;

namespace {

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t kDepth = 1024;

ibv_qp_attr attr_of(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    attr.path_mtu = IBV_MTU_4096;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 16;
    attr.min_rnr_timer = 1;
    attr.rnr_retry = 7;
    return attr;
}

}  // namespace

vhca::EngineConfig Host::default_config() {
    vhca::EngineConfig config;
    config.device.guid = 0x0002c90300740001;
    return config;
}

Host::Host(std::size_t memory_bytes, const vhca::EngineConfig& config) : memory_(memory_bytes) {
    if (vhca::Engine::get(config, &engine_) != 0) {
        return;
    }
    const auto guard = engine_->lock();
    vhca::Device& device = engine_->device();
    if (device.create_pd(nullptr, &pd_) != 0 ||
        device.create_mr(*pd_, memory_.data(), memory_bytes,
                         reinterpret_cast<std::uint64_t>(memory_.data()), kAccess, &mr_) != 0 ||
        device.create_cq({.cqe = 4 * kDepth}, &cq_) != 0) {
        return;
    }
    vhca::QpConfig pair{.pd = pd_, .send_cq = cq_, .recv_cq = cq_};
    pair.cap = {.max_send_wr = kDepth,
                .max_recv_wr = kDepth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 64};
    if (device.create_qp(pair, &qp_) != 0) {
        qp_ = nullptr;
    }
}

Host::~Host() {
    if (!ok()) {
        return;
    }
    const auto guard = engine_->lock();
    vhca::Device& device = engine_->device();
    device.destroy_qp(*qp_);
    device.destroy_cq(*cq_);
    device.destroy_mr(*mr_);
    device.destroy_pd(*pd_);
}

Address Host::address() const {
    return {.base = reinterpret_cast<std::uint64_t>(memory_.data()),
            .qpn = qp_->number(),
            .rkey = mr_->key,
            .lid = engine_->lid()};
}

bool Host::connect(const Address& peer, std::uint8_t timeout, std::uint8_t retries) {
    ibv_qp_attr attr = attr_of(IBV_QPS_INIT);
    const auto guard = engine_->lock();
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (qp_->modify(attr, mask, {}, engine_->now()) != 0) {
        return false;
    }
    attr.qp_state = IBV_QPS_RTR;
    attr.dest_qp_num = peer.qpn;
    attr.ah_attr.dlid = static_cast<std::uint16_t>(peer.lid);
    attr.ah_attr.port_num = 1;
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (qp_->modify(attr, mask, engine_->route_of(attr.ah_attr), engine_->now()) != 0) {
        return false;
    }
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = timeout;
    attr.retry_cnt = retries;
    mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC;
    return qp_->modify(attr, mask, {}, engine_->now()) == 0;
}

ibv_sge Host::sge(std::size_t offset, std::uint32_t bytes) {
    return {reinterpret_cast<std::uint64_t>(memory(offset)), bytes, mr_->key};
}

int Host::post_recv(std::size_t offset, std::uint32_t bytes) {
    const ibv_sge piece = sge(offset, bytes);
    const auto guard = engine_->lock();
    return qp_->post_recv({.wr_id = offset, .sges = {&piece, 1}});
}

int Host::post_send(std::size_t offset, std::uint32_t bytes, unsigned flags) {
    const ibv_sge piece = sge(offset, bytes);
    vhca::SendWork work{.wr_id = offset, .opcode = IBV_WR_SEND, .flags = flags};
    work.sges = {&piece, 1};
    const auto guard = engine_->lock();
    return qp_->post_send(work, engine_->now());
}

int Host::post_rdma(ibv_wr_opcode opcode, std::size_t offset, std::uint32_t bytes,
                    const Address& to, std::size_t to_offset) {
    const ibv_sge piece = sge(offset, bytes);
    vhca::SendWork work{.wr_id = offset, .opcode = opcode, .flags = IBV_SEND_SIGNALED};
    work.remote_addr = to.base + to_offset;
    work.rkey = to.rkey;
    work.sges = {&piece, 1};
    const auto guard = engine_->lock();
    return qp_->post_send(work, engine_->now());
}

bool Host::poll(Completion* completion_p) {
    bool got = false;
    {
        const auto guard = engine_->lock();
        engine_->progress_locked();
        got = cq_->poll(completion_p);
    }
    engine_->note_poll();
    if (!got && ++empty_polls_ % 32 == 0) {
        sched_yield();
    }
    return got;
}

ibv_wc Host::wait() {
    Completion completion;
    while (!poll(&completion)) {
    }
    return completion.wc;
}

bool exchange(int socket, const Address& own, Address* peer_p) {
    return ::write(socket, &own, sizeof own) == sizeof own &&
           ::read(socket, peer_p, sizeof *peer_p) == sizeof *peer_p;
}

bool meet(int socket) {
    char byte = 0;
    return ::write(socket, &byte, 1) == 1 && ::read(socket, &byte, 1) == 1;
}

}  // namespace tagwire::test
