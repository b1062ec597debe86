// SPDX-License-Identifier: BSD-3-Clause
// Sleeping workers, everything that ends a wait, and waits for operations.
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <bit>
#include <thread>

#include "protocols/waiting.hpp"

namespace tagwire::test {
namespace {

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
            // The messages that the sender waits for leave by progress.
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

class MsgFirstSleep : private Settings, public MsgWait {
  protected:
    MsgFirstSleep() : Settings({{"TAGWIRE_LIVENESS_INTERVAL", "10ms"}}) {}
};

// Even a worker that has not looked at its peers yet wakes up to do so.
TEST_F(MsgFirstSleep, is_interrupted_for_a_look_at_the_peers) {
    Node& a = node(0);
    Node& b = node(1);
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(a.worker(), &fd), TW_OK);
    a.to(b);
    run_until([&] { return tw_worker_arm(a.worker()) == TW_OK; });
    pollfd polled{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&polled, 1, 10'000), 1) << "nobody sends anything";
}

TEST_F(MsgWait, a_signal_of_another_thread_ends_the_sleep) {
    Node& a = node(0);
    int fd = -1;
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
    for (const int mode : {-1, TW_WAIT_SLEEP + 1})
        EXPECT_EQ(tw_worker_wait(a.worker(), std::bit_cast<tw_wait_mode_t>(mode), 0),
                  TW_ERR_INVALID_PARAM)
            << mode;
}

// ---- Ends of a wait

TEST_F(MsgWait, what_another_threads_progress_has_ended_ends_a_wait) {
    for (const tw_thread_mode_t threads : {TW_THREAD_SERIALIZED, TW_THREAD_MULTI}) {
        for (const tw_wait_mode_t mode : kModes) {
            Node shared(context_.get(), threads);
            std::atomic<int> turn{0};
            tw_request_h request = nullptr;
            std::uint64_t value = 0;
            WatchedThread other([&] {
                calm(shared, mode);
                ASSERT_EQ(
                    tw_tag_recv(shared.worker(), &value, sizeof value, 1, 0, nullptr, &request),
                    TW_INPROGRESS);
                EXPECT_EQ(tw_request_test(request, nullptr), TW_INPROGRESS);
                turn = 1;
                while (turn != 2)
                    ::sched_yield();
                // Between the test and the wait it has ended.
                EXPECT_EQ(tw_worker_wait(shared.worker(), mode, kPatience), TW_OK);
                EXPECT_EQ(tw_request_test(request, nullptr), TW_OK);
            });
            while (turn != 1)
                ::sched_yield();
            const std::uint64_t sent = 7;
            ASSERT_GE(tw_tag_send(shared.to(shared), &sent, sizeof sent, 1, nullptr, nullptr),
                      TW_OK);
            while (tw_request_test(request, nullptr) == TW_INPROGRESS)
                tw_worker_progress(shared.worker());
            while (tw_worker_progress(shared.worker()) > 0) {
            }
            turn = 2;
        }
    }
}

TEST_F(MsgWait, what_the_threads_own_progress_has_ended_ends_a_wait) {
    for (const tw_wait_mode_t mode : kModes) {
        Node& a = node(0);
        calm(a, mode);
        tw_request_h request = nullptr;
        char byte = 0;
        ASSERT_EQ(tw_tag_recv(a.worker(), &byte, 1, 1, 0, nullptr, &request), TW_INPROGRESS);
        ASSERT_GE(tw_tag_send(a.to(a), "x", 1, 1, nullptr, nullptr), TW_OK);
        while (tw_request_test(request, nullptr) == TW_INPROGRESS)
            tw_worker_progress(a.worker());
        while (tw_worker_progress(a.worker()) > 0) {
        }
        EXPECT_EQ(tw_worker_wait(a.worker(), mode, kPatience), TW_OK);
        tw_request_free(request);
        // So does a message that nobody waits for.
        calm(a, mode);
        const std::uint64_t before = a.counter("rx_unexpected");
        ASSERT_GE(tw_tag_send(a.to(a), "x", 1, 2, nullptr, nullptr), TW_OK);
        while (a.counter("rx_unexpected") == before)
            tw_worker_progress(a.worker());
        while (tw_worker_progress(a.worker()) > 0) {
        }
        EXPECT_EQ(tw_worker_wait(a.worker(), mode, kPatience), TW_OK);
    }
}

TEST_F(MsgWait, a_signal_ends_one_wait_of_each_thread) {
    for (const tw_wait_mode_t mode : kModes) {
        Node shared(context_.get(), TW_THREAD_MULTI);
        calm(shared, mode);
        ASSERT_EQ(tw_worker_signal(shared.worker()), TW_OK);
        EXPECT_EQ(tw_worker_wait(shared.worker(), mode, kPatience), TW_OK);
        EXPECT_EQ(tw_worker_wait(shared.worker(), mode, 1000000), TW_ERR_TIMED_OUT);
        std::atomic<int> calmed{0};
        const auto wait = [&] {
            calm(shared, mode);
            ++calmed;
            EXPECT_EQ(tw_worker_wait(shared.worker(), mode, kPatience), TW_OK) << "mode " << mode;
        };
        WatchedThread first(wait), second(wait), third(wait);
        while (calmed < 3)
            ::sched_yield();
        if (mode == TW_WAIT_SLEEP)
            for (WatchedThread* other : {&first, &second, &third})
                other->until_it_sleeps();
        EXPECT_EQ(tw_worker_signal(shared.worker()), TW_OK);
    }
}

TEST_F(MsgWait, completions_that_are_not_polled_end_a_wait) {
    Node& a = node(0);
    int mark = 0;
    const tw_op_t how = op(&mark);
    char byte = 0;
    ASSERT_EQ(tw_tag_recv(a.worker(), &byte, 1, 1, 0, &how, nullptr), TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(a.to(a), "x", 1, 1, nullptr, nullptr), TW_OK);
    const std::uint64_t before = a.counter("rx_expected");
    while (a.counter("rx_expected") == before)
        tw_worker_progress(a.worker());
    for (const tw_wait_mode_t mode : kModes)
        for (int i = 0; i < 10; ++i)
            EXPECT_EQ(tw_worker_wait(a.worker(), mode, kPatience), TW_OK);
    EXPECT_EQ(end_of(a, &mark).status, TW_OK);
}

TEST_F(MsgWait, an_active_message_ends_a_wait) {
    Node& a = node(0);
    unsigned handled = 0;
    const auto count = [](void* arg, tw_am_t*) { ++*static_cast<unsigned*>(arg); };
    ASSERT_EQ(tw_am_register(a.worker(), 1, count, &handled), TW_OK);
    tw_ep_h ep = a.to(a);
    unsigned sent = 0;
    for (const tw_wait_mode_t mode : kModes) {
        calm(a, mode);
        ASSERT_GE(tw_am_send(ep, 1, nullptr, 0, "x", 1, nullptr, nullptr), TW_OK);
        for (++sent; handled < sent;)
            ASSERT_EQ(tw_worker_wait(a.worker(), mode, kPatience), TW_OK);
    }
}

TEST_F(MsgWait, a_signal_handler_ends_a_sleep) {
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) {};
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
    Node& a = node(0);
    {
        WatchedThread other([&] {
            calm(a, TW_WAIT_SLEEP);
            EXPECT_EQ(tw_worker_wait(a.worker(), TW_WAIT_SLEEP, kPatience), TW_OK);
        });
        while (!other.is_over) {
            other.until_it_sleeps();
            if (!other.is_over)
                ::pthread_kill(other.handle(), SIGUSR1);
        }
    }
    ::sigaction(SIGUSR1, &before, nullptr);
}

// ---- Waiting for operations

TEST_F(MsgWait, requests_are_waited_for_one_any_or_all) {
    static constexpr std::uint64_t kTags[] = {0, 1, 2, 3};
    Node& a = node(0);
    tw_ep_h ep = a.to(a);
    for (const tw_wait_mode_t mode : kModes) {
        std::array<tw_request_h, 4> requests{};  // the first stays NULL
        std::array<std::uint64_t, 4> values{};
        for (std::uint64_t tag = 1; tag < 4; ++tag) {
            ASSERT_EQ(tw_tag_recv(a.worker(), &values[tag], 8, tag, 0, nullptr, &requests[tag]),
                      TW_INPROGRESS);
        }
        const auto send = [&](std::uint64_t tag) {
            return tw_tag_send(ep, &kTags[tag], sizeof tag, tag, nullptr, nullptr);
        };
        std::size_t index = 99;
        EXPECT_EQ(tw_wait_any(requests.data(), 4, mode, 1000000, &index), TW_INPROGRESS);
        EXPECT_EQ(index, 99U);
        ASSERT_GE(send(2), TW_OK);
        EXPECT_EQ(tw_wait_any(requests.data(), 4, mode, kPatience, &index), TW_OK);
        EXPECT_EQ(index, 2U);
        EXPECT_EQ(tw_wait_all(requests.data(), 4, mode, 1000000), TW_INPROGRESS);
        ASSERT_EQ(tw_request_cancel(requests[1]), TW_OK);
        EXPECT_EQ(tw_request_wait(requests[3], mode, 0, nullptr), TW_INPROGRESS);
        ASSERT_GE(send(3), TW_OK);
        EXPECT_EQ(tw_wait_all(requests.data(), 4, mode, kPatience), TW_OK);
        tw_completion_t done{};
        EXPECT_EQ(tw_request_wait(requests[3], mode, kPatience, &done), TW_OK);
        EXPECT_EQ(done.tag, 3U);
        EXPECT_EQ(tw_request_wait(requests[1], mode, kPatience, &done), TW_ERR_CANCELED);
        EXPECT_EQ(values[2] + values[3], 5U);
        for (tw_request_h request : requests)
            tw_request_free(request);
    }
}

TEST_F(MsgWait, what_cannot_be_waited_for_is_refused) {
    Node& a = node(0);
    Node& b = node(1);
    char byte = 0;
    std::size_t index = 0;
    std::array<tw_request_h, 2> requests{};
    EXPECT_EQ(tw_wait_any(requests.data(), 2, TW_WAIT_SPIN, 0, &index), TW_ERR_NO_ELEM);
    EXPECT_EQ(tw_wait_any(nullptr, 0, TW_WAIT_SPIN, 0, &index), TW_ERR_NO_ELEM);
    EXPECT_EQ(tw_wait_any(nullptr, 1, TW_WAIT_SPIN, 0, &index), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_wait_all(requests.data(), 2, TW_WAIT_SPIN, 0), TW_OK);
    EXPECT_EQ(tw_request_wait(nullptr, TW_WAIT_SPIN, 0, nullptr), TW_ERR_INVALID_PARAM);
    ASSERT_EQ(tw_tag_recv(a.worker(), &byte, 1, 1, 0, nullptr, &requests[0]), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_recv(b.worker(), &byte, 1, 1, 0, nullptr, &requests[1]), TW_INPROGRESS);
    EXPECT_EQ(tw_request_wait(requests[0], static_cast<tw_wait_mode_t>(3), 0, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_wait_all(requests.data(), 2, TW_WAIT_SPIN, 0), TW_ERR_INVALID_PARAM);
    const tw_op_t how = op(nullptr);
    tw_request_h reported = nullptr;
    ASSERT_EQ(tw_tag_recv(a.worker(), &byte, 1, 2, 0, &how, &reported), TW_INPROGRESS);
    EXPECT_EQ(tw_request_wait(reported, TW_WAIT_SPIN, 0, nullptr), TW_ERR_INVALID_PARAM);
    for (tw_request_h request : requests)
        tw_request_free(request);
}

TEST_F(MsgWait, waiting_in_a_callback_is_refused_with_a_sentence) {
    struct InCallback {
        Node* node;
        tw_request_h request;
        std::array<tw_status_t, 3> answers;
        unsigned moved;
    } told{&node(0), nullptr, {}, 1};
    Node& a = node(0);
    char byte = 0;
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(a.worker(), &fd), TW_OK);
    ASSERT_EQ(tw_tag_recv(a.worker(), &byte, 1, 1, 0, nullptr, &told.request), TW_INPROGRESS);
    tw_op_t how = op(&told);
    how.complete = [](const tw_completion_t* done) {
        InCallback& in = *static_cast<InCallback*>(done->context);
        tw_worker_h worker = in.node->worker();
        in.answers = {tw_worker_wait(worker, TW_WAIT_SLEEP, UINT64_MAX),
                      tw_request_wait(in.request, TW_WAIT_SPIN, UINT64_MAX, nullptr),
                      tw_worker_arm(worker)};
        in.moved = tw_worker_progress(worker) + tw_worker_progress(worker);
    };
    ASSERT_EQ(tw_tag_recv(a.worker(), &byte, 1, 2, 0, &how, nullptr), TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(a.to(a), "x", 1, 2, nullptr, nullptr), TW_OK);
    ::testing::internal::CaptureStderr();
    while (told.answers[0] == TW_OK)
        tw_worker_progress(a.worker());
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.answers[0], TW_ERR_INVALID_PARAM);
    EXPECT_EQ(told.answers[1], TW_ERR_INVALID_PARAM);
    EXPECT_EQ(told.answers[2], TW_ERR_BUSY);
    EXPECT_EQ(told.moved, 0U);
    for (const char* call : {"tw_worker_wait", "tw_request_wait", "tw_worker_progress"}) {
        const std::size_t at = log.find(std::string(call) + ": called from a callback");
        EXPECT_NE(at, std::string::npos) << call << " in: " << log;
    }
    EXPECT_EQ(tw_request_cancel(told.request), TW_OK);
    tw_request_free(told.request);
}

TEST_F(MsgWait, a_probe_does_not_progress) {
    Node& a = node(0);
    send(a, a, {}, 1);
    ASSERT_GE(tw_tag_send(a.to(a), "x", 1, 2, nullptr, nullptr), TW_OK);
    for (int i = 0; i < 1000; ++i)
        ASSERT_EQ(probe(a.worker(), 2), TW_ERR_NO_MESSAGE);
    run_until([&] { return probe(a.worker(), 2) == TW_OK; });
}

}  // namespace
}  // namespace tagwire::test
