// SPDX-License-Identifier: BSD-3-Clause
// A peer is killed while several rails read from it. A program of its own (it forks before anything
// of the library runs).
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kFirst = 1 << 20;
constexpr std::size_t kSecond = 48 << 20;

/// Memory with a handle.
struct Shown {
    Shown(tw_context_h in, std::size_t length) : context(in), bytes(length) {
        EXPECT_EQ(tw_mem_map(context, bytes.data(), length, nullptr, &how.mem), TW_OK);
        how.flags = TW_OP_COMPLETION;
        how.context = this;
    }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;
    ~Shown() { EXPECT_EQ(tw_mem_unmap(context, how.mem), TW_OK); }
    tw_context_h context;
    Bytes bytes;
    tw_op_t how{};
};

tw_context_h make_context() {
    const char* named = std::getenv("TAGWIRE_TEST_TRANSPORTS");
    tw_context_params_t params{};
    params.transports = named == nullptr ? "rc" : named;
    tw_context_h context = nullptr;
    EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
    return context;
}

/// Tells its address, and sends a message to whoever answers, and another one again and again.
[[noreturn]] void be_victim(int to_parent, int from_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    tw_context_h context = make_context();
    Node node(context);
    const Bytes address = node.address();
    Bytes theirs(TW_ADDRESS_BYTES_MAX);
    if (::write(to_parent, address.data(), address.size()) < 0)
        _exit(3);
    const ssize_t length = ::read(from_parent, theirs.data(), theirs.size());
    if (length <= 0)
        _exit(4);
    const tw_ep_params_t ep_params{.address = theirs.data(),
                                   .address_length = static_cast<std::size_t>(length),
                                   .user_data = nullptr};
    tw_ep_h ep = nullptr;
    if (tw_ep_create(node.worker(), &ep_params, &ep) != TW_OK)
        _exit(5);
    Shown first(context, kFirst), second(context, kSecond);
    tw_tag_send(ep, second.bytes.data(), kSecond, 2, &second.how, nullptr);
    for (;;) {
        tw_tag_send(ep, first.bytes.data(), kFirst, 1, &first.how, nullptr);
        while (node.done.empty())
            node.progress();
        node.done.clear();
    }
}

/// Gets messages until all rails are connected: the first one may come before the peer's hello, and
/// is not divided then.
void connect_rails(Node& node, tw_context_h context) {
    Shown first(context, kFirst);
    while (node.description().find("more rails") == std::string::npos) {
        ASSERT_EQ(tw_tag_recv(node.worker(), first.bytes.data(), kFirst, 1, 0, &first.how, nullptr),
                  TW_INPROGRESS);
        while (node.done.empty())
            node.progress();
        ASSERT_EQ(node.done[0].status, TW_OK);
        node.done.clear();
    }
}

TEST(MsgStripeKill, what_several_rails_read_from_a_killed_peer_ends_and_gives_its_buffer_back) {
    int up[2], down[2];
    ASSERT_EQ(::pipe(up), 0);
    ASSERT_EQ(::pipe(down), 0);
    const pid_t victim = ::fork();
    ASSERT_GE(victim, 0);
    if (victim == 0)
        be_victim(up[1], down[0]);
    tw_context_h context = make_context();
    {
        Node node(context);
        const Bytes address = node.address();
        ASSERT_EQ(::write(down[1], address.data(), address.size()),
                  static_cast<ssize_t>(address.size()));
        ASSERT_NO_FATAL_FAILURE(connect_rails(node, context));
        Shown second(context, kSecond);
        const std::uint64_t before = node.counter("rndv_striped");
        ASSERT_EQ(
            tw_tag_recv(node.worker(), second.bytes.data(), kSecond, 2, 0, &second.how, nullptr),
            TW_INPROGRESS);
        while (node.counter("rndv_striped") == before)
            node.progress();
        ASSERT_EQ(::kill(victim, SIGKILL), 0);
        ASSERT_EQ(::waitpid(victim, nullptr, 0), victim);
        while (node.done.empty())
            node.progress();
        EXPECT_LT(node.done[0].status, TW_OK);
        // Nothing is written behind the end.
        std::ranges::fill(second.bytes, std::byte{7});
        for (int i = 0; i < 20000; ++i)
            node.progress();
        EXPECT_EQ(std::ranges::count(second.bytes, std::byte{7}), kSecond);
    }
    tw_context_destroy(context);
    for (const int fd : {up[0], up[1], down[0], down[1]})
        ::close(fd);
}

}  // namespace
}  // namespace tagwire::test
