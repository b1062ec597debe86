// SPDX-License-Identifier: BSD-3-Clause
// Measures the time until the target sees a write of 8 bytes, through a provider of libfabric: a
// ping-pong of fi_write() between two processes. bench/compare_fi_writes.py runs it.
//
// Usage: fi_writes PROVIDER COUNT [BYTES]
//
// Each side writes a number into memory of the other, and waits until the other's number is there:
// it looks at its memory and calls fi_cq_read(), which is the progress that a target of manual
// progress owes (fi_domain(3)). Memory is ordinary (posix_memalign()), its keys whatever the
// provider wants. The last of BYTES bytes (8 to 4096) is looked at. One line is printed: the median
// and the least of the times of one way in nanoseconds, of kBatches batches.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tagwire::bench {
namespace {

constexpr std::size_t kBatches = 31;
constexpr std::size_t kBytesMax = 4096;

void must(ssize_t status, const char* call) {
    if (status < 0) {
        std::fprintf(stderr, "fi_writes: %s: %s\n", call, fi_strerror(static_cast<int>(-status)));
        std::exit(1);
    }
}

/// Bytes that the sides exchange before they begin.
struct Greeting {
    char name[256] = {};
    std::uint64_t name_bytes = sizeof name;
    std::uint64_t address = 0;
    std::uint64_t key = 0;
};

struct Side {
    fid_ep* ep = nullptr;
    fid_cq* cq = nullptr;
    fid_av* av = nullptr;
    fid_mr* mr = nullptr;
    void* desc = nullptr;
    /// First the bytes that the peer writes, from kBytesMax on those that are written to it.
    char* memory = nullptr;
    fi_addr_t peer = FI_ADDR_UNSPEC;
    Greeting other;
    std::size_t bytes = 8;
};

void open(Side* side, const char* provider, Greeting* own) {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider);
    fi_info* info = nullptr;
    must(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    must(fi_endpoint(domain, info, &side->ep, nullptr), "fi_endpoint");
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_CONTEXT;
    must(fi_cq_open(domain, &cq_attr, &side->cq, nullptr), "fi_cq_open");
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    must(fi_av_open(domain, &av_attr, &side->av, nullptr), "fi_av_open");
    must(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_ep_bind(side->ep, &side->av->fid, 0), "fi_ep_bind");
    must(fi_enable(side->ep), "fi_enable");
    void* memory = nullptr;
    if (posix_memalign(&memory, 4096, 2 * kBytesMax) != 0)
        std::exit(1);
    std::memset(memory, 0, 2 * kBytesMax);
    side->memory = static_cast<char*>(memory);
    must(fi_mr_reg(domain, memory, 2 * kBytesMax,
                   FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &side->mr,
                   nullptr),
         "fi_mr_reg");
    if ((info->domain_attr->mr_mode & FI_MR_LOCAL) != 0)
        side->desc = fi_mr_desc(side->mr);
    const bool has_addresses = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    own->address = has_addresses ? reinterpret_cast<std::uintptr_t>(memory) : 0;
    own->key = fi_mr_key(side->mr);
    must(fi_getname(&side->ep->fid, own->name, &own->name_bytes), "fi_getname");
}

void exchange(int socket, const void* own, void* other, std::size_t bytes) {
    if (::send(socket, own, bytes, 0) != static_cast<ssize_t>(bytes) ||
        ::recv(socket, other, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes))
        must(-FI_EIO, "a socket");
}

/// Entries that the queue has.
std::uint64_t progress(const Side& side) {
    std::array<fi_cq_entry, 16> entries;
    const ssize_t count = fi_cq_read(side.cq, entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_cq_readerr(side.cq, &error, 0);
        must(-error.err, "a write");
    }
    return count > 0 ? static_cast<std::uint64_t>(count) : 0;
}

void write_to_peer(const Side& side, char number, std::uint64_t* pending) {
    char* const from = side.memory + kBytesMax;
    while (*pending > 0)
        *pending -= progress(side);
    std::memset(from, number, side.bytes);
    ssize_t status = 0;
    while ((status = fi_write(side.ep, from, side.bytes, side.desc, side.peer, side.other.address,
                              side.other.key, nullptr)) == -FI_EAGAIN)
        *pending -= progress(side);
    must(status, "fi_write");
    ++*pending;
}

void await(const Side& side, char number, std::uint64_t* pending) {
    const volatile char* const last = side.memory + side.bytes - 1;
    while (*last != number)
        *pending -= progress(side);
}

/// Round trips, seen from the side that begins.
void play(const Side& side, bool begins, std::uint64_t count, std::uint64_t* pending) {
    for (std::uint64_t i = 0; i < count; ++i) {
        const char number = static_cast<char>(i % 100 + 1);
        if (begins)
            write_to_peer(side, number, pending);
        await(side, number, pending);
        if (!begins)
            write_to_peer(side, number, pending);
    }
    // So that the next number differs from the last.
    while (*pending > 0)
        *pending -= progress(side);
}

struct Times {
    double median;
    double least;
};

/// One way, in nanoseconds.
Times measure(const Side& side, bool begins, std::uint64_t count) {
    using Clock = std::chrono::steady_clock;
    std::uint64_t pending = 0;
    std::array<double, kBatches> times{};
    play(side, begins, count, &pending);
    for (double& time : times) {
        const auto before = Clock::now();
        play(side, begins, count, &pending);
        time = std::chrono::duration<double, std::nano>(Clock::now() - before).count() /
               (2 * static_cast<double>(count));
    }
    std::ranges::sort(times);
    return {times[kBatches / 2], times[0]};
}

int run(int socket, bool begins, const char* provider, std::uint64_t count, std::size_t bytes) {
    Side side;
    side.bytes = bytes;
    Greeting own;
    open(&side, provider, &own);
    exchange(socket, &own, &side.other, sizeof own);
    if (fi_av_insert(side.av, side.other.name, 1, &side.peer, 0, nullptr) != 1)
        must(-FI_EINVAL, "fi_av_insert");
    char ready = 0;
    exchange(socket, &ready, &ready, 1);
    const Times times = measure(side, begins, count);
    if (begins)
        std::printf("%.0f %.0f\n", times.median, times.least);
    // A peer of manual progress may be needed until all has arrived.
    ready = 0;
    if (::send(socket, &ready, 1, 0) != 1)
        must(-FI_EIO, "a socket");
    while (::recv(socket, &ready, 1, MSG_DONTWAIT) != 1)
        progress(side);
    // libfabric's shm leaves what it has in /dev/shm there until its endpoint is closed.
    must(fi_close(&side.ep->fid), "fi_close");
    return 0;
}

/// Each side on a processor of its own, of those that the program may use.
void pin(bool begins) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    cpu_set_t one;
    CPU_ZERO(&one);
    int left = begins ? 0 : 1;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main_of(int argc, char** argv) {
    const std::uint64_t wished = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
    const std::size_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 8;
    if (wished == 0 || bytes < 8 || bytes > kBytesMax) {
        std::fprintf(stderr, "usage: fi_writes PROVIDER COUNT [BYTES, 8 to 4096]\n");
        return 2;
    }
    // Numbers run from 1 to 100, so that the first of a batch is never the last of another.
    const std::uint64_t count = (wished + 99) / 100 * 100;
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        return 1;
    const pid_t child = ::fork();
    const bool begins = child != 0;
    pin(begins);
    const int status = run(sockets[begins ? 0 : 1], begins, argv[1], count, bytes);
    if (!begins)
        std::_Exit(status);
    int ended = 0;
    ::waitpid(child, &ended, 0);
    return ended == 0 ? status : 1;
}

}  // namespace
}  // namespace tagwire::bench

int main(int argc, char** argv) {
    return tagwire::bench::main_of(argc, argv);
}
