// SPDX-License-Identifier: BSD-3-Clause
// Forked children of a process with interfaces: they hide nothing of their parent, and do nothing
// in its name.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "asleep.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

/// Lives until it is told to end, or its role has.
class ForkedChild {
  public:
    /// `with_handlers` false: as clone(2) makes one, without the handlers of pthread_atfork(3).
    explicit ForkedChild(bool with_handlers, const std::function<void()>& role = {})
        : pid_(with_handlers ? ::fork() : ::_Fork()) {
        if (pid_ != 0)
            return;
        if (role)
            role();
        else
            ::pause();
        ::_exit(0);
    }
    ForkedChild(const ForkedChild&) = delete;
    ForkedChild& operator=(const ForkedChild&) = delete;
    ~ForkedChild() {
        if (pid_ <= 0)  // kill(2) would take it for all processes
            return;
        ::kill(pid_, SIGKILL);
        join();
    }

    void join() {
        EXPECT_GT(pid_, 0);
        if (pid_ > 0)
            ::waitpid(std::exchange(pid_, 0), nullptr, 0);
    }

  private:
    pid_t pid_;
};

class TcpFork : public ::testing::TestWithParam<bool> {};

TEST_P(TcpFork, a_child_that_lives_on_does_not_hide_that_its_parent_closes) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    const Connection there = connect(one, other);
    expect_exchange(one, there.forward, other);
    const ForkedChild child(GetParam());
    other.close_iface();
    EXPECT_TRUE(steps_until({&one}, [&] { return !one.errors.empty(); }));
}

TEST_P(TcpFork, nobody_connects_to_the_listener_that_a_child_still_has) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    const Bytes device = other.device_address(), address = other.iface_address();
    const ForkedChild child(GetParam());
    other.close_iface();
    const Endpoint ep = connect_to_address(one, device, address);
    EXPECT_TRUE(steps_until({&one}, [&] { return !one.errors.empty(); }));
}

TEST_P(TcpFork, a_child_that_runs_destructors_sends_nothing_and_ends_nothing) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    Connection there = connect(one, other);
    expect_exchange(one, there.forward, other);
    other.am.clear();
    constexpr std::uint64_t kMessages = 10;
    for (std::uint64_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there.forward, Entity::kAmId, i, nullptr, 0));
    ForkedChild child(GetParam(), [&] {
        there.forward.reset();
        there.backward.reset();
        one.close_iface();
        other.close_iface();
    });
    child.join();
    for (std::uint64_t i = kMessages; i < 2 * kMessages; ++i)
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there.forward, Entity::kAmId, i, nullptr, 0));
    EXPECT_TRUE(steps_until({&one, &other}, [&] { return other.am.size() == 2 * kMessages; }));
    for (std::uint64_t i = 0; i < other.am.size(); ++i) {
        std::uint64_t number = 0;
        std::memcpy(&number, other.am[i].bytes.data(), sizeof number);
        EXPECT_EQ(i, number);
    }
    expect_exchange(one, there.forward, other);
    EXPECT_TRUE(one.errors.empty() && other.errors.empty());
}

TEST_P(TcpFork, a_stranger_that_went_after_a_fork_does_not_keep_the_parent_awake) {
    Entity victim(loopback_of_tcp());
    auto stranger = std::make_unique<Stranger>(victim);
    stranger->send("w");  // a Hello begins with it
    ASSERT_TRUE(steps_until({&victim}, [&] { return fact_of(victim, "half_open") == 1; }));
    const int fd = stranger->fd();
    const ForkedChild child(GetParam(), [&] {
        ::close(fd);
        ::pause();
    });
    stranger.reset();
    ASSERT_TRUE(steps_until({&victim}, [&] { return fact_of(victim, "half_open") == 0; }));
    EXPECT_LE(wake_ups_within(victim, 20), kWakeUpsOfOne);
}

INSTANTIATE_TEST_SUITE_P(Handlers, TcpFork, ::testing::Bool());

// Whoever is killed shuts nothing down.
TEST(TcpForkKilled, a_child_that_lives_on_does_not_hide_that_its_parent_was_killed) {
    int pipe[2], alive[2];
    ASSERT_EQ(0, ::pipe(pipe));
    ASSERT_EQ(0, ::pipe(alive));  // the child lives until the test is over
    const pid_t parent = ::fork();
    ASSERT_GE(parent, 0);
    if (parent == 0) {
        ::alarm(60);
        ::close(alive[1]);
        Entity other(loopback_of_tcp());
        const Bytes device = other.device_address(), address = other.iface_address();
        if (::write(pipe[1], device.data(), device.size()) < 0 ||
            ::write(pipe[1], address.data(), address.size()) < 0)
            ::_exit(1);
        other.on_am = [&](const AmMessage&) {
            const ForkedChild child(true, [&] {
                char mark = 0;
                static_cast<void>(!::read(alive[0], &mark, 1));
            });
            ::kill(::getpid(), SIGKILL);
            return UCS_OK;
        };
        for (;;)
            other.progress();
    }
    ::close(pipe[1]);
    Entity one(loopback_of_tcp());
    Bytes device(one.device_address().size()), address(one.iface_address().size());
    ASSERT_EQ(static_cast<ssize_t>(device.size()), ::read(pipe[0], device.data(), device.size()));
    ASSERT_EQ(static_cast<ssize_t>(address.size()),
              ::read(pipe[0], address.data(), address.size()));
    ::close(pipe[0]);
    const Endpoint ep = connect_to_address(one, device, address);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0));
    EXPECT_TRUE(steps_until({&one}, [&] { return !one.errors.empty(); }));
    ::waitpid(parent, nullptr, 0);  // it has killed itself
    ::close(alive[0]);
    ::close(alive[1]);
}

}  // namespace
}  // namespace tagwire::test
