// SPDX-License-Identifier: BSD-3-Clause
// Active messages of workers that threads share: handlers run one at a time, without the lock, and
// send and keep; other threads call meanwhile.
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kAmThreads = 3;
constexpr unsigned kMessages = 150;  // of each
constexpr unsigned kRequest = 1, kReply = 2;
constexpr std::size_t kAmLengths[] = {8, 200, 9000, 60000};

struct Label {
    unsigned thread;
    unsigned number;
};
static_assert(sizeof(Label) == 8);

/// A worker that answers each request with its header, and one whose threads send requests.
class MsgAmThreads : public ::testing::Test {
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
        server_ = std::make_unique<Node>(context, worker);
        worker.tx_contexts = tx_contexts;
        clients_ = std::make_unique<Node>(context, worker);
        EXPECT_EQ(tw_am_register(server_->worker(), kRequest, &MsgAmThreads::serve, this), TW_OK);
        EXPECT_EQ(tw_am_register(clients_->worker(), kReply, &MsgAmThreads::count, this), TW_OK);
        ep_ = clients_->to(*server_);
    }

    static void step(tw_worker_h worker) {
        if (tw_worker_progress(worker) == 0)
            std::this_thread::yield();
    }
    static void must(const std::function<tw_status_t()>& call, tw_worker_h worker) {
        tw_status_t status = call();
        while (status == TW_ERR_NO_RESOURCE) {
            step(worker);
            status = call();
        }
        EXPECT_GE(status, TW_OK);
    }
    void send_requests(unsigned thread) {
        std::vector<Bytes> data;
        for (const std::size_t length : kAmLengths)
            data.push_back(pattern(length, length));
        for (unsigned i = 0; i < kMessages; ++i) {
            const Label label{thread, i};
            const Bytes& its = data[i % data.size()];
            tw_request_h request = nullptr;
            must(
                [&] {
                    return tw_am_send(ep_, kRequest, &label, sizeof label, its.data(), its.size(),
                                      nullptr, &request);
                },
                clients_->worker());
            while (request != nullptr && tw_request_test(request, nullptr) == TW_INPROGRESS)
                step(clients_->worker());
            tw_request_free(request);
        }
        while (replies_ < kAmThreads * kMessages)
            step(clients_->worker());
    }
    void run_server() {
        while (replies_ < kAmThreads * kMessages) {
            step(server_->worker());
            std::vector<tw_message_h> kept;
            {
                const std::lock_guard lock(mutex_);
                kept.swap(kept_);
            }
            for (tw_message_h message : kept)
                EXPECT_EQ(tw_message_drop(server_->worker(), message), TW_OK);
        }
    }

    void run() {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < kAmThreads; ++i)
            threads.emplace_back([this, i] { send_requests(i); });
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([this] { run_server(); });
        for (std::thread& thread : threads)
            thread.join();
        EXPECT_EQ(replies_, kAmThreads * kMessages);
        for (const unsigned next : next_)
            EXPECT_EQ(next, kMessages);
    }

    std::atomic<unsigned> replies_{0};
    std::atomic<int> inside_{0};  // handlers of the server
    unsigned next_[kAmThreads] = {};

  private:
    static void serve(void* arg, tw_am_t* am) { static_cast<MsgAmThreads*>(arg)->serve(*am); }
    void serve(tw_am_t& am) {
        EXPECT_EQ(inside_++, 0) << "one at a time";
        Label label{};
        std::memcpy(&label, am.header, sizeof label);
        ASSERT_LT(label.thread, kAmThreads);
        EXPECT_EQ(label.number, next_[label.thread]++);
        EXPECT_EQ(am.length, kAmLengths[label.number % std::size(kAmLengths)]);
        tw_ep_h ep = am.ep;
        if (ep == nullptr && tw_ep_create_to(am.worker, am.source, nullptr, &ep) != TW_OK)
            ep = tw_ep_find(am.worker, am.source);
        tw_op_t inject{};
        inject.flags = TW_OP_INJECT;
        const tw_status_t status =
            tw_am_send(ep, kReply, &label, sizeof label, nullptr, 0, &inject, nullptr);
        EXPECT_GE(status, TW_OK) << tw_status_string(status);
        tw_message_h message = nullptr;
        if (label.number % 3 == 0 && tw_am_keep(&am, &message) == TW_OK) {
            const std::lock_guard lock(mutex_);
            kept_.push_back(message);
        }
        --inside_;
    }
    static void count(void* arg, tw_am_t* am) {
        EXPECT_EQ(am->header_length, sizeof(Label));
        ++static_cast<MsgAmThreads*>(arg)->replies_;
    }

    std::unique_ptr<tw_context, ContextDeleter> context_;
    std::unique_ptr<Node> server_, clients_;
    tw_ep_h ep_ = nullptr;
    std::mutex mutex_;
    std::vector<tw_message_h> kept_;
};

TEST_F(MsgAmThreads, each_request_is_handled_in_the_order_of_its_thread_and_answered) {
    open(1);
    run();
}

TEST_F(MsgAmThreads, requests_of_transmit_contexts_are_handled_in_the_order_of_their_threads) {
    open(2);
    run();
}

}  // namespace
}  // namespace tagwire::test
