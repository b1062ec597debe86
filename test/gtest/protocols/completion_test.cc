// SPDX-License-Identifier: BSD-3-Clause
// Completion queues and counters: operations of any workers end there, and any thread is told.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocols/pair_test.hpp"
#include "protocols/waiting.hpp"

namespace tagwire::test {
namespace {

struct CqDeleter {
    void operator()(tw_cq_h cq) const { tw_cq_destroy(cq); }
};
constexpr std::uint64_t kTakesTooLong = 60 * kSecond;  // then it hangs
using CqPtr = std::unique_ptr<tw_cq, CqDeleter>;
struct CounterDeleter {
    void operator()(tw_counter_h counter) const { tw_counter_destroy(counter); }
};
using CounterPtr = std::unique_ptr<tw_counter, CounterDeleter>;

/// Calls `refused` and expects that the log has `text`.
void expect_logged(const char* text, auto refused) {
    ::testing::internal::CaptureStderr();
    refused();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(text), std::string::npos) << log;
}

class MsgCq : public PairTest {
  protected:
    CqPtr make_cq(std::size_t capacity = 0) {
        tw_cq_params_t params{};
        params.capacity = capacity;
        tw_cq_h cq = nullptr;
        EXPECT_EQ(tw_cq_create(context_.get(), &params, &cq), TW_OK);
        return CqPtr(cq);
    }
    static CounterPtr make_counter() {
        tw_counter_h counter = nullptr;
        EXPECT_EQ(tw_counter_create(&counter), TW_OK);
        return CounterPtr(counter);
    }
    /// Nothing but these flags.
    static tw_op_t plain(void* context = nullptr, std::uint32_t flags = 0) {
        tw_op_t how{};
        how.context = context;
        how.flags = flags;
        return how;
    }
    static tw_op_t to(const CqPtr& cq, void* context, std::uint32_t flags = TW_OP_COMPLETION) {
        tw_op_t how = plain(context, flags);
        how.cq = cq.get();
        return how;
    }
    /// The next completion of the queue, with progress of all.
    tw_completion_t next_of(const CqPtr& cq) {
        tw_completion_t done{};
        run_until([&] { return tw_cq_poll(cq.get(), &done, 1) == 1; });
        return done;
    }
    static unsigned count_of(const CqPtr& cq) {
        tw_completion_t done[8];
        unsigned all = 0;
        while (const unsigned count = tw_cq_poll(cq.get(), done, 8))
            all += count;
        return all;
    }
    static tw_op_t counted(tw_op_t how, const CounterPtr& counter) {
        how.counter = counter.get();
        return how;
    }
    static std::pair<std::uint64_t, std::uint64_t> read(const CounterPtr& counter) {
        std::uint64_t successes = 0, failures = 0;
        EXPECT_EQ(tw_counter_read(counter.get(), &successes, &failures), TW_OK);
        return {successes, failures};
    }
};

using MsgCounter = MsgCq;

TEST_F(MsgCq, operations_of_several_workers_end_in_one_queue) {
    const CqPtr cq = make_cq();
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        Bytes received(length);
        int sent = 0, came = 0;
        const tw_op_t send = to(cq, &sent), recv = to(cq, &came);
        ASSERT_EQ(tw_tag_recv(node(1).worker(), received.data(), length, 7, 0, &recv, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(node(0).to(node(1)), data.data(), length, 7, &send, nullptr),
                  TW_INPROGRESS);
        unsigned sends = 0, recvs = 0;
        for (int i = 0; i < 2; ++i) {
            const tw_completion_t done = next_of(cq);
            EXPECT_EQ(done.status, TW_OK);
            EXPECT_EQ(done.length, length);
            EXPECT_EQ(done.tag, 7U);
            sends += done.context == &sent;
            recvs += done.context == &came;
        }
        EXPECT_EQ(sends, 1U);
        EXPECT_EQ(recvs, 1U);
        EXPECT_EQ(received, data);
    }
    EXPECT_TRUE(node(0).done.empty());
    EXPECT_TRUE(node(1).done.empty());
}

TEST_F(MsgCq, a_queue_that_is_full_loses_nothing_and_keeps_the_order) {
    connect();
    const CqPtr cq = make_cq(4);
    constexpr std::uint64_t kMessages = 100;
    std::vector<std::uint64_t> values(kMessages);
    const CounterPtr counter = make_counter();
    const tw_op_t recv = counted(to(cq, nullptr), counter);
    for (std::uint64_t& value : values)
        ASSERT_EQ(tw_tag_recv(node(1).worker(), &value, 8, 1, 0, &recv, nullptr), TW_INPROGRESS);
    const std::vector<std::uint64_t> sent(kMessages);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        tw_op_t send = plain(nullptr, TW_OP_IMM);
        send.imm = i;
        EXPECT_GE(tw_tag_send(node(0).to(node(1)), &sent[i], 8, 1, &send, nullptr), TW_OK);
    }
    run_until([&] { return read(counter).first == kMessages; });
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        tw_completion_t done{};
        ASSERT_EQ(tw_cq_poll(cq.get(), &done, 1), 1U) << i;
        EXPECT_EQ(done.imm, i);
    }
    tw_completion_t done{};
    EXPECT_EQ(tw_cq_poll(cq.get(), &done, 1), 0U);
}

TEST_F(MsgCq, requests_in_memory_of_the_program_end_in_a_full_queue) {
    connect();
    const CqPtr cq = make_cq(2);
    constexpr std::size_t kMessages = 10;
    constexpr std::size_t kRequestBytes = TW_REQUEST_BYTES;
    const std::unique_ptr<void, decltype(&std::free)> memory(
        std::aligned_alloc(16, kRequestBytes * kMessages), &std::free);
    char buffers[kMessages];
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < kMessages; ++i) {
            tw_op_t recv = to(cq, &buffers[i]);
            recv.request = static_cast<std::byte*>(memory.get()) + i * kRequestBytes;
            ASSERT_EQ(tw_tag_recv(node(1).worker(), &buffers[i], 1, i, 0, &recv, nullptr),
                      TW_INPROGRESS);
        }
        for (std::size_t i = 0; i < kMessages; ++i)
            EXPECT_GE(tw_tag_send(node(0).to(node(1)), "x", 1, i, nullptr, nullptr), TW_OK);
        run_some();
        for (std::size_t i = 0; i < kMessages; ++i) {
            const tw_completion_t done = next_of(cq);
            EXPECT_EQ(done.context, &buffers[done.tag]);
            // It is the program's again.
            std::memset(static_cast<void*>(done.request), 0xff, kRequestBytes);
        }
    }
}

TEST_F(MsgCq, the_messages_of_a_multi_receive_end_in_the_queue) {
    connect();
    const CqPtr cq = make_cq(2);
    std::byte buffer[4096];
    tw_worker_limits_t limits{};
    limits.multi_recv_bytes_min = 64;
    ASSERT_EQ(tw_worker_set_limits(node(1).worker(), &limits), TW_OK);
    int mark = 0;
    const CounterPtr counter = make_counter();
    const tw_op_t recv = counted(to(cq, &mark, 0), counter);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_msg_recv_multi(node(1).worker(), buffer, sizeof buffer, &recv, &request),
              TW_INPROGRESS);
    for (int i = 0; i < 6; ++i)
        EXPECT_GE(tw_msg_send(node(0).to(node(1)), "abc", 3, nullptr, nullptr), TW_OK);
    run_until([&] { return read(counter).first == 6; });
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    for (int i = 0; i < 6; ++i) {
        const tw_completion_t done = next_of(cq);
        EXPECT_EQ(done.buffer, buffer + std::ptrdiff_t{3} * i);
        EXPECT_EQ(done.flags & TW_DONE_MULTI_RECV, 0U);
    }
    const tw_completion_t last = next_of(cq);
    EXPECT_EQ(last.status, TW_ERR_CANCELED);
    EXPECT_NE(last.flags & TW_DONE_MULTI_RECV, 0U);
}

TEST_F(MsgCq, what_ends_after_its_call_is_reported_to_the_queue_without_a_flag) {
    const CqPtr cq = make_cq();
    char byte = 0;
    int mark = 0;
    const tw_op_t recv = to(cq, &mark, 0);
    tw_request_h request = nullptr;
    for (const std::size_t length : {1U, 2U}) {  // the second is too long
        ASSERT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &recv, nullptr), TW_INPROGRESS);
        send(node(1), node(0), Bytes(length), 1);
        const tw_completion_t done = next_of(cq);
        EXPECT_EQ(done.status, length == 1 ? TW_OK : TW_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(done.context, &mark);
    }
    ASSERT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 2, 0, &recv, &request), TW_INPROGRESS);
    tw_request_cancel(request);
    EXPECT_EQ(next_of(cq).status, TW_ERR_CANCELED);
    // An end within the call is told by that alone.
    send(node(1), node(0), Bytes(1), 3);
    run_some();
    EXPECT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 3, 0, &recv, nullptr), TW_OK);
    EXPECT_EQ(count_of(cq), 0U);
}

TEST_F(MsgCq, flushes_and_closes_end_in_the_queue) {
    const CqPtr cq = make_cq();
    connect();
    int flush = 0, close = 0;
    const tw_op_t flushing = to(cq, &flush), closing = to(cq, &close);
    ASSERT_EQ(tw_ep_flush(node(0).to(node(1)), TW_FLUSH_DELIVERED, &flushing, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(next_of(cq).context, &flush);
    ASSERT_EQ(tw_ep_close(node(0).to(node(1)), TW_FLUSH_DELIVERED, &closing, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(next_of(cq).context, &close);
}

TEST_F(MsgCq, what_cannot_be_is_refused_with_a_sentence) {
    tw_cq_h made = nullptr;
    for (const std::size_t capacity : {std::size_t{1}, std::size_t{3}, 2 * TW_CQ_CAPACITY_MAX}) {
        tw_cq_params_t params{};
        params.capacity = capacity;
        expect_logged("expected a power of two from 2 to", [&] {
            EXPECT_EQ(tw_cq_create(context_.get(), &params, &made), TW_ERR_INVALID_PARAM);
        });
    }
    const CqPtr cq = make_cq();
    tw_context_h other_context = nullptr;
    ASSERT_EQ(tw_context_create(nullptr, &other_context), TW_OK);
    tw_cq_h foreign = nullptr;
    ASSERT_EQ(tw_cq_create(other_context, nullptr, &foreign), TW_OK);
    char byte = 0;
    const auto refused = [&](const char* text, const tw_op_t& how) {
        expect_logged(text, [&] {
            EXPECT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &how, nullptr),
                      TW_ERR_INVALID_PARAM);
        });
    };
    tw_op_t how = plain();
    how.cq = foreign;
    refused("op->cq is a queue of another context", how);
    how.cq = cq.get();
    how.complete = [](const tw_completion_t*) {};
    refused("op->cq cannot be combined with op->complete", how);
    expect_logged("completion queues first", [&] { tw_context_destroy(other_context); });
    tw_cq_destroy(foreign);
    tw_context_destroy(other_context);
    unsigned count = 0;
    tw_completion_t done{};
    expect_logged("max is 0", [&] {
        EXPECT_EQ(tw_cq_wait(cq.get(), &done, 0, 0, &count), TW_ERR_INVALID_PARAM);
    });
}

TEST_F(MsgCq, a_queue_that_operations_name_is_not_destroyed) {
    CqPtr cq = make_cq();
    char byte = 0;
    const tw_op_t recv = to(cq, nullptr);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &recv, &request), TW_INPROGRESS);
    expect_logged("1 operations that have not ended name the queue",
                  [&] { tw_cq_destroy(cq.get()); });
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(next_of(cq).status, TW_ERR_CANCELED);
}

TEST_F(MsgCq, a_worker_that_goes_leaves_the_queue_free) {
    CqPtr cq = make_cq(2);
    const CounterPtr counter = make_counter();
    connect();
    Bytes data = pattern(kRndv, 1), buffer(8192);
    char bytes[10];
    const tw_op_t how = counted(to(cq, nullptr), counter);
    for (char& byte : bytes)  // some end, more than there is room for, and others do not
        ASSERT_EQ(tw_tag_recv(node(1).worker(), &byte, 1, 1, 0, &how, nullptr), TW_INPROGRESS);
    for (int i = 0; i < 5; ++i)
        EXPECT_GE(tw_tag_send(node(0).to(node(1)), "x", 1, 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_msg_recv_multi(node(1).worker(), buffer.data(), buffer.size(), &how, nullptr),
              TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(node(1).to(node(0)), data.data(), data.size(), 9, &how, nullptr),
              TW_INPROGRESS);
    ASSERT_EQ(tw_ep_flush(node(1).to(node(0)), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    run_some();
    node(1).destroy();
    EXPECT_EQ(count_of(cq), 2U);
    EXPECT_EQ(read(counter).first, 5U);
    ::testing::internal::CaptureStderr();
    cq.reset();
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// ---- Sleeping

TEST_F(MsgCq, a_wait_takes_what_is_there_or_ends_in_time) {
    const CqPtr cq = make_cq();
    tw_completion_t done[2];
    unsigned count = 7;
    EXPECT_EQ(tw_cq_wait(cq.get(), done, 2, 0, &count), TW_ERR_TIMED_OUT);
    EXPECT_EQ(count, 0U);
    EXPECT_EQ(tw_cq_wait(cq.get(), done, 2, 1000, &count), TW_ERR_TIMED_OUT);
    char byte = 0;
    const CounterPtr counter = make_counter();
    const tw_op_t recv = counted(to(cq, nullptr), counter);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &recv, &request), TW_INPROGRESS);
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    run_until([&] { return read(counter).second == 1; });
    EXPECT_EQ(tw_cq_wait(cq.get(), done, 2, UINT64_MAX, &count), TW_OK);
    EXPECT_EQ(count, 1U);
    EXPECT_EQ(tw_cq_signal(cq.get()), TW_OK);
    EXPECT_EQ(tw_cq_wait(cq.get(), done, 2, UINT64_MAX, &count), TW_ERR_CANCELED);
}

TEST_F(MsgCq, one_completion_ends_the_sleep_of_one_thread) {
    const CqPtr cq = make_cq();
    std::atomic<int> with_one{0}, over{0};
    const auto sleep = [&] {
        tw_completion_t done{};
        unsigned count = 0;
        with_one += tw_cq_wait(cq.get(), &done, 1, UINT64_MAX, &count) == TW_OK;
        ++over;
    };
    {
        WatchedThread first(sleep), second(sleep), third(sleep);
        first.until_it_sleeps();
        second.until_it_sleeps();
        third.until_it_sleeps();
        char byte = 0;
        const tw_op_t recv = to(cq, nullptr);
        ASSERT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &recv, nullptr), TW_INPROGRESS);
        send(node(1), node(0), Bytes(1), 1);
        run_until([&] { return over > 0; });
        run_some();
        EXPECT_EQ(over, 1);
        expect_logged("threads wait for the queue", [&] { tw_cq_destroy(cq.get()); });
        tw_cq_signal(cq.get());
    }
    EXPECT_EQ(with_one, 1);
}

/// Workers of threads that progress, and other threads that take what ends.
TEST_F(MsgCq, threads_take_the_ends_of_workers_that_others_progress) {
    constexpr int kWorkers = 2, kConsumers = 2;
    constexpr unsigned kMessages = 500;
    const CqPtr cq = make_cq(16);
    std::vector<std::unique_ptr<Node>> workers;
    std::vector<tw_ep_h> eps;
    for (int i = 0; i < kWorkers; ++i) {
        workers.push_back(std::make_unique<Node>(context_.get(), TW_THREAD_MULTI));
        eps.push_back(workers.back()->to(*workers.back()));
    }
    std::atomic<unsigned> taken{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
        threads.emplace_back([&] {
            tw_completion_t done[4];
            unsigned count = 0;
            while (tw_cq_wait(cq.get(), done, 4, kTakesTooLong, &count) == TW_OK) {
                for (unsigned i = 0; i < count; ++i)
                    wrong += done[i].status != TW_OK;
                if ((taken += count) == 2 * kWorkers * kMessages)
                    tw_cq_signal(cq.get());
            }
        });
    }
    for (int worker = 0; worker < kWorkers; ++worker) {
        threads.emplace_back([&, worker] {
            const tw_op_t how = to(cq, nullptr);
            tw_worker_h mine = workers[static_cast<std::size_t>(worker)]->worker();
            tw_ep_h ep = eps[static_cast<std::size_t>(worker)];
            std::vector<std::uint64_t> values(kMessages);
            for (unsigned i = 0; i < kMessages; ++i) {
                while (tw_tag_recv(mine, &values[i], 8, i, 0, &how, nullptr) == TW_ERR_NO_RESOURCE)
                    tw_worker_progress(mine);
                const std::uint64_t value = i;
                tw_op_t send = how;
                send.flags |= TW_OP_INJECT;
                while (tw_tag_send(ep, &value, 8, i, &send, nullptr) == TW_ERR_NO_RESOURCE)
                    tw_worker_progress(mine);
            }
            while (taken < 2 * kWorkers * kMessages)
                tw_worker_progress(mine);
            for (unsigned i = 0; i < kMessages; ++i)
                wrong += values[i] != i;
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(taken, 2 * kWorkers * kMessages);
    EXPECT_EQ(wrong, 0U);
}

// ---- Completion counters

TEST_F(MsgCounter, each_operation_counts_once_however_its_end_is_reported) {
    connect();
    const CounterPtr counter = make_counter();
    const CqPtr cq = make_cq();
    std::uint64_t seen_by_callback = UINT64_MAX;
    struct Told {
        const CounterPtr& counter;
        std::uint64_t& seen;
    } told{counter, seen_by_callback};
    tw_op_t how[4] = {to(cq, nullptr), plain(&told), plain(nullptr, TW_OP_COMPLETION), plain()};
    how[1].complete = [](const tw_completion_t* done) {
        const Told& one = *static_cast<Told*>(done->context);
        tw_counter_read(one.counter.get(), &one.seen, nullptr);
    };
    char bytes[4];
    tw_request_h request = nullptr;
    for (std::size_t i = 0; i < 4; ++i) {
        how[i] = counted(how[i], counter);
        ASSERT_EQ(
            tw_tag_recv(node(1).worker(), &bytes[i], 1, 1, 0, &how[i], i == 3 ? &request : nullptr),
            TW_INPROGRESS);
    }
    const tw_op_t sending = counted(plain(), counter);
    for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_GE(tw_tag_send(node(0).to(node(1)), "x", 1, 1, &sending, nullptr), TW_OK);
        run_until([&] { return read(counter).first == 2 * (i + 1); });
    }
    run_some();
    EXPECT_EQ(read(counter), std::pair(std::uint64_t{8}, std::uint64_t{0}));
    EXPECT_GE(seen_by_callback, 2U);  // itself not yet
    EXPECT_LE(seen_by_callback, 3U);
    EXPECT_EQ(tw_counter_wait(counter.get(), 8, 0), TW_OK);
    EXPECT_EQ(tw_counter_wait(counter.get(), 9, 1000), TW_ERR_TIMED_OUT);
    tw_request_free(request);
}

TEST_F(MsgCounter, failures_count_apart_and_refused_calls_do_not) {
    const CounterPtr counter = make_counter();
    char byte = 0;
    tw_op_t how = counted(plain(nullptr, TW_OP_COMPLETION), counter);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &how, &request), TW_INPROGRESS);
    expect_logged("1 operations that have not ended, or memory handles, name the counter",
                  [&] { tw_counter_destroy(counter.get()); });
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    run_until([&] { return read(counter).second == 1; });
    EXPECT_EQ(read(counter), std::pair(std::uint64_t{0}, std::uint64_t{1}));
    how.flags = TW_OP_INJECT;
    EXPECT_EQ(tw_tag_recv(node(0).worker(), &byte, 1, 1, 0, &how, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(read(counter), std::pair(std::uint64_t{0}, std::uint64_t{1}));
}

TEST_F(MsgCounter, a_thread_sleeps_until_its_number_is_reached) {
    connect();
    const CounterPtr counter = make_counter();
    char bytes[3];
    const tw_op_t how = counted(plain(), counter);
    for (char& byte : bytes)
        ASSERT_EQ(tw_tag_recv(node(1).worker(), &byte, 1, 1, 0, &how, nullptr), TW_INPROGRESS);
    std::atomic<int> over{0};
    WatchedThread sleeper([&] {
        EXPECT_EQ(tw_counter_wait(counter.get(), 4, UINT64_MAX), TW_OK);
        ++over;
    });
    sleeper.until_it_sleeps();
    for (int i = 0; i < 3; ++i)
        EXPECT_GE(tw_tag_send(node(0).to(node(1)), "x", 1, 1, nullptr, nullptr), TW_OK);
    run_until([&] { return read(counter).first == 3; });
    run_some();
    EXPECT_EQ(over, 0);
    EXPECT_EQ(tw_counter_add(counter.get(), 0, 1), TW_OK);
}

}  // namespace
}  // namespace tagwire::test
