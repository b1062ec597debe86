// SPDX-License-Identifier: BSD-3-Clause
// A callback of a worker of many threads runs for long: no other thread waits for it.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "protocols/waiting.hpp"

namespace tagwire::test {
namespace {

class MsgCallbackThreads : public MsgTest {
  protected:
    /// While a thread of its own is in the callback of a receive with tag 1.
    void while_a_callback_runs(const std::function<void()>& act) {
        tw_op_t how = op(this);
        how.complete = [](const tw_completion_t* done) {
            auto& test = *static_cast<MsgCallbackThreads*>(done->context);
            EXPECT_EQ(tw_worker_progress(test.shared_.worker()), 0U) << "from a callback";
            test.ended_ = done->request;
            test.is_inside_ = true;
            while (!test.may_leave_)
                std::this_thread::yield();
        };
        char byte = 0;
        ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 1, 0, &how, nullptr), TW_INPROGRESS);
        ASSERT_GE(tw_tag_send(shared_.to(shared_), "x", 1, 1, nullptr, nullptr), TW_OK);
        std::thread inside([&] {
            while (!is_inside_)
                tw_worker_progress(shared_.worker());
        });
        while (!is_inside_)
            std::this_thread::yield();
        act();
        may_leave_ = true;
        inside.join();
    }

    Node shared_{context_.get(), TW_THREAD_MULTI};
    tw_request_h ended_ = nullptr;
    std::atomic<bool> is_inside_{false}, may_leave_{false};
};

TEST_F(MsgCallbackThreads, progress_of_another_thread_returns_at_once_and_says_why) {
    while_a_callback_runs(
        [&] { EXPECT_EQ(tw_worker_progress(shared_.worker()), TW_PROGRESS_BUSY); });
    EXPECT_LT(tw_worker_progress(shared_.worker()), TW_PROGRESS_BUSY);
}

TEST_F(MsgCallbackThreads, other_threads_send_receive_cancel_and_ask) {
    char bytes[2] = {};
    tw_request_h canceled = nullptr, received = nullptr;
    tw_completion_t done{};
    while_a_callback_runs([&] {
        ASSERT_EQ(tw_tag_recv(shared_.worker(), &bytes[0], 1, 2, 0, nullptr, &canceled),
                  TW_INPROGRESS);
        EXPECT_EQ(tw_request_cancel(canceled), TW_OK);
        EXPECT_NE(tw_request_test(canceled, &done), TW_OK);  // a device may have it
        ASSERT_EQ(tw_tag_recv(shared_.worker(), &bytes[1], 1, 3, 0, nullptr, &received),
                  TW_INPROGRESS);
        EXPECT_GE(tw_tag_send(shared_.to(shared_), "y", 1, 3, nullptr, nullptr), TW_OK);
        EXPECT_EQ(tw_worker_poll(shared_.worker(), &done, 1), 0U);
        EXPECT_FALSE(shared_.description().empty());
    });
    EXPECT_EQ(tw_request_wait(received, TW_WAIT_YIELD, kPatience, nullptr), TW_OK);
    EXPECT_EQ(bytes[1], 'y');
    EXPECT_EQ(tw_request_wait(canceled, TW_WAIT_YIELD, kPatience, nullptr), TW_ERR_CANCELED);
    tw_request_free(canceled);
    tw_request_free(received);
}

// Where threads share a worker, one may cancel what another one's callback is told of.
TEST_F(MsgCallbackThreads, a_handle_is_valid_until_its_callback_returns) {
    while_a_callback_runs([&] {
        tw_completion_t done{};
        EXPECT_EQ(tw_request_cancel(ended_), TW_OK);
        EXPECT_EQ(tw_request_test(ended_, &done), TW_OK);
        EXPECT_EQ(done.tag, 1U);
        // Others have memory of their own.
        char byte = 0;
        std::vector<tw_request_h> others(300);
        for (tw_request_h& other : others) {
            ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 9, 0, nullptr, &other),
                      TW_INPROGRESS);
            EXPECT_NE(other, ended_);
        }
        for (tw_request_h other : others) {
            EXPECT_EQ(tw_request_cancel(other), TW_OK);
            tw_request_free(other);
        }
    });
}

class MsgFewRequests : private Settings, public MsgTest {
  public:
    static constexpr int kRequests = 64;  // the least there can be

    MsgFewRequests() : Settings({{"TAGWIRE_REQUESTS_MAX", std::to_string(kRequests)}}) {}
    tw_status_t receive(tw_complete_cb_t complete, std::uint64_t tag = 9) {
        tw_op_t how{};
        how.context = this;
        how.complete = complete;
        return tw_tag_recv(shared_.worker(), &byte_, 1, tag, 0, &how, nullptr);
    }
    void send() { ASSERT_GE(tw_tag_send(sender_.to(shared_), "x", 1, 9, nullptr, nullptr), TW_OK); }

    void step_until(const std::function<bool()>& is_over) {
        run_until([&] {
            shared_.progress();
            sender_.progress();
            return is_over();
        });
    }

    Node shared_{context_.get(), TW_THREAD_MULTI};
    Node sender_{context_.get()};
    std::vector<tw_status_t> begun_;
    int ends_ = 0;
    char byte_ = 0;
};

// Its own request counts as free, and one more does not.
TEST_F(MsgFewRequests, a_callback_has_room_for_what_follows_it) {
    static constexpr tw_complete_cb_t kCount = [](const tw_completion_t* done) {
        ++static_cast<MsgFewRequests*>(done->context)->ends_;
    };
    for (int i = 0; i < kRequests - 1; ++i)
        ASSERT_EQ(receive(kCount, 8), TW_INPROGRESS);
    for (int round = 1; round <= 3; ++round) {
        begun_.clear();
        ASSERT_EQ(receive([](const tw_completion_t* done) {
                      auto& test = *static_cast<MsgFewRequests*>(done->context);
                      for (int i = 0; i < 2; ++i)
                          test.begun_.push_back(test.receive(kCount));
                  }),
                  TW_INPROGRESS);
        EXPECT_EQ(receive(kCount), TW_ERR_NO_RESOURCE);
        send();
        step_until([&] { return begun_.size() == 2; });
        EXPECT_EQ(begun_[0], TW_INPROGRESS);
        EXPECT_EQ(begun_[1], TW_ERR_NO_RESOURCE);
        EXPECT_EQ(receive(kCount), TW_ERR_NO_RESOURCE);
        send();
        step_until([&] { return ends_ == round; });
    }
}

// Callbacks run inside progress, one at a time: that of a cancel waits for the next call.
TEST_F(MsgCallbackThreads, no_callback_runs_in_a_call_of_another_thread) {
    std::atomic<int> ended{0};
    tw_op_t how = op(&ended);
    how.complete = [](const tw_completion_t* done) {
        EXPECT_EQ(done->status, TW_ERR_CANCELED);
        ++*static_cast<std::atomic<int>*>(done->context);
    };
    char byte = 0;
    while_a_callback_runs([&] {
        tw_request_h request = nullptr;
        ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 2, 0, &how, &request), TW_INPROGRESS);
        EXPECT_EQ(tw_request_cancel(request), TW_OK);
        EXPECT_EQ(ended, 0);
    });
    while (ended == 0)
        tw_worker_progress(shared_.worker());
}

TEST_F(MsgCallbackThreads, a_thread_that_sleeps_meanwhile_wakes_when_progress_has_ended) {
    char byte = 0;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, 2, 0, nullptr, &request), TW_INPROGRESS);
    std::unique_ptr<WatchedThread> sleeper;
    while_a_callback_runs([&] {
        sleeper = std::make_unique<WatchedThread>(
            [&] { EXPECT_EQ(tw_request_wait(request, TW_WAIT_SLEEP, kPatience, nullptr), TW_OK); });
        sleeper->until_it_sleeps();
        EXPECT_GE(tw_tag_send(shared_.to(shared_), "y", 1, 2, nullptr, nullptr), TW_OK);
    });
    sleeper.reset();
    EXPECT_EQ(byte, 'y');
    tw_request_free(request);
}

TEST_F(MsgCallbackThreads, a_callback_may_be_told_of_facts_and_call) {
    const auto call = [](void* arg, const char*, const char*) {
        tw_worker_attr_t attr{};
        attr.struct_bytes = sizeof attr;
        EXPECT_EQ(tw_worker_query(static_cast<Node*>(arg)->worker(), &attr), TW_OK);
    };
    EXPECT_EQ(tw_worker_describe(shared_.worker(), call, &shared_), TW_OK);
}

}  // namespace
}  // namespace tagwire::test
