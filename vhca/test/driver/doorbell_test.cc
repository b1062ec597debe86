// SPDX-License-Identifier: BSD-3-Clause
// Doorbell trap: a thread that sleeps on it misses no store to a doorbell page, and no store waits
// for ever.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "common/skip.hpp"
#include "ucs/sys/shm.hpp"
#include "vhca/driver/doorbell_trap.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr int kPatienceMs = 20'000;  // only a doorbell that was missed takes so long

void ring(std::byte* page) {
    *reinterpret_cast<volatile std::uint64_t*>(page + 0x800) = 1;
}

// The thread of a device that has nothing else to do: looks at the record, and sleeps.
class Sleeper {
  public:
    explicit Sleeper(DoorbellTrap* trap) : trap_(trap), thread_([this] { run(); }) {}
    ~Sleeper() {
        is_done_ = true;
        thread_.join();
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    /// Posts a record and rings; true when the sleeper saw it.
    bool post(std::byte* page) {
        const unsigned mine = record_.fetch_add(1) + 1;
        ring(page);
        while (seen_.load() < mine) {
            if (is_late_)
                return false;
            std::this_thread::yield();
        }
        return true;
    }
    unsigned sleeps() const { return sleeps_; }

  private:
    bool look() {
        const unsigned posted = record_.load();
        return seen_.exchange(posted) != posted;
    }

    void run() {
        while (!is_done_) {
            if (look())
                continue;
            const bool is_closed = trap_->close();
            if (!look()) {
                ++sleeps_;
                is_closed ? sleep() : nap();
            }
            trap_->attend();
        }
    }

    static void nap() { ::poll(nullptr, 0, 1); }

    void sleep() {
        constexpr int kSliceMs = 10;
        for (int waited = 0; waited < kPatienceMs && !is_done_; waited += kSliceMs) {
            pollfd one{.fd = trap_->fd(), .events = POLLIN, .revents = 0};
            if (::poll(&one, 1, kSliceMs) != 0)
                return;
        }
        is_late_ = !is_done_;
    }

    DoorbellTrap* trap_;
    std::atomic<unsigned> record_{0}, seen_{0}, sleeps_{0};
    std::atomic<bool> is_done_{false}, is_late_{false};
    std::thread thread_;
};

/// This thread, and those that it makes, share a processor.
class OneProcessor {
  public:
    OneProcessor() {
        EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(::sched_getcpu(), &one);
        EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    }
    ~OneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }
    OneProcessor(const OneProcessor&) = delete;
    OneProcessor& operator=(const OneProcessor&) = delete;

  private:
    cpu_set_t before_{};
};

class VhcaDoorbell : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(ucs::memfd_create_sealed("doorbells", kBytes, &memfd_), UCS_OK);
        trap_.watch(memfd_.get(), kBytes);
        if (trap_.fd() < 0)
            TW_SKIP("no userfaultfd here");
    }
    void TearDown() override {
        trap_.unwatch(memfd_.get());
        for (const auto& [base, bytes] : mappings_)
            ::munmap(base, bytes);
    }

    std::byte* map(std::size_t page, std::size_t pages = 1) {
        void* base = ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED,
                            memfd_.get(), static_cast<off_t>(page * kPage));
        EXPECT_NE(base, MAP_FAILED);
        mappings_.emplace_back(base, pages * kPage);
        DoorbellTrap::note_command();
        return static_cast<std::byte*>(base);
    }
    bool is_readable(int wait_ms = 0) {
        pollfd one{.fd = trap_.fd(), .events = POLLIN, .revents = 0};
        return ::poll(&one, 1, wait_ms) == 1;
    }
    /// Until all stores are noticed.
    void close() {
        while (!trap_.close())
            ::poll(nullptr, 0, 1);  // as the device naps then
    }
    /// Whether a store to `page` waits for attend(), which this does.
    bool is_noticed(std::byte* page) {
        close();
        std::thread program([=] { ring(page); });
        const bool noticed = is_readable(kPatienceMs);
        trap_.attend();
        program.join();
        return noticed;
    }

    const std::size_t kPage = ucs::page_bytes();
    ucs::UniqueFd memfd_;
    DoorbellTrap trap_;
    std::vector<std::pair<void*, std::size_t>> mappings_;
};

TEST_F(VhcaDoorbell, no_store_is_missed_by_one_who_sleeps) {
    std::byte* const page = map(0);
    Sleeper sleeper(&trap_);
    for (int round = 0; round < 3000; ++round)
        ASSERT_TRUE(sleeper.post(page)) << "round " << round;
    EXPECT_GT(sleeper.sleeps(), 0U);
}

TEST_F(VhcaDoorbell, no_store_of_several_threads_and_pages_is_missed) {
    constexpr std::size_t kThreads = 3;
    // Two of one page, and one far behind.
    const std::vector<std::byte*> pages{map(3), map(3), map(0x600)};
    Sleeper sleeper(&trap_);
    std::atomic<unsigned> missed{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 1000 && missed == 0; ++round)
                missed += sleeper.post(pages[i]) ? 0 : 1;
        });
    }
    for (std::thread& one : threads)
        one.join();
    EXPECT_EQ(missed, 0U);
}

TEST_F(VhcaDoorbell, store_makes_it_readable_before_the_thread_goes_on) {
    std::byte* const page = map(0);
    std::atomic<bool> went_on{false};
    close();
    EXPECT_FALSE(is_readable());
    std::thread program([&] {
        ring(page);
        went_on = true;
    });
    EXPECT_TRUE(is_readable(kPatienceMs));
    EXPECT_FALSE(went_on);
    trap_.attend();
    program.join();
    ring(page);  // waits for nobody
    EXPECT_FALSE(is_readable());
}

// On one processor the thread of the device may be back at close() before the program stored: a
// page that is taken away then is missed once more, and so on.
TEST_F(VhcaDoorbell, a_store_waits_once_also_on_a_processor_that_is_shared) {
    std::byte* const page = map(0);
    const OneProcessor pinned;
    for (int round = 0; round < 200; ++round) {
        close();
        std::atomic<bool> went_on{false};
        std::thread program([&] {
            ring(page);
            went_on = true;
        });
        ASSERT_TRUE(is_readable(kPatienceMs));
        EXPECT_TRUE(trap_.attend());
        close();
        EXPECT_FALSE(trap_.attend()) << "it waited twice in round " << round;
        program.join();
        EXPECT_TRUE(went_on);
    }
}

TEST_F(VhcaDoorbell, a_store_to_another_page_waits_until_it_is_attended_to) {
    std::byte* const page = map(0);
    std::byte* const other = map(1);
    EXPECT_TRUE(is_noticed(page));
    std::thread program([=] { ring(other); });
    EXPECT_TRUE(is_readable(kPatienceMs));
    ring(page);  // waits for nobody
    EXPECT_TRUE(trap_.attend());
    program.join();
    EXPECT_TRUE(is_noticed(page));
    EXPECT_TRUE(is_noticed(other));
}

// Drivers store no zeros to a doorbell. A program that does must not keep the page open.
TEST_F(VhcaDoorbell, a_store_of_nothing_does_not_keep_the_page_open) {
    std::byte* const page = map(0);
    close();
    std::thread program([=] { *reinterpret_cast<volatile std::uint64_t*>(page + 0x800) = 0; });
    EXPECT_TRUE(is_readable(kPatienceMs));
    trap_.attend();
    program.join();
    EXPECT_FALSE(trap_.close());
    int calls = 0;
    while (!trap_.close())
        ASSERT_LT(++calls, 10'000);
    EXPECT_TRUE(is_noticed(page));
}

TEST_F(VhcaDoorbell, mappings_are_found_however_they_came) {
    std::byte* const first = map(0);
    EXPECT_TRUE(is_noticed(first));
    std::byte* const second = map(7);
    EXPECT_TRUE(is_noticed(second));
    EXPECT_TRUE(is_noticed(first));

    void* const moved = ::mremap(second, kPage, 2 * kPage, MREMAP_MAYMOVE);
    ASSERT_NE(moved, MAP_FAILED);
    mappings_.back() = {moved, 2 * kPage};
    DoorbellTrap::note_command();
    EXPECT_TRUE(is_noticed(static_cast<std::byte*>(moved) + kPage));

    ASSERT_EQ(::munmap(mappings_.front().first, kPage), 0);
    EXPECT_TRUE(is_noticed(static_cast<std::byte*>(moved)));
    void* const again =
        ::mmap(first, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd_.get(), 0);
    ASSERT_EQ(again, first);
    DoorbellTrap::note_command();
    EXPECT_TRUE(is_noticed(first));
}

TEST_F(VhcaDoorbell, looking_for_mappings_opens_no_descriptor) {
    EXPECT_TRUE(is_noticed(map(0)));
    std::byte* const page = map(1);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    close();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(is_noticed(page));
    EXPECT_GE(trap_.fd(), 0);
}

TEST_F(VhcaDoorbell, unmapping_while_it_is_closed_leaves_nothing_behind) {
    std::byte* const page = map(0);
    std::byte* const other = map(1);
    close();
    ASSERT_EQ(::munmap(page, kPage), 0);
    mappings_.erase(mappings_.begin());
    std::thread program([=] { ring(other); });
    EXPECT_TRUE(is_readable(kPatienceMs));
    trap_.attend();
    program.join();
    EXPECT_TRUE(is_noticed(other));
}

TEST_F(VhcaDoorbell, large_mapping_takes_no_memory) {
    constexpr std::size_t kPages = 10'000;
    std::byte* const pages = map(0, kPages);
    EXPECT_TRUE(is_noticed(pages + (kPages - 1) * kPage));
    EXPECT_TRUE(is_noticed(pages));
    EXPECT_TRUE(is_noticed(pages + 17 * kPage));
    struct stat file {};
    ASSERT_EQ(::fstat(memfd_.get(), &file), 0);
    EXPECT_LE(file.st_blocks * 512, static_cast<blkcnt_t>(8 * kPage));
}

TEST_F(VhcaDoorbell, a_page_that_is_to_be_kept_stays) {
    trap_.unwatch(memfd_.get());
    constexpr std::size_t kKept = 5;
    const std::uint64_t told = 0x1234;
    const auto where = static_cast<off_t>(kKept * kPage);
    ASSERT_EQ(::pwrite(memfd_.get(), &told, sizeof told, where), ssize_t{sizeof told});
    trap_.watch(memfd_.get(), kBytes, kKept * kPage);
    const auto expect_kept = [&] {
        std::uint64_t now = 0;
        EXPECT_EQ(::pread(memfd_.get(), &now, sizeof now, where), ssize_t{sizeof now});
        EXPECT_EQ(now, told);
    };
    for (const std::size_t page : {kKept - 1, kKept + 1, std::size_t{0x600}}) {
        std::byte* const mapped = map(page);  // all pages are taken away then
        EXPECT_TRUE(is_noticed(mapped));
        expect_kept();
        EXPECT_TRUE(is_noticed(mapped));  // and these one by one
        expect_kept();
    }
}

TEST_F(VhcaDoorbell, forgotten_file_holds_nobody_up) {
    std::byte* const page = map(0);
    close();
    std::thread program([=] { ring(page); });
    EXPECT_TRUE(is_readable(kPatienceMs));
    trap_.unwatch(memfd_.get());
    program.join();
    ring(page);
    trap_.attend();
    EXPECT_TRUE(trap_.close());
    ring(page);
    EXPECT_FALSE(is_readable());
}

TEST_F(VhcaDoorbell, file_of_another_device_stays_watched) {
    ucs::UniqueFd other;
    ASSERT_EQ(ucs::memfd_create_sealed("doorbells", kBytes, &other), UCS_OK);
    trap_.watch(other.get(), kBytes);
    std::byte* const page = map(0);
    trap_.unwatch(other.get());
    EXPECT_TRUE(is_noticed(page));
}

TEST_F(VhcaDoorbell, child_stores_without_waiting) {
    std::byte* const page = map(0);
    close();
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        ring(page);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    trap_.attend();
    EXPECT_TRUE(is_noticed(page));
}

TEST_F(VhcaDoorbell, system_call_never_waits) {
    std::byte* const page = map(0);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], "12345678", 8), 8);
    close();
    const ssize_t got = ::read(ends[0], page, 8);
    EXPECT_TRUE(got == 8 || (got < 0 && errno == EFAULT));
    trap_.attend();
    ::close(ends[0]);
    ::close(ends[1]);
}

}  // namespace
}  // namespace tagwire::vhca::driver
