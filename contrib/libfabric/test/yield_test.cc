// SPDX-License-Identifier: BSD-3-Clause
// Threads that poll in vain give their processor away to those that they wait for, also where
// progress is not polite. Calls of sched_yield() and nanosleep() are counted (libwrites.so).
#include <dlfcn.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr unsigned long kReads = 100;

class FiYields : public Pair {
  protected:
    void SetUp() override {
        yields_ = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "tagwire_yields"));
        if (yields_ == nullptr)
            GTEST_SKIP() << "libwrites.so is not preloaded";
    }
    /// The calls of so many threads that read an empty queue in turn, or do what `read` does.
    unsigned long yields_of(unsigned threads, const std::function<void()>& read) {
        const unsigned long before = yields_();
        std::mutex lock;
        std::condition_variable turn_changed;
        unsigned long turn = 0;
        const auto read_in_turn = [&](unsigned which) {
            for (unsigned long i = which; i < kReads; i += threads) {
                std::unique_lock guard(lock);
                turn_changed.wait(guard, [&] { return turn == i; });
                read();
                ++turn;
                turn_changed.notify_all();
            }
        };
        std::vector<std::thread> readers;
        for (unsigned i = 0; i < threads; ++i)
            readers.emplace_back(read_in_turn, i);
        for (std::thread& reader : readers)
            reader.join();
        return yields_() - before;
    }

    unsigned long yields_of(unsigned threads) {
        return yields_of(threads, [this] {
            fi_cq_tagged_entry entry{};
            EXPECT_EQ(fi_cq_read(a.rx.get(), &entry, 1), -FI_EAGAIN);
        });
    }

    unsigned long (*yields_)() = nullptr;
};

TEST_F(FiYields, threads_that_read_empty_queues_in_turn_yield) {
    Wanted wanted;
    wanted.threading = FI_THREAD_SAFE;
    open(wanted);
    EXPECT_GE(yields_of(4), kReads - 1);
}

TEST_F(FiYields, and_those_that_read_counters_that_stand) {
    Wanted wanted;
    wanted.threading = FI_THREAD_SAFE;
    wanted.has_counters = true;
    open(wanted);
    EXPECT_GE(yields_of(4, [this] { fi_cntr_read(a.rx_cntr.get()); }), kReads - 1);
}

TEST_F(FiYields, one_thread_that_reads_an_empty_queue_does_not_yield) {
    Wanted wanted;
    wanted.threading = FI_THREAD_SAFE;
    open(wanted);
    EXPECT_LE(yields_of(1), 1U);
}

TEST_F(FiYields, nor_do_threads_of_a_domain_that_is_not_locked) {
    open();
    EXPECT_EQ(yields_of(4), 0U);
}

}  // namespace

}  // namespace tagwire::fi_test
