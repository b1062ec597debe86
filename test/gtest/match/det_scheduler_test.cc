// SPDX-License-Identifier: BSD-3-Clause
//
// The scheduler finds what it exists to find, and does not find what is not there: litmus tests of
// its memory model.

#include "common/det_scheduler.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "common/det_atomic.hpp"

namespace tagwire::test {
namespace {

using testing::AssertionResult;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

AssertionResult never_fails(const std::function<void(DetRun&)>& scenario, DetOptions options = {}) {
    const DetResult result = det_explore(options, scenario);
    if (result.ok())
        return testing::AssertionSuccess() << result.schedules << " schedules";
    return testing::AssertionFailure() << result.message;
}

/** Some schedule fails with a message that contains `what`; it fails again, alike, from its seed.
 */
AssertionResult fails_alike_with(const std::string& what,
                                 const std::function<void(DetRun&)>& scenario,
                                 DetOptions options = {}) {
    const DetResult result = det_explore(options, scenario);
    if (result.ok())
        return testing::AssertionFailure() << "no schedule failed";
    if (result.message.find(what) == std::string::npos)
        return testing::AssertionFailure() << result.message;
    options.seed = result.seed;
    options.schedules = 1;
    const DetResult again = det_explore(options, scenario);
    if (again.message != result.message)
        return testing::AssertionFailure() << "a replay gave: " << again.message;
    return testing::AssertionSuccess() << result.message;
}

struct NoFences : DetFences {
    static void store_load() {}
};

/** Dekker's core: each says that it comes, then looks whether the other does. Both must not miss
 * each other. */
template <template <class> class Atom, class FirstFences, class SecondFences>
void store_buffer_litmus(DetRun& run) {
    Atom<int> x{0}, y{0};
    int seen_y = -1, seen_x = -1;
    run.spawn([&] {
        x.store(1, kRelease);
        FirstFences::store_load();
        seen_y = y.load(kAcquire);
    });
    run.spawn([&] {
        y.store(1, kRelease);
        SecondFences::store_load();
        seen_x = x.load(kAcquire);
    });
    if (run.run())
        run.check(seen_y == 1 || seen_x == 1, "both missed each other");
}

TEST(DetScheduler, stores_pass_later_loads_without_a_fence) {
    EXPECT_TRUE(
        fails_alike_with("both missed", store_buffer_litmus<DetAtomic, NoFences, NoFences>));
}

TEST(DetScheduler, one_fence_of_two_is_not_enough) {
    EXPECT_TRUE(
        fails_alike_with("both missed", store_buffer_litmus<DetAtomic, DetFences, NoFences>));
}

TEST(DetScheduler, stores_do_not_pass_later_loads_across_fences) {
    EXPECT_TRUE(never_fails(store_buffer_litmus<DetAtomic, DetFences, DetFences>));
}

struct MembarrierFences : DetFences {
    static void store_load() { membarrier(); }
};

TEST(DetScheduler, membarrier_on_one_side_replaces_the_fence_of_the_other) {
    EXPECT_TRUE(never_fails(store_buffer_litmus<DetAtomic, MembarrierFences, NoFences>));
}

TEST(DetScheduler, sequentially_consistent_stores_are_visible_at_once) {
    EXPECT_TRUE(never_fails([](DetRun& run) {
        DetAtomic<int> x{0}, y{0};
        int seen_y = -1, seen_x = -1;
        run.spawn([&] {
            x = 1;
            seen_y = y;
        });
        run.spawn([&] {
            y = 1;
            seen_x = x;
        });
        if (run.run())
            run.check(seen_y == 1 || seen_x == 1, "both missed each other");
    }));
}

TEST(DetScheduler, a_thread_sees_its_own_stores_at_once) {
    EXPECT_TRUE(never_fails([](DetRun& run) {
        DetAtomic<int> x{0};
        run.spawn([&] {
            x.store(1, kRelaxed);
            x.store(2, kRelaxed);
            run.check(x.load(kRelaxed) == 2, "own store seen");
            run.check(x.fetch_add(1, kRelaxed) == 2, "own store updated");
        });
        run.spawn([&] { x.load(kRelaxed); });
        if (run.run())
            run.check(x.load() == 3, "the last value stays");
    }));
}

/** The reader that sees the flag reads the data. */
template <std::memory_order kStore, std::memory_order kLoad>
void message_passing(DetRun& run) {
    DetPlain<int> data{0};
    DetAtomic<bool> flag{false};
    run.spawn([&] {
        data = 42;
        flag.store(true, kStore);
    });
    run.spawn([&] {
        while (!flag.load(kLoad))
            DetFences::pause();
        run.check(data == 42, "the data is there");
    });
    run.run();
}

TEST(DetScheduler, a_release_store_passes_data_to_an_acquire_load) {
    EXPECT_TRUE(never_fails(message_passing<kRelease, kAcquire>));
}

TEST(DetScheduler, a_relaxed_store_or_load_does_not_pass_data) {
    EXPECT_TRUE(fails_alike_with("data race", message_passing<kRelaxed, kAcquire>));
    EXPECT_TRUE(fails_alike_with("data race", message_passing<kRelease, kRelaxed>));
}

TEST(DetScheduler, fences_pass_data_between_relaxed_accesses) {
    EXPECT_TRUE(never_fails([](DetRun& run) {
        DetPlain<int> data{0};
        DetAtomic<bool> flag{false};
        run.spawn([&] {
            data = 42;
            DetFences::store_load();
            flag.store(true, kRelaxed);
        });
        run.spawn([&] {
            while (!flag.load(kRelaxed))
                DetFences::pause();
            DetFences::store_load();
            run.check(data == 42, "the data is there");
        });
        run.run();
    }));
}

TEST(DetScheduler, a_write_after_an_unordered_read_is_a_race) {
    EXPECT_TRUE(fails_alike_with("data race: a write", [](DetRun& run) {
        DetPlain<int> data{0};
        DetAtomic<bool> started{false};
        run.spawn([&] {
            static_cast<void>(static_cast<int>(data));
            started.store(true, kRelaxed);
        });
        run.spawn([&] {
            while (!started.load(kRelaxed))
                DetFences::pause();
            data = 1;
        });
        run.run();
    }));
}

void two_relaxed_stores(DetRun& run) {
    DetAtomic<int> first{0}, second{0};
    run.spawn([&] {
        first.store(1, kRelaxed);
        second.store(1, kRelaxed);
    });
    run.spawn([&] {
        const int seen_second = second.load(kAcquire);
        const int seen_first = first.load(kAcquire);
        run.check(seen_second <= seen_first, "stores seen out of order");
    });
    run.run();
}

TEST(DetScheduler, relaxed_stores_may_be_seen_out_of_order) {
    EXPECT_TRUE(fails_alike_with("out of order", two_relaxed_stores));
}

TEST(DetScheduler, stores_are_seen_in_order_when_asked_for) {
    EXPECT_TRUE(never_fails(two_relaxed_stores, {.stores_in_order = true}));
}

/** A consumer that is about to sleep says so and looks again; a producer that publishes looks
 * whether it sleeps. */
template <template <class> class Atom, class Fences>
void sleep_and_wake(DetRun& run) {
    Atom<int> published{0};
    Atom<bool> sleeps{false};
    DetEvent doorbell;
    run.spawn([&] {
        published.store(1, kRelease);
        Fences::store_load();
        if (sleeps.load(kRelaxed))
            doorbell.signal();
    });
    run.spawn([&] {
        if (published.load(kAcquire) == 1)
            return;
        sleeps.store(true, kRelaxed);
        Fences::store_load();
        if (published.load(kAcquire) == 0)
            doorbell.wait();
        run.check(published.load(kAcquire) == 1, "woken for a reason");
    });
    run.run();
}

TEST(DetScheduler, a_wake_up_is_lost_without_the_fence) {
    EXPECT_TRUE(fails_alike_with("deadlock", sleep_and_wake<DetAtomic, NoFences>));
}

TEST(DetScheduler, no_wake_up_is_lost_with_the_fence) {
    EXPECT_TRUE(never_fails(sleep_and_wake<DetAtomic, DetFences>));
}

TEST(DetScheduler, an_update_in_two_steps_loses_counts) {
    EXPECT_TRUE(fails_alike_with("two counts", [](DetRun& run) {
        DetAtomic<int> count{0};
        for (int i = 0; i < 2; ++i)
            run.spawn([&] { count.store(count.load() + 1); });
        if (run.run())
            run.check(count.load() == 2, "two counts");
    }));
}

TEST(DetScheduler, atomic_updates_lose_nothing) {
    EXPECT_TRUE(never_fails([](DetRun& run) {
        DetAtomic<std::uint32_t> count{0};
        for (int i = 0; i < 2; ++i)
            run.spawn([&] {
                count.fetch_add(1, kRelaxed);
                std::uint32_t old = count.load(kRelaxed);
                while (!count.compare_exchange_weak(old, old + 1, kRelaxed))
                    DetFences::pause();
            });
        if (run.run())
            run.check(count.load() == 4, "four counts");
    }));
}

TEST(DetScheduler, a_spin_that_nothing_ends_is_a_livelock) {
    EXPECT_TRUE(fails_alike_with("livelock",
                                 [](DetRun& run) {
                                     DetAtomic<bool> flag{false};
                                     run.spawn([&] {
                                         while (!flag.load(kAcquire))
                                             DetFences::pause();
                                     });
                                     run.run();
                                 },
                                 {.steps_max = 1000}));
}

/** A mortal thread takes a lock for a moment. */
void lock_with_a_mortal_owner(DetRun& run) {
    DetAtomic<bool> locked{false};
    const auto use_the_lock = [&] {
        while (locked.exchange(true, kAcquire))
            DetFences::pause();
        locked.store(false, kRelease);
    };
    run.spawn_mortal(use_the_lock, 3);
    run.spawn(use_the_lock);
    run.run();
}

TEST(DetScheduler, a_lock_is_lost_with_its_owner) {
    EXPECT_TRUE(fails_alike_with("livelock", lock_with_a_mortal_owner, {.steps_max = 1000}));
}

TEST(DetScheduler, stores_of_the_dead_still_become_visible) {
    EXPECT_TRUE(never_fails([](DetRun& run) {
        DetAtomic<int> x{0};
        DetAtomic<bool> stored{false};
        run.spawn_mortal(
            [&] {
                x.store(1, kRelease);
                stored.load(kRelaxed);
            },
            2);
        run.spawn([&] { x.load(kAcquire); });
        if (!run.run())
            return;
        run.check(x.load() == 1 || run.died(0), "a thread that lives stores");
        run.check(!run.died(1), "only the mortal die");
    }));
}

TEST(DetScheduler, tens_of_thousands_of_schedules_take_a_moment) {
    const DetResult result =
        det_explore({.schedules = 50'000}, store_buffer_litmus<DetAtomic, DetFences, DetFences>);
    EXPECT_TRUE(result.ok()) << result.message;
    RecordProperty("steps", static_cast<int>(result.steps));
}

}  // namespace
}  // namespace tagwire::test
