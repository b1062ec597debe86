// SPDX-License-Identifier: BSD-3-Clause
// Polite progress of a domain: calls of sched_yield() are counted and looked into (libwrites.so).
#include <dlfcn.h>

#include <chrono>
#include <future>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

/// Runs inside sched_yield().
std::function<void()> in_yield;

class FiAway : public Pair {
  protected:
    void SetUp() override {
        yields_ = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "tagwire_yields"));
        on_yield_ = reinterpret_cast<void (*)(void (*)())>(dlsym(RTLD_DEFAULT, "tagwire_on_yield"));
        if (yields_ == nullptr || on_yield_ == nullptr)
            GTEST_SKIP() << "libwrites.so is not preloaded";
        on_yield_([] {
            if (in_yield)
                in_yield();
        });
    }
    void TearDown() override {
        in_yield = nullptr;
        if (on_yield_ != nullptr)
            on_yield_(nullptr);
    }
    void open_locked() {
        Wanted wanted;
        wanted.threading = FI_THREAD_SAFE;
        open(wanted);
    }
    /// `read` again and again, while the other endpoint makes no call, until it yields.
    bool yields(const std::function<void()>& read) {
        constexpr unsigned long kReadsMax = 10'000'000;
        const unsigned long before = yields_();
        for (unsigned long i = 0; i < kReadsMax && yields_() == before; ++i)
            read();
        return yields_() != before;
    }
    void read_queue() {
        fi_cq_tagged_entry entry{};
        EXPECT_EQ(fi_cq_read(a.rx.get(), &entry, 1), -FI_EAGAIN);
    }

    unsigned long (*yields_)() = nullptr;
    void (*on_yield_)(void (*)()) = nullptr;
};

TEST_F(FiAway, a_thread_that_reads_an_empty_queue_yields_while_its_peer_does_not_run) {
    open();
    EXPECT_TRUE(yields([this] { read_queue(); }));
}

TEST_F(FiAway, also_where_the_domain_has_a_lock) {
    open_locked();
    EXPECT_TRUE(yields([this] { read_queue(); }));
}

TEST_F(FiAway, and_one_that_reads_a_counter_that_stands) {
    Wanted wanted;
    wanted.threading = FI_THREAD_SAFE;
    wanted.has_counters = true;
    open(wanted);
    EXPECT_TRUE(yields([this] { fi_cntr_read(a.rx_cntr.get()); }));
}

// Another thread's call ends while the first one is away.
TEST_F(FiAway, a_thread_that_is_away_has_no_lock) {
    open_locked();
    bool has_called = false;
    std::future<ssize_t> call;
    in_yield = [&] {
        if (std::exchange(has_called, true))
            return;
        call = std::async(std::launch::async, [this] { return fi_cancel(&a.ep->fid, nullptr); });
        EXPECT_EQ(call.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    };
    EXPECT_TRUE(yields([this] { read_queue(); }));
    ASSERT_TRUE(has_called);
    EXPECT_EQ(call.get(), -FI_ENOENT);
}

TEST_F(FiAway, a_message_that_is_there_is_taken_first) {
    constexpr unsigned kCallsMax = 600;
    open_locked();
    const unsigned long all_before = yields_();
    fi_cq_tagged_entry entry{};
    for (unsigned calls = 0; calls < kCallsMax; ++calls) {
        for (unsigned i = 0; i < calls; ++i)
            ASSERT_EQ(fi_cq_read(b.rx.get(), &entry, 1), -FI_EAGAIN);
        Text text(3, ' ');
        trecv(text, calls, 0, &text);
        tsend("abc", calls);
        const unsigned long before = yields_();
        ASSERT_EQ(fi_cq_read(b.rx.get(), &entry, 1), 1) << "behind " << calls << " calls";
        EXPECT_EQ(yields_(), before) << "behind " << calls << " calls";
        EXPECT_EQ(text, "abc");
        next(a.tx);
    }
    EXPECT_GT(yields_(), all_before) << "nothing was tried";
}

}  // namespace

}  // namespace tagwire::fi_test
