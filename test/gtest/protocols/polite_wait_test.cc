// SPDX-License-Identifier: BSD-3-Clause
// Waits for a peer that makes no progress: whether they give the processor away, by the counters of
// the worker, and that they end. Only the public API.
#include <array>
#include <atomic>
#include <functional>
#include <tagwire_msg.hpp>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kTag = 7;
constexpr std::uint64_t kShortNs = 20'000'000;

/// Two workers that are connected. The second one progresses only where a case says so.
class MsgPoliteWait : public MsgTest {
  protected:
    void open(tw_progress_mode_t mode, tw_thread_mode_t threads = TW_THREAD_SINGLE) {
        here_ =
            std::make_unique<Node>(context_.get(), msg::WorkerParams(threads).with_progress(mode));
        there_ = std::make_unique<Node>(context_.get());
        exchange(*here_, *there_);
        exchange(*there_, *here_);
    }
    void exchange(Node& from, Node& to) {
        const Bytes data = pattern(8, 1);
        Bytes buffer(8);
        tw_request_h receive = begin_receive(to, buffer);
        tw_request_h send = nullptr;
        const tw_status_t sent =
            tw_tag_send(from.to(to), data.data(), data.size(), kTag, nullptr, &send);
        ASSERT_GE(sent, TW_OK);
        run_until([&] {
            here_->progress();
            there_->progress();
            return tw_request_test(receive, nullptr) == TW_OK &&
                   (sent == TW_OK || tw_request_test(send, nullptr) == TW_OK);
        });
        tw_request_free(receive);
        if (sent == TW_INPROGRESS)
            tw_request_free(send);
        EXPECT_EQ(buffer, data);
    }
    static tw_request_h begin_receive(Node& at, Bytes& buffer) {
        tw_request_h request = nullptr;
        EXPECT_EQ(
            tw_tag_recv(at.worker(), buffer.data(), buffer.size(), kTag, 0, nullptr, &request),
            TW_INPROGRESS);
        return request;
    }
    /// Polls of the virtual HCA step aside themselves. Where they sleep, since other programs keep
    /// the processor, calls of progress are far apart, and the worker itself has no reason.
    static bool steps_aside_by_device() {
        const std::string lane = lane_transport();
        return lane == "rc" || lane == "dc" || lane == "ud";
    }
    std::uint64_t times_away() const { return here_->counter("yields") + here_->counter("naps"); }
    std::uint64_t ns_away() const { return here_->counter("away"); }
    /// Until this side's library has nothing left to do, as after a connection.
    void settle() {
        for (int i = 0; i < 2000; ++i) {
            here_->progress();
            there_->progress();
        }
    }

    std::unique_ptr<Node> here_, there_;
};

/// The calls that wait, each for a receive that does not end within the time.
using WaitCall = std::function<tw_status_t(tw_worker_h, tw_request_h, tw_wait_mode_t)>;
const std::array<std::pair<const char*, WaitCall>, 4> kWaitCalls{{
    {"tw_request_wait",
     [](tw_worker_h, tw_request_h request, tw_wait_mode_t mode) {
         return tw_request_wait(request, mode, kShortNs, nullptr);
     }},
    {"tw_wait_any",
     [](tw_worker_h, tw_request_h request, tw_wait_mode_t mode) {
         std::size_t index = 0;
         return tw_wait_any(&request, 1, mode, kShortNs, &index);
     }},
    {"tw_wait_all", [](tw_worker_h, tw_request_h request,
                       tw_wait_mode_t mode) { return tw_wait_all(&request, 1, mode, kShortNs); }},
    {"tw_worker_wait",
     [](tw_worker_h worker, tw_request_h, tw_wait_mode_t mode) {
         tw_status_t status = TW_OK;
         while (status == TW_OK)  // what came before
             status = tw_worker_wait(worker, mode, kShortNs);
         return status == TW_ERR_TIMED_OUT ? TW_INPROGRESS : status;
     }},
}};

TEST_F(MsgPoliteWait, each_call_that_waits_gives_the_processor_away) {
    for (const tw_thread_mode_t threads : {TW_THREAD_SINGLE, TW_THREAD_MULTI}) {
        open(TW_PROGRESS_POLITE, threads);
        Bytes buffer(8);
        tw_request_h request = begin_receive(*here_, buffer);
        for (const auto& [name, wait] : kWaitCalls) {
            for (const tw_wait_mode_t mode : {TW_WAIT_SPIN, TW_WAIT_YIELD}) {
                const std::uint64_t before = times_away(), ns_before = ns_away();
                EXPECT_EQ(wait(here_->worker(), request, mode), TW_INPROGRESS) << name;
                if (mode == TW_WAIT_SPIN && steps_aside_by_device())
                    continue;
                EXPECT_GT(times_away(), before) << name << " in mode " << mode;
                EXPECT_GT(ns_away(), ns_before) << name << " in mode " << mode;
            }
        }
        tw_request_free(request);
    }
}

TEST_F(MsgPoliteWait, a_worker_that_spins_keeps_the_processor_unless_the_wait_yields) {
    open(TW_PROGRESS_SPIN);
    Bytes buffer(8);
    tw_request_h request = begin_receive(*here_, buffer);
    for (const auto& [name, wait] : kWaitCalls)
        EXPECT_EQ(wait(here_->worker(), request, TW_WAIT_SPIN), TW_INPROGRESS) << name;
    EXPECT_EQ(times_away(), 0U);
    for (const auto& [name, wait] : kWaitCalls) {
        const std::uint64_t before = times_away();
        EXPECT_EQ(wait(here_->worker(), request, TW_WAIT_YIELD), TW_INPROGRESS) << name;
        EXPECT_GT(times_away(), before) << name;
    }
    tw_request_free(request);
}

TEST_F(MsgPoliteWait, a_wait_that_sleeps_leaves_no_wish_behind) {
    open(TW_PROGRESS_POLITE);
    settle();
    Bytes buffer(8);
    tw_request_h request = begin_receive(*here_, buffer);
    const std::uint64_t before = times_away();
    EXPECT_EQ(tw_request_wait(request, TW_WAIT_SLEEP, kShortNs, nullptr), TW_INPROGRESS);
    EXPECT_LE(times_away(), before + 1);
    tw_request_free(request);
}

TEST_F(MsgPoliteWait, looks_again_and_again_and_progress_alone_give_it_away_too) {
    const std::array<std::function<void(tw_request_h)>, 2> looks{
        [](tw_request_h request) {
            EXPECT_EQ(tw_request_wait(request, TW_WAIT_SPIN, 0, nullptr), TW_INPROGRESS);
        },
        [this](tw_request_h) { tw_worker_progress(here_->worker()); },
    };
    for (const tw_thread_mode_t threads :
         {TW_THREAD_SINGLE, TW_THREAD_SERIALIZED, TW_THREAD_MULTI}) {
        open(TW_PROGRESS_POLITE, threads);
        Bytes buffer(8);
        tw_request_h request = begin_receive(*here_, buffer);
        for (const auto& look : looks) {
            if (steps_aside_by_device())
                break;
            const std::uint64_t before = times_away();
            for (int i = 0; i < 1'000'000 && times_away() == before; ++i)
                look(request);
            EXPECT_GT(times_away(), before) << threads;
        }
        tw_request_free(request);
    }
}

TEST_F(MsgPoliteWait, a_wait_ends_with_the_message_whatever_it_does_meanwhile) {
    for (const tw_wait_mode_t mode : {TW_WAIT_SPIN, TW_WAIT_YIELD, TW_WAIT_SLEEP}) {
        open(TW_PROGRESS_POLITE);
        for (std::uint64_t round = 0; round < 20; ++round) {
            const Bytes data = pattern(8, round);
            Bytes buffer(8);
            tw_request_h request = begin_receive(*here_, buffer);
            // It has given the processor away by now.
            EXPECT_EQ(tw_request_wait(request, mode, 1'000'000, nullptr), TW_INPROGRESS);
            std::atomic<bool> is_received{false};
            std::thread peer([&] {
                const tw_status_t sent = tw_tag_send(there_->to(*here_), data.data(), data.size(),
                                                     kTag, nullptr, nullptr);
                EXPECT_GE(sent, TW_OK);
                while (!is_received.load(std::memory_order_relaxed))
                    there_->progress();
            });
            tw_completion_t done{};
            EXPECT_EQ(tw_request_wait(request, mode, UINT64_MAX, &done), TW_OK);
            is_received.store(true, std::memory_order_relaxed);
            EXPECT_EQ(done.length, data.size());
            EXPECT_EQ(buffer, data);
            tw_request_free(request);
            peer.join();
        }
    }
}

TEST_F(MsgPoliteWait, a_thread_yields_for_what_is_no_peers) {
    std::atomic<bool> is_over{false};
    std::thread other([&] { is_over.store(true, std::memory_order_release); });
    while (!is_over.load(std::memory_order_acquire))
        tw_yield();
    other.join();
    EXPECT_TRUE(is_over.load(std::memory_order_relaxed));
}

}  // namespace
}  // namespace tagwire::test
