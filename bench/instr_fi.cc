// SPDX-License-Identifier: BSD-3-Clause
// Instructions that one tagged message takes through the provider for libfabric, measured as in
// instr_messages, through libfabric's public API. bench/instructions.py --provider runs it.
//
// Usage: instr_fi mpi|stream|inject|pingpong|idle COUNT
//
// One process, two endpoints of one domain, connected. "mpi": the calls of Open MPI's mtl ofi:
// fi_trecv() from one source and fi_tsenddata(), each with a context and an entry of 48 bytes, read
// by fi_cq_read() with room for 100; nothing is locked (FI_THREAD_DOMAIN). "stream": the same in
// windows of 50 messages. "inject": with fi_tinjectdata(), as its blocking sends have it.
// "pingpong": the calls of fi_pingpong: fi_trecv() from anybody, fi_tinject(), and fi_cq_read() of
// one entry of 8 bytes. "idle": calls of fi_cq_read() that find nothing.
//
// The functions post_receive(), send_tagged(), read_sent(), read_received() are kept apart so that
// the profile splits the cost.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tagwire::bench {
namespace {

constexpr std::size_t kEntries = 100;
constexpr std::uint64_t kWindow = 50;
constexpr std::size_t kEntryBytesMax = sizeof(fi_cq_tagged_entry);

std::uint64_t received;
std::uint64_t empty_reads;

void must(ssize_t status, const char* call) {
    if (status < 0) {
        std::fprintf(stderr, "instr_fi: %s: %s\n", call, fi_strerror(static_cast<int>(-status)));
        std::exit(1);
    }
}

struct Kind {
    bool has_data = true;  // and the receive names its source
    bool injects = false;  // and has no entry for the send
    std::uint64_t window = 1;
    std::size_t room = kEntries;
    fi_cq_format format = FI_CQ_FORMAT_TAGGED;
    fi_threading threading = FI_THREAD_DOMAIN;
};

/// An endpoint with one queue for both directions.
struct Side {
    fid_ep* ep = nullptr;
    fid_cq* cq = nullptr;
    char name[FI_NAME_MAX] = {};
};

struct Pair {
    Kind kind;
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    Side from;
    Side to;
    fi_addr_t addrs[2] = {};  // of `from` and `to`
};

void open_domain(Pair* pair) {
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("tagwire");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | (pair->kind.has_data ? FI_DIRECTED_RECV : 0);
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->threading = pair->kind.threading;
    hints->domain_attr->av_type = FI_AV_MAP;
    must(fi_getinfo(FI_VERSION(1, 5), nullptr, nullptr, 0, hints, &pair->info), "fi_getinfo");
    fi_freeinfo(hints);
    must(fi_fabric(pair->info->fabric_attr, &pair->fabric, nullptr), "fi_fabric");
    must(fi_domain(pair->fabric, pair->info, &pair->domain, nullptr), "fi_domain");
    fi_av_attr attr{};
    attr.type = FI_AV_MAP;
    must(fi_av_open(pair->domain, &attr, &pair->av, nullptr), "fi_av_open");
}

void open_side(const Pair& pair, Side* side) {
    fi_cq_attr attr{};
    attr.format = pair.kind.format;
    must(fi_cq_open(pair.domain, &attr, &side->cq, nullptr), "fi_cq_open");
    must(fi_endpoint(pair.domain, pair.info, &side->ep, nullptr), "fi_endpoint");
    must(fi_ep_bind(side->ep, &pair.av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(side->ep), "fi_enable");
    std::size_t length = sizeof side->name;
    must(fi_getname(&side->ep->fid, side->name, &length), "fi_getname");
}

void open(Pair* pair) {
    open_domain(pair);
    open_side(*pair, &pair->from);
    open_side(*pair, &pair->to);
    must(fi_av_insert(pair->av, pair->from.name, 1, &pair->addrs[0], 0, nullptr), "fi_av_insert");
    must(fi_av_insert(pair->av, pair->to.name, 1, &pair->addrs[1], 0, nullptr), "fi_av_insert");
}

void close(const Pair& pair) {
    for (const Side* side : {&pair.from, &pair.to}) {
        fi_close(&side->ep->fid);
        fi_close(&side->cq->fid);
    }
    fi_close(&pair.av->fid);
    fi_close(&pair.domain->fid);
    fi_close(&pair.fabric->fid);
    fi_freeinfo(pair.info);
}

// The marks below are where the profile is cut: they must stay functions.
[[gnu::noinline]] void post_receive(const Pair& pair, std::uint64_t tag, std::uint64_t* data,
                                    fi_context2* context) {
    const fi_addr_t source = pair.kind.has_data ? pair.addrs[0] : FI_ADDR_UNSPEC;
    must(fi_trecv(pair.to.ep, data, sizeof *data, nullptr, source, tag, 0, context), "fi_trecv");
}

ssize_t try_send(const Pair& pair, std::uint64_t tag, const std::uint64_t& data,
                 fi_context2* context) {
    const fi_addr_t to = pair.addrs[1];
    if (!pair.kind.injects)
        return fi_tsenddata(pair.from.ep, &data, sizeof data, nullptr, tag, to, tag, context);
    if (pair.kind.has_data)
        return fi_tinjectdata(pair.from.ep, &data, sizeof data, tag, to, tag);
    return fi_tinject(pair.from.ep, &data, sizeof data, to, tag);
}

[[gnu::noinline]] void send_tagged(const Pair& pair, std::uint64_t tag, fi_context2* context) {
    const std::uint64_t data = tag;
    ssize_t status;
    while ((status = try_send(pair, tag, data, context)) == -FI_EAGAIN) {
    }
    must(status, "fi_tsenddata");
}

[[gnu::always_inline]] inline std::uint64_t read_entries(const Pair& pair, fid_cq* cq) {
    alignas(8) std::byte entries[kEntries * kEntryBytesMax];
    const ssize_t count = fi_cq_read(cq, entries, pair.kind.room);
    if (count > 0)
        return static_cast<std::uint64_t>(count);
    if (count != -FI_EAGAIN)
        must(count, "fi_cq_read");
    return 0;
}

/// The entries of the sends, which are there.
[[gnu::noinline]] void read_sent(const Pair& pair) {
    if (!pair.kind.injects && read_entries(pair, pair.from.cq) != pair.kind.window)
        must(-FI_EOTHER, "the entries of the sends");
}

[[gnu::noinline]] void read_received(const Pair& pair, std::uint64_t count) {
    while (received < count) {
        const std::uint64_t found = read_entries(pair, pair.to.cq);
        received += found;
        empty_reads += found == 0 ? 1 : 0;
    }
}

/// The first message carries the connection with it; its words wait on neither side.
void connect(Pair* pair) {
    constexpr std::uint64_t kTag = ~std::uint64_t{0};
    std::uint64_t data = 0;
    fi_context2 contexts[2];
    post_receive(*pair, kTag, &data, &contexts[0]);
    std::uint64_t left = pair->kind.injects ? 1 : 2;
    ssize_t status = 0;
    while ((status = try_send(*pair, kTag, data, &contexts[1])) == -FI_EAGAIN)
        left -= read_entries(*pair, pair->to.cq);
    must(status, "fi_tsenddata");
    while (left > 0)
        left -= read_entries(*pair, pair->from.cq) + read_entries(*pair, pair->to.cq);
}

/// "idle": the sender hears nothing meanwhile.
[[gnu::noinline]] void read_idle(const Pair& pair, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
        empty_reads += read_entries(pair, pair.to.cq) == 0 ? 1 : 0;
}

bool parse(std::string_view name, Kind* kind) {
    kind->injects = name == "inject" || name == "pingpong";
    if (name == "pingpong")
        *kind = {false, true, 1, 1, FI_CQ_FORMAT_CONTEXT, FI_THREAD_UNSPEC};
    if (name == "stream")
        kind->window = kWindow;
    return name == "mpi" || name == "stream" || name == "idle" || kind->injects;
}

void exchange(const Pair& pair, std::uint64_t count) {
    std::uint64_t data[kWindow];
    fi_context2 contexts[2 * kWindow];
    const std::uint64_t window = pair.kind.window;
    for (std::uint64_t i = 0; i < count; i += window) {
        for (std::uint64_t k = 0; k < window; ++k)
            post_receive(pair, i + k, &data[k], &contexts[k]);
        for (std::uint64_t k = 0; k < window; ++k)
            send_tagged(pair, i + k, &contexts[kWindow + k]);
        read_sent(pair);
        read_received(pair, i + window);
    }
}

int measure(int argc, char** argv) {
    Pair pair;
    if (argc != 3 || !parse(argv[1], &pair.kind)) {
        std::fprintf(stderr, "usage: instr_fi mpi|stream|inject|pingpong|idle COUNT\n");
        return 2;
    }
    open(&pair);
    connect(&pair);
    const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
    const bool is_idle = std::strcmp(argv[1], "idle") == 0;
    if (is_idle)
        read_idle(pair, count);
    else
        exchange(pair, count);
    std::printf("%llu messages, %llu calls of progress found nothing\n",
                static_cast<unsigned long long>(received),
                static_cast<unsigned long long>(empty_reads));
    close(pair);
    return 0;
}

}  // namespace
}  // namespace tagwire::bench

int main(int argc, char** argv) {
    return tagwire::bench::measure(argc, argv);
}
