// SPDX-License-Identifier: BSD-3-Clause
//
// A seeded deterministic scheduler for lock-free code, with a model of weak memory, like folly's
// DeterministicSchedule: code whose atomics are a template parameter runs on fibers of one thread,
// a switch is possible before every atomic operation, and the seed decides everything.
//
// The model (see det_atomic.hpp for the operations):
//   - Every thread has a store buffer. Relaxed and release stores wait in it and become visible
//     later, so that a store may pass later loads of its thread, which itself sees it at once. A
//     release store becomes visible after all earlier ones; a relaxed one may pass earlier stores
//     to other places (on Arm it does), unless DetOptions::stores_in_order asks for x86's order.
//   - Sequentially consistent stores, all read-modify-writes and DetFences::store_load() drain the
//     thread's buffer; DetFences::membarrier() drains all buffers, as membarrier(2) does.
//   - Loads read the newest visible value. A missing acquire or release, which breaks code on Arm,
//     is found by vector clocks: two accesses of DetPlain data that nothing orders are a failure.
//
// Use: write the code under test as `template <template <class> class Atom, class Fences>`,
// instantiate it with DetAtomic and DetFences, and explore schedules of a scenario:
//
//     const DetResult result = det_explore({.schedules = 20'000}, [](DetRun& run) {
//         Ring<DetAtomic, DetFences> ring;  // fresh for every schedule; must outlive run()
//         run.spawn([&] { ring.send(1); });
//         run.spawn([&] { run.check(ring.receive() == 1, "received what was sent"); });
//         run.run();  // until all threads have ended and all stores are visible
//         run.check(ring.empty(), "nothing left");  // operations act directly outside of threads
//     });
//     EXPECT_TRUE(result.ok()) << result.message;
//
// A schedule fails by check(), by a data race, when threads wait for each other (deadlock), and
// when it takes more than steps_max steps (livelock). The message then names seed and step;
// TAGWIRE_TEST_SEED=<seed> makes every det_explore run that one schedule and print each step.
// TAGWIRE_TEST_SCHEDULES=<n> replaces the number of schedules.
//
// Threads of a failed schedule, and those that died (spawn_mortal), are abandoned: their
// destructors do not run, so what they share should be owned by the scenario.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tagwire::test {

struct DetOptions {
    std::uint64_t seed = 1;  // of the first schedule; the others follow from it
    std::size_t schedules = 10'000;
    std::size_t steps_max = 20'000;  // of one schedule
    std::size_t buffered_stores_max = 8;
    bool stores_in_order = false;
};

struct DetResult {
    std::size_t schedules = 0;  // that ran; exploring ends with the first that fails
    std::uint64_t steps = 0;
    bool failed = false;
    std::uint64_t seed = 0;  // of the failed schedule
    std::string message;
    bool ok() const { return !failed; }
};

class DetScheduler;

/** One schedule of a scenario. */
class DetRun {
  public:
    static constexpr std::size_t kThreadsMax = 8;

    explicit DetRun(DetScheduler& scheduler) : scheduler_(scheduler) {}

    void spawn(std::function<void()> body);

    /** A thread that in half of the schedules dies before one of its first `steps_max` steps, as by
     * kill -9: it stops for ever, its issued stores still become visible. */
    void spawn_mortal(std::function<void()> body, std::size_t steps_max);

    /** Runs the threads; false when the schedule failed. */
    bool run();

    /** In a thread: `condition` is false, so the schedule ends here as failed. Outside: it is noted
     * as failed. */
    void check(bool condition, const char* what);

    /** Whether the thread that was spawned as number `thread` has died. */
    bool died(std::size_t thread) const;

    /** Below `limit`; from the seed, for scenarios that vary. */
    std::uint64_t random(std::uint64_t limit);

  private:
    DetScheduler& scheduler_;
};

DetResult det_explore(const DetOptions& options, const std::function<void(DetRun&)>& scenario);

/** Calls of the operations of det_atomic.hpp to the scheduler. */
namespace det {

/** Whether the caller is a thread of a running schedule; otherwise operations act directly. */
bool in_thread();

std::uint64_t load(const void* address, std::size_t bytes, std::memory_order order);
void store(void* address, std::size_t bytes, std::uint64_t bits, std::memory_order order);

/** Before a read-modify-write; after it the caller reads and writes memory directly, and reports
 * what it did. */
void begin_update(const void* address);
void end_update(const void* address, bool written, std::memory_order order);

void fence();
void fence_everybody();
void pause();
bool one_in(std::uint64_t n);

void plain_read(const void* address, std::size_t bytes);
void plain_write(const void* address, std::size_t bytes);

/** Waits until `ready()`; it sees visible values. A schedule where all wait for ever is a deadlock.
 */
void block_until(const std::function<bool()>& ready);

}  // namespace det
}  // namespace tagwire::test
