// SPDX-License-Identifier: BSD-3-Clause
// Two processes exchange tagged messages in the four ways there are: eager and rendezvous, each to
// a receive that was posted before (expected) and to none (unexpected).
//
// The parent forks its peer and swaps addresses with it over a socket pair; the rest goes through
// tagwire. The peer posts its receives before it tells its address, and no message can reach it
// earlier: so those messages are expected, whatever the timing. The parent posts before it asks.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <tagwire.hpp>
#include <thread>

namespace {

// A receive names the bits of the tag that it compares by a mask; here it compares all of them.
enum Tag : uct_tag_t { kPing = 1, kPong, kNews, kBulk, kOffer };
using Bytes = std::vector<std::byte>;
constexpr uct_tag_t kAllBits = ~uct_tag_t{0};
constexpr int kRounds = 200;
const Bytes kLong(1 << 20, std::byte{1}), kLonger(1 << 21, std::byte{2});

/// Messages that come without a posted receive, and failures. Handlers run inside progress(): they
/// may send but not progress, so these only note what came.
struct Inbox {
    std::string news;
    Bytes offer_key;
    std::uint64_t offer_address = 0;
    std::size_t offer_bytes = 0;
    ucs_status_t failure = UCS_OK;

    // Eager. With UCT_CB_PARAM_FLAG_DESC it might keep the buffer by returning UCS_INPROGRESS.
    ucs_status_t operator()(void* data, std::size_t length, unsigned, uct_tag_t, std::uint64_t,
                            void**) {
        news.assign(static_cast<const char*>(data), length);
        return UCS_OK;
    }
    // Rendezvous.
    ucs_status_t operator()(unsigned, uct_tag_t, const void*, unsigned, std::uint64_t address,
                            std::size_t bytes, const void* key) {
        std::memcpy(offer_key.data(), key, offer_key.size());
        offer_address = address;
        offer_bytes = bytes;
        return UCS_OK;
    }
    // The peer died.
    void operator()(uct_ep_h, ucs_status_t status) { failure = status; }
};

/// One process of the pair: opens everything, connects, progresses.
struct Side {
    Inbox inbox;
    tagwire::Resource shm = tagwire::find_resource("sm").value();
    tagwire::MemoryDomain md{shm.component, shm.md_name};
    tagwire::Worker worker;
    tagwire::InterfaceOptions options{shm.tl_name, shm.dev_name};
    tagwire::Interface iface{md, worker,
                             options.unexpected_handlers(inbox, inbox).error_handler(inbox)};
    std::optional<tagwire::Endpoint> peer;

    void connect(int socket) {
        tagwire::InterfaceAddress address = iface.address();  // ours; then the peer's
        for (Bytes* part : {&address.device, &address.iface})
            if (::send(socket, part->data(), part->size(), 0) < 0 ||
                recv(socket, part->data(), part->size(), MSG_WAITALL) <= 0)
                throw std::runtime_error("the peer did not tell its address");
        peer.emplace(iface, address);
        inbox.offer_key.resize(md.attr().rkey_packed_size);
    }
    void wait_until(auto condition) {
        while (!condition()) {
            tagwire::check(inbox.failure, "the peer");
            if (worker.progress() == 0)
                std::this_thread::yield();  // polite where cores are fewer than processes
        }
    }
    /// Starts an operation as soon as there is room for it.
    void submit(auto operation) {
        ucs_status_t status = UCS_OK;
        wait_until([&] { return (status = operation()) != UCS_ERR_NO_RESOURCE; });
        if (status != UCS_INPROGRESS)
            tagwire::check(status, "operation");
    }
    void send(uct_tag_t tag, std::string_view text) {
        submit([&] { return peer->tag_eager_short(tag, std::as_bytes(std::span(text))); });
    }
    /// Announces `data`, which the receiver moves; the handle is for tag_rndv_cancel().
    ucs_status_ptr_t offer(uct_tag_t tag, std::span<const std::byte> data, uct_completion_t* done) {
        const uct_iov_t list[] = {tagwire::iov(data)};
        ucs_status_ptr_t handle = nullptr;
        submit([&] {
            handle = peer->tag_rndv_zcopy(tag, {}, list, done);
            return UCS_PTR_IS_ERR(handle) ? UCS_PTR_STATUS(handle) : UCS_OK;
        });
        return handle;
    }
};

/// A receive; may be posted again when its message has come.
struct Receive {
    Bytes buffer;
    std::optional<tagwire::TagResult> result;
    tagwire::TagReceive<std::function<void(const tagwire::TagResult&)>,
                        void (*)(const tagwire::TagRequest&)>
        context{[this](const auto& got) { result = got; }, [](const auto&) {}};

    explicit Receive(std::size_t bytes) : buffer(bytes) {}
    void post(Side& side, uct_tag_t tag) {
        result.reset();
        tagwire::check(side.iface.tag_recv(tag, kAllBits, buffer, context), "tag_recv");
    }
    void wait(Side& side) {
        side.wait_until([&] { return result.has_value(); });
        tagwire::check(result->status, "receive");
    }
};

void ask(int socket) {
    Receive pong(64);
    Side me;
    me.connect(socket);

    for (int round = 0; round < kRounds; ++round) {
        pong.post(me, kPong);
        me.send(kPing, "ping");
        pong.wait(me);
    }
    std::printf("eager, expected: %d round trips\n", kRounds);

    pong.post(me, kPong);
    me.send(kNews, "nobody waits for this");
    pong.wait(me);
    std::puts("eager, unexpected: the peer's handler took the message");

    std::optional<ucs_status_t> ended;
    tagwire::Completion done([&](ucs_status_t status) { ended = status; });
    me.offer(kBulk, kLong, &done);
    me.wait_until([&] { return ended.has_value(); });
    tagwire::check(*ended, "rendezvous");
    std::printf("rendezvous, expected: the peer's buffer has %zu bytes\n", kLong.size());

    // Nobody posted a receive for this one: the peer reads it by itself and says so, and then the
    // offer is taken back.
    pong.post(me, kPong);
    done.rearm();
    const ucs_status_ptr_t handle = me.offer(kOffer, kLonger, &done);
    pong.wait(me);
    tagwire::check(me.peer->tag_rndv_cancel(handle), "tag_rndv_cancel");
    if (pong.buffer[0] != std::byte{'y'})
        throw std::runtime_error("the peer found wrong bytes");
    std::printf("rendezvous, unexpected: the peer read %zu bytes, all correct\n", kLonger.size());
}

void answer(int socket) {
    Receive ping(64), bulk(kLong.size());
    Side me;
    ping.post(me, kPing);
    bulk.post(me, kBulk);
    me.connect(socket);

    for (int round = 0; round < kRounds; ++round) {
        ping.wait(me);
        ping.post(me, kPing);
        me.send(kPong, "pong");
    }
    me.wait_until([&] { return !me.inbox.news.empty(); });
    me.send(kPong, me.inbox.news);

    bulk.wait(me);
    me.wait_until([&] { return me.inbox.offer_bytes != 0; });
    Bytes copy(me.inbox.offer_bytes);
    const uct_iov_t list[] = {tagwire::iov(copy)};
    const tagwire::RemoteKey key(me.shm.component, me.inbox.offer_key);
    me.submit([&] { return me.peer->get_zcopy(list, me.inbox.offer_address, key, nullptr); });
    me.wait_until([&] { return me.peer->flush() == UCS_OK; });  // now the bytes are here

    me.send(kPong, bulk.buffer == kLong && copy == kLonger ? "yes" : "no");
    char none = 0;
    recv(socket, &none, 1, 0);  // until the peer has read it: a peer that leaves early has failed
}

int run(void (*side)(int), int socket) try {
    side(socket);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "tag_pingpong: %s\n", error.what());
    return 1;
}

}  // namespace

int main() {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        return 1;
    const pid_t child = fork();  // before anything is open: handles do not cross a fork
    close(sockets[child == 0 ? 0 : 1]);
    if (child == 0)
        _exit(run(answer, sockets[1]));
    int status = child > 0 ? run(ask, sockets[0]) : 1, child_status = 0;
    close(sockets[0]);
    waitpid(child, &child_status, 0);
    return status != 0 || child_status != 0;
}
