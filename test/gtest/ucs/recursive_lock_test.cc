// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ucs/sys/recursive_lock.hpp"

namespace tagwire::ucs {
namespace {

TEST(RecursiveLockTest, one_thread_at_a_time_is_inside) {
    constexpr int kThreads = 4, kRounds = 20000;
    RecursiveLock lock;
    int counted = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < kRounds; ++round) {
                lock.lock();
                ++counted;
                lock.unlock();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(counted, kThreads * kRounds);
}

TEST(RecursiveLockTest, its_owner_may_take_it_again) {
    RecursiveLock lock;
    bool has_other_been_inside = false;
    lock.lock();
    lock.lock();
    std::thread other([&] {
        lock.lock();
        has_other_been_inside = true;
        lock.unlock();
    });
    lock.unlock();
    EXPECT_FALSE(has_other_been_inside);  // still taken once
    lock.unlock();
    other.join();
    EXPECT_TRUE(has_other_been_inside);
}

}  // namespace
}  // namespace tagwire::ucs
