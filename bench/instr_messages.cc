// SPDX-License-Identifier: BSD-3-Clause
// Instructions that one short message takes. Run under callgrind with two counts; the difference of
// the costs divided by the difference of the counts is the cost of one, free of set-up
// (bench/instructions.py does that).
//
// Usage: instr_messages am|bcopy|tag|put|idle|ep COUNT [TRANSPORT [DEVICE]]
//
// One process, one interface, connected to itself. `am`: 8-byte short active messages; `bcopy`:
// active messages of 4 KiB that are packed; `tag`: short tagged messages of 8 bytes, each with a
// receive posted for it and matched; `put`: short puts of 8 bytes to memory that the domain
// allocated; `idle`: progress calls that find nothing; `ep`: no messages but endpoints, each to
// another interface, of transports that connect to interfaces. The functions send_am(),
// send_packed(), send_tagged(), put_short(), post_receive(), progress_until(), create_endpoint()
// are kept apart so that the profile splits the cost. The number of progress calls that found
// nothing is printed: it varies, so their cost is subtracted.
//
// The same source compiles against UCX, as instr_messages_ucx.
#include "uct_side.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tagwire::bench {
namespace {

constexpr std::uint8_t kAmId = 1;
constexpr std::size_t kPackedBytes = 4096;

std::uint64_t received;

ucs_status_t on_am(void*, void*, std::size_t, unsigned) {
    ++received;
    return UCS_OK;
}

struct Loopback {
    Side side;
    uct_iface_h iface = nullptr;
    uct_iface_attr_t attr{};
    uct_ep_h ep = nullptr;
    uct_ep_h other = nullptr;  // what `ep` is connected to, where that is an endpoint
};

void open(Loopback* loopback, const char* transport, const char* device) {
    loopback->side = open_side(transport, device);
    loopback->iface = open_interface(loopback->side);
    loopback->attr = attributes(loopback->iface);
    must(uct_iface_set_am_handler(loopback->iface, kAmId, &on_am, nullptr, 0),
         "uct_iface_set_am_handler");
}

void connect_to_itself(Loopback* loopback) {
    const Target self = target_at(loopback->iface);
    if (connects_to_interface(loopback->iface)) {
        must(make_endpoint_to(loopback->iface, self, &loopback->ep), "uct_ep_create");
        return;
    }
    const std::size_t bytes = loopback->attr.ep_addr_len;
    must(make_endpoint(loopback->iface, &loopback->ep), "uct_ep_create");
    must(make_endpoint(loopback->iface, &loopback->other), "uct_ep_create");
    must(connect(loopback->ep, loopback->other, self, bytes), "uct_ep_connect_to_ep");
    must(connect(loopback->other, loopback->ep, self, bytes), "uct_ep_connect_to_ep");
}

struct Receive {
    uct_tag_context_t context{};
    std::vector<std::uint64_t> data;  // as long as the interface wants a receive to be
    std::size_t bytes = 0;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;
};

void on_consumed(uct_tag_context_t*) {}

void on_completed(uct_tag_context_t*, uct_tag_t, std::uint64_t, std::size_t, void*,
                  ucs_status_t status) {
    must(status, "tagged receive");
    ++received;
}

void on_rndv(uct_tag_context_t*, uct_tag_t, const void*, unsigned, ucs_status_t, unsigned) {}

// The marks below are where the profile is cut: they must stay functions.
[[gnu::noinline]] void send_am(const Loopback& loopback) {
    const std::uint64_t header = 1;
    while (uct_ep_am_short(loopback.ep, kAmId, header, &header, 0) == UCS_ERR_NO_RESOURCE)
        uct_worker_progress(loopback.side.worker);
}

std::size_t pack_4k(void* to, void* from) {
    std::memcpy(to, from, kPackedBytes);
    return kPackedBytes;
}

[[gnu::noinline]] void send_packed(const Loopback& loopback) {
    static std::byte data[kPackedBytes];
    while (uct_ep_am_bcopy(loopback.ep, kAmId, &pack_4k, data, 0) == UCS_ERR_NO_RESOURCE)
        uct_worker_progress(loopback.side.worker);
}

[[gnu::noinline]] void send_tagged(const Loopback& loopback, uct_tag_t tag) {
    const std::uint64_t data = 1;
    while (uct_ep_tag_eager_short(loopback.ep, tag, &data, sizeof(data)) == UCS_ERR_NO_RESOURCE)
        uct_worker_progress(loopback.side.worker);
}

[[gnu::noinline]] void post_receive(const Loopback& loopback, uct_tag_t tag, Receive* receive) {
    const uct_iov_t iov{receive->data.data(), receive->bytes, receive->memh, 0, 1};
    must(uct_iface_tag_recv_zcopy(loopback.iface, tag, ~uct_tag_t{0}, &iov, 1, &receive->context),
         "uct_iface_tag_recv_zcopy");
}

[[gnu::noinline]] void create_endpoint(const Loopback& loopback, const Target& target,
                                       uct_ep_h* ep_p) {
    must(make_endpoint_to(loopback.iface, target, ep_p), "uct_ep_create");
}

/// Memory of the domain, and its key.
struct Shared {
    uct_allocated_memory_t memory{};
    uct_rkey_bundle_t key{};
};

void open(const Loopback& loopback, Shared* shared) {
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS;
    params.flags = UCT_MD_MEM_ACCESS_ALL;
    params.mds.mds = &loopback.side.md;
    params.mds.count = 1;
    must(uct_mem_alloc(sizeof(std::uint64_t), &method, 1, &params, &shared->memory),
         "uct_mem_alloc");
    uct_md_attr_t attr{};
    must(uct_md_query(loopback.side.md, &attr), "uct_md_query");
    std::vector<std::byte> packed(attr.rkey_packed_size);
    must(uct_md_mkey_pack(loopback.side.md, shared->memory.memh, packed.data()),
         "uct_md_mkey_pack");
    must(uct_rkey_unpack(loopback.side.component, packed.data(), &shared->key), "uct_rkey_unpack");
}

[[gnu::noinline]] void put_short(const Loopback& loopback, const Shared& shared,
                                 std::uint64_t number) {
    const auto at = reinterpret_cast<std::uintptr_t>(shared.memory.address);
    while (uct_ep_put_short(loopback.ep, &number, sizeof number, at, shared.key.rkey) ==
           UCS_ERR_NO_RESOURCE)
        uct_worker_progress(loopback.side.worker);
}

/// Connects by its first.
void put_all(const Loopback& loopback, std::uint64_t count) {
    Shared shared;
    open(loopback, &shared);
    for (std::uint64_t i = 0; i < count; ++i)
        put_short(loopback, shared, i);
    uct_rkey_release(loopback.side.component, &shared.key);
    uct_mem_free(&shared.memory);
}

std::uint64_t empty_polls;

[[gnu::noinline]] void progress_until(const Loopback& loopback, std::uint64_t count) {
    while (received < count)
        empty_polls += uct_worker_progress(loopback.side.worker) == 0 ? 1 : 0;
}

[[gnu::noinline]] void progress_idle(const Loopback& loopback, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
        empty_polls += uct_worker_progress(loopback.side.worker) == 0 ? 1 : 0;
}

void prepare_receive(const Loopback& loopback, Receive* receive) {
    receive->context.tag_consumed_cb = &on_consumed;
    receive->context.completed_cb = &on_completed;
    receive->context.rndv_cb = &on_rndv;
    receive->bytes = std::max<std::size_t>(loopback.attr.cap.tag.recv.min_recv, 8);
    receive->data.resize(receive->bytes / 8 + 1);
    uct_md_attr_t attr{};
    must(uct_md_query(loopback.side.md, &attr), "uct_md_query");
    if ((attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        must(uct_md_mem_reg(loopback.side.md, receive->data.data(), receive->bytes,
                            UCT_MD_MEM_ACCESS_ALL, &receive->memh),
             "uct_md_mem_reg");
    }
}

void create_endpoints(const Loopback& loopback, std::uint64_t count) {
    if (!connects_to_interface(loopback.iface)) {
        std::fprintf(stderr, "instr_messages: endpoints of %s connect to endpoints\n",
                     loopback.side.transport.c_str());
        std::exit(1);
    }
    const std::vector<Target> targets = past_targets(loopback.side, count);
    std::vector<uct_ep_h> eps(count);
    for (std::uint64_t i = 0; i < count; ++i)
        create_endpoint(loopback, targets[i], &eps[i]);
    for (const uct_ep_h ep : eps)
        uct_ep_destroy(ep);
}

void run(const Loopback& loopback, const char* kind, std::uint64_t count) {
    if (std::strcmp(kind, "idle") == 0) {
        progress_idle(loopback, count);
        return;
    }
    if (std::strcmp(kind, "ep") == 0) {
        create_endpoints(loopback, count);
        return;
    }
    if (std::strcmp(kind, "put") == 0) {
        put_all(loopback, count);
        return;
    }
    const bool tagged = std::strcmp(kind, "tag") == 0;
    const bool packed = std::strcmp(kind, "bcopy") == 0;
    Receive receive;
    if (tagged)
        prepare_receive(loopback, &receive);
    for (std::uint64_t i = 0; i < count; ++i) {
        if (tagged) {
            post_receive(loopback, i, &receive);
            send_tagged(loopback, i);
        } else if (packed) {
            send_packed(loopback);
        } else {
            send_am(loopback);
        }
        progress_until(loopback, i + 1);
    }
    if (receive.memh != UCT_MEM_HANDLE_NULL)
        must(uct_md_mem_dereg(loopback.side.md, receive.memh), "uct_md_mem_dereg");
}

void close(const Loopback& loopback) {
    uct_ep_destroy(loopback.ep);
    if (loopback.other != nullptr)
        uct_ep_destroy(loopback.other);
    uct_iface_close(loopback.iface);
    close_side(loopback.side);
}

int measure(int argc, char** argv) {
    if (argc < 3 || argc > 5) {
        std::fprintf(stderr,
                     "usage: instr_messages am|bcopy|tag|put|idle|ep COUNT [TRANSPORT [DEVICE]]\n");
        return 2;
    }
    Loopback loopback;
    open(&loopback, argc > 3 ? argv[3] : "sm", argc > 4 ? argv[4] : "");
    connect_to_itself(&loopback);
    run(loopback, argv[1], std::strtoull(argv[2], nullptr, 10));
    std::printf("%llu messages, %llu calls of progress found nothing\n",
                static_cast<unsigned long long>(received),
                static_cast<unsigned long long>(empty_polls));
    close(loopback);
    return 0;
}

}  // namespace
}  // namespace tagwire::bench

int main(int argc, char** argv) {
    return tagwire::bench::measure(argc, argv);
}
