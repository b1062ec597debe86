// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations of the threads of one worker, by one transmit context or several, while
// another thread progresses the owner. Only the public API.
#include <array>
#include <atomic>
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
        const tw_key_h key = memory.key_for(ep);
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
        EXPECT_EQ(tw_ep_close(ep, TW_EP_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    }
}

INSTANTIATE_TEST_SUITE_P(OneContextOrMore, MsgRmaThreads, ::testing::Values(1U, 3U));

}  // namespace
}  // namespace tagwire::test
