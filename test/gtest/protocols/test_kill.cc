// SPDX-License-Identifier: BSD-3-Clause
// A peer is killed with everything under way. A program of its own (it forks before anything of the
// library runs).
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLong = 300000;

/// Tells its address, says hello, and then only progresses.
[[noreturn]] void be_victim(int to_parent, int from_parent, const char* transports) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    tw_context_params_t params{};
    params.transports = transports;
    tw_context_h context = nullptr;
    if (tw_context_create(&params, &context) != TW_OK)
        _exit(2);
    Node node(context);
    const Bytes address = node.address();
    Bytes theirs(TW_ADDRESS_BYTES_MAX);
    if (::write(to_parent, address.data(), address.size()) < 0)
        _exit(3);
    const ssize_t length = ::read(from_parent, theirs.data(), theirs.size());
    if (length <= 0)
        _exit(4);
    const tw_ep_params_t ep_params{theirs.data(), static_cast<std::size_t>(length), nullptr};
    tw_ep_h ep = nullptr;
    if (tw_ep_create(node.worker(), &ep_params, &ep) != TW_OK)
        _exit(5);
    const Bytes data = pattern(kLong, 1);
    tw_tag_send(ep, data.data(), 10, 1, nullptr, nullptr);
    tw_tag_send(ep, data.data(), kLong, 2, nullptr, nullptr);
    for (;;)
        node.progress();
}

class MsgKill : public ::testing::Test {};

TEST_F(MsgKill, a_killed_peer_ends_everything_and_the_worker_goes_on) {
    const char* named = std::getenv("TAGWIRE_TEST_TRANSPORTS");
    const char* transports = named == nullptr ? "sm" : named;
    int up[2], down[2];
    ASSERT_EQ(::pipe(up), 0);
    ASSERT_EQ(::pipe(down), 0);
    const pid_t victim = ::fork();
    ASSERT_GE(victim, 0);
    if (victim == 0)
        be_victim(up[1], down[0], transports);

    tw_context_params_t params{};
    params.transports = transports;
    tw_context_h context = nullptr;
    ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
    {
        Node node(context);
        const Bytes address = node.address();
        ASSERT_EQ(::write(down[1], address.data(), address.size()),
                  static_cast<ssize_t>(address.size()));
        Bytes theirs(TW_ADDRESS_BYTES_MAX);
        const ssize_t length = ::read(up[0], theirs.data(), theirs.size());
        ASSERT_GT(length, 0);
        const tw_ep_params_t ep_params{theirs.data(), static_cast<std::size_t>(length), nullptr};
        tw_ep_h ep = nullptr;
        ASSERT_EQ(tw_ep_create(node.worker(), &ep_params, &ep), TW_OK);
        while (node.counter("rx_unexpected") < 2)
            node.progress();

        const Bytes data = pattern(kLong, 2);
        Bytes buffer(10);
        int marks[6];
        const auto op = [&](int i, std::uint32_t flags) {
            tw_op_t how{};
            how.context = &marks[i];
            how.flags = flags | TW_OP_COMPLETION;
            return how;
        };
        const tw_op_t rndv = op(0, 0), match = op(1, TW_OP_MATCH_COMPLETE), flush = op(2, 0),
                      fence = op(3, TW_OP_FENCE);
        tw_op_t directed = op(4, 0);
        directed.source = ep;
        ASSERT_EQ(tw_tag_send(ep, data.data(), kLong, 5, &rndv, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(ep, data.data(), 10, 5, &match, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_ep_flush(ep, &flush, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(ep, data.data(), 10, 5, &fence, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_tag_recv(node.worker(), buffer.data(), 10, 6, 0, &directed, nullptr),
                  TW_INPROGRESS);
        for (int i = 0; i < 1000; ++i)
            node.progress();
        ASSERT_TRUE(node.done.empty());
        ASSERT_EQ(::kill(victim, SIGKILL), 0);
        ASSERT_EQ(::waitpid(victim, nullptr, 0), victim);
        while (node.failures.empty() || node.done.size() < 5)
            node.progress();
        EXPECT_EQ(node.done.size(), 5U);
        for (int i = 0; i < 5; ++i) {
            const auto found = std::ranges::find_if(
                node.done, [&](const tw_completion_t& done) { return done.context == &marks[i]; });
            ASSERT_NE(found, node.done.end()) << i;
            EXPECT_LT(found->status, TW_OK) << i;
        }
        EXPECT_EQ(node.failures.size(), 1U);
        EXPECT_EQ(tw_ep_close(ep, 0, nullptr, nullptr), TW_OK);

        // What had come in full is still there; what was half done is not.
        node.done.clear();
        const tw_op_t late = op(5, 0);
        ASSERT_EQ(tw_tag_recv(node.worker(), buffer.data(), 10, 1, 0, &late, nullptr),
                  TW_INPROGRESS);
        node.progress();
        ASSERT_EQ(node.done.size(), 1U);
        EXPECT_EQ(node.done[0].status, TW_OK);
        EXPECT_EQ(buffer, pattern(10, 1));
        tw_op_t peek{};
        peek.flags = TW_OP_PEEK;
        EXPECT_EQ(tw_tag_recv(node.worker(), nullptr, 0, 2, 0, &peek, nullptr), TW_ERR_NO_MESSAGE);

        // And the worker goes on.
        const Bytes more = pattern(100, 3);
        Bytes received(100);
        ASSERT_GE(tw_tag_send(node.to(node), more.data(), 100, 7, nullptr, nullptr), TW_OK);
        ASSERT_EQ(tw_tag_recv(node.worker(), received.data(), 100, 7, 0, &late, nullptr),
                  TW_INPROGRESS);
        node.done.clear();
        while (node.done.empty())
            node.progress();
        EXPECT_EQ(received, more);
    }
    tw_context_destroy(context);
    for (const int fd : {up[0], up[1], down[0], down[1]})
        ::close(fd);
}

}  // namespace
}  // namespace tagwire::test
