// SPDX-License-Identifier: BSD-3-Clause
// Hosts that vanish, and peers that live and do not read.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "common/skip.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS of linux/tcp.h

/// Milliseconds after which the kernel asks a peer again that has not read for long; -1: no socket
/// of TCP, or a kernel that cannot tell.
int probe_interval_most(int fd) {
    int ms = 0;
    socklen_t bytes = sizeof ms;
    return ::getsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &ms, &bytes) == 0 ? ms : -1;
}

bool has_short_probes() {
    const ucs::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return probe_interval_most(fd.get()) > 0;
}

/// Sockets of this process whose peer is asked at least every `ms` milliseconds.
int sockets_that_ask_within(int ms) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int interval = probe_interval_most(std::stoi(entry.path().filename()));
        count += interval > 0 && interval <= ms ? 1 : 0;
    }
    return count;
}

class TcpSilence : public ::testing::Test {
  protected:
    TcpSilence() : victim(loopback_of_tcp(), options()), good(loopback_of_tcp()), stranger(victim) {
        EXPECT_EQ(tcp::Verdict::kWelcome, stranger.greet());
        ep = stranger.endpoint();
        link = connect(good, victim);
        expect_exchange(good, link.forward, victim);
    }
    void TearDown() override { expect_exchange(good, link.forward, victim); }

    static EntityOptions options() {
        EntityOptions few_seconds;
        few_seconds.iface_config = {{"TCP_PEER_TIMEOUT", "3s"}};
        return few_seconds;
    }
    /// Progresses until there is an error, or for the time. It sleeps between: what it waits for is
    /// a clock, and others want the processor.
    bool fails_within(std::chrono::seconds time) {
        const auto end = Clock::now() + time;
        int fd = -1;
        EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(victim.iface(), &fd));
        while (victim.errors.empty() && Clock::now() < end) {
            while (victim.progress() != 0) {
            }
            if (uct_iface_event_arm(victim.iface(), UCT_EVENT_RECV) != UCS_OK)
                continue;
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
            pollfd entry = {fd, POLLIN, 0};
            poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
        }
        return !victim.errors.empty();
    }

    Entity victim;
    Entity good;
    Stranger stranger;
    Endpoint ep;
    Connection link;
};

TEST_F(TcpSilence, a_host_that_vanishes_is_an_error_of_its_endpoints_alone) {
    stranger.vanish();
    ASSERT_TRUE(fails_within(std::chrono::seconds(30)));
    EXPECT_EQ(ep.get(), victim.errors[0].ep);
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, victim.errors[0].status);
}

TEST_F(TcpSilence, so_is_one_that_vanishes_with_messages_under_way) {
    stranger.vanish();
    ASSERT_EQ(UCS_OK, uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0));
    ASSERT_TRUE(fails_within(std::chrono::seconds(30)));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, victim.errors[0].status);
}

TEST_F(TcpSilence, a_live_peer_that_does_not_read_is_no_error) {
    ucs_status_t status = UCS_OK;
    while (status == UCS_OK)
        status = uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0);
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, status);
    EXPECT_FALSE(fails_within(std::chrono::seconds(6)));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0));
    EXPECT_EQ(UCS_OK, uct_ep_check(ep, 0, nullptr));
    if (!has_short_probes())
        TW_SKIP("Linux before 6.15 has no TCP_RTO_MAX_MS");
    // By itself the kernel waits twice as long each time, up to two minutes.
    EXPECT_GE(sockets_that_ask_within(1000), 1);
    stranger.vanish();
    ASSERT_TRUE(fails_within(std::chrono::seconds(30)));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, victim.errors[0].status);
}

}  // namespace
}  // namespace tagwire::test
