// SPDX-License-Identifier: BSD-3-Clause
// Measures messages between two processes through the engine and the device. Prints the one-way
// latency of 8 bytes, the bandwidth of 64 KiB beside that of memcpy, and instructions per message.
// `self N` sends N messages from a queue pair to itself, for callgrind.
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ucs/time/clock.hpp"
#include "vhca/test/fabric/host.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint32_t kLong = 64 * 1024;
constexpr std::size_t kWindow = 16;

void pin(int which) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && seen++ == which)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/** Instructions in user space of this process, 0 where the machine does not count them. */
class Instructions {
  public:
    Instructions() {
        perf_event_attr attr{};
        attr.type = PERF_TYPE_HARDWARE;
        attr.size = sizeof attr;
        attr.config = PERF_COUNT_HW_INSTRUCTIONS;
        attr.exclude_kernel = 1;
        attr.exclude_hv = 1;
        fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
    }
    ~Instructions() {
        if (fd_ >= 0)
            close(fd_);
    }
    [[nodiscard]] std::uint64_t count() const {
        std::uint64_t value = 0;
        return fd_ >= 0 && read(fd_, &value, sizeof value) == sizeof value ? value : 0;
    }

  private:
    int fd_ = -1;
};

void check(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
        std::printf("completion with error: %d\n", static_cast<int>(wc.status));
        std::exit(1);
    }
}

// Sends and receives one message each; both completions are taken.
void round_trip(Host& host, bool is_first) {
    host.post_recv(64, kLong);
    int missing = 2;
    if (is_first)
        host.post_send(0, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    bool has_sent = is_first;
    while (missing != 0) {
        const ibv_wc wc = host.wait();
        check(wc);
        --missing;
        if (!has_sent && wc.opcode == IBV_WC_RECV) {
            has_sent = true;
            host.post_send(0, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        }
    }
}

void latency(Host& host, int socket, bool is_first) {
    constexpr int kBatches = 400, kBatch = 32;
    std::vector<double> ns;
    for (int i = 0; i < 4; ++i)
        host.post_recv(64, kLong);  // ahead, so that no message finds nothing to go to
    meet(socket);
    for (int i = 0; i < 2000; ++i)
        round_trip(host, is_first);
    const Instructions instructions;
    const std::uint64_t before = instructions.count();
    for (int batch = 0; batch < kBatches; ++batch) {
        const std::uint64_t start = ucs::clock_now_ns();
        for (int i = 0; i < kBatch; ++i)
            round_trip(host, is_first);
        ns.push_back(static_cast<double>(ucs::clock_now_ns() - start) / kBatch / 2);
    }
    const std::uint64_t used = instructions.count() - before;
    std::sort(ns.begin(), ns.end());
    if (is_first) {
        std::printf("8 bytes one way: p50 %.0f ns, p99 %.0f ns\n", ns[ns.size() / 2],
                    ns[ns.size() * 99 / 100]);
    }
    std::printf("%s: %.0f instructions per round trip\n", is_first ? "first" : "second",
                static_cast<double>(used) / kBatches / kBatch);
    meet(socket);
}

double copy_bytes_per_ns() {
    // Not at the same place of a page, where loads would wait for stores to other pages.
    constexpr std::size_t kApart = 2048 + 64;
    std::vector<char> from(kLong, 'x'), room(kLong + kApart);
    char* const to = room.data() + kApart;
    double best = 0;
    for (int i = 0; i < 200; ++i) {
        const std::uint64_t start = ucs::clock_now_ns();
        for (int j = 0; j < 16; ++j) {
            std::memcpy(to, from.data(), kLong);
            asm volatile("" : : "r"(to) : "memory");
        }
        best = std::max(best, 16.0 * kLong / static_cast<double>(ucs::clock_now_ns() - start));
    }
    return best;
}

void stream(Host& host, int socket, bool is_first, ibv_wr_opcode opcode, const Address& peer) {
    constexpr std::size_t kMessages = 20'000;
    const bool is_send = opcode == IBV_WR_SEND;
    std::size_t posted = 0, done = 0;
    if (!is_first && is_send)
        for (; posted < 2 * kWindow; ++posted)
            host.post_recv(0, kLong);
    meet(socket);
    const std::uint64_t start = ucs::clock_now_ns();
    if (is_first) {
        while (done < kMessages) {
            for (; posted < kMessages && posted < done + kWindow; ++posted)
                is_send ? host.post_send(0, kLong) : host.post_rdma(opcode, 0, kLong, peer, 0);
            vhca::Completion completion;
            if (host.poll(&completion)) {
                check(completion.wc);
                ++done;
            }
        }
        const double rate = static_cast<double>(kMessages) * kLong /
                            static_cast<double>(ucs::clock_now_ns() - start);
        const double copy = copy_bytes_per_ns();
        std::printf("64 KiB %s: %.2f GB/s, memcpy %.2f GB/s, ratio %.2f\n",
                    is_send                       ? "send"
                    : opcode == IBV_WR_RDMA_WRITE ? "write"
                                                  : "read",
                    rate, copy, rate / copy);
    } else if (is_send) {
        for (; done < kMessages; ++done) {
            check(host.wait());
            if (posted < kMessages) {
                host.post_recv(0, kLong);
                ++posted;
            }
        }
    }
    meet(socket);  // for one-sided work the peer sleeps here, and its helper serves
}

int run(int socket, bool is_first) {
    pin(is_first ? 0 : 1);
    Host host(1 << 20);
    Address peer;
    if (!host.ok() || !exchange(socket, host.address(), &peer) || !host.connect(peer))
        return 1;
    meet(socket);
    latency(host, socket, is_first);
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
        stream(host, socket, is_first, opcode, peer);
    const vhca::Engine::HelperCounters helper = host.engine().helper_counters();
    std::printf("%s: helper woke %llu times, took over %llu times\n", is_first ? "first" : "second",
                static_cast<unsigned long long>(helper.wake_ups),
                static_cast<unsigned long long>(helper.take_overs));
    return 0;
}

// Messages of 8 bytes from a queue pair to itself: both sides' work in one thread, so that the
// instructions of a message can be counted by running this twice under callgrind.
int talk_to_itself(long messages) {
    Host host(1 << 20);
    if (!host.ok() || !host.connect(host.address()))
        return 1;
    for (long i = 0; i < messages; ++i) {
        host.post_recv(64, 8);
        host.post_send(0, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        check(host.wait());
        check(host.wait());
    }
    return 0;
}

}  // namespace
}  // namespace tagwire::test

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "self") == 0)
        return tagwire::test::talk_to_itself(std::atol(argv[2]));
    std::array<int, 2> sockets{};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) != 0)
        return 1;
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return tagwire::test::run(sockets[1], false);
    }
    const int result = tagwire::test::run(sockets[0], true);
    int status = 0;
    waitpid(child, &status, 0);
    return result != 0 ? result : status;
}
