// SPDX-License-Identifier: BSD-3-Clause
// Completion counters of memory: puts that arrive. Only the public API.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

struct MemoryCounterDeleter {
    void operator()(tw_counter_h counter) const { tw_counter_destroy(counter); }
};

class MsgRmaCounter : public RmaTest {
  protected:
    MsgRmaCounter() {
        tw_counter_h counter = nullptr;
        EXPECT_EQ(tw_counter_create(&counter), TW_OK);
        counter_.reset(counter);
    }
    std::uint64_t count() const {
        std::uint64_t successes = 0, failures = 0;
        EXPECT_EQ(tw_counter_read(counter_.get(), &successes, &failures), TW_OK);
        EXPECT_EQ(failures, 0U);
        return successes;
    }
    void run_until_count_is(std::uint64_t number) {
        run_until([&] { return count() >= number; });
        run_some();
        EXPECT_EQ(count(), number);
    }
    tw_counter_h counter() const { return counter_.get(); }

    std::unique_ptr<tw_counter, MemoryCounterDeleter> counter_;
};

constexpr std::size_t kCountedLengths[] = {0, 1, 8, 64, 2048, 2049, 8256, 70001, 300000, 3000001};
constexpr std::size_t kCountedMax = 3000001;

TEST_F(MsgRmaCounter, each_put_with_an_immediate_counts_once_when_its_data_is_there) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), kCountedMax, kind, 0, counter());
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        std::uint64_t expected = count();
        for (const std::size_t length : kCountedLengths) {
            SCOPED_TRACE(length);
            const Bytes data = pattern(length, length);
            tw_op_t how{};
            how.flags = TW_OP_IMM;
            tw_request_h request = nullptr;
            const tw_status_t answer =
                tw_put(ep, data.data(), length, memory.address(), key, &how, &request);
            ASSERT_GE(answer, TW_OK);
            ++expected;
            run_until([&] { return count() == expected; });
            EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at()));
            EXPECT_EQ(end(answer, request), TW_OK);
        }
        run_until_count_is(expected);
        EXPECT_EQ(tw_counter_wait(counter(), expected, 0), TW_OK);
        EXPECT_EQ(tw_counter_wait(counter(), expected + 1, 1000), TW_ERR_TIMED_OUT);
        EXPECT_TRUE(node(1).done.empty()) << "what is counted needs no completion";
        tw_key_free(key);
    }
}

TEST_F(MsgRmaCounter, many_puts_count_once_each_whatever_their_level) {
    constexpr std::size_t kPuts = 600;
    const Shared memory(context_.get(), 100000, Shared::Kind::kMapped, 0, counter());
    const tw_ep_h ep = node(0).to(node(1));  // connects meanwhile
    const tw_key_h key = memory.key_for(node(0));
    const Bytes data = pattern(100000, 1);
    constexpr std::uint32_t kEnds[] = {0, TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE};
    std::vector<std::pair<tw_status_t, tw_request_h>> puts;
    for (std::size_t i = 0; i < kPuts; ++i) {
        tw_op_t how{};
        how.flags = TW_OP_IMM | kEnds[i % 3];
        tw_iov_t half[2] = {{const_cast<std::byte*>(data.data()), 40}, {nullptr, 0}};
        half[1] = {const_cast<std::byte*>(data.data()) + 40, i % 50 == 0 ? 90000U : 24U};
        tw_request_h request = nullptr;
        tw_status_t answer = TW_ERR_NO_RESOURCE;
        run_until([&] {
            answer = tw_putv(ep, half, 2, memory.address(), key, &how, &request);
            return answer != TW_ERR_NO_RESOURCE;
        });
        puts.emplace_back(answer, request);
    }
    for (const auto& [answer, request] : puts)
        ASSERT_EQ(end(answer, request), TW_OK);
    run_until_count_is(kPuts);
    tw_key_free(key);
}

TEST_F(MsgRmaCounter, what_peers_do_without_telling_does_not_count) {
    const Shared memory(context_.get(), 100000, Shared::Kind::kAllocated, 0, counter());
    const Shared other(context_.get(), 64);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0)), other_key = other.key_for(node(0));
    Bytes data(90000);
    const std::uint64_t one = 1;
    for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, data.size()})
        ASSERT_EQ(put(ep, data.data(), length, memory.address(), key, TW_OP_DELIVERY_COMPLETE),
                  TW_OK);
    ASSERT_EQ(get(ep, data.data(), data.size(), memory.address(), key), TW_OK);
    ASSERT_EQ(run([&](tw_request_h* request) {
                  return tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, &one, memory.address(), key,
                                   nullptr, request);
              }),
              TW_OK);
    ASSERT_EQ(put(ep, data.data(), 8, other.address(), other_key, TW_OP_IMM), TW_OK);
    ASSERT_EQ(flush(ep), TW_OK);
    run_until([&] { return !node(1).done.empty(); });
    EXPECT_EQ(count(), 0U);
    ASSERT_EQ(put(ep, data.data(), 8, memory.address(), key, TW_OP_IMM), TW_OK);
    run_until_count_is(1);
    EXPECT_EQ(node(1).done.size(), 1U) << "of the other memory";
    tw_key_free(key);
    tw_key_free(other_key);
}

TEST_F(MsgRmaCounter, a_callback_is_told_before_the_put_counts) {
    struct Told {
        tw_counter_h counter;
        std::vector<std::uint64_t> counts;
    } told{counter(), {}};
    tw_worker_params_t params{};
    params.rma_event_arg = &told;
    params.rma_event = [](void* arg, const tw_completion_t*) {
        auto& mine = *static_cast<Told*>(arg);
        std::uint64_t successes = 0;
        tw_counter_read(mine.counter, &successes, nullptr);
        mine.counts.push_back(successes);
    };
    Node target(context_.get(), params);
    const Shared memory(context_.get(), 64, Shared::Kind::kMapped, 0, counter());
    const tw_ep_h ep = node(0).to(target);
    const tw_key_h key = memory.key_for(node(0));
    tw_op_t how{};
    how.flags = TW_OP_IMM;
    for (std::uint64_t i = 0; i < 3; ++i) {
        ASSERT_GE(tw_put(ep, &i, sizeof i, memory.address(), key, &how, nullptr), TW_OK);
        run_until([&] {
            target.progress();
            return count() == i + 1;
        });
    }
    EXPECT_EQ(told.counts, (std::vector<std::uint64_t>{0, 1, 2}));
    tw_key_free(key);
    EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
}

TEST_F(MsgRmaCounter, memory_keeps_its_counter) {
    Shared memory(context_.get(), 64, Shared::Kind::kMapped, 0, counter());
    ::testing::internal::CaptureStderr();
    tw_counter_destroy(counter());
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("1 operations that have not ended, or memory handles, name the counter"),
              std::string::npos)
        << log;
    EXPECT_EQ(count(), 0U) << "it is still there";
    memory.unmap();
    EXPECT_EQ(tw_counter_add(counter(), 1, 0), TW_OK);
    EXPECT_EQ(count(), 1U);
}

TEST_F(MsgRmaCounter, a_counter_needs_memory_that_may_be_written) {
    std::uint64_t word = 0;
    tw_mem_h mem = nullptr;
    tw_mem_params_t params{};
    params.counter = counter();
    for (const std::uint32_t access :
         {std::uint32_t{TW_ACCESS_READ}, std::uint32_t{TW_ACCESS_NONE}}) {
        params.access = access;
        EXPECT_EQ(tw_mem_map(context_.get(), &word, sizeof word, &params, &mem),
                  TW_ERR_INVALID_PARAM);
    }
    params.access = TW_ACCESS_WRITE;
    ASSERT_EQ(tw_mem_map(context_.get(), &word, sizeof word, &params, &mem), TW_OK);
    EXPECT_EQ(tw_mem_unmap(context_.get(), mem), TW_OK);
    // A program of older headers, whose struct ends before the counter.
    params.struct_bytes = offsetof(tw_mem_params_t, counter);
    ASSERT_EQ(tw_mem_map(context_.get(), &word, sizeof word, &params, &mem), TW_OK);
    ::testing::internal::CaptureStderr();
    counter_.reset();
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(tw_mem_unmap(context_.get(), mem), TW_OK);
}

// The peer finds it, or its device does, which fails the endpoint: nobody is told in any case.
TEST_F(MsgRmaCounter, a_put_into_memory_that_was_unmapped_is_not_told) {
    Shared memory(context_.get(), 64, Shared::Kind::kMapped, 0, counter());
    Shared silent(context_.get(), 64);
    const tw_ep_h ep = connected(node(0), node(1));
    for (Shared* gone : {&memory, &silent}) {
        Node& user = node(gone == &memory ? 0 : 2);
        const tw_ep_h from = gone == &memory ? ep : connected(user, node(1));
        const tw_key_h key = gone->key_for(user);
        const std::uint64_t word = 1;
        ASSERT_EQ(put(from, &word, sizeof word, gone->address(), key, TW_OP_DELIVERY_COMPLETE),
                  TW_OK);
        gone->unmap();
        EXPECT_NE(put(from, &word, sizeof word, gone->address(), key,
                      TW_OP_IMM | TW_OP_DELIVERY_COMPLETE),
                  TW_OK);
        run_some();
        EXPECT_EQ(count(), 0U);
        EXPECT_TRUE(node(1).done.empty());
        tw_key_free(key);
    }
}

TEST_F(MsgRmaCounter, puts_of_a_peer_that_closes_by_force_count_at_most_once) {
    constexpr std::size_t kPuts = 100;
    for (const std::size_t length : {std::size_t{8}, std::size_t{3000}, std::size_t{300000}}) {
        for (const int rounds : {0, 3, 30}) {
            SCOPED_TRACE(testing::Message() << length << " bytes, " << rounds << " rounds");
            Shared memory(context_.get(), length, Shared::Kind::kMapped, 0, counter());
            const std::uint64_t before = count();
            const tw_ep_h ep = connected(node(0), node(1));
            const tw_key_h key = memory.key_for(node(0));
            const Bytes data = pattern(length, 1);
            tw_op_t how{};
            how.flags = TW_OP_IMM;
            std::size_t begun = 0;
            while (begun < kPuts &&
                   tw_put(ep, data.data(), length, memory.address(), key, &how, nullptr) >= TW_OK)
                ++begun;
            for (int i = 0; i < rounds; ++i) {
                node(0).progress();
                node(1).progress();
            }
            EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
            run_some();
            EXPECT_LE(count() - before, begun);
            tw_key_free(key);
            memory.unmap();
            // Another peer of the owner goes on, with the same counter.
            const Shared again(context_.get(), 64, Shared::Kind::kMapped, 0, counter());
            const std::uint64_t now = count();
            const tw_ep_h other = connected(node(2), node(1));
            const tw_key_h other_key = again.key_for(node(2));
            ASSERT_EQ(put(other, data.data(), 8, again.address(), other_key, TW_OP_IMM), TW_OK);
            run_until_count_is(now + 1);
            tw_key_free(other_key);
            destroy_nodes();
        }
    }
}

// The worker has no lock, and the thread that waits is not the one that uses it.
TEST_F(MsgRmaCounter, a_thread_that_waits_sees_the_data_of_counted_puts) {
    constexpr std::uint64_t kPuts = 200;
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), 8 * kPuts, kind, 0, counter());
        const std::uint64_t before = count();
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        std::atomic<std::uint64_t> seen{0};
        std::thread waits([&] {
            for (std::uint64_t i = 0; i < kPuts; ++i) {
                const bool is_there =
                    tw_counter_wait(counter(), before + i + 1, UINT64_MAX) == TW_OK &&
                    memory.number<std::uint64_t>(8 * i) == i + 1;
                // Relaxed: a count, which is read behind the join.
                seen.fetch_add(is_there ? 1 : 0, std::memory_order_relaxed);
            }
        });
        for (std::uint64_t i = 0; i < kPuts; ++i) {
            const std::uint64_t value = i + 1;
            ASSERT_EQ(put(ep, &value, sizeof value, memory.address() + 8 * i, key, TW_OP_IMM),
                      TW_OK);
        }
        run_until([&] { return count() == before + kPuts; });
        waits.join();
        EXPECT_EQ(seen, kPuts);
        tw_key_free(key);
    }
}

// ---- Messages

TEST_F(MsgRmaCounter, receives_and_handlers_count_messages_that_arrive) {
    constexpr std::uint64_t kMessages = 20;
    tw_counter_h handled = nullptr;
    ASSERT_EQ(tw_counter_create(&handled), TW_OK);
    const auto handler = [](void* arg, tw_am_t*) {
        tw_counter_add(static_cast<tw_counter_h>(arg), 1, 0);
    };
    ASSERT_EQ(tw_am_register(node(1).worker(), 7, handler, handled), TW_OK);
    std::thread waits([&] {
        EXPECT_EQ(tw_counter_wait(counter(), kMessages, UINT64_MAX), TW_OK);
        EXPECT_EQ(tw_counter_wait(handled, kMessages, UINT64_MAX), TW_OK);
    });
    tw_op_t how{};
    how.counter = counter();
    std::vector<std::uint64_t> numbers(kMessages), sent(kMessages);
    for (std::uint64_t i = 0; i < kMessages; ++i)
        ASSERT_GE(tw_tag_recv(node(1).worker(), &numbers[i], 8, 0, 0, &how, nullptr), TW_OK);
    const tw_ep_h ep = node(0).to(node(1));
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        run_until([&] {
            return tw_tag_send(ep, &sent[i], 8, 0, nullptr, nullptr) != TW_ERR_NO_RESOURCE;
        });
        run_until([&] {
            return tw_am_send(ep, 7, &i, 8, nullptr, 0, nullptr, nullptr) != TW_ERR_NO_RESOURCE;
        });
    }
    run_until(
        [&] { return count() == kMessages && tw_counter_wait(handled, kMessages, 0) == TW_OK; });
    waits.join();
    tw_counter_destroy(handled);
}

}  // namespace
}  // namespace tagwire::test
