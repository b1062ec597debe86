// SPDX-License-Identifier: BSD-3-Clause
// One of two processes of udp_network_test.py: vhca_udp_peer ADDRESS active|passive ROUNDS
//
// Says who it is in one line, takes the line of the other one, says "ready" and waits for a line.
// The active one then sends ROUNDS rounds of every kind of request, checks what comes back, and
// says what its counters are; the passive one checks what it receives until its input ends.
#include <endian.h>
#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "vhca/test/fabric/host.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kMemoryBytes = 1 << 20;
constexpr std::uint32_t kPsn = 0xfffffa;  // wraps in the first round
constexpr std::uint32_t kQkey = 0x11111111;
constexpr std::uint32_t kReceiveBytes = 8192, kReceives = 32;
constexpr std::uint32_t kMessageBytes = 5000;
// Offsets in the memory of either side.
constexpr std::size_t kOut = 0x40000, kBack = 0x50000, kTarget = 0x60000, kCounter = 0x70000;
constexpr std::size_t kDatagram = 0x80000;

struct Names {
    Address rc;
    std::uint32_t ud_qpn = 0;
};

[[noreturn]] void fail(const std::string& why) {
    std::fprintf(stderr, "vhca_udp_peer: %s\n", why.c_str());
    std::exit(1);
}
void require(bool condition, const char* what) {
    if (!condition)
        fail(what);
}

/** A datagram queue pair beside the Host's reliable one. */
class Datagrams {
  public:
    explicit Datagrams(Host& host) : host_(host) {
        const auto guard = host.engine().lock();
        vhca::Device& device = host.engine().device();
        vhca::QpConfig config{.type = IBV_QPT_UD};
        require(device.create_pd(nullptr, &pd_) == 0, "pd");
        require(device.create_mr(*pd_, host.memory(), kMemoryBytes,
                                 reinterpret_cast<std::uint64_t>(host.memory()),
                                 IBV_ACCESS_LOCAL_WRITE, &mr_) == 0,
                "mr");
        config.pd = pd_;
        config.send_cq = config.recv_cq = &host.cq();
        config.cap = {4, 4, 1, 1, 0};
        require(device.create_qp(config, &qp_) == 0, "datagram queue pair");
        ibv_qp_attr attr{};
        attr.port_num = 1;
        attr.qkey = kQkey;
        attr.sq_psn = kPsn;
        go(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
        go(IBV_QPS_RTR, attr, 0);
        go(IBV_QPS_RTS, attr, IBV_QP_SQ_PSN);
    }
    [[nodiscard]] std::uint32_t number() const { return qp_->number(); }

    void receive() {
        const ibv_sge sge{reinterpret_cast<std::uint64_t>(host_.memory(kDatagram)), 1024, mr_->key};
        const auto guard = host_.engine().lock();
        require(qp_->post_recv({.wr_id = kDatagram, .sges = {&sge, 1}}) == 0, "post_recv");
    }
    void send(const Names& to, std::uint32_t bytes) {
        const ibv_sge sge{reinterpret_cast<std::uint64_t>(host_.memory(kOut)), bytes, mr_->key};
        vhca::SendWork work{.wr_id = 9, .opcode = IBV_WR_SEND_WITH_IMM, .flags = IBV_SEND_SIGNALED};
        work.imm = htobe32(0xdadadada);
        work.route = host_.engine().port().route_of(path_to(host_.engine(), to.rc.node));
        work.remote_qpn = to.ud_qpn;
        work.remote_qkey = kQkey;
        work.sges = {&sge, 1};
        const auto guard = host_.engine().lock();
        require(qp_->post_send(work, host_.engine().now()) == 0, "post datagram");
    }

  private:
    void go(ibv_qp_state state, ibv_qp_attr attr, int mask) {
        attr.qp_state = state;
        require(qp_->modify(attr, mask | IBV_QP_STATE, {}, host_.engine().now()) == 0, "modify");
    }

    Host& host_;
    vhca::Pd* pd_ = nullptr;
    vhca::Mr* mr_ = nullptr;
    vhca::Qp* qp_ = nullptr;
};

std::byte pattern(std::uint32_t round, std::size_t at) {
    return static_cast<std::byte>((round * 131 + at * 7 + at / 251) & 0xff);
}
void fill(Host& host, std::uint32_t round) {
    for (std::size_t i = 0; i < kMessageBytes; ++i)
        *host.memory(kOut + i) = pattern(round, i);
}
bool is_filled(Host& host, std::size_t offset, std::size_t bytes, std::uint32_t round) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (*host.memory(offset + i) != pattern(round, i))
            return false;
    return true;
}

std::string read_line() {
    char line[256];
    return std::fgets(line, sizeof line, stdin) != nullptr ? line : "";
}

Names introduce(Host& host, const Datagrams& datagrams) {
    const Address own = host.address();
    std::printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu32 "\n", own.qpn,
                datagrams.number(), own.rkey, own.base, own.node);
    std::fflush(stdout);
    Names peer;
    require(
        std::sscanf(read_line().c_str(), "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu32,
                    &peer.rc.qpn, &peer.ud_qpn, &peer.rc.rkey, &peer.rc.base, &peer.rc.node) == 5,
        "the other side's line");
    return peer;
}

ibv_wc wait_good(Host& host) {
    const ibv_wc wc = host.wait();
    if (wc.status != IBV_WC_SUCCESS)
        fail("completion " + std::to_string(wc.wr_id) + " has status " + std::to_string(wc.status));
    return wc;
}

void request(Host& host, const Address& to, ibv_wr_opcode opcode, std::size_t local,
             std::uint32_t bytes, std::size_t remote) {
    require(host.post_rdma(opcode, local, bytes, to, remote) == 0, "post");
    require(wait_good(host).wr_id == local, "wr_id");
}

std::uint64_t counter_in(Host& host) {
    std::uint64_t old = 0;
    std::memcpy(&old, host.memory(kBack), sizeof old);
    return old;
}

void run_round(Host& host, const Names& peer, std::uint32_t round) {
    const Address& to = peer.rc;
    fill(host, round);
    request(host, to, IBV_WR_SEND, kOut, 100, 0);
    request(host, to, IBV_WR_SEND_WITH_IMM, kOut, 33, 0);
    request(host, to, IBV_WR_SEND, kOut, kMessageBytes, 0);
    request(host, to, IBV_WR_RDMA_WRITE, kOut, kMessageBytes, kTarget);
    request(host, to, IBV_WR_RDMA_WRITE_WITH_IMM, kOut, 64, kTarget);
    request(host, to, IBV_WR_RDMA_READ, kBack, kMessageBytes, kTarget);
    require(is_filled(host, kBack, kMessageBytes, round), "what was read is not what was written");
    request(host, to, IBV_WR_ATOMIC_FETCH_AND_ADD, kBack, 8, kCounter);
    require(counter_in(host) == 0, "the counter is not what it was left as");
    request(host, to, IBV_WR_ATOMIC_CMP_AND_SWP, kBack, 8, kCounter);
    require(counter_in(host) == 1, "the counter was not counted up");
}

void run_active(Host& host, Datagrams& datagrams, const Names& peer, std::uint32_t rounds) {
    for (std::uint32_t round = 0; round < rounds; ++round)
        run_round(host, peer, round);
    datagrams.send(peer, 40);
    wait_good(host);
    const auto guard = host.engine().lock();
    const vhca::DeviceCounters& device = host.engine().device().counters();
    const vhca::FabricCounters& fabric = host.engine().fabric_counters();
    std::printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", device.packets_sent, device.retransmits,
                fabric.bad_crc + fabric.malformed + fabric.foreign);
    std::fflush(stdout);
}

/// Which receives a round takes, and how long their messages are.
constexpr std::uint32_t kSizes[] = {100, 33, kMessageBytes, 64};

void take(Host& host, Datagrams& datagrams, const vhca::Completion& completion,
          std::uint64_t* count) {
    const ibv_wc& wc = completion.wc;
    require(wc.status == IBV_WC_SUCCESS, "a receive failed");
    if (wc.wr_id == kDatagram) {
        require((wc.wc_flags & IBV_WC_GRH) != 0 && wc.byte_len == 40 + vhca::kGrhBytes,
                "the datagram has no GRH");
        require(*host.memory(kDatagram + 20) == std::byte{0x45}, "no IPv4 header is in the GRH");
        datagrams.receive();
        return;
    }
    const auto round = static_cast<std::uint32_t>(*count / 4);
    const std::uint32_t kind = *count % 4;
    require(wc.byte_len == kSizes[kind], "a message has another length");
    require(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == (kind % 2 == 1), "immediate data");
    // The other side checks written data itself: it reads them back before the next round.
    require(kind == 3 || is_filled(host, wc.wr_id, wc.byte_len, round),
            "a message has other contents");
    ++*count;
    require(host.post_recv(wc.wr_id, kReceiveBytes) == 0, "post_recv");
}

void run_passive(Host& host, Datagrams& datagrams, std::uint32_t rounds) {
    require(::fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    std::uint64_t count = 0;
    std::byte end{};
    vhca::Completion completion;
    for (unsigned turns = 0;; ++turns)
        if (host.poll(&completion))
            take(host, datagrams, completion, &count);
        else if (turns % 64 == 0 && ::read(STDIN_FILENO, &end, 1) == 0)
            break;
    require(count == 4 * std::uint64_t{rounds}, "not every message came");
}

int run(const char* address, bool is_active, std::uint32_t rounds) {
    Host host(kMemoryBytes, udp_config(address));
    require(host.ok(), "no device");
    Datagrams datagrams(host);
    const Names peer = introduce(host, datagrams);
    constexpr std::uint8_t kTimeout = 16;  // a quarter of a second: a busy machine is no loss
    require(host.connect(peer.rc, kTimeout, 7, kPsn), "connect");
    for (std::uint32_t i = 0; i < kReceives; ++i)
        require(host.post_recv(std::size_t{i} * kReceiveBytes, kReceiveBytes) == 0, "post_recv");
    datagrams.receive();
    std::puts("ready");
    std::fflush(stdout);
    read_line();
    if (is_active) {
        run_active(host, datagrams, peer, rounds);
        read_line();  // answers what the other side asks again
    } else {
        run_passive(host, datagrams, rounds);
    }
    return 0;
}

}  // namespace
}  // namespace tagwire::test

int main(int argc, char** argv) {
    if (argc != 4)
        return 2;
    return tagwire::test::run(argv[1], std::strcmp(argv[2], "active") == 0,
                              static_cast<std::uint32_t>(std::atoi(argv[3])));
}
