// SPDX-License-Identifier: BSD-3-Clause
// Several threads that wait for one counter, or for one queue.
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr int kWaiters = 4;
constexpr int kRounds = 200;
/// So that a wake-up that was lost fails the test, and ends it: nothing here takes that long.
constexpr int kLooks = 10'000;
constexpr std::chrono::milliseconds kSoon{1};
constexpr int kNeverMs = 20'000;

/// Counts the threads that have found what they wait for.
class Found {
  public:
    void add() {
        const std::lock_guard guard(lock_);
        ++count_;
        changed_.notify_all();
    }
    /// False: not soon.
    bool reaches(int count) {
        std::unique_lock guard(lock_);
        return changed_.wait_for(guard, kSoon, [&] { return count_ >= count; });
    }

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    int count_ = 0;
};

class FiWaiters : public Pair {
  protected:
    /// `waits(thread)` runs in all threads, round by round; `act(index)` lets one of them find what
    /// it waits for, while the others wait on.
    void in_rounds(const std::function<void(int)>& waits, const std::function<void(int)>& act) {
        Found found;
        std::vector<std::thread> threads;
        for (int thread = 0; thread < kWaiters; ++thread) {
            threads.emplace_back([&, thread] {
                for (int round = 0; round < kRounds; ++round) {
                    waits(round * kWaiters + thread);
                    found.add();
                }
            });
        }
        bool is_found = true;
        for (int i = 0; i < kRounds * kWaiters; ++i) {
            act(i);
            is_found = is_found && sends_until(i + 1, found);
        }
        EXPECT_TRUE(is_found);
        for (std::thread& thread : threads)
            thread.join();
    }

    /// Whoever waits progresses the receiver only.
    bool sends_until(int count, Found& found) {
        for (int look = 0; look < kLooks; ++look) {
            if (found.reaches(count))
                return true;
            fi_cq_read(a.tx.get(), nullptr, 0);
        }
        return false;
    }
};

TEST_F(FiWaiters, each_threshold_of_a_counter_wakes_who_waits_for_it) {
    open({.threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD, .has_counters = true});
    fid_cntr* cntr = a.rx_cntr.get();
    in_rounds(
        [&](int index) {
            EXPECT_EQ(fi_cntr_wait(cntr, static_cast<std::uint64_t>(index) + 1, kNeverMs), 0);
        },
        [&](int) { EXPECT_EQ(fi_cntr_add(cntr, 1), 0); });
}

TEST_F(FiWaiters, a_message_wakes_who_waits_for_its_number) {
    open({.threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD, .has_counters = true});
    for (int i = 0; i < kRounds * kWaiters; ++i)
        EXPECT_EQ(fi_recv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    in_rounds(
        [&](int index) {
            EXPECT_EQ(
                fi_cntr_wait(b.rx_cntr.get(), static_cast<std::uint64_t>(index) + 1, kNeverMs), 0);
        },
        [&](int) { retry([&] { return fi_inject(a.ep.get(), nullptr, 0, to_b); }); });
}

TEST_F(FiWaiters, each_entry_of_a_queue_wakes_one) {
    open({.threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD});
    for (int i = 0; i < kRounds * kWaiters; ++i)
        EXPECT_EQ(fi_recv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    in_rounds(
        [&](int) {
            fi_cq_tagged_entry entry;
            EXPECT_EQ(fi_cq_sread(b.rx.get(), &entry, 1, nullptr, kNeverMs), 1);
        },
        [&](int) { retry([&] { return fi_inject(a.ep.get(), nullptr, 0, to_b); }); });
}

/// One thread polls the descriptor of a counter while others use it.
class FiPollers : public FiWaiters {
  protected:
    void SetUp() override {
        open({.threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD, .has_counters = true});
        cntr_ = a.rx_cntr.get();
        ASSERT_EQ(fi_control(&cntr_->fid, FI_GETWAIT, &fd_), 0);
        fi_cntr_read(cntr_);
        run_some();
        ASSERT_TRUE(run_until([&] { return try_wait() == 0 && !is_readable(); }));
    }
    int try_wait() {
        fid* fids[] = {&cntr_->fid};
        return fi_trywait(fabric.get(), fids, 1);
    }
    bool is_readable() const {
        pollfd polled{fd_, POLLIN, 0};
        return ::poll(&polled, 1, 0) == 1;
    }
    /// In a thread of its own.
    static void elsewhere(const std::function<void()>& act) { std::thread(act).join(); }

    fid_cntr* cntr_ = nullptr;
    int fd_ = -1;
};

TEST_F(FiPollers, another_thread_that_waits_takes_nobodys_wake_up) {
    elsewhere([&] {
        EXPECT_EQ(fi_cntr_add(cntr_, 1), 0);
        EXPECT_EQ(fi_cntr_wait(cntr_, 5, 1), -FI_ETIMEDOUT);
    });
    EXPECT_TRUE(is_readable());
}

TEST_F(FiPollers, another_thread_that_is_to_poll_takes_nobodys_wake_up) {
    elsewhere([&] {
        EXPECT_EQ(fi_cntr_add(cntr_, 1), 0);
        EXPECT_EQ(fi_cntr_read(cntr_), 1U);
        EXPECT_EQ(try_wait(), -FI_EAGAIN) << "before the one that was woken has asked again";
    });
    EXPECT_TRUE(is_readable());
    EXPECT_EQ(fi_cntr_read(cntr_), 1U);
    EXPECT_TRUE(run_until([&] { return try_wait() == 0 && !is_readable(); }))
        << "it has taken the wake-up";
    elsewhere([&] { EXPECT_TRUE(run_until([&] { return try_wait() == 0; })); });
}

TEST_F(FiPollers, who_waits_in_a_call_and_who_polls_are_both_woken) {
    std::thread waiter([&] { EXPECT_EQ(fi_cntr_wait(cntr_, 1, kNeverMs), 0); });
    elsewhere([&] { EXPECT_EQ(fi_cntr_add(cntr_, 1), 0); });
    waiter.join();
    EXPECT_TRUE(is_readable());
}

}  // namespace

}  // namespace tagwire::fi_test
