// SPDX-License-Identifier: BSD-3-Clause
// TW_OP_QUEUE where threads share a worker, with one lock and with transmit contexts. Only the
// public API.
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kRequestsOfThreads = 64;  // the least there can be
constexpr std::uint64_t kKeptThreads = 2;
constexpr std::uint64_t kKeptMessages = 500;  // of each

class MsgKeptThreads : private Settings, public MsgTest {
  protected:
    MsgKeptThreads() : Settings({{"TAGWIRE_REQUESTS_MAX", std::to_string(kRequestsOfThreads)}}) {}

    static tw_worker_params_t shared_by(unsigned contexts) {
        tw_worker_params_t params{};
        params.thread_mode = TW_THREAD_MULTI;
        params.tx_contexts = contexts;
        return params;
    }
    tw_op_t counted(std::uint32_t flags) {
        tw_op_t how{};
        how.flags = flags | TW_OP_COMPLETION;
        how.context = &ends_;
        how.complete = [](const tw_completion_t* done) {
            EXPECT_EQ(done->status, TW_OK);
            static_cast<std::atomic<std::uint64_t>*>(done->context)->fetch_add(1);
        };
        return how;
    }
    /// Each thread sends its numbers by the tag of its own, and is never refused.
    void send_all(Node& from, tw_ep_h ep, std::vector<std::uint64_t>& numbers) {
        std::vector<std::thread> threads;
        for (std::uint64_t own = 0; own < kKeptThreads; ++own) {
            threads.emplace_back([&, own] {
                const tw_op_t how = counted(TW_OP_QUEUE);
                for (std::uint64_t i = 0; i < kKeptMessages; ++i) {
                    EXPECT_EQ(tw_tag_send(ep, &numbers[i], sizeof numbers[i], own, &how, nullptr),
                              TW_INPROGRESS);
                    if (i % 100 == 99)
                        tw_worker_progress(from.worker());
                }
            });
        }
        for (std::thread& each : threads)
            each.join();
    }
    void receive_all(Node& from, Node& at) {
        for (std::uint64_t own = 0; own < kKeptThreads; ++own) {
            for (std::uint64_t i = 0; i < kKeptMessages; ++i) {
                std::uint64_t number = UINT64_MAX;
                tw_request_h request = nullptr;
                tw_status_t status =
                    tw_tag_recv(at.worker(), &number, sizeof number, own, 0, nullptr, &request);
                run_until([&] {
                    from.progress();
                    at.progress();
                    return status != TW_INPROGRESS ||
                           (status = tw_request_test(request, nullptr)) != TW_INPROGRESS;
                });
                tw_request_free(request);
                ASSERT_EQ(status, TW_OK);
                ASSERT_EQ(number, i);
            }
        }
        run_until([&] {
            from.progress();
            at.progress();
            return ends_ == kKeptThreads * kKeptMessages;
        });
    }
    static std::vector<std::uint64_t> some_numbers() {
        std::vector<std::uint64_t> numbers(kKeptMessages);
        for (std::uint64_t i = 0; i < kKeptMessages; ++i)
            numbers[i] = i;
        return numbers;
    }

    std::atomic<std::uint64_t> ends_{0};
    std::vector<std::uint64_t> numbers_ = some_numbers();
    Node at_{context_.get()};
};

TEST_F(MsgKeptThreads, messages_of_each_thread_wait_in_their_order) {
    for (const unsigned contexts : {1U, 2U}) {
        SCOPED_TRACE(testing::Message() << contexts << " contexts");
        Node from(context_.get(), shared_by(contexts));
        ends_ = 0;
        send_all(from, from.to(at_), numbers_);
        EXPECT_GT(from.counter("ops_kept"), 0U);
        receive_all(from, at_);
        EXPECT_EQ(from.description().find("operations_kept"), std::string::npos);
    }
}

// Each context has to flush, with requests of its own.
TEST_F(MsgKeptThreads, a_flush_and_a_close_are_kept_in_each_transmit_context) {
    Node from(context_.get(), shared_by(2));
    const tw_ep_h ep = from.to(at_);
    const tw_op_t plain = counted(0);
    std::atomic<std::uint64_t> sent{0};
    for (int i = 0; i < 2; ++i) {
        std::thread([&] {  // the next context in turn
            while (tw_tag_send(ep, nullptr, 0, 0, &plain, nullptr) != TW_ERR_NO_RESOURCE)
                ++sent;
        })
            .join();
    }
    EXPECT_GE(sent, kRequestsOfThreads);
    EXPECT_EQ(tw_ep_flush(ep, TW_FLUSH_DELIVERED, &plain, nullptr), TW_ERR_NO_RESOURCE);
    const tw_op_t how = counted(TW_OP_QUEUE);
    EXPECT_EQ(tw_ep_flush(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(tw_worker_flush(from.worker(), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    run_until([&] {
        from.progress();
        at_.progress();
        return ends_ == sent + 3;
    });
}

TEST_F(MsgKeptThreads, callbacks_post_what_follows_beyond_the_requests) {
    Node shared(context_.get(), shared_by(1));
    struct Chain {
        tw_worker_h worker;
        std::uint64_t left;
        std::atomic<std::uint64_t> ends;
        static void next(const tw_completion_t* done) {
            Chain& own = *static_cast<Chain*>(done->context);
            ++own.ends;
            if (own.left == 0)
                return;
            --own.left;
            EXPECT_EQ(own.post(), TW_INPROGRESS);
        }
        tw_status_t post() {
            tw_op_t how{};
            how.flags = TW_OP_QUEUE | TW_OP_COMPLETION;
            how.context = this;
            how.complete = next;
            return tw_tag_recv(worker, nullptr, 0, 0, 0, &how, nullptr);
        }
    } chain{shared.worker(), kKeptMessages, {}};
    constexpr std::uint64_t kPosted = 2 * kRequestsOfThreads;
    for (std::uint64_t i = 0; i < kPosted; ++i)
        ASSERT_EQ(chain.post(), TW_INPROGRESS);
    const tw_ep_h ep = at_.to(shared);
    for (std::uint64_t i = 0; i < kKeptMessages + kPosted; ++i) {
        run_until([&] {
            shared.progress();
            at_.progress();
            return tw_tag_send(ep, nullptr, 0, 0, nullptr, nullptr) != TW_ERR_NO_RESOURCE;
        });
    }
    run_until([&] {
        shared.progress();
        at_.progress();
        return chain.ends == kKeptMessages + kPosted;
    });
    EXPECT_GT(shared.counter("ops_kept"), 0U);
    EXPECT_EQ(shared.description().find("operations_kept"), std::string::npos);
}

}  // namespace
}  // namespace tagwire::test
