// SPDX-License-Identifier: BSD-3-Clause
// The wait protocol (protocols/worker/wait_protocol.hpp) in every order in which threads may take
// the worker's lock, sleep, signal, be interrupted, and messages may come. A wake-up that is lost
// is a deadlock, which the scheduler finds. The descriptors and the loop around the protocol are
// those of wakeup.cc and facade_wait.cc, as far as they matter.
#include <cstdint>
#include <functional>
#include <utility>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "protocols/worker/wait_protocol.hpp"

namespace tagwire::test {
namespace {

/// A descriptor: readable until that is taken.
class DetLevel {
  public:
    void raise() { level_.store(1); }
    void take() { level_.exchange(0); }
    bool is_raised() const { return level_.load() != 0; }

  private:
    DetAtomic<std::uint32_t> level_{0};
};

struct ModelEvent {
    DetLevel level;
    void wake() { level.raise(); }
    void take() { level.take(); }
};

class WaitLock {
  public:
    void lock() {
        while (held_.exchange(1) != 0)
            det::block_until([this] { return held_.load() == 0; });
    }
    void unlock() { held_.store(0); }

  private:
    DetAtomic<std::uint32_t> held_{0};
};

/// Flaws of a worker, for tests that show that the model would find them.
enum class Flaw { kNone, kRingsBeforeItCounts, kDoesNotSettle };

class ModelWorker {
  public:
    using Protocol = proto::WaitProtocol<ModelWorker, ModelEvent>;
    using Waiter = proto::BasicWaiter<ModelEvent>;

    explicit ModelWorker(Flaw flaw) : flaw_(flaw) {}

    // ---- For the protocol
    bool has_work() const { return work_ > 0; }
    ucs_status_t take_and_arm() {
        rung_.take();
        transport_.take();
        is_transport_armed_.store(1);
        if (came_.load() == seen_)
            return UCS_OK;
        is_transport_armed_.store(0);
        return UCS_ERR_BUSY;
    }
    std::uint64_t signals() const { return signals_.load(std::memory_order_acquire); }
    std::uint64_t ends() const { return ends_; }
    void ring() { rung_.raise(); }
    unsigned progress_all() {
        const std::uint64_t came = came_.load();
        const auto moved =
            static_cast<unsigned>(came - std::exchange(seen_, came)) + std::exchange(work_, 0U);
        ends_ += moved;
        if (moved > 0) {  // a callback
            is_in_progress_ = true;
            lock_.unlock();
            lock_.lock();
            is_in_progress_ = false;
        }
        return moved;
    }

    // ---- Without the lock
    /// A message comes: progress ends an operation by it.
    void message() {
        came_.fetch_add(1);
        if (is_transport_armed_.exchange(0) != 0)
            transport_.raise();
    }
    void signal() {
        if (flaw_ == Flaw::kRingsBeforeItCounts)
            ring();
        signals_.fetch_add(1, std::memory_order_release);
        if (flaw_ != Flaw::kRingsBeforeItCounts)
            ring();
    }
    /// As by a signal handler: the sleep of a thread ends, if it sleeps.
    void interrupt() { interrupted_.raise(); }

    // ---- The calls of threads
    void progress(std::uintptr_t thread) {
        lock_.lock();
        if (is_in_progress_) {
            lock_.unlock();
            return;
        }
        protocol_.call_in(thread);
        progress_all();
        settle(thread, false);
        lock_.unlock();
    }
    /// A call that leaves something to progress.
    void begin(std::uintptr_t thread) {
        lock_.lock();
        ++work_;
        settle(thread, true);
        lock_.unlock();
    }
    /// Sleeps on the descriptor alone, by tw_worker_arm(), until so much has ended.
    void poll_until(std::uintptr_t thread, std::uint64_t wanted) {
        for (;;) {
            progress(thread);
            lock_.lock();
            const bool is_over = ends_ >= wanted;
            const bool is_armed = !is_over && !is_in_progress_ && protocol_.arm(thread) == UCS_OK;
            settle(thread, false);
            lock_.unlock();
            if (is_over)
                return;
            if (is_armed)
                det::block_until([this] { return is_readable(); });
        }
    }
    /// As tw_wait_any(): until so much has ended.
    void wait_until(std::uintptr_t thread, std::uint64_t wanted, bool may_be_interrupted = false) {
        wait(thread, may_be_interrupted, [this, wanted](Waiter&, bool) { return ends_ >= wanted; });
    }
    /// As tw_worker_wait(): until anything has happened since the thread's last wait.
    void wait_for_news(std::uintptr_t thread, bool may_be_interrupted = false) {
        wait(thread, may_be_interrupted, [this](Waiter& me, bool was_interrupted) {
            const std::uint64_t now = signals();
            if (ends_ == me.seen_ends && now == me.seen_signals && !was_interrupted)
                return false;
            me.seen_ends = ends_;
            me.seen_signals = now;
            return true;
        });
    }

  private:
    bool is_readable() const { return rung_.is_raised() || transport_.is_raised(); }
    void settle(std::uintptr_t thread, bool leaves_work) {
        if (flaw_ != Flaw::kDoesNotSettle && !is_in_progress_)
            protocol_.settle(thread, leaves_work);
    }

    void wait(std::uintptr_t thread, bool may_be_interrupted,
              const std::function<bool(Waiter&, bool)>& is_over) {
        std::uint64_t told_of = 0;
        bool was_interrupted = false;
        for (;;) {
            std::uint64_t arming = 0;
            lock_.lock();
            Waiter& me = protocol_.wake_up(thread, std::exchange(told_of, 0));
            bool has_ended = is_over(me, was_interrupted);
            if (!has_ended && !is_in_progress_) {
                protocol_.progress_for(me);
                has_ended = is_over(me, was_interrupted);
            }
            bool sleeps = !has_ended;
            if (sleeps && is_in_progress_)
                protocol_.fall_asleep_beside(me);
            else if (sleeps)
                sleeps = protocol_.fall_asleep(me, &arming) == UCS_OK;
            me.waits = !has_ended;
            if (protocol_.is_watched())
                settle(thread, false);
            lock_.unlock();
            if (has_ended)
                return;
            was_interrupted = false;
            if (!sleeps)
                continue;
            const auto is_awake = [&] {
                return (arming != 0 && is_readable()) || me.event.level.is_raised() ||
                       (may_be_interrupted && interrupted_.is_raised());
            };
            // By one reference, which needs no memory: a schedule that fails is abandoned here.
            det::block_until([&is_awake] { return is_awake(); });
            if (arming != 0 && is_readable()) {
                told_of = arming;
            } else if (may_be_interrupted && interrupted_.is_raised()) {
                interrupted_.take();
                was_interrupted = true;
            }
        }
    }

    const Flaw flaw_;
    WaitLock lock_;
    Protocol protocol_{*this};
    std::uint64_t ends_ = 0, seen_ = 0;  // with the lock
    bool is_in_progress_ = false;        // ... when it is released for a callback
    unsigned work_ = 0;
    DetLevel rung_, transport_, interrupted_;
    DetAtomic<std::uint64_t> signals_{0}, came_{0};
    DetAtomic<std::uint32_t> is_transport_armed_{0};
};

template <Flaw kFlaw>
void sleepers_and_messages(DetRun& run) {
    ModelWorker worker(kFlaw);
    run.spawn([&] { worker.wait_until(1, 1); });
    run.spawn([&] { worker.wait_until(2, 2); });
    run.spawn([&] { worker.wait_until(3, 3); });
    run.spawn([&] {
        worker.message();
        worker.message();
    });
    run.spawn([&] { worker.message(); });
    run.run();
}

template <Flaw kFlaw>
void a_signal_between_look_and_sleep(DetRun& run) {
    ModelWorker worker(kFlaw);
    run.spawn([&] { worker.wait_for_news(1); });
    run.spawn([&] { worker.wait_for_news(2); });
    run.spawn([&] { worker.signal(); });
    run.run();
}

TEST(WaitModel, each_of_several_sleepers_hears_of_its_end) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(30'000)}, sleepers_and_messages<Flaw::kNone>));
}

TEST(WaitModel, a_signal_ends_the_wait_of_every_thread) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              a_signal_between_look_and_sleep<Flaw::kNone>));
}

TEST(WaitModel, a_signal_that_rings_before_it_counts_would_be_lost) {
    EXPECT_TRUE(
        fails_with("deadlock", a_signal_between_look_and_sleep<Flaw::kRingsBeforeItCounts>));
}

TEST(WaitModel, a_call_that_does_not_settle_would_leave_others_asleep) {
    EXPECT_TRUE(fails_with("deadlock", sleepers_and_messages<Flaw::kDoesNotSettle>));
}

TEST(WaitModel, progress_of_a_thread_that_leaves_takes_nobodys_end_away) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        ModelWorker worker(Flaw::kNone);
        run.spawn([&] { worker.wait_until(1, 1); });
        run.spawn([&] { worker.wait_until(2, 2); });
        run.spawn([&] {
            worker.progress(3);
            worker.progress(3);
        });
        run.spawn([&] {
            worker.message();
            worker.message();
        });
        run.run();
    }));
}

TEST(WaitModel, work_that_a_call_leaves_wakes_a_sleeper) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        ModelWorker worker(Flaw::kNone);
        run.spawn([&] { worker.wait_until(1, 2); });
        run.spawn([&] { worker.wait_until(2, 3); });
        run.spawn([&] {
            worker.begin(3);
            worker.begin(3);
        });
        run.spawn([&] { worker.message(); });
        run.run();
    }));
}

TEST(WaitModel, an_interrupted_thread_takes_nobodys_wake_up) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        ModelWorker worker(Flaw::kNone);
        run.spawn([&] { worker.wait_for_news(1, true); });
        run.spawn([&] { worker.wait_until(2, 1); });
        run.spawn([&] { worker.wait_until(3, 2, true); });
        run.spawn([&] { worker.interrupt(); });
        run.spawn([&] {
            worker.message();
            worker.message();
        });
        run.run();
    }));
}

TEST(WaitModel, a_thread_that_polls_the_descriptor_hears_of_what_others_begin) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        ModelWorker worker(Flaw::kNone);
        run.spawn([&] { worker.poll_until(1, 2); });
        run.spawn([&] {
            worker.begin(2);
            worker.progress(2);
        });
        run.spawn([&] { worker.message(); });
        run.run();
    }));
}

}  // namespace
}  // namespace tagwire::test
