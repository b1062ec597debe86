// SPDX-License-Identifier: BSD-3-Clause
// Workers of many threads: each of them waits, and begins operations that others sleep for.
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "protocols/waiting.hpp"

namespace tagwire::test {
namespace {

class MsgWaitThreads : public MsgTest {};

/// Threads of one worker send to themselves and wait: by testing and waiting, or for the request.
void exchange_by_waiting(Node& shared, tw_wait_mode_t mode, bool by_request) {
    constexpr int kThreads = 3, kMessages = 300;
    tw_ep_h ep = shared.to(shared);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < kMessages && wrong == 0; ++i) {
                const auto tag = static_cast<std::uint64_t>(thread);
                std::uint64_t value = 0;
                const auto sent = static_cast<std::uint64_t>(i);
                tw_request_h request = nullptr;
                const bool is_first = i % 2 == 0;
                if (is_first)
                    wrong += tw_tag_send(ep, &sent, 8, tag, nullptr, nullptr) < TW_OK;
                tw_status_t status =
                    tw_tag_recv(shared.worker(), &value, 8, tag, 0, nullptr, &request);
                if (!is_first)
                    wrong += tw_tag_send(ep, &sent, 8, tag, nullptr, nullptr) < TW_OK;
                if (status == TW_INPROGRESS && by_request)
                    status = tw_request_wait(request, mode, kPatience, nullptr);
                else if (status == TW_INPROGRESS)
                    while ((status = tw_request_test(request, nullptr)) == TW_INPROGRESS)
                        wrong += tw_worker_wait(shared.worker(), mode, kPatience) != TW_OK;
                tw_request_free(request);
                wrong += status != TW_OK || value != sent;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(wrong, 0) << "mode " << mode;
}

TEST_F(MsgWaitThreads, threads_that_test_and_wait_all_end) {
    for (const tw_wait_mode_t mode : kModes) {
        Node shared(context_.get(), TW_THREAD_MULTI);
        exchange_by_waiting(shared, mode, false);
    }
}

TEST_F(MsgWaitThreads, threads_that_wait_for_their_requests_all_end) {
    for (const tw_wait_mode_t mode : kModes) {
        Node shared(context_.get(), TW_THREAD_MULTI);
        exchange_by_waiting(shared, mode, true);
    }
}

/// A callback of one thread that another one looks at while it runs.
struct AmidCallback {
    std::atomic<bool> has_begun{false}, may_end{false}, has_ended{false};

    void run() {
        has_begun = true;
        while (!may_end)
            std::this_thread::yield();
        has_ended = true;
    }
};

void amid_handler(void* arg, tw_am_t*) {
    static_cast<AmidCallback*>(arg)->run();
}

void amid_completion(const tw_completion_t* done) {
    static_cast<AmidCallback*>(done->context)->run();
}

// The wait of one thread may return for an event whose callback still runs in another one. It must
// not miss the end of that.
TEST_F(MsgWaitThreads, a_wait_returns_for_what_a_callback_has_done) {
    for (const bool is_handler : {true, false}) {
        Node from(context_.get());
        Node shared(context_.get(), TW_THREAD_MULTI);
        AmidCallback amid;
        char text = 0;
        tw_op_t receives{};
        receives.complete = amid_completion;
        receives.context = &amid;
        if (is_handler) {
            ASSERT_EQ(tw_am_register(shared.worker(), 3, amid_handler, &amid), TW_OK);
        } else {
            ASSERT_EQ(tw_tag_recv(shared.worker(), &text, 1, 3, 0, &receives, nullptr),
                      TW_INPROGRESS);
        }
        const tw_ep_h ep = from.to(shared);
        run_until([&] {
            from.progress();
            shared.progress();
            return !from.events.empty() && !shared.events.empty();
        });
        while (tw_worker_wait(shared.worker(), TW_WAIT_YIELD, 0) != TW_ERR_TIMED_OUT) {
        }
        std::thread other([&] {
            EXPECT_GE(is_handler ? tw_am_send(ep, 3, nullptr, 0, "x", 1, nullptr, nullptr)
                                 : tw_tag_send(ep, "x", 1, 3, nullptr, nullptr),
                      TW_OK);
            while (!amid.has_ended) {
                from.progress();
                shared.progress();
            }
        });
        while (!amid.has_begun)
            std::this_thread::yield();
        while (tw_worker_wait(shared.worker(), TW_WAIT_YIELD, 0) != TW_ERR_TIMED_OUT) {
        }
        amid.may_end = true;
        EXPECT_EQ(tw_worker_wait(shared.worker(), TW_WAIT_SLEEP, kPatience), TW_OK);
        other.join();
    }
}

TEST_F(MsgWaitThreads, any_thread_may_use_a_worker_of_multi_mode) {
    Node shared(context_.get(), TW_THREAD_MULTI);
    constexpr int kThreads = 4, kMessages = 500;
    const Bytes address = shared.address();
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = nullptr};
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

// ---- Operations that another thread begins

/// A thread sleeps for what a callback tells; this one begins something that only progress can end.
class MsgWaitMulti : public MsgTest {
  protected:
    static tw_op_t telling(std::atomic<int>& ended) {
        tw_op_t how = op(&ended);
        how.complete = [](const tw_completion_t* done) {
            ++*static_cast<std::atomic<int>*>(done->context);
        };
        return how;
    }
    template <class Begin>
    void begin_while_asleep(std::atomic<int>& ended, Begin begin) {
        WatchedThread sleeper([&] {
            while (ended == 0)
                ASSERT_EQ(tw_worker_wait(shared_.worker(), TW_WAIT_SLEEP, kPatience), TW_OK);
        });
        sleeper.until_it_sleeps();
        begin();
    }

    Node shared_{context_.get(), TW_THREAD_MULTI};
};

TEST_F(MsgWaitMulti, a_cancel_wakes_who_waits_for_its_callback) {
    std::atomic<int> ended{0};
    const tw_op_t how = telling(ended);
    char byte = 0;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, &how, &request), TW_INPROGRESS);
    begin_while_asleep(ended, [&] { EXPECT_EQ(tw_request_cancel(request), TW_OK); });
}

TEST_F(MsgWaitMulti, a_receive_of_a_message_that_waits_wakes_a_sleeper) {
    const Bytes data = pattern(4 << 20, 1);
    Bytes received(data.size());
    std::atomic<int> ended{0}, sent{0};
    const tw_op_t how = telling(ended), send = telling(sent);
    ASSERT_EQ(tw_tag_send(shared_.to(shared_), data.data(), data.size(), 1, &send, nullptr),
              TW_INPROGRESS);
    while (shared_.counter("rx_unexpected") == 0)
        tw_worker_progress(shared_.worker());
    begin_while_asleep(ended, [&] {
        EXPECT_EQ(
            tw_tag_recv(shared_.worker(), received.data(), received.size(), 1, 0, &how, nullptr),
            TW_INPROGRESS);
    });
    EXPECT_EQ(received, data);
}

TEST_F(MsgWaitMulti, a_first_send_wakes_a_sleeper) {
    std::atomic<int> ended{0};
    const tw_op_t how = telling(ended);
    char byte = 0;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, &how, nullptr), TW_INPROGRESS);
    begin_while_asleep(ended, [&] {
        EXPECT_GE(tw_tag_send(shared_.to(shared_), "x", 1, 1, nullptr, nullptr), TW_OK);
    });
}

TEST_F(MsgWaitMulti, a_close_wakes_a_sleeper) {
    std::atomic<int> ended{0};
    const tw_op_t how = telling(ended);
    ASSERT_GE(tw_tag_send(shared_.to(shared_), "x", 1, 1, nullptr, nullptr), TW_OK);
    while (shared_.counter("rx_unexpected") == 0)
        tw_worker_progress(shared_.worker());
    begin_while_asleep(ended, [&] {
        EXPECT_EQ(tw_ep_close(shared_.to(shared_), TW_FLUSH_DELIVERED, &how, nullptr),
                  TW_INPROGRESS);
    });
}

TEST_F(MsgWaitMulti, progress_of_another_thread_takes_no_wake_up_away) {
    Node& a = node(0);
    std::atomic<int> ended{0};
    const tw_op_t how = telling(ended);
    char byte = 0;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, &how, nullptr), TW_INPROGRESS);
    a.to(shared_);
    begin_while_asleep(ended, [&] {
        for (int i = 0; i < 100; ++i)
            tw_worker_progress(shared_.worker());
        EXPECT_GE(tw_tag_send(a.to(shared_), "x", 1, 1, nullptr, nullptr), TW_OK);
        while (ended == 0)
            a.progress();
    });
}

TEST_F(MsgWaitMulti, what_one_threads_progress_ends_wakes_the_thread_that_sleeps_for_it) {
    char byte = 0;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, nullptr, &request), TW_INPROGRESS);
    WatchedThread sleeper(
        [&] { EXPECT_EQ(tw_request_wait(request, TW_WAIT_SLEEP, kPatience, nullptr), TW_OK); });
    sleeper.until_it_sleeps();
    EXPECT_GE(tw_tag_send(shared_.to(shared_), "x", 1, 1, nullptr, nullptr), TW_OK);
    while (tw_request_test(request, nullptr) == TW_INPROGRESS)
        tw_worker_progress(shared_.worker());
}

// A thread that polls but has no processor for a while does not poll: some of the batches meet none
// of that.
TEST_F(MsgWaitMulti, who_waits_for_a_request_sleeps_on_while_another_thread_polls_for_others) {
    constexpr std::uint64_t kBatches = 100, kMessages = 20;
    const tw_ep_h self = shared_.to(shared_);
    char byte = 0, other = 0;
    tw_request_h last = nullptr;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, nullptr, &last), TW_INPROGRESS);
    WatchedThread sleeper(
        [&] { EXPECT_EQ(tw_request_wait(last, TW_WAIT_SLEEP, kPatience, nullptr), TW_OK); });
    const auto exchange_one = [&] {
        do {  // many, for the question takes longer than a thread that polls may be silent
            for (int poll = 0; poll < 512; ++poll)
                tw_worker_progress(shared_.worker());
        } while (!sleeper.sleeps());
        tw_request_h request = nullptr;
        EXPECT_GE(tw_tag_send(self, "x", 1, 2, nullptr, nullptr), TW_OK);
        if (tw_tag_recv(shared_.worker(), &other, 1, 2, 0, nullptr, &request) != TW_INPROGRESS)
            return;
        while (tw_request_test(request, nullptr) == TW_INPROGRESS)
            tw_worker_progress(shared_.worker());
        tw_request_free(request);
    };
    bool slept_on = false;
    for (std::uint64_t batch = 0; batch < kBatches && !slept_on; ++batch) {
        const std::uint64_t before = shared_.counter("wake_ups");
        for (std::uint64_t i = 0; i < kMessages; ++i)
            exchange_one();
        slept_on = shared_.counter("wake_ups") - before < kMessages / 4;
    }
    EXPECT_TRUE(slept_on);
    EXPECT_GE(tw_tag_send(self, "x", 1, 1, nullptr, nullptr), TW_OK);
    while (!sleeper.is_over)
        tw_worker_progress(shared_.worker());
    tw_request_free(last);
}

TEST_F(MsgWaitMulti, an_armed_descriptor_hears_of_what_another_thread_does) {
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(shared_.worker(), &fd), TW_OK);
    char byte = 0;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, nullptr, &request), TW_INPROGRESS);
    for (const bool cancels : {true, false}) {
        while (tw_worker_arm(shared_.worker()) != TW_OK)
            tw_worker_progress(shared_.worker());
        WatchedThread other([&] {
            if (cancels)
                tw_request_cancel(request);
            else
                tw_worker_progress(shared_.worker());
        });
        pollfd polled{fd, POLLIN, 0};
        EXPECT_EQ(::poll(&polled, 1, 60000), 1);
    }
    tw_request_free(request);
}

}  // namespace
}  // namespace tagwire::test
