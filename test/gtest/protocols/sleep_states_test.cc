// SPDX-License-Identifier: BSD-3-Clause
// A program that sleeps on its worker's descriptor is not woken for nothing, in whatever state the
// worker is, over each transport:
//
//   endpoints    none; connecting; connected; closing; the peer has closed, or is gone; a listener
//   operations   one of each kind, or as many as there is room for, while the peer is stopped; and
//                the same at the peer, while we are stopped
//   messages     posted receives; unexpected, unclaimed and claimed ones; rendezvous that wait for
//                a receive; the peer has paused us; we have paused the peer; a closed window
//
// The transports' probes of silent peers are on. Wake-ups are counted, not times.
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "protocols/listening.hpp"
#include "protocols/turns.hpp"

namespace tagwire::test {
namespace {

constexpr auto kWindow = std::chrono::milliseconds(8);
/// Wake-ups within a window: those of timers, by which transports send again.
constexpr unsigned kFew = 100;
/// Windows within which a worker may have something to do: a device ends what waits for it, one by
/// one.
constexpr unsigned kWindowsMax = 1000;

/// Whether the program slept to the end of the window, and was woken few times before.
bool has_slept(Node& sleeper, int fd) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + kWindow;
    for (unsigned count = 0; count < kFew && Clock::now() < end; ++count) {
        if (tw_worker_arm(sleeper.worker()) == TW_OK) {
            pollfd entry{fd, POLLIN, 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
            if (::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) == 0)
                return true;
        }
        sleeper.progress();
    }
    return false;
}

void expect_asleep(Node& sleeper) {
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(sleeper.worker(), &fd), TW_OK);
    unsigned windows = 0;
    while (windows < kWindowsMax && !has_slept(sleeper, fd))
        ++windows;
    EXPECT_LT(windows, kWindowsMax) << sleeper.description();
}

// ---- Operations

struct OpsState {
    Work work;
    std::uint64_t count;
};

std::vector<OpsState> states_of_ops() {
    std::vector<OpsState> all;
    for (std::size_t i = 0; i < kStreams; ++i)
        for (const std::uint64_t count : {1U, 3000U})
            all.push_back({static_cast<Work>(i), count});
    return all;
}

class SleepOpsTest : public TurnsTest, public testing::WithParamInterface<OpsState> {};
using MsgSleepOps = SleepOpsTest;

TEST_P(MsgSleepOps, both_sides_sleep_while_the_other_is_stopped) {
    const OpsState state = GetParam();
    const bool is_long = window_of(state.work) < 100;
    const std::uint64_t count = is_long ? std::min<std::uint64_t>(state.count, 600) : state.count;
    Stream stream;
    for (std::uint64_t i = 0; i < count; ++i)
        if (begin(state.work, kOtherTag, stream) == TW_ERR_NO_RESOURCE)
            break;
    ASSERT_GT(stream.begun, 0U);
    expect_asleep(node(0));
    expect_asleep(node(1));  // of all that has come it can go on with some
    expect_asleep(node(0));
    expect_asleep(node(1));
    handle_messages();
    run_until([&] { return stream.ended == stream.begun || !node(0).failures.empty(); });
    EXPECT_EQ(stream.failure, TW_OK);
    run_some();
    expect_asleep(node(0));
    expect_asleep(node(1));
}

INSTANTIATE_TEST_SUITE_P(Sleep, MsgSleepOps, testing::ValuesIn(states_of_ops()),
                         [](const auto& state) {
                             return std::string(name_of(state.param.work)) +
                                    (state.param.count == 1 ? "" : "_many");
                         });

// ---- Messages

class SleepMessagesTest : private Settings, public RmaTest {
  protected:
    SleepMessagesTest()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "256k"},
                    {"TAGWIRE_UNEXPECTED_MAX", "100"},
                    {"TAGWIRE_RNDV_THRESHOLD", "16k"}}) {}
    void SetUp() override {
        ours_ = connected(node(0), node(1));
        connected(node(1), node(0));
    }
    void TearDown() override { destroy_nodes(); }
    tw_status_t try_send(std::size_t length) {
        return tw_tag_send(ours_, data_.data(), length, 9, nullptr, nullptr);
    }
    void expect_both_asleep() {
        for (int i = 0; i < 2; ++i) {
            expect_asleep(node(0));
            expect_asleep(node(1));
        }
        EXPECT_TRUE(node(0).failures.empty());
        EXPECT_TRUE(node(1).failures.empty());
    }
    bool is_paused() {
        return node(0).description().find("paused by the peer") != std::string::npos;
    }

    tw_ep_h ours_ = nullptr;
    const Bytes data_ = pattern(100'000, 1);
};
using MsgSleep = SleepMessagesTest;

TEST_F(MsgSleep, connected_and_idle) {
    run_some();
    expect_both_asleep();
}

TEST_F(MsgSleep, with_posted_receives) {
    std::vector<std::byte> buffer(100);
    tw_op_t how = op(&buffer);
    EXPECT_EQ(tw_tag_recv(node(0).worker(), buffer.data(), 100, 1, 0, &how, nullptr),
              TW_INPROGRESS);
    how.source = nullptr;
    EXPECT_EQ(tw_msg_recv(node(1).worker(), buffer.data(), 100, &how, nullptr), TW_INPROGRESS);
    expect_both_asleep();
}

TEST_F(MsgSleep, with_unexpected_messages_that_are_claimed_or_not) {
    for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, data_.size()}) {
        EXPECT_GE(try_send(length), TW_OK);
        EXPECT_GE(try_send(length), TW_OK);
    }
    run_until([&] { return node(1).counter("rx_unexpected") >= 6; });
    expect_both_asleep();
    for (int i = 0; i < 3; ++i)
        EXPECT_NE(take(node(1).worker(), 9), nullptr);
    expect_both_asleep();
}

TEST_F(MsgSleep, while_the_receiver_has_paused_the_sender) {
    run_until([&] {
        for (int i = 0; i < 10 && !is_paused(); ++i)
            try_send(8);
        return is_paused();
    });
    EXPECT_EQ(try_send(8), TW_ERR_NO_RESOURCE);
    run_some();
    expect_both_asleep();
}

TEST_F(MsgSleep, while_messages_wait_behind_a_pause) {
    for (int i = 0; i < 30'000; ++i)
        try_send(8);
    run_until([&] { return is_paused(); });
    run_some();
    EXPECT_NE(node(0).description().find("waiting"), std::string::npos);
    expect_both_asleep();
}

TEST_F(MsgSleep, while_the_window_is_closed) {
    for (int i = 0; i < 20'000; ++i) {
        try_send(8);
        tw_worker_progress(node(1).worker());
    }
    expect_both_asleep();
}

TEST_F(MsgSleep, while_flushes_and_closes_wait_for_the_peer) {
    EXPECT_GE(try_send(8), TW_OK);
    EXPECT_GE(try_send(data_.size()), TW_OK);
    EXPECT_GE(tw_ep_flush(ours_, TW_FLUSH_DELIVERED, nullptr, nullptr), TW_OK);
    EXPECT_GE(tw_ep_close(ours_, TW_FLUSH_DELIVERED, nullptr, nullptr), TW_OK);
    expect_both_asleep();
}

// ---- Endpoints

using MsgSleepEndpoints = MsgTest;

TEST_F(MsgSleepEndpoints, without_any) {
    expect_asleep(node(0));
}

TEST_F(MsgSleepEndpoints, while_it_connects_to_a_peer_that_is_stopped) {
    EXPECT_GE(tw_tag_send(node(0).to(node(1)), nullptr, 0, 1, nullptr, nullptr), TW_OK);
    for (int i = 0; i < 3; ++i)
        expect_asleep(node(0));
    EXPECT_TRUE(node(0).failures.empty());
    // ... and the peer, of which it hears no more.
    for (int i = 0; i < 3; ++i)
        expect_asleep(node(1));
    expect_message(node(1), {}, 1);
}

TEST_F(MsgSleepEndpoints, when_the_peer_has_closed) {
    send(node(0), node(1), {}, 1);
    send(node(1), node(0), {}, 1);
    expect_message(node(0), {}, 1);
    expect_message(node(1), {}, 1);
    EXPECT_GE(tw_ep_close(node(1).to(node(0)), TW_FLUSH_DELIVERED, nullptr, nullptr), TW_OK);
    run_some();
    expect_asleep(node(0));
    expect_asleep(node(1));
}

TEST_F(MsgSleepEndpoints, when_the_peer_is_gone) {
    send(node(0), node(1), {}, 1);
    expect_message(node(1), {}, 1);
    EXPECT_GE(tw_tag_send(node(0).to(node(1)), nullptr, 0, 1, nullptr, nullptr), TW_OK);
    forget_last_node();
    expect_asleep(node(0));
    run_until([&] { return !node(0).failures.empty(); });
    expect_asleep(node(0));
}

TEST_F(MsgSleepEndpoints, with_a_listener_and_a_client_that_waits) {
    Server server;
    server.answer = Server::Answer::kNone;
    ASSERT_EQ(server.listen(node(0), "127.0.0.1:0"), TW_OK);
    expect_asleep(node(0));
    Client client;
    ASSERT_EQ(client.connect(node(1), server.address()), TW_INPROGRESS);
    for (int i = 0; i < 2; ++i) {
        expect_asleep(node(1));
        expect_asleep(node(0));
    }
    EXPECT_EQ(server.requests, 1);
    EXPECT_FALSE(client.is_over());
    EXPECT_EQ(tw_reject(server.request, nullptr, 0), TW_OK);
    run_until([&] { return client.is_over(); });
    expect_asleep(node(1));
    tw_listener_destroy(server.listener);
}

}  // namespace
}  // namespace tagwire::test
