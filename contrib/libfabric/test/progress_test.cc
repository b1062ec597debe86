// SPDX-License-Identifier: BSD-3-Clause
// FI_PROGRESS_AUTO for data: what is begun ends, whoever progresses it.
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr int kAutoLooks = 20'000;
constexpr std::size_t kLongBytes = std::size_t{1} << 20;

class FiProgress : public Pair {
  protected:
    void open_auto(Wanted wanted = {}) {
        wanted.data_progress = FI_PROGRESS_AUTO;
        open(wanted);
    }
    /// The next entry, while nobody progresses the other endpoint; false: it did not come.
    static bool comes(fid_cq* cq) {
        for (int look = 0; look < kAutoLooks; ++look) {
            fi_cq_tagged_entry entry{};
            if (fi_cq_read(cq, &entry, 1) == 1)
                return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
    }
};

/// The threads of this process, the calling one apart.
std::vector<std::string> other_threads() {
    std::vector<std::string> found;
    DIR* const tasks = opendir("/proc/self/task");
    while (const dirent* task = readdir(tasks))
        if (task->d_name[0] != '.' && task->d_name != std::to_string(gettid()))
            found.emplace_back(task->d_name);
    closedir(tasks);
    return found;
}

bool is_asleep(const std::string& thread) {
    std::ifstream stat("/proc/self/task/" + thread + "/stat");
    std::string text;
    std::getline(stat, text);
    return text.find(") S ") != std::string::npos;
}

TEST_F(FiProgress, a_peer_that_never_looks_receives) {
    for (const fi_threading threading :
         {FI_THREAD_DOMAIN, FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT}) {
        open_auto({.tx_op_flags = FI_DELIVERY_COMPLETE, .threading = threading});
        EXPECT_EQ(info->domain_attr->threading, threading);
        Text got(kLongBytes, ' ');
        trecv(got, 1);
        const Text sent = text_of(kLongBytes);
        retry([&] {
            return fi_tsend(a.ep.get(), sent.data(), sent.size(), nullptr, to_b, 1, nullptr);
        });
        EXPECT_TRUE(comes(a.tx.get())) << "only b's progress can end it";
        EXPECT_EQ(fi_cq_read(b.rx.get(), nullptr, 0), 0) << "an entry waits";
        EXPECT_EQ(got, sent);
        close();
    }
}

TEST_F(FiProgress, who_waits_for_a_counter_alone_is_told) {
    open_auto({.threading = FI_THREAD_SAFE, .has_counters = true});
    Text got(kLongBytes, ' ');
    trecv(got, 1);
    const Text sent = text_of(kLongBytes);
    retry(
        [&] { return fi_tsend(a.ep.get(), sent.data(), sent.size(), nullptr, to_b, 1, nullptr); });
    EXPECT_EQ(fi_cntr_wait(b.rx_cntr.get(), 1, 60'000), 0);
    EXPECT_EQ(got, sent);
}

TEST_F(FiProgress, who_waits_for_an_entry_is_woken_by_what_the_thread_finds) {
    open_auto({.threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD});
    constexpr int kMessages = 200;
    for (int i = 0; i < kMessages; ++i)
        ASSERT_EQ(fi_trecv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    std::thread sender([&] {
        for (int i = 0; i < kMessages; ++i)
            while (fi_tinject(a.ep.get(), nullptr, 0, to_b, 1) == -FI_EAGAIN)
                std::this_thread::yield();
    });
    for (int i = 0; i < kMessages; ++i) {
        fi_cq_tagged_entry entry{};
        ASSERT_EQ(fi_cq_sread(b.rx.get(), &entry, 1, nullptr, 60'000), 1);
    }
    sender.join();
}

/// The fast ways of calls are for domains that one thread uses.
TEST_F(FiProgress, calls_of_the_program_and_the_thread_do_not_meet) {
    for (const fi_cq_format format : {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_TAGGED}) {
        open_auto({.format = format});
        for (int i = 0; i < 2000; ++i) {
            char got[8];
            const auto tag = static_cast<std::uint64_t>(i);
            ASSERT_EQ(fi_trecv(b.ep.get(), got, sizeof got, nullptr, to_a, tag, 0, nullptr), 0);
            retry([&] { return fi_tsend(a.ep.get(), "message", 8, nullptr, to_b, tag, nullptr); });
            next(a.tx);
            next(b.rx);
            ASSERT_STREQ(got, "message");
        }
        close();
    }
}

TEST_F(FiProgress, endpoints_come_and_go_beside_the_thread) {
    open_auto();
    for (int i = 0; i < 50; ++i) {
        Name name{};
        const auto third = open_third(&name);
        fi_addr_t addr = FI_ADDR_NOTAVAIL;
        ASSERT_EQ(fi_av_insert(av.get(), name.data(), 1, &addr, 0, nullptr), 1);
        ASSERT_EQ(fi_trecv(third.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
        retry([&] { return fi_tinject(a.ep.get(), nullptr, 0, addr, 1); });
        ASSERT_TRUE(comes(b.rx.get()));
        ASSERT_EQ(fi_av_remove(av.get(), &addr, 1, 0), 0);
    }
}

TEST_F(FiProgress, a_thread_is_there_for_who_asked_and_sleeps_while_there_is_nothing_to_do) {
    const std::vector<std::string> before = other_threads();
    open();
    EXPECT_EQ(other_threads(), before);
    close();
    open_auto();
    std::vector<std::string> threads = other_threads();
    ASSERT_EQ(threads.size(), before.size() + 1);
    std::erase_if(threads, [&](const std::string& one) {
        return std::find(before.begin(), before.end(), one) != before.end();
    });
    int asleep = 0;
    for (int look = 0; look < kAutoLooks && asleep < 20; ++look) {
        asleep = is_asleep(threads.front()) ? asleep + 1 : 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(asleep, 20);
    close();
    EXPECT_EQ(other_threads(), before);
}

TEST_F(FiProgress, a_domain_closes_whatever_its_thread_does) {
    for (int i = 0; i < 30; ++i) {
        open_auto({.threading = i % 2 == 0 ? FI_THREAD_DOMAIN : FI_THREAD_SAFE,
                   .is_inserted = i % 3 == 0});
        close();
    }
}

/// Nothing is closed: the thread has to end before the libraries do.
TEST_F(FiProgress, a_program_may_exit_as_it_is) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            open_auto();
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
}

#if !defined(__SANITIZE_ADDRESS__)  // whose search for leaks counts threads that a child lacks

/// False: it did not exit soon, or not as it should.
bool exits(pid_t child) {
    int status = -1;
    for (int look = 0; look < kAutoLooks; ++look) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

/// A child has neither the thread nor the one that has taken the domain's lock.
TEST_F(FiProgress, a_child_of_the_program_may_exit_as_it_is) {
    open_auto({.threading = FI_THREAD_SAFE});
    std::atomic<bool> is_over = false;
    std::thread other([&] {
        while (!is_over.load(std::memory_order_relaxed))
            fi_cq_read(a.tx.get(), nullptr, 0);
    });
    bool all_exit = true;
    for (int i = 0; i < 5 && all_exit; ++i) {
        const pid_t child = fork();
        if (child == 0)
            std::exit(0);
        all_exit = exits(child);
    }
    EXPECT_TRUE(all_exit);
    is_over.store(true, std::memory_order_relaxed);
    other.join();
}

#endif

}  // namespace

}  // namespace tagwire::fi_test
