// SPDX-License-Identifier: BSD-3-Clause
// Remote calls of workers that threads share: each thread's calls end once, replies come from
// threads, and time, cancellation and replies race.
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kCallThreads = 3;
constexpr unsigned kCalls = 200;  // of each
constexpr std::size_t kLengths[] = {8, 200, 9000, 60000};

class MsgCallThreads : public ::testing::Test {
  protected:
    void open(unsigned tx_contexts) {
        const char* named = std::getenv("TAGWIRE_TEST_TRANSPORTS");
        tw_context_params_t params{};
        params.transports = named == nullptr ? "sm" : named;
        tw_context_h context = nullptr;
        EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
        context_.reset(context);
        tw_worker_params_t worker{};
        worker.thread_mode = TW_THREAD_MULTI;
        worker.tx_contexts = tx_contexts;
        server_ = std::make_unique<Node>(context, worker);
        clients_ = std::make_unique<Node>(context, worker);
        EXPECT_EQ(tw_call_register(server_->worker(), 1, &MsgCallThreads::serve, this), TW_OK);
        ep_ = clients_->to(*server_);
    }

    static void step(tw_worker_h worker) {
        if (tw_worker_progress(worker) == 0)
            std::this_thread::yield();
    }

    struct One {
        std::atomic<unsigned> ends{0};
        std::atomic<int> status{0};
        Bytes reply = Bytes(16);
    };

    void make_calls(unsigned thread, bool races) {
        for (unsigned i = 0; i < kCalls; ++i) {
            const Bytes data = pattern(kLengths[i % std::size(kLengths)], thread * kCalls + i);
            One one;
            tw_call_params_t params{};
            params.context = &one;
            params.reply = one.reply.data();
            params.reply_bytes = one.reply.size();
            params.timeout_ns = races && i % 3 == 0 ? 20'000 * (i % 17) + 1 : 0;
            params.done = [](const tw_call_done_t* done) {
                One& its = *static_cast<One*>(done->context);
                its.status = done->status;
                ++its.ends;
            };
            std::uint64_t id = 0;
            tw_status_t status = TW_ERR_NO_RESOURCE;
            while (status == TW_ERR_NO_RESOURCE) {
                status = tw_call(ep_, 1, data.data(), data.size(), &params, &id);
                if (status == TW_ERR_NO_RESOURCE)
                    step(clients_->worker());
            }
            ASSERT_EQ(status, TW_OK);
            if (races && i % 3 == 1)
                tw_call_cancel(clients_->worker(), id);
            while (one.ends == 0)
                step(clients_->worker());
            EXPECT_EQ(one.ends, 1U);
            if (!races || i % 3 == 2) {
                EXPECT_EQ(one.status, TW_OK);
                EXPECT_EQ(std::memcmp(one.reply.data(), data.data(), 8), 0);
            } else if (one.status != TW_OK) {
                EXPECT_EQ(one.status, i % 3 == 0 ? TW_ERR_TIMED_OUT : TW_ERR_CANCELED);
            }
        }
        ++over_;
    }
    void run_server() {
        while (over_ < kCallThreads) {
            step(server_->worker());
            std::vector<tw_call_request_t> kept;
            {
                const std::lock_guard lock(mutex_);
                kept.swap(kept_);
            }
            for (const tw_call_request_t& each : kept)
                answer(each);
        }
    }
    void run(bool races) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < kCallThreads; ++i)
            threads.emplace_back([this, i, races] { make_calls(i, races); });
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([this] { run_server(); });
        for (std::thread& thread : threads)
            thread.join();
        EXPECT_EQ(clients_->counter("call_refused"), 0U);
        EXPECT_EQ(server_->counter("call_refused"), 0U);
    }

  private:
    static void serve(void* arg, tw_call_request_t* request) {
        auto& self = *static_cast<MsgCallThreads*>(arg);
        if (request->length % 100 != 0 || tw_call_keep(request) != TW_OK)
            return self.answer(*request);
        const std::lock_guard lock(self.mutex_);
        self.kept_.push_back(*request);
    }
    /// With the first bytes of the request.
    void answer(const tw_call_request_t& request) {
        std::array<std::byte, 8> first;
        std::memcpy(first.data(), request.data, first.size());
        tw_op_t inject{};
        inject.flags = TW_OP_INJECT;
        const tw_status_t status =
            tw_reply(request.worker, request.id, 0, first.data(), first.size(), &inject, nullptr);
        EXPECT_GE(status, TW_OK) << tw_status_string(status);
    }

    std::unique_ptr<tw_context, ContextDeleter> context_;
    std::unique_ptr<Node> server_, clients_;
    tw_ep_h ep_ = nullptr;
    std::atomic<unsigned> over_{0};
    std::mutex mutex_;
    std::vector<tw_call_request_t> kept_;
};

TEST_F(MsgCallThreads, each_call_gets_its_reply) {
    open(1);
    run(false);
}

TEST_F(MsgCallThreads, calls_of_transmit_contexts_get_their_replies) {
    open(2);
    run(false);
}

TEST_F(MsgCallThreads, time_cancellation_and_replies_race_and_each_call_ends_once) {
    open(1);
    run(true);
}

}  // namespace
}  // namespace tagwire::test
