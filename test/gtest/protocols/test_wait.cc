// SPDX-License-Identifier: BSD-3-Clause
// Sleeping workers, and workers of many threads.
#include <poll.h>

#include <atomic>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

class MsgWait : public MsgTest {};

TEST_F(MsgWait, both_sides_sleep_and_everything_arrives) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length :
         {std::size_t{8}, std::size_t{5000}, std::size_t{20000}, std::size_t{300000}}) {
        const Bytes data = pattern(length, length);
        Bytes received(length);
        int sent = 0, got = 0;
        const tw_op_t receive = op(&got, 0), how = op(&sent, TW_OP_DELIVERY_COMPLETE);
        std::thread sleeper([&] {
            ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), length, 7, 0, &receive, nullptr),
                      TW_INPROGRESS);
            tw_completion_t done{};
            while (tw_worker_poll(b.worker(), &done, 1) == 0)
                ASSERT_EQ(tw_worker_wait(b.worker(), TW_WAIT_SLEEP, 30 * kSecond), TW_OK);
            EXPECT_EQ(done.status, TW_OK);
            // What the sender waits for leaves by progress.
            while (tw_worker_wait(b.worker(), TW_WAIT_SLEEP, kSecond / 50) == TW_OK) {
            }
        });
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 7, &how, nullptr), TW_INPROGRESS);
        tw_completion_t done{};
        while (tw_worker_poll(a.worker(), &done, 1) == 0)
            EXPECT_EQ(tw_worker_wait(a.worker(), TW_WAIT_SLEEP, 30 * kSecond), TW_OK);
        EXPECT_EQ(done.status, TW_OK);
        sleeper.join();
        EXPECT_EQ(received, data);
    }
}

TEST_F(MsgWait, an_armed_descriptor_is_quiet_until_something_comes) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 1);
    send(b, a, {}, 1);
    EXPECT_EQ(tw_worker_arm(b.worker()), TW_ERR_INVALID_PARAM);
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(b.worker(), &fd), TW_OK);
    pollfd polled{fd, POLLIN, 0};
    // Acknowledgements of what was sent may still come.
    run_until([&] { return tw_worker_arm(b.worker()) == TW_OK && ::poll(&polled, 1, 10) == 0; });
    ASSERT_GE(tw_tag_send(a.to(b), "x", 1, 2, nullptr, nullptr), TW_OK);
    a.progress();
    EXPECT_EQ(::poll(&polled, 1, 30000), 1);
    const std::uint64_t before = b.counter("rx_unexpected");
    run_until([&] { return b.counter("rx_unexpected") > before; });
}

TEST_F(MsgWait, a_signal_of_another_thread_ends_the_sleep) {
    Node& a = node(0);
    int fd = -1;
    EXPECT_EQ(tw_worker_signal(a.worker()), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_worker_arm(a.worker()), TW_ERR_INVALID_PARAM);
    ASSERT_EQ(tw_worker_fd(a.worker(), &fd), TW_OK);
    while (tw_worker_arm(a.worker()) == TW_ERR_BUSY)
        a.progress();
    std::thread other([&] { EXPECT_EQ(tw_worker_signal(a.worker()), TW_OK); });
    pollfd polled{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&polled, 1, 30000), 1);
    other.join();
}

TEST_F(MsgWait, waiting_has_a_limit) {
    Node& a = node(0);
    for (const tw_wait_mode_t mode : {TW_WAIT_SPIN, TW_WAIT_YIELD, TW_WAIT_SLEEP}) {
        while (tw_worker_wait(a.worker(), mode, 1000000) == TW_OK) {
        }
        EXPECT_EQ(tw_worker_wait(a.worker(), mode, 1000000), TW_ERR_TIMED_OUT);
    }
    EXPECT_EQ(tw_worker_wait(a.worker(), static_cast<tw_wait_mode_t>(3), 0), TW_ERR_INVALID_PARAM);
}

TEST_F(MsgWait, any_thread_may_use_a_worker_of_multi_mode) {
    Node shared(context_.get(), TW_THREAD_MULTI);
    constexpr int kThreads = 4, kMessages = 500;
    const Bytes address = shared.address();
    const tw_ep_params_t params{address.data(), address.size(), nullptr};
    tw_ep_h ep = nullptr;
    ASSERT_EQ(tw_ep_create(shared.worker(), &params, &ep), TW_OK);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < kMessages; ++i) {
                const int number = thread * kMessages + i;
                const auto tag = static_cast<std::uint64_t>(number);
                const std::uint64_t value = tag * 3;
                std::uint64_t received = 0;
                tw_request_h request = nullptr;
                while (tw_tag_send(ep, &value, sizeof value, tag, nullptr, nullptr) ==
                       TW_ERR_NO_RESOURCE)
                    tw_worker_progress(shared.worker());
                const tw_status_t status = tw_tag_recv(shared.worker(), &received, sizeof received,
                                                       tag, 0, nullptr, &request);
                if (status == TW_INPROGRESS) {
                    while (tw_request_test(request, nullptr) == TW_INPROGRESS)
                        tw_worker_progress(shared.worker());
                    tw_request_free(request);
                }
                wrong += status < TW_OK || received != value;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tagwire::test
