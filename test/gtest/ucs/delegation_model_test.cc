// SPDX-License-Identifier: BSD-3-Clause
// The lock with delegated jobs (ucs/sys/delegation_lock.hpp) in every order in which threads may
// take their steps, with a model of weak memory: one thread is inside at a time, and each job is
// done once, by then or before the lock is free, in the order of its thread. Jobs and calls may end
// operations, whose callbacks call in again: each is told once, outside of all jobs and callbacks.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "ucs/sys/delegation_lock.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kThreads = 3;

template <std::memory_order kOrder, std::uint64_t kJobs>
struct DelegationEnv {
    template <class T>
    using Atom = DetAtomic<T>;
    using Job = DetPlain<std::uint64_t>;
    static constexpr std::uint64_t kRoom = kJobs;
    static constexpr std::memory_order kLeave = kOrder;
    static constexpr unsigned kPatience = 1;
    static void pause(unsigned) { DetFences::pause(); }
    static void yield() { DetFences::pause(); }
};
using DelegationRight = DelegationEnv<std::memory_order_release, 2>;
using LeavesRelaxed = DelegationEnv<std::memory_order_relaxed, 2>;

/// Threads that do things one after the other, numbered, by themselves or by the lock's owner.
template <class Env>
class DelegationWorld {
  public:
    explicit DelegationWorld(DetRun& run) : run_(run) {}

    /// For a moment, or by whoever has it for longer.
    void act(std::uint64_t thread) {
        const std::uint64_t job = next(thread);
        const auto how =
            lock_.lock_briefly_or_delegate([&](DetPlain<std::uint64_t>& place) { place = job; });
        if (how == ucs::Delegated::kYes) {
            ++delegated;
            return;
        }
        enact(job);
        lock_.unlock_briefly();
    }
    /// For longer, and open.
    void act_for_long(std::uint64_t thread) {
        lock_.lock();
        hold(thread);
    }
    /// As progress does it. False: another thread does.
    bool try_act_for_long(std::uint64_t thread) {
        if (!lock_.try_lock()) {
            lock_.is_taken_for_long();
            return false;
        }
        hold(thread);
        lock_.give_way();
        return true;
    }
    /// As around a callback: the lock is free in between.
    void act_twice_for_long(std::uint64_t thread) {
        lock_.lock();
        lock_.open();
        enact(next(thread));
        leave();
        lock_.lock_behind_others();
        hold(thread);
    }
    /// Outside of threads.
    void check() {
        for (std::uint64_t thread = 0; thread < kThreads; ++thread)
            run_.check(done_[thread] == begun_[thread], "everything was done");
        run_.check(lock_.try_lock(), "the lock is free");
    }

    unsigned delegated = 0;

  private:
    std::uint64_t next(std::uint64_t thread) { return thread * 100 + ++begun_[thread]; }
    void hold(std::uint64_t thread) {
        lock_.open();
        enact(next(thread));
        leave();
    }
    void leave() {
        lock_.unlock([this](const DetPlain<std::uint64_t>& job) { enact(job); });
    }
    void enact(std::uint64_t job) {
        DetPlain<std::uint64_t>& done = done_[job / 100];
        run_.check(done + 1 == job % 100, "in the order of the thread, and once");
        done = done + 1;
        all_ = all_ + 1;
    }

    DetRun& run_;
    ucs::DelegationLock<Env> lock_{true};
    std::array<std::uint64_t, kThreads> begun_{};  // each by its thread
    std::array<DetPlain<std::uint64_t>, kThreads> done_{};
    DetPlain<std::uint64_t> all_{0};
};

template <class Env>
void an_owner_and_two_who_come(DetRun& run) {
    DelegationWorld<Env> model(run);
    run.spawn([&] {
        model.act_for_long(0);
        model.act(0);
    });
    for (std::uint64_t thread = 1; thread < kThreads; ++thread) {
        run.spawn([&model, thread] {
            for (int i = 0; i < 3; ++i)
                model.act(thread);
        });
    }
    if (run.run())
        model.check();
}

TEST(DelegationModel, what_two_threads_delegate_is_done_before_the_lock_is_free) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              an_owner_and_two_who_come<DelegationRight>));
}

TEST(DelegationModel, owners_follow_each_other_and_let_others_in) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        DelegationWorld<DelegationRight> model(run);
        run.spawn([&] { model.act_twice_for_long(0); });
        run.spawn([&] {
            model.act(1);
            model.act_for_long(1);
            model.act(1);
        });
        run.spawn([&] {
            while (!model.try_act_for_long(2))
                DetFences::pause();
            model.act(2);
        });
        if (run.run())
            model.check();
    }));
}

TEST(DelegationModel, some_schedule_delegates) {
    unsigned delegated = 0;
    EXPECT_TRUE(always_passes({.schedules = 1000}, [&](DetRun& run) {
        DelegationWorld<DelegationRight> model(run);
        run.spawn([&] { model.act_for_long(0); });
        run.spawn([&] { model.act(1); });
        if (run.run())
            model.check();
        delegated += model.delegated;
    }));
    EXPECT_GT(delegated, 0U);
}

TEST(DelegationModel, an_owner_that_left_without_order_would_race_with_the_next) {
    EXPECT_TRUE(fails_with("race", an_owner_and_two_who_come<LeavesRelaxed>));
}

/// A worker whose calls each end one operation with a callback. Progress tells the ends, without
/// the lock, and the callback makes a call. As WorkerCore, RequestTable and Unlocked do it.
template <bool kTellsAtOnce>
class TellingWorld {
  public:
    explicit TellingWorld(DetRun& run) : run_(run) {}

    void call() {
        const auto how =
            lock_.lock_briefly_or_delegate([](DetPlain<std::uint64_t>& job) { job = 1; });
        if (how == ucs::Delegated::kYes)
            return;
        ended_ = ended_ + 1;
        lock_.unlock_briefly();
    }
    /// False: another thread does.
    bool progress() {
        lock_.lock();
        lock_.open();
        if (is_in_progress_) {
            leave();
            return false;
        }
        is_in_progress_ = true;
        ended_ = ended_ + 1;
        tell();
        is_in_progress_ = false;
        leave();
        return true;
    }
    /// Outside of threads: so many calls of threads and of callbacks have ended.
    void check(std::uint64_t calls) {
        tell();
        run_.check(ended_ == calls, "each call is carried out once");
        run_.check(told_ == calls, "each end is told once");
    }

  private:
    void leave() {
        lock_.unlock([this](const DetPlain<std::uint64_t>& job) {
            is_in_job_ = true;
            ended_ = ended_ + job;
            if (kTellsAtOnce && is_in_progress_)
                tell();
            is_in_job_ = false;
        });
    }
    void tell() {
        while (told_ != ended_) {
            run_.check(!is_in_job_, "no callback runs in a job");
            run_.check(!is_in_callback_, "callbacks do not nest");
            told_ = told_ + 1;
            if (told_ > kCallbacksThatCall)
                continue;
            is_in_callback_ = true;
            leave();
            call();
            lock_.lock_behind_others();
            lock_.open();
            is_in_callback_ = false;
        }
    }

  public:
    static constexpr std::uint64_t kCallbacksThatCall = 2;

  private:
    DetRun& run_;
    ucs::DelegationLock<DelegationRight> lock_{true};
    DetPlain<std::uint64_t> ended_{0}, told_{0};
    DetPlain<bool> is_in_progress_{false}, is_in_job_{false}, is_in_callback_{false};
};

template <bool kTellsAtOnce>
void progress_and_two_who_call(DetRun& run) {
    using World = TellingWorld<kTellsAtOnce>;
    World model(run);
    std::uint64_t progressed = 0;  // calls, of one thread
    run.spawn([&] {
        for (int i = 0; i < 2; ++i)
            progressed += model.progress() ? 1 : 0;
    });
    for (int thread = 0; thread < 2; ++thread) {
        run.spawn([&] {
            for (int i = 0; i < 2; ++i)
                model.call();
        });
    }
    if (run.run())
        model.check(progressed + 4 + World::kCallbacksThatCall);
}

TEST(DelegationModel, ends_that_jobs_bring_about_are_told_once_outside_of_them) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, progress_and_two_who_call<false>));
}

TEST(DelegationModel, an_end_that_was_told_at_once_would_leave_the_lock_in_a_job) {
    EXPECT_TRUE(fails_with("no callback runs in a job", progress_and_two_who_call<true>));
}

// ---- Threads that take it again at once

/// As DelegationRight. It notes how often a thread that waits has looked in vain. A pause is longer
/// than a store takes to become visible.
struct CountingEnv : DelegationRight {
    static void pause(unsigned spins) {
        most_looks = std::max(most_looks, spins);
        DetFences::store_load();
        DetFences::pause();
    }
    static inline unsigned most_looks = 0;  // of one wait
};
using CountingLock = ucs::DelegationLock<CountingEnv>;

constexpr unsigned kLooksMax = 24;

/// Between two times that a thread has the lock: as behind a call that waits or progresses, as
/// around a callback, and the flaw.
enum class Again { kGivesWay, kBehindOthers, kAtOnce };

/// Has the lock again and again until the other threads have had it.
template <Again kAgain>
void take_again_and_again(CountingLock& lock, DetPlain<std::uint64_t>& inside,
                          const DetAtomic<std::uint64_t>& waiting, DetRun& run) {
    const auto carry_out = [&](const DetPlain<std::uint64_t>& job) { inside = inside + job; };
    while (waiting.load() > 0) {
        kAgain == Again::kBehindOthers ? lock.lock_behind_others() : lock.lock();
        inside = inside + 1;
        lock.unlock(carry_out);
        if (kAgain == Again::kGivesWay)
            lock.give_way();
        run.check(CountingEnv::most_looks <= kLooksMax, "a thread is kept out");
    }
}

/// One that waits again at once, and others that want the lock once: for longer, for a moment, or
/// to have a call carried out.
template <Again kAgain>
void one_keeps_taking_it(DetRun& run) {
    CountingEnv::most_looks = 0;
    CountingLock lock(true);
    DetPlain<std::uint64_t> inside{0};
    const std::uint64_t wish = run.random(3);
    DetAtomic<std::uint64_t> waiting{1 + run.random(2)};
    run.spawn([&] { take_again_and_again<kAgain>(lock, inside, waiting, run); });
    for (std::uint64_t left = waiting.load(); left > 0; --left) {
        run.spawn([&] {
            const auto carry_out = [&](const DetPlain<std::uint64_t>&) {};
            const auto fill = [](DetPlain<std::uint64_t>& job) { job = 1; };
            if (wish == 0) {
                lock.lock();
                inside = inside + 1;
                lock.unlock(carry_out);
            } else if (wish == 1) {
                lock.lock_briefly();
                inside = inside + 1;
                lock.unlock_briefly();
            } else if (lock.lock_briefly_or_delegate(fill) == ucs::Delegated::kNo) {
                inside = inside + 1;
                lock.unlock_briefly();
            }
            waiting.fetch_sub(1);
        });
    }
    run.run();
}

TEST(DelegationModel, a_thread_that_waits_again_at_once_keeps_nobody_out) {
    const DetOptions options{.schedules = schedules(5000), .steps_max = 200'000};
    EXPECT_TRUE(always_passes(options, one_keeps_taking_it<Again::kGivesWay>));
}

TEST(DelegationModel, a_thread_whose_callbacks_follow_each_other_keeps_nobody_out) {
    const DetOptions options{.schedules = schedules(5000), .steps_max = 200'000};
    EXPECT_TRUE(always_passes(options, one_keeps_taking_it<Again::kBehindOthers>));
}

TEST(DelegationModel, a_thread_that_gave_nobody_way_would_keep_others_out) {
    const DetResult result =
        det_explore({.schedules = 5000, .steps_max = 200'000}, one_keeps_taking_it<Again::kAtOnce>);
    EXPECT_TRUE(result.failed) << "no schedule failed";
    EXPECT_NE(result.message.find("kept out"), std::string::npos) << result.message;
}

}  // namespace
}  // namespace tagwire::test
