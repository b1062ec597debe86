// SPDX-License-Identifier: BSD-3-Clause
// The log of a context goes to its program: which lines, when, and what the callback may do.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A context whose lines are collected.
class Heard {
  public:
    struct Line {
        tw_log_level_t level;
        std::string file;
        int line;
        std::string text;
        std::thread::id thread;
    };

    explicit Heard(tw_thread_mode_t mode = TW_THREAD_SINGLE, const char* transports = "sm") {
        tw_context_params_t params{};
        params.transports = transports;
        params.log = &Heard::take;
        params.log_arg = this;
        tw_context_h made = nullptr;
        status = tw_context_create(&params, &made);
        context.reset(made);
        if (status == TW_OK)
            node = std::make_unique<Node>(made, mode);
    }
    Heard(const Heard&) = delete;
    Heard& operator=(const Heard&) = delete;
    ~Heard() { node.reset(); }

    std::string text() const {
        std::string all;
        for (const Line& each : lines)
            all += each.text + "\n";
        return all;
    }
    tw_worker_h worker() const { return node->worker(); }

    std::vector<Line> lines;
    std::function<void()> also;
    tw_status_t status = TW_OK;
    std::unique_ptr<tw_context, ContextDeleter> context;
    std::unique_ptr<Node> node;

  private:
    static void take(void* arg, tw_log_level_t level, const char* file, int line,
                     const char* text) {
        auto& self = *static_cast<Heard*>(arg);
        self.lines.push_back({level, file, line, text, std::this_thread::get_id()});
        if (self.also)
            self.also();
    }
};

/// A call on the worker that the library refuses with a line.
void fail(tw_worker_h worker) {
    tw_worker_limits_t limits{};
    limits.multi_recv_bytes_min = TW_WORKER_LIMIT_MAX + 1;
    EXPECT_EQ(tw_worker_set_limits(worker, &limits), TW_ERR_EXCEEDS_LIMIT);
}

TEST(MsgLogCallback, a_line_has_its_level_place_and_text_without_a_newline) {
    Heard heard;
    testing::internal::CaptureStderr();
    fail(heard.worker());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    ASSERT_EQ(heard.lines.size(), 1U);
    const Heard::Line& line = heard.lines[0];
    EXPECT_EQ(line.level, TW_LOG_ERROR);
    EXPECT_THAT(line.file, HasSubstr("facade"));
    EXPECT_GT(line.line, 0);
    EXPECT_THAT(line.text, HasSubstr("tw_worker_set_limits: a limit exceeds"));
    EXPECT_THAT(line.text, Not(HasSubstr("\n")));
    EXPECT_EQ(line.thread, std::this_thread::get_id());
}

TEST(MsgLogCallback, a_context_that_cannot_be_made_has_said_why) {
    testing::internal::CaptureStderr();
    Heard heard(TW_THREAD_SINGLE, "nowhere");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(heard.status, TW_ERR_NO_DEVICE);
    EXPECT_THAT(heard.text(), HasSubstr("\"nowhere\" is not on this machine"));
}

TEST(MsgLogCallback, each_context_has_its_own_lines) {
    Heard first, second;
    tw_context_params_t params{};
    params.transports = "sm";
    tw_context_h silent = nullptr;
    ASSERT_EQ(tw_context_create(&params, &silent), TW_OK);
    {
        const Node node(silent);
        fail(first.worker());
        fail(second.worker());
        fail(second.worker());
        testing::internal::CaptureStderr();
        fail(node.worker());
        EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("tw_worker_set_limits"));
    }
    tw_context_destroy(silent);
    EXPECT_EQ(first.lines.size(), 1U);
    EXPECT_EQ(second.lines.size(), 2U);
}

TEST(MsgLogCallback, what_names_no_context_is_that_of_the_only_one) {
    Heard heard;
    EXPECT_EQ(tw_worker_query(nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_THAT(heard.text(), HasSubstr("worker is NULL"));
    const Heard other;
    testing::internal::CaptureStderr();
    EXPECT_EQ(tw_worker_query(nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("worker is NULL"));
    EXPECT_EQ(heard.lines.size(), 1U);
}

TEST(MsgLogCallback, lines_of_progress_come_when_it_has_ended) {
    for (const tw_thread_mode_t mode : {TW_THREAD_SINGLE, TW_THREAD_MULTI}) {
        Heard heard(mode);
        // A message without a handler is dropped with a line.
        const tw_ep_h ep = heard.node->to(*heard.node);
        heard.also = [&] { tw_worker_progress(heard.worker()); };  // neither refused nor stuck
        ASSERT_GE(tw_am_send(ep, 7, nullptr, 0, "x", 1, nullptr, nullptr), TW_OK);
        for (int i = 0; i < 100000 && heard.lines.empty(); ++i)
            heard.node->progress();
        ASSERT_EQ(heard.lines.size(), 1U);
        EXPECT_THAT(heard.text(), HasSubstr("no handler is registered for its id 7"));
    }
}

TEST(MsgLogCallback, a_callback_may_call_the_library_and_its_lines_go_to_the_log) {
    for (const tw_thread_mode_t mode : {TW_THREAD_SINGLE, TW_THREAD_MULTI}) {
        Heard heard(mode);
        heard.also = [&] { fail(heard.worker()); };
        testing::internal::CaptureStderr();
        fail(heard.worker());
        EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("tw_worker_set_limits"));
        EXPECT_EQ(heard.lines.size(), 1U);
    }
}

TEST(MsgLogCallback, a_callback_may_destroy_its_context) {
    Heard heard;
    heard.node.reset();
    heard.also = [&] { tw_context_destroy(heard.context.release()); };
    EXPECT_EQ(tw_mem_invalidate(heard.context.get(), &heard, SIZE_MAX), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(heard.context, nullptr);
    testing::internal::CaptureStderr();
    EXPECT_EQ(tw_worker_query(nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("worker is NULL"));
    EXPECT_EQ(heard.lines.size(), 1U);
}

TEST(MsgLogCallback, threads_have_their_lines_and_a_context_goes_behind_all_of_them) {
    struct Counts {
        std::atomic<unsigned> lines{0};
        std::atomic<bool> is_gone{false};
        std::atomic<bool> came_late{false};
    } counts;
    tw_context_params_t params{};
    params.transports = "sm";
    params.log_arg = &counts;
    params.log = [](void* arg, tw_log_level_t, const char*, int, const char*) {
        auto& all = *static_cast<Counts*>(arg);
        ++all.lines;
        if (all.is_gone)
            all.came_late = true;
    };
    constexpr unsigned kThreads = 4, kTimes = 200;
    for (int round = 0; round < 5; ++round) {
        counts.is_gone = false;
        tw_context_h context = nullptr;
        ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
        const std::size_t before = counts.lines;
        {
            const Node shared(context, TW_THREAD_MULTI);
            std::vector<std::thread> threads;
            for (unsigned i = 0; i < kThreads; ++i) {
                threads.emplace_back([&] {
                    for (unsigned time = 0; time < kTimes; ++time)
                        fail(shared.worker());
                });
            }
            for (std::thread& each : threads)
                each.join();
        }
        EXPECT_EQ(counts.lines - before, kThreads * kTimes);
        std::atomic<bool> is_over{false};
        // Lines that name no context race with the end of the only one.
        testing::internal::CaptureStderr();
        std::thread nameless([&] {
            while (!is_over)
                tw_worker_query(nullptr, nullptr);
        });
        tw_context_destroy(context);
        counts.is_gone = true;
        is_over = true;
        nameless.join();
        testing::internal::GetCapturedStderr();
    }
    EXPECT_FALSE(counts.came_late);
}

}  // namespace
}  // namespace tagwire::test
