// SPDX-License-Identifier: BSD-3-Clause
// Naps of workers while a peer makes no calls, and all that they must not hold up: messages, other
// threads, signals, programs that sleep on the descriptor. A peer that is not progressed here
// stands for one that has no processor.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "common/strangers.hpp"
#include "protocols/waiting.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kStepsMax = 20'000'000;

class MsgPolite : private Settings, public MsgTest {
  protected:
    MsgPolite() : Settings({{"TAGWIRE_PROGRESS", "polite"}}) {}

    static bool progress_until(Node& node, const std::function<bool()>& is_over) {
        for (std::uint64_t i = 0; i < kStepsMax && !is_over(); ++i)
            node.progress();
        return is_over();
    }
    /// A message from one to the other, which progress.
    static void exchange(Node& from, Node& to, const Bytes& data) {
        constexpr std::uint64_t kTag = 77;
        int sent = 0, received = 0;
        const tw_op_t sending = op(&sent), receiving = op(&received);
        Bytes got(data.size());
        ASSERT_GE(tw_tag_recv(to.worker(), got.data(), got.size(), kTag, 0, &receiving, nullptr),
                  TW_OK);
        ASSERT_GE(tw_tag_send(from.to(to), data.data(), data.size(), kTag, &sending, nullptr),
                  TW_OK);
        const auto has_told = [](const Node& node, const int* mark) {
            return std::ranges::any_of(
                node.done, [&](const tw_completion_t& done) { return done.context == mark; });
        };
        bool is_over = false;
        for (std::uint64_t i = 0; i < kStepsMax && !is_over; ++i) {
            from.progress();
            to.progress();
            is_over = has_told(from, &sent) && has_told(to, &received);
        }
        EXPECT_TRUE(is_over);
        EXPECT_EQ(got, data);
        from.done.clear();
        to.done.clear();
    }
    static std::uint64_t naps(const Node& node) { return node.counter("naps"); }
    static std::uint64_t times_away(const Node& node) {
        return node.counter("yields") + node.counter("naps");
    }
    /// The peer stands, others keep the processor until the worker naps, as it does from now on.
    static bool begins_to_nap(Node& node) {
        constexpr unsigned kYieldsMax = 1000;
        const std::uint64_t before = naps(node);
        meet_strangers(kYieldsMax);  // the machine may keep this thread for a whole time of naps
        const bool begins = progress_until(node, [&] { return naps(node) > before; });
        meet_strangers(0);
        return begins;
    }
};

TEST_F(MsgPolite, it_goes_away_for_a_peer_that_makes_no_calls) {
    exchange(node(0), node(1), pattern(8, 1));
    const std::uint64_t before = times_away(node(0));
    EXPECT_TRUE(progress_until(node(0), [&] { return times_away(node(0)) > before; }));
}

TEST_F(MsgPolite, it_goes_away_for_a_peer_that_has_not_taken_the_connection) {
    node(0).to(node(1));
    const std::uint64_t before = times_away(node(0));
    EXPECT_TRUE(progress_until(node(0), [&] { return times_away(node(0)) > before; }));
}

TEST_F(MsgPolite, messages_arrive_at_a_worker_that_naps) {
    exchange(node(0), node(1), pattern(8, 1));
    for (std::uint64_t i = 0; i < 20; ++i) {
        EXPECT_TRUE(begins_to_nap(node(0)));
        exchange(node(1), node(0), pattern(i < 10 ? 8 : 300000, i));
        exchange(node(0), node(1), pattern(i < 10 ? 8 : 300000, i));
    }
}

/// With several transmit contexts naps are on the worker's own descriptor.
struct Sharing {
    tw_thread_mode_t mode;
    std::uint32_t tx_contexts;
};
constexpr Sharing kSharings[] = {{TW_THREAD_SINGLE, 1}, {TW_THREAD_MULTI, 1}, {TW_THREAD_MULTI, 2}};

tw_worker_params_t params_of(const Sharing& sharing) {
    tw_worker_params_t params{};
    params.thread_mode = sharing.mode;
    params.tx_contexts = sharing.tx_contexts;
    return params;
}

// The thread is away, by a yield or a nap, until another one has made calls on the worker.
TEST_F(MsgPolite, a_thread_that_is_away_holds_up_no_other) {
    for (const std::uint32_t tx_contexts : {1U, 2U}) {
        SCOPED_TRACE(tx_contexts);
        Node shared(context_.get(), params_of({TW_THREAD_MULTI, tx_contexts}));
        exchange(node(1), shared, pattern(8, 1));
        exchange(shared, node(1), pattern(8, 1));
        std::future<void> calls;
        const auto stay_away = [&] {
            if (calls.valid())
                return;
            calls = std::async(std::launch::async, [&] {
                const tw_ep_h ep = shared.to(node(1));
                EXPECT_GE(tw_tag_send(ep, "x", 1, 78, nullptr, nullptr), TW_OK);
                EXPECT_NE(tw_worker_progress(shared.worker()), TW_PROGRESS_BUSY);
            });
            EXPECT_EQ(calls.wait_for(std::chrono::minutes(1)), std::future_status::ready);
        };
        set_before_nap(stay_away);
        set_before_yield(stay_away);
        EXPECT_TRUE(progress_until(shared, [&] { return calls.valid(); }));
        set_before_nap({});
        set_before_yield({});
    }
}

// Another one takes the message between the arming and the sleep, and with it what was to wake this
// one.
TEST_F(MsgPolite, what_another_thread_takes_ends_a_nap_on_descriptors) {
    for (const std::uint32_t tx_contexts : {1U, 2U}) {
        SCOPED_TRACE(tx_contexts);
        Node shared(context_.get(), params_of({TW_THREAD_MULTI, tx_contexts}));
        exchange(node(1), shared, pattern(8, 1));
        for (std::uint64_t round = 0; round < 10; ++round) {
            std::future<void> other;
            set_before_nap([&] {
                if (other.valid())
                    return;
                other = std::async(std::launch::async,
                                   [&] { exchange(node(1), shared, pattern(8, round)); });
                EXPECT_EQ(other.wait_for(std::chrono::minutes(1)), std::future_status::ready);
            });
            EXPECT_TRUE(begins_to_nap(shared));
            set_before_nap({});
            EXPECT_TRUE(!other.valid() || ready_at_last_nap() > 0) << "round " << round;
        }
    }
}

// Whoever arms the descriptor next has to hear of it.
TEST_F(MsgPolite, naps_leave_a_signal_to_who_arms_next) {
    for (const Sharing& sharing : kSharings) {
        SCOPED_TRACE(testing::Message() << sharing.mode << ", " << sharing.tx_contexts);
        Node polite(context_.get(), params_of(sharing));
        exchange(node(1), polite, pattern(8, 1));
        int fd = -1;
        ASSERT_EQ(tw_worker_fd(polite.worker(), &fd), TW_OK);
        while (tw_worker_arm(polite.worker()) != TW_OK)
            polite.progress();
        ASSERT_TRUE(begins_to_nap(polite));
        for (int round = 0; round < 5; ++round) {
            ASSERT_EQ(tw_worker_signal(polite.worker()), TW_OK);
            for (int i = 0; i < 5000; ++i)
                polite.progress();
            pollfd polled{fd, POLLIN, 0};
            const tw_status_t status = tw_worker_arm(polite.worker());
            EXPECT_TRUE(status == TW_ERR_BUSY || ::poll(&polled, 1, 0) == 1)
                << "asleep, and was signalled";
            while (tw_worker_arm(polite.worker()) != TW_OK)
                polite.progress();
        }
    }
}

// One thread progresses and naps, another sleeps on the descriptor, a third sends.
TEST_F(MsgPolite, a_program_that_polls_the_descriptor_is_woken_beside_naps) {
    constexpr std::uint64_t kMessages = 200;
    for (const std::uint32_t tx_contexts : {1U, 2U}) {
        Node shared(context_.get(), params_of({TW_THREAD_MULTI, tx_contexts}));
        Node from(context_.get());
        exchange(from, shared, pattern(8, 1));
        ASSERT_TRUE(begins_to_nap(shared));
        int fd = -1;
        ASSERT_EQ(tw_worker_fd(shared.worker(), &fd), TW_OK);
        std::atomic<std::uint64_t> got{0};
        std::vector<std::uint64_t> values(kMessages), sent(kMessages);
        std::iota(sent.begin(), sent.end(), 0);
        for (std::uint64_t& value : values) {
            tw_op_t how{};
            how.complete = [](const tw_completion_t* done) {
                ++*static_cast<std::atomic<std::uint64_t>*>(done->context);
            };
            how.context = &got;
            ASSERT_EQ(tw_tag_recv(shared.worker(), &value, 8, 7, 0, &how, nullptr), TW_INPROGRESS);
        }
        std::atomic<bool> was_woken{true};
        std::thread sleeper([&] {
            while (got < kMessages && was_woken) {
                if (const unsigned moved = tw_worker_progress(shared.worker());
                    moved > 0 && moved != TW_PROGRESS_BUSY)
                    continue;
                pollfd polled{fd, POLLIN, 0};
                if (tw_worker_arm(shared.worker()) == TW_OK)
                    was_woken = ::poll(&polled, 1, 10000) == 1;
            }
        });
        std::thread progresses([&] {
            while (got < kMessages && was_woken)
                tw_worker_progress(shared.worker());
        });
        for (const std::uint64_t& value : sent)
            EXPECT_GE(tw_tag_send(from.to(shared), &value, 8, 7, nullptr, nullptr), TW_OK);
        while (got < kMessages && was_woken)
            from.progress();
        tw_worker_signal(shared.worker());
        sleeper.join();
        progresses.join();
        EXPECT_TRUE(was_woken);
        EXPECT_EQ(values, sent);
    }
}

}  // namespace
}  // namespace tagwire::test
