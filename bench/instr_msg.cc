// SPDX-License-Identifier: BSD-3-Clause
// Instructions that one tagged message of the messaging layer takes, measured as in instr_messages,
// through the public API.
//
// Usage: instr_msg msg|imm|whole|tested|unexpected|handler|put|flush|idle COUNT [TRANSPORTS
// [multi]]
//
// One process, two workers, connected: a worker's endpoint to itself would be one more thing.
// For each message a receive of 8 bytes is posted with a callback, the message sent, and the
// receiving worker makes progress until it is delivered. "imm": the message has an immediate,
// and the receive takes those of this sender only, as MPI over libfabric has it. "whole": it has
// 128 bytes, which are too long for a slot of sm. "tested": the receive's end is asked for by its
// handle, which is freed. "unexpected": the message comes before its receive, which finds it.
// "handler": an active message of 8 bytes of data, whose handler counts it. "put": 8 bytes are put
// to memory of tw_mem_alloc(). "flush": a flush at TW_FLUSH_SENT, with nothing under way. The
// functions post_receive(), send_tagged(), send_to_handler(), progress_until() are kept apart so
// that the profile splits the cost.
#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tagwire::bench {
namespace {

std::uint64_t received;
std::uint64_t empty_polls;

void must(tw_status_t status, const char* call) {
    if (status != TW_OK && status != TW_INPROGRESS) {
        std::fprintf(stderr, "instr_msg: %s: %s\n", call, tw_status_string(status));
        std::exit(1);
    }
}

struct Pair {
    tw_context_h context = nullptr;
    tw_worker_h from = nullptr;
    tw_worker_h to = nullptr;
    tw_ep_h ep = nullptr;
    tw_ep_h back = nullptr;  // "imm": what the receives name as their source
};

tw_ep_h endpoint(tw_worker_h from, tw_worker_h to) {
    std::uint8_t address[TW_ADDRESS_BYTES_MAX];
    std::size_t length = sizeof address;
    must(tw_worker_address(to, address, &length), "tw_worker_address");
    const tw_ep_params_t params{.address = address, .address_length = length, .user_data = nullptr};
    tw_ep_h ep = nullptr;
    must(tw_ep_create(from, &params, &ep), "tw_ep_create");
    return ep;
}

void open(Pair* pair, const char* transports, tw_thread_mode_t mode) {
    tw_context_params_t params{};
    params.transports = transports;
    must(tw_context_create(&params, &pair->context), "tw_context_create");
    tw_worker_params_t worker{};
    worker.thread_mode = mode;
    must(tw_worker_create(pair->context, &worker, &pair->from), "tw_worker_create");
    must(tw_worker_create(pair->context, &worker, &pair->to), "tw_worker_create");
    pair->ep = endpoint(pair->from, pair->to);
}

void close(const Pair& pair) {
    tw_worker_destroy(pair.from);
    tw_worker_destroy(pair.to);
    tw_context_destroy(pair.context);
}

void on_received(const tw_completion_t* done) {
    must(done->status, "tagged receive");
    ++received;
}

void on_am(void*, tw_am_t* am) {
    received += am->length == sizeof(std::uint64_t) ? 1 : 0;
}

// The marks below are where the profile is cut: they must stay functions.
[[gnu::noinline]] void post_receive(const Pair& pair, std::uint64_t tag, std::uint64_t* data) {
    tw_op_t op{};
    op.complete = &on_received;
    op.source = pair.back;
    must(tw_tag_recv(pair.to, data, sizeof *data, tag, 0, &op, nullptr), "tw_tag_recv");
}

[[gnu::noinline]] void send_tagged(const Pair& pair, std::uint64_t tag) {
    const std::uint64_t data = tag;
    tw_op_t with_imm{};
    with_imm.flags = TW_OP_IMM;
    with_imm.imm = tag;
    const tw_op_t* op = pair.back != nullptr ? &with_imm : nullptr;
    while (tw_tag_send(pair.ep, &data, sizeof data, tag, op, nullptr) == TW_ERR_NO_RESOURCE)
        tw_worker_progress(pair.from);
}

[[gnu::noinline]] void progress_until_kept(const Pair& pair) {
    while (tw_worker_progress(pair.to) == 0)
        ++empty_polls;
}

constexpr std::size_t kWholeBytes = 128;

[[gnu::noinline]] void post_whole(const Pair& pair, std::uint64_t tag, std::byte* data) {
    tw_op_t op{};
    op.complete = &on_received;
    must(tw_tag_recv(pair.to, data, kWholeBytes, tag, 0, &op, nullptr), "tw_tag_recv");
}

[[gnu::noinline]] void send_whole(const Pair& pair, std::uint64_t tag, const std::byte* data) {
    while (tw_tag_send(pair.ep, data, kWholeBytes, tag, nullptr, nullptr) == TW_ERR_NO_RESOURCE)
        tw_worker_progress(pair.from);
}

[[gnu::noinline]] tw_request_h post_tested(const Pair& pair, std::uint64_t tag,
                                           std::uint64_t* data) {
    tw_request_h request = nullptr;
    must(tw_tag_recv(pair.to, data, sizeof *data, tag, 0, nullptr, &request), "tw_tag_recv");
    return request;
}

[[gnu::noinline]] void progress_until_tested(const Pair& pair, tw_request_h request) {
    while (tw_request_test(request, nullptr) == TW_INPROGRESS)
        empty_polls += tw_worker_progress(pair.to) == 0 ? 1 : 0;
    tw_request_free(request);
    ++received;
}

/// The message is there.
[[gnu::noinline]] void receive_kept(const Pair& pair, std::uint64_t tag, std::uint64_t* data) {
    tw_op_t op{};
    op.complete = &on_received;
    if (tw_tag_recv(pair.to, data, sizeof *data, tag, 0, &op, nullptr) != TW_OK || *data != tag) {
        std::fprintf(stderr, "instr_msg: the receive has not found its message\n");
        std::exit(1);
    }
    ++received;
}

[[gnu::noinline]] void send_to_handler(const Pair& pair, std::uint64_t number) {
    const std::uint64_t data = number;
    while (tw_am_send(pair.ep, 1, nullptr, 0, &data, sizeof data, nullptr, nullptr) ==
           TW_ERR_NO_RESOURCE)
        tw_worker_progress(pair.from);
}

/// Memory of the context, and its key for the worker that sends.
struct Shared {
    void* at = nullptr;
    tw_mem_h mem = nullptr;
    tw_key_h key = nullptr;
};

[[gnu::noinline]] void put_short(const Pair& pair, const Shared& shared, std::uint64_t number) {
    while (tw_put(pair.ep, &number, sizeof number, reinterpret_cast<std::uintptr_t>(shared.at),
                  shared.key, nullptr, nullptr) == TW_ERR_NO_RESOURCE)
        tw_worker_progress(pair.from);
}

[[gnu::noinline]] void flush_nothing(const Pair& pair) {
    if (tw_ep_flush(pair.ep, TW_FLUSH_SENT, nullptr, nullptr) != TW_OK) {
        std::fprintf(stderr, "instr_msg: a flush has found something under way\n");
        std::exit(1);
    }
}

void put_all(const Pair& pair, std::uint64_t count) {
    Shared shared;
    must(tw_mem_alloc(pair.context, sizeof(std::uint64_t), nullptr, &shared.at, &shared.mem),
         "tw_mem_alloc");
    char packed[TW_KEY_BYTES_MAX];
    std::size_t length = sizeof packed;
    must(tw_mem_pack(shared.mem, packed, &length), "tw_mem_pack");
    must(tw_key_unpack(pair.from, packed, length, &shared.key), "tw_key_unpack");
    for (std::uint64_t i = 0; i < count; ++i)
        put_short(pair, shared, i);
    tw_key_free(shared.key);
    must(tw_mem_unmap(pair.context, shared.mem), "tw_mem_unmap");
}

[[gnu::noinline]] void progress_until(const Pair& pair, std::uint64_t count) {
    while (received < count)
        empty_polls += tw_worker_progress(pair.to) == 0 ? 1 : 0;
}

/// The first message carries the connection with it; its words wait on neither side.
void connect(const Pair& pair) {
    constexpr std::uint64_t kTag = ~std::uint64_t{0};
    std::uint64_t data = 0;
    tw_op_t op{};
    op.complete = &on_received;
    must(tw_tag_recv(pair.to, &data, sizeof data, kTag, 0, &op, nullptr), "tw_tag_recv");
    tw_request_h sent = nullptr;
    const std::uint64_t word = 1;
    tw_status_t status = tw_tag_send(pair.ep, &word, sizeof word, kTag, nullptr, &sent);
    must(status, "tw_tag_send");
    while (received == 0 || (sent != nullptr && status == TW_INPROGRESS)) {
        tw_worker_progress(pair.from);
        tw_worker_progress(pair.to);
        status = sent == nullptr ? TW_OK : tw_request_test(sent, nullptr);
    }
    tw_request_free(sent);
    received = 0;
}

/// "idle": calls of progress that find nothing. The sender hears nothing meanwhile.
[[gnu::noinline]] void progress_idle(const Pair& pair, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
        empty_polls += tw_worker_progress(pair.to) == 0 ? 1 : 0;
}

int measure(int argc, char** argv) {
    if (argc < 3 || argc > 5 || (argc > 4 && std::strcmp(argv[4], "multi") != 0)) {
        std::fprintf(
            stderr,
            "usage: instr_msg msg|imm|whole|tested|unexpected|handler|put|flush|idle COUNT "
            "[TRANSPORTS [multi]]\n");
        return 2;
    }
    Pair pair;
    open(&pair, argc > 3 ? argv[3] : "sm", argc > 4 ? TW_THREAD_MULTI : TW_THREAD_SINGLE);
    connect(pair);
    if (std::strcmp(argv[1], "imm") == 0)
        pair.back = endpoint(pair.to, pair.from);
    const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
    const bool is_idle = std::strcmp(argv[1], "idle") == 0;
    const bool is_am = std::strcmp(argv[1], "handler") == 0;
    const bool is_put = std::strcmp(argv[1], "put") == 0;
    const bool is_flush = std::strcmp(argv[1], "flush") == 0;
    const bool is_unexpected = std::strcmp(argv[1], "unexpected") == 0;
    if (is_idle)
        progress_idle(pair, count);
    if (is_put)
        put_all(pair, count);
    for (std::uint64_t i = 0; is_flush && i < count; ++i)
        flush_nothing(pair);
    must(tw_am_register(pair.to, 1, on_am, nullptr), "tw_am_register");
    for (std::uint64_t i = 0; is_am && i < count; ++i) {
        send_to_handler(pair, i);
        progress_until(pair, i + 1);
    }
    std::uint64_t data = 0;
    for (std::uint64_t i = 0; is_unexpected && i < count; ++i) {
        send_tagged(pair, i);
        progress_until_kept(pair);
        receive_kept(pair, i, &data);
    }
    const bool is_whole = std::strcmp(argv[1], "whole") == 0;
    std::byte sent[kWholeBytes] = {}, taken[kWholeBytes];
    for (std::uint64_t i = 0; is_whole && i < count; ++i) {
        post_whole(pair, i, taken);
        send_whole(pair, i, sent);
        progress_until(pair, i + 1);
    }
    const bool is_tested = std::strcmp(argv[1], "tested") == 0;
    for (std::uint64_t i = 0; is_tested && i < count; ++i) {
        tw_request_h request = post_tested(pair, i, &data);
        send_tagged(pair, i);
        progress_until_tested(pair, request);
    }
    const bool is_posted =
        !is_idle && !is_am && !is_put && !is_flush && !is_unexpected && !is_whole && !is_tested;
    for (std::uint64_t i = 0; is_posted && i < count; ++i) {
        post_receive(pair, i, &data);
        send_tagged(pair, i);
        progress_until(pair, i + 1);
    }
    std::printf("%llu messages, %llu calls of progress found nothing\n",
                static_cast<unsigned long long>(received),
                static_cast<unsigned long long>(empty_polls));
    close(pair);
    return 0;
}

}  // namespace
}  // namespace tagwire::bench

int main(int argc, char** argv) {
    return tagwire::bench::measure(argc, argv);
}
