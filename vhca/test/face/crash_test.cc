// SPDX-License-Identifier: BSD-3-Clause
// Completions of a program whose peer was killed.
#include <chrono>
#include <optional>

#include "common/child.hpp"
#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

struct Address {
    ibv_ah_attr path;
    std::uint32_t qpn;
};

std::optional<Address> exchange(int socket, const Side& own) {
    const Address mine{path_to(own.context), own.qp->qp_num};
    Address theirs{};
    if (write(socket, &mine, sizeof mine) != sizeof mine ||
        recv(socket, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs) {
        return std::nullopt;
    }
    return theirs;
}

bool meet(int socket) {
    char byte = 0;
    return write(socket, &byte, 1) == 1 && read(socket, &byte, 1) == 1;
}

// Takes messages until it is killed.
int swallow(int socket) {
    Side side({});
    const std::optional<Address> peer = exchange(socket, side);
    if (!peer)
        return 1;
    side.connect(peer->path, peer->qpn);
    for (std::uint64_t i = 0; i < 16; ++i)
        side.post_recv(i, i * 1024, 1024);
    if (!meet(socket))
        return 2;
    for (;;) {
        ibv_wc wc{};
        if (ibv_poll_cq(side.cq, 1, &wc) == 1)
            side.post_recv(wc.wr_id, wc.wr_id * 1024, 1024);
    }
}

// Three seconds: longer than a living peer is ever kept from its processor.
constexpr Patience kShort{.timeout = 17, .retry_cnt = 5};
constexpr auto kLeast = std::chrono::nanoseconds((kShort.retry_cnt + 1) * (4096LL << 10));

void join(Side& side, SecondProcess& child) {
    const std::optional<Address> peer = exchange(child.socket(), side);
    ASSERT_TRUE(peer);
    side.connect(peer->path, peer->qpn, kShort);
    ASSERT_TRUE(meet(child.socket()));
}

int post(const Side& side, std::uint64_t number) {
    ibv_send_wr wr{};
    wr.wr_id = number;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return side.post_send(wr, 0, 512);
}

TEST(VhcaCrash, peer_killed_in_mid_traffic_is_one_retry_error_and_the_rest_is_flushed) {
    TW_SKIP_FORK_BESIDE_THREADS();
    SecondProcess child(swallow);
    Side side({});
    join(side, child);
    std::uint64_t posted = 0, completed = 0;
    for (; posted < 8; ++posted)
        ASSERT_EQ(post(side, posted), 0);
    for (; completed < 300; ++completed) {  // eight are always on their way
        const ibv_wc wc = side.wait();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(wc.wr_id, completed);
        ASSERT_EQ(post(side, posted++), 0);
    }
    child.kill();
    for (; posted < completed + 16; ++posted)
        ASSERT_EQ(post(side, posted), 0);
    ibv_wc wc = side.wait();
    for (; wc.status == IBV_WC_SUCCESS; wc = side.wait())
        ASSERT_EQ(wc.wr_id, completed++);
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(wc.wr_id, completed++);
    while (completed < posted) {
        wc = side.wait();
        ASSERT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        ASSERT_EQ(wc.wr_id, completed++);
    }
    EXPECT_EQ(ibv_poll_cq(side.cq, 1, &wc), 0);
}

TEST(VhcaCrash, dead_peer_is_not_given_up_before_the_last_retry) {
    TW_SKIP_FORK_BESIDE_THREADS();
    SecondProcess child(swallow);
    Side side({});
    join(side, child);
    ASSERT_EQ(post(side, 1), 0);
    ASSERT_EQ(side.wait().status, IBV_WC_SUCCESS);
    child.kill();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(post(side, 2), 0);
    EXPECT_EQ(side.wait().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_GE(std::chrono::steady_clock::now() - start, kLeast * 9 / 10);  // clocks differ a little
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(side.qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

}  // namespace
}  // namespace tagwire::test
