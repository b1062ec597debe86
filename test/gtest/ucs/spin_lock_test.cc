// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/spin_lock.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tagwire::ucs {
namespace {

template <class Take>
void count_by(Take take) {
    constexpr int kThreads = 4, kRounds = 20000;
    SpinLock lock;
    int counted = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < kRounds; ++round) {
                take(lock);
                ++counted;
                lock.unlock();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(counted, kThreads * kRounds);
}

TEST(SpinLockTest, one_thread_at_a_time_is_inside) {
    count_by([](SpinLock& lock) { lock.lock(); });
}

TEST(SpinLockTest, one_thread_at_a_time_is_inside_by_trying) {
    count_by([](SpinLock& lock) {
        while (!lock.try_lock())
            std::this_thread::yield();
    });
}

TEST(SpinLockTest, a_taken_lock_cannot_be_taken_by_trying) {
    SpinLock lock;
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

}  // namespace
}  // namespace tagwire::ucs
