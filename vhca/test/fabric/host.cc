// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/test/fabric/host.hpp"

#include <endian.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tagwire::test {

using vhca::Completion;

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

// 127.0.0.0/8 has room for each process id and four addresses of each.
std::string loopback_address(unsigned number) {
    constexpr std::uint32_t kLoopback = 127U << 24;
    return vhca::ipv4_text(kLoopback | static_cast<std::uint32_t>(::getpid()) << 2 | number);
}

vhca::EngineConfig udp_config(const std::string& address) {
    vhca::EngineConfig config = Host::default_config();
    config.fabric = vhca::FabricKind::kUdp;
    config.address = address;
    return config;
}

ibv_ah_attr path_to(const vhca::Engine& engine, std::uint32_t node) {
    constexpr std::uint64_t kMappedPrefix = 0x0000ffff00000000;
    ibv_ah_attr attr{};
    attr.port_num = 1;
    if (engine.port().is_ethernet()) {
        attr.is_global = 1;
        attr.grh.dgid.global.interface_id = htobe64(kMappedPrefix | node);
    } else {
        attr.dlid = static_cast<std::uint16_t>(node);
    }
    return attr;
}

vhca::EngineConfig Host::default_config() {
    vhca::EngineConfig config;
    config.device.guid = 0x0002c90300740001;
    const char* fabric = std::getenv("TAGWIRE_TEST_FABRIC");
    if (fabric != nullptr && std::string_view(fabric) == "udp")
        config.fabric = vhca::FabricKind::kUdp;
    return config;
}

Host::Host(std::size_t memory_bytes, const vhca::EngineConfig& config) : memory_(memory_bytes) {
    vhca::EngineConfig own = config;
    if (own.fabric == vhca::FabricKind::kUdp && own.address.empty())
        own.address = loopback_address();  // here, since a child is another process
    if (vhca::Engine::get(own, &engine_) != 0)
        return;
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
    if (device.create_qp(pair, &qp_) != 0)
        qp_ = nullptr;
}

Host::~Host() {
    if (!ok())
        return;
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
            .node = engine_->port().is_ethernet()
                        ? static_cast<std::uint32_t>(engine_->port().guid())
                        : engine_->port().lid()};
}

bool Host::connect(const Address& peer, std::uint8_t timeout, std::uint8_t retries,
                   std::uint32_t psn) {
    ibv_qp_attr attr = attr_of(IBV_QPS_INIT);
    attr.rq_psn = attr.sq_psn = psn;
    const auto guard = engine_->lock();
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (qp_->modify(attr, mask, {}, engine_->now()) != 0)
        return false;
    attr.qp_state = IBV_QPS_RTR;
    attr.dest_qp_num = peer.qpn;
    attr.ah_attr = path_to(*engine_, peer.node);
    attr.path_mtu = engine_->device().config().active_mtu;
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (qp_->modify(attr, mask, engine_->port().route_of(attr.ah_attr), engine_->now()) != 0)
        return false;
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
    work.imm = htobe32(0x01020304);
    work.compare_add = 1;
    work.sges = {&piece, 1};
    const auto guard = engine_->lock();
    return qp_->post_send(work, engine_->now());
}

bool Host::poll(Completion* completion_p) {
    bool got = false;
    {
        const auto guard = engine_->lock();
        got = cq_->poll(completion_p);
        if (!got) {
            engine_->progress_locked();
            got = cq_->poll(completion_p);
        }
    }
    engine_->note_poll();
    if (!got && ++empty_polls_ % 32 == 0)
        sched_yield();
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
