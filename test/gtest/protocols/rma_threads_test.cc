// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations of the threads of one worker, by one transmit context or several, while
// another thread progresses the owner. Only the public API.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kThreads = 3;
constexpr std::uint64_t kRounds = 300;

class MsgRmaThreads : public RmaTest, public ::testing::WithParamInterface<unsigned> {
  protected:
    static tw_worker_params_t shared_worker() {
        tw_worker_params_t params{};
        params.thread_mode = TW_THREAD_MULTI;
        params.tx_contexts = GetParam();
        return params;
    }
};

/// One of the threads: adds, and writes and reads memory of its own.
void use(tw_worker_h worker, tw_ep_h ep, tw_key_h key, std::uint64_t base, std::size_t number,
         std::atomic<std::uint64_t>* wrong) {
    const auto end = [&](const auto& call) {
        tw_request_h request = nullptr;
        tw_status_t status = call(&request);
        while (status == TW_ERR_NO_RESOURCE) {
            tw_worker_progress(worker);
            status = call(&request);
        }
        if (status == TW_INPROGRESS) {
            status = tw_request_wait(request, TW_WAIT_YIELD, 60'000'000'000, nullptr);
            tw_request_free(request);
        }
        // Relaxed: threads are joined.
        if (status != TW_OK)
            wrong->fetch_add(1, std::memory_order_relaxed);
    };
    const std::uint64_t one = 1, own = base + 4096 * (number + 1);
    Bytes read(4000);
    tw_op_t delivered{};
    delivered.flags = TW_OP_DELIVERY_COMPLETE;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
        std::uint64_t before = 0;
        end([&](tw_request_h* request) {
            return tw_atomic_fetch(ep, TW_ATOMIC_ADD, TW_UINT64, &one, &before, base, key, nullptr,
                                   request);
        });
        const std::size_t length = round % 3 == 0 ? 4000 : 8;
        const Bytes data = pattern(length, round * kThreads + number);
        end([&](tw_request_h* request) {
            return tw_put(ep, data.data(), length, own, key, &delivered, request);
        });
        end([&](tw_request_h* request) {
            return tw_get(ep, read.data(), length, own, key, nullptr, request);
        });
        if (!std::equal(data.begin(), data.end(), read.begin()))
            wrong->fetch_add(1, std::memory_order_relaxed);  // Relaxed: as above
    }
}

TEST_P(MsgRmaThreads, those_of_one_worker_use_memory_of_a_peer) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        Node from(context_.get(), shared_worker());
        Node to(context_.get(), TW_THREAD_MULTI);
        const Shared memory(context_.get(), 4096 * (kThreads + 1), kind);
        const tw_ep_h ep = from.to(to);
        const tw_key_h key = memory.key_for(from);
        std::atomic<bool> is_over{false};
        std::atomic<std::uint64_t> wrong{0};
        std::thread owner([&] {
            // SYNC test_rma_over: the others have ended.
            while (!is_over.load(std::memory_order_acquire)) {
                if (tw_worker_progress(to.worker()) == 0)
                    std::this_thread::yield();
            }
        });
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < kThreads; ++i)
            threads.emplace_back(use, from.worker(), ep, key, memory.address(), i, &wrong);
        for (std::thread& thread : threads)
            thread.join();
        // SYNC test_rma_over: pairs with the owner's loop.
        is_over.store(true, std::memory_order_release);
        owner.join();
        EXPECT_EQ(wrong, 0U);
        EXPECT_EQ(memory.number<std::uint64_t>(), kThreads * kRounds);
        tw_key_free(key);
        EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    }
}

/// Puts and adds until something is refused.
void use_until_refused(tw_worker_h worker, tw_ep_h ep, tw_key_h key, std::uint64_t base,
                       std::size_t length) {
    const Bytes data = pattern(length, 1);
    const std::uint64_t one = 1;
    tw_status_t status = TW_OK;
    for (unsigned round = 0; status == TW_OK; ++round) {
        tw_request_h request = nullptr;
        do {
            status = round % 2 == 0 ? tw_put(ep, data.data(), length, base, key, nullptr, &request)
                                    : tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, &one, base, key,
                                                nullptr, &request);
            if (status == TW_ERR_NO_RESOURCE)
                tw_worker_progress(worker);
        } while (status == TW_ERR_NO_RESOURCE);
        if (status == TW_INPROGRESS) {
            status = tw_request_wait(request, TW_WAIT_YIELD, 60'000'000'000, nullptr);
            tw_request_free(request);
        }
        // A flush has the refusal of those that had completed.
        if (status == TW_OK && round % 64 == 0 &&
            tw_ep_flush(ep, TW_FLUSH_DELIVERED, nullptr, &request) == TW_INPROGRESS) {
            status = tw_request_wait(request, TW_WAIT_YIELD, 60'000'000'000, nullptr);
            tw_request_free(request);
        }
    }
}

TEST_P(MsgRmaThreads, memory_that_is_unmapped_under_traffic_is_its_owners_alone) {
    constexpr int kTimes = 6;
    // A part for each thread: puts to one place race.
    constexpr std::size_t kPart = 256 * 1024, kBytes = 2 * kPart;
    for (int time = 0; time < 2 * kTimes; ++time) {
        const std::size_t length = time % 3 == 0 ? 200'000 : 8;
        Node from(context_.get(), shared_worker());
        Node to(context_.get(), TW_THREAD_MULTI);
        // Allocated memory may be that of another allocation later.
        Shared memory(context_.get(), kBytes,
                      time < kTimes ? Shared::Kind::kMapped : Shared::Kind::kAllocated);
        const tw_ep_h ep = from.to(to);
        const tw_key_h key = memory.key_for(from);
        std::atomic<bool> is_over{false};
        std::thread owner([&] {
            // SYNC test_rma_over: the others have ended.
            while (!is_over.load(std::memory_order_acquire)) {
                if (tw_worker_progress(to.worker()) == 0)
                    std::this_thread::yield();
            }
        });
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < 2; ++i)
            threads.emplace_back(use_until_refused, from.worker(), ep, key,
                                 memory.address() + i * kPart, length);
        std::this_thread::sleep_for(std::chrono::milliseconds(2 + time));
        memory.unmap();
        const Shared again(context_.get(), kBytes, Shared::Kind::kAllocated);
        std::byte* const at = time < kTimes ? memory.at() : again.at();
        std::fill_n(at, kBytes, std::byte{0xee});
        for (std::thread& thread : threads)
            thread.join();
        // SYNC test_rma_over: pairs with the owner's loop.
        is_over.store(true, std::memory_order_release);
        owner.join();
        EXPECT_TRUE(std::all_of(at, at + kBytes, [](std::byte b) { return b == std::byte{0xee}; }))
            << "time " << time;
        tw_key_free(key);
        tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr);
    }
}

/// Over shared memory the owner's thread writes what comes: ThreadSanitizer sees what the counter
/// orders, but not what shared memory orders that both sides have mapped at places of their own.
class MsgRmaCountThreads : private Settings, public MsgRmaThreads {
  protected:
    MsgRmaCountThreads() : Settings({{"TAGWIRE_SM_CMA", "off"}}) {}
};

// The thread that waits unmaps the memory and destroys the counter while the thread that has
// counted may still be about to wake others.
TEST_P(MsgRmaCountThreads, who_waits_for_puts_may_unmap_and_destroy_at_once) {
    constexpr std::uint64_t kPuts = 8, kTimes = 30;
    Node from(context_.get(), shared_worker());
    Node to(context_.get());  // without a lock: its thread alone uses it
    const tw_ep_h ep = from.to(to);
    std::atomic<std::uint64_t> begun{0}, seen{0};
    std::thread owner([&] {
        std::uint64_t round = 0;
        while (round <= kTimes) {
            // SYNC test_rma_round: the memory of this round is there, or all are over.
            round = begun.load(std::memory_order_acquire);
            seen.store(round, std::memory_order_relaxed);  // Relaxed: a number that is waited for.
            if (tw_worker_progress(to.worker()) == 0)
                std::this_thread::yield();
        }
    });
    for (std::uint64_t round = 1; round <= kTimes; ++round) {
        tw_counter_h counter = nullptr;
        ASSERT_EQ(tw_counter_create(&counter), TW_OK);
        Shared memory(context_.get(), 8 * kPuts, Shared::Kind::kMapped, 0, counter);
        const tw_key_h key = memory.key_for(from);
        // SYNC test_rma_round: pairs with the owner's loop.
        begun.store(round, std::memory_order_release);
        while (seen.load(std::memory_order_relaxed) != round)  // Relaxed: as above
            std::this_thread::yield();
        std::thread waits([&] {
            EXPECT_EQ(tw_counter_wait(counter, kPuts, UINT64_MAX), TW_OK);
            for (std::uint64_t i = 0; i < kPuts; ++i)
                EXPECT_EQ(memory.number<std::uint64_t>(8 * i), round + i);
            memory.unmap();
            tw_counter_destroy(counter);
        });
        tw_op_t how{};
        for (std::uint64_t i = 0; i < kPuts; ++i) {
            const std::uint64_t value = round + i;
            how.flags = TW_OP_IMM | TW_OP_INJECT;
            while (tw_put(ep, &value, sizeof value, memory.address() + 8 * i, key, &how, nullptr) ==
                   TW_ERR_NO_RESOURCE)
                tw_worker_progress(from.worker());
        }
        tw_request_h request = nullptr;
        if (tw_ep_flush(ep, TW_FLUSH_DELIVERED, nullptr, &request) == TW_INPROGRESS) {
            EXPECT_EQ(tw_request_wait(request, TW_WAIT_YIELD, 60'000'000'000, nullptr), TW_OK);
            tw_request_free(request);
        }
        waits.join();
        tw_key_free(key);
    }
    // SYNC test_rma_round: pairs with the owner's loop.
    begun.store(kTimes + 1, std::memory_order_release);
    owner.join();
    EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
}

INSTANTIATE_TEST_SUITE_P(OneContextOrMore, MsgRmaThreads, ::testing::Values(1U, 3U));
INSTANTIATE_TEST_SUITE_P(OneContextOrMore, MsgRmaCountThreads, ::testing::Values(1U, 3U));

}  // namespace
}  // namespace tagwire::test
