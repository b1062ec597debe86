// SPDX-License-Identifier: BSD-3-Clause
// Completion queues and counters between real threads, also for ThreadSanitizer; the models
// (completion_model_test.cc) have every order of few steps.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "protocols/completion/completion_counter.hpp"

namespace tagwire::test {
namespace {

using proto::CompletionEnv;
using Queue = proto::QueueProtocol<CompletionEnv>;

constexpr unsigned kProducers = 3, kConsumers = 3;
constexpr std::uint64_t kEach = 4000;

/// A worker whose operations end: it has few requests, and waits while the queue has them all.
class Producer {
  public:
    Producer(Queue& queue, std::uint64_t number) : queue_(queue), number_(number) {
        for (Operation& operation : operations_)
            free_.push_back(&operation);
    }
    void run() {
        for (std::uint64_t i = 0; i < kEach; ++i) {
            take_back();
            while (free_.empty()) {
                std::this_thread::yield();
                take_back();
            }
            Operation& one = *free_.back();
            one.done.tag = number_;
            one.done.imm = i;
            one.kept = {nullptr, &returns_, nullptr, &one.done, false};
            if (!queue_.push(one.done, one.kept))
                free_.pop_back();
        }
    }
    /// Every request has come back.
    bool has_all() {
        take_back();
        return free_.size() == std::size(operations_);
    }

  private:
    struct Operation {
        proto::KeptCompletion kept{};
        tw_completion_t done{};
    };

    void take_back() {
        proto::KeptCompletion* kept = returns_.take_all();
        while (kept != nullptr) {
            for (Operation& one : operations_)
                if (&one.kept == kept)
                    free_.push_back(&one);
            kept = kept->next;
        }
    }

    Queue& queue_;
    const std::uint64_t number_;
    Operation operations_[16];
    std::vector<Operation*> free_;
    proto::KeptReturns<CompletionEnv> returns_;
};

/// Takes completions until there are no more to come, and checks that those of each producer come
/// in its order. `take(Queue&, tw_completion_t*, unsigned max)`; UINT32_MAX: it is over.
template <class Take>
void move_everything(std::size_t capacity, const Take& take) {
    Queue queue(capacity);
    std::vector<std::unique_ptr<Producer>> producers;
    for (std::uint64_t i = 0; i < kProducers; ++i)
        producers.push_back(std::make_unique<Producer>(queue, i));
    std::atomic<std::uint64_t> taken{0}, out_of_order{0};
    std::vector<std::thread> threads;
    for (unsigned consumer = 0; consumer < kConsumers; ++consumer) {
        threads.emplace_back([&, consumer] {
            std::uint64_t next[kProducers] = {};
            tw_completion_t done[4];
            while (taken < kProducers * kEach) {
                const unsigned count = take(queue, done, 1 + consumer);
                for (unsigned i = 0; i < count; ++i) {
                    out_of_order += done[i].imm < next[done[i].tag];
                    next[done[i].tag] = done[i].imm + 1;
                }
                if ((taken += count) == kProducers * kEach)
                    queue.close();
            }
        });
    }
    for (const auto& producer : producers)
        threads.emplace_back([&producer] { producer->run(); });
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(taken, kProducers * kEach);
    EXPECT_EQ(out_of_order, 0U);
    for (const auto& producer : producers)
        EXPECT_TRUE(producer->has_all());
}

unsigned by_polling(Queue& queue, tw_completion_t* done, unsigned max) {
    const unsigned count = queue.poll(done, max);
    if (count == 0)
        std::this_thread::yield();
    return count;
}

unsigned by_sleeping(Queue& queue, tw_completion_t* done, unsigned max) {
    unsigned count = 0;
    queue.wait_until(done, max, UINT64_MAX, &count);
    return count;
}

TEST(CqThreads, what_threads_poll_is_complete_and_in_order) {
    move_everything(1024, by_polling);
}

TEST(CqThreads, a_small_queue_loses_nothing) {
    move_everything(2, by_polling);
}

TEST(CqThreads, threads_that_sleep_get_everything) {
    move_everything(1024, by_sleeping);
}

TEST(CqThreads, threads_that_sleep_for_a_small_queue_get_everything) {
    move_everything(4, by_sleeping);
}

TEST(CounterThreads, each_thread_wakes_at_its_number_and_may_destroy_the_counter) {
    for (int round = 0; round < 200; ++round) {
        auto counter = std::make_unique<proto::CompletionCounter>();
        std::atomic<int> too_early{0};
        std::vector<std::thread> threads;
        for (const std::uint64_t number : {2U, 5U, 6U}) {
            threads.emplace_back([&, number] {
                too_early += !counter->wait_until(number, UINT64_MAX) || counter->ended() < number;
            });
        }
        for (int i = 0; i < 2; ++i) {
            threads.emplace_back([&] {
                for (int j = 0; j < 3; ++j)
                    counter->add_by_hand(j == 0 ? 0 : 1, j == 0 ? 1 : 0);
            });
        }
        for (std::thread& thread : threads)
            thread.join();
        EXPECT_EQ(too_early, 0);
        EXPECT_EQ(counter->successes(), 4U);
        EXPECT_EQ(counter->failures(), 2U);
    }
}

TEST(CounterThreads, a_counter_is_destroyed_by_the_thread_that_waits_for_the_last_operation) {
    for (int round = 0; round < 500; ++round) {
        auto counter = std::make_unique<proto::CompletionCounter>();
        counter->users().enter();
        std::thread reports([&counter = *counter] { counter.report(TW_OK); });
        EXPECT_TRUE(counter->wait_until(1, UINT64_MAX));
        EXPECT_EQ(counter->users().count(), 0U);
        counter->users().drain();
        counter.reset();
        reports.join();
    }
}

}  // namespace
}  // namespace tagwire::test
