// SPDX-License-Identifier: BSD-3-Clause
// The model of the wait protocol (protocols/worker/wait_protocol.hpp): threads of one worker, its
// lock and its descriptors. Descriptors and the loops around the protocol are those of wakeup.cc,
// facade_wait.cc and politeness.cc, as far as they matter.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "protocols/worker/wait_protocol.hpp"

namespace tagwire::test {

/// A descriptor: readable until that is taken.
class DetLevel {
  public:
    void raise() { level_.store(1); }
    void take() { level_.exchange(0); }
    bool is_raised() const { return level_.load() != 0; }

  private:
    DetAtomic<std::uint32_t> level_{0};
};

/// A word of the transport: a thread naps until it changes.
struct ModelNapWord {
    mutable DetAtomic<std::uint32_t> wakes{0};
    void wake() const { wakes.fetch_add(1); }
};

struct ModelEvent {
    using Word = ModelNapWord;
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
enum class Flaw {
    kNone,
    kRingsBeforeItCounts,
    kDoesNotSettle,
    kNapTakesSignals,
    kNapIsHidden,
    kNapHasNoEvent,
    kNapsAtOnce,
    kSleepsBesideNobody,
    kIsDeafBeside,
};

class ModelWorker {
  public:
    using Protocol = proto::WaitProtocol<ModelWorker, ModelEvent>;
    using Waiter = proto::BasicWaiter<ModelEvent>;

    explicit ModelWorker(Flaw flaw) : flaw_(flaw) {}

    // ---- For the protocol
    bool has_work() const { return work_ > 0; }
    ucs_status_t take_and_arm() {
        rung_.take();
        return arm_transport();
    }
    std::uint64_t signals() const { return signals_.load(std::memory_order_acquire); }
    std::uint64_t ends() const { return ends_; }
    void ring() { rung_.raise(); }
    void count_wake_ups(unsigned number) { wake_ups_ += number; }
    bool has_one_lock() const { return true; }
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
        protocol_.progress(thread);
        Wakes wakes;
        settle(thread, false, wakes);
        lock_.unlock();
        wakes.write();
    }
    /// A thread that polls until `is_over()`.
    template <class IsOver>
    void poll(std::uintptr_t thread, const IsOver& is_over) {
        pollers_.fetch_add(1);
        while (!is_over())
            progress(thread);
        pollers_.fetch_sub(1);
    }
    bool have_ended(std::uint64_t wanted) {
        lock_.lock();
        const bool have = ends_ >= wanted;
        lock_.unlock();
        return have;
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
    /// The same of a program that waits for a signal, and progresses on the way. `is_told` is set
    /// before the signal.
    void poll_until_told(std::uintptr_t thread, const DetAtomic<std::uint32_t>& is_told,
                         DetRun& run) {
        while (is_told.load() == 0) {
            progress(thread);
            if (run.random(2) == 0 && arm_nap(thread) != nullptr)
                end_nap(thread);  // its bound has ended it
            lock_.lock();
            const bool is_armed = !is_in_progress_ && protocol_.arm(thread) == UCS_OK;
            settle(thread, false);
            lock_.unlock();
            if (is_armed)
                det::block_until([this] { return is_readable(); });
        }
    }
    /// Polls and naps, as progress of a polite worker does, until so much has ended. A nap has no
    /// bound here.
    void nap_until(std::uintptr_t thread, std::uint64_t wanted) {
        for (;;) {
            progress(thread);
            lock_.lock();
            const bool is_over = ends_ >= wanted;
            lock_.unlock();
            if (is_over)
                return;
            const ModelEvent* const event = arm_nap(thread);
            if (event == nullptr)
                continue;
            det::block_until([this, event] {
                return is_readable() || (flaw_ != Flaw::kNapHasNoEvent && event->level.is_raised());
            });
            end_nap(thread);
        }
    }
    /// The same where the nap is on the transport, which other threads do not arm, and on a word of
    /// it or on the thread's event.
    void nap_on_transport_until(std::uintptr_t thread, std::uint64_t wanted, bool has_word) {
        for (;;) {
            progress(thread);
            lock_.lock();
            const bool is_over = ends_ >= wanted;
            const bool naps = !is_over && !is_in_progress_ && !protocol_.has_news_for_nap(thread) &&
                              !has_work() && arm_transport() == UCS_OK;
            ModelEvent* const event = &protocol_.event_of(thread);
            const std::uint32_t value = word_.wakes.load();
            if (naps)
                protocol_.begin_nap(thread, has_word ? &word_ : nullptr);
            settle(thread, false);
            lock_.unlock();
            if (is_over)
                return;
            if (!naps)
                continue;
            const auto is_woken = [&] {
                return has_word ? word_.wakes.load() != value : event->level.is_raised();
            };
            det::block_until([&is_woken, this] {
                return transport_.is_raised() || (flaw_ != Flaw::kNapHasNoEvent && is_woken());
            });
            if (event->level.is_raised())
                event->take();
            end_nap(thread);
        }
    }
    /// As tw_wait_any(): until so much has ended.
    void wait_until(std::uintptr_t thread, std::uint64_t wanted, bool may_be_interrupted = false) {
        struct Question {
            const ModelWorker& worker;
            std::uint64_t wanted;
        } question{*this, wanted};
        const auto is_there = [](void* arg) {
            const Question& one = *static_cast<const Question*>(arg);
            return one.worker.ends_ >= one.wanted;
        };
        wait(thread, may_be_interrupted, [&](Waiter&, bool) { return is_there(&question); },
             {is_there, &question});
    }
    /// As tw_worker_wait(): until anything has happened since the thread's last wait.
    void wait_for_news(std::uintptr_t thread, bool may_be_interrupted = false) {
        const auto is_over = [this](Waiter& me, bool was_interrupted) {
            const std::uint64_t now = signals();
            if (ends_ == me.seen_ends && now == me.seen_signals && !was_interrupted)
                return false;
            me.seen_ends = ends_;
            me.seen_signals = now;
            return true;
        };
        wait(thread, may_be_interrupted, is_over, {});
    }
    /// Wake-ups of threads by others.
    unsigned wake_ups() const { return wake_ups_; }

  private:
    /// The thread's event; null: there is something to do.
    ModelEvent* arm_nap(std::uintptr_t thread) {
        lock_.lock();
        const bool keeps_signals = flaw_ != Flaw::kNapTakesSignals;
        const bool has_news = protocol_.has_news_for_nap(thread) && flaw_ != Flaw::kNapsAtOnce;
        const bool is_armed =
            !is_in_progress_ && !has_news && protocol_.arm_nap(thread, keeps_signals) == UCS_OK;
        settle(thread, false);
        if (is_armed)
            protocol_.begin_nap(thread, nullptr);
        if (is_armed && flaw_ == Flaw::kNapIsHidden)
            protocol_.end_nap(thread);
        ModelEvent& event = protocol_.event_of(thread);
        lock_.unlock();
        return is_armed ? &event : nullptr;
    }
    void end_nap(std::uintptr_t thread) {
        lock_.lock();
        ModelEvent& event = protocol_.event_of(thread);
        lock_.unlock();
        if (event.level.is_raised())
            event.take();
        lock_.lock();
        protocol_.end_nap(thread);
        lock_.unlock();
    }
    ucs_status_t arm_transport() {
        transport_.take();
        is_transport_armed_.store(1);
        if (came_.load() == seen_)
            return UCS_OK;
        is_transport_armed_.store(0);
        return UCS_ERR_BUSY;
    }
    bool is_readable() const { return rung_.is_raised() || transport_.is_raised(); }
    using Wakes = proto::BasicWakes<ModelEvent>;
    void settle(std::uintptr_t thread, bool leaves_work, Wakes& wakes) {
        if (flaw_ != Flaw::kDoesNotSettle && !is_in_progress_)
            protocol_.settle(thread, leaves_work, wakes);
    }
    void settle(std::uintptr_t thread, bool leaves_work) {
        Wakes wakes;
        settle(thread, leaves_work, wakes);
    }

    void wait(std::uintptr_t thread, bool may_be_interrupted,
              const std::function<bool(Waiter&, bool)>& is_over, const proto::Wanted& wanted) {
        std::uint64_t told_of = 0;
        bool was_interrupted = false;
        for (;;) {
            proto::SleepsOn on;
            Wakes wakes;
            lock_.lock();
            Waiter& me = protocol_.wake_up(thread, std::exchange(told_of, 0));
            bool has_ended = is_over(me, was_interrupted);
            if (!has_ended && !is_in_progress_) {
                protocol_.progress_for(me, true);
                has_ended = is_over(me, was_interrupted);
            }
            bool sleeps = !has_ended;
            if (sleeps && is_in_progress_)
                on = protocol_.fall_asleep_amid_callback(me, wanted);
            else if (sleeps)
                sleeps = protocol_.fall_asleep(me, wanted, &on) == UCS_OK;
            me.waits = !has_ended;
            if (protocol_.is_watched())
                settle(thread, false, wakes);
            lock_.unlock();
            wakes.write();
            if (has_ended)
                return;
            was_interrupted = false;
            if (!sleeps)
                continue;
            const bool is_beside = on.ns_max != proto::SleepsOn::kUnlimited;
            // The time beside threads that poll is over when none does.
            const auto is_told = [&] {
                return is_beside ? (rung_.is_raised() && flaw_ != Flaw::kIsDeafBeside) ||
                                       (pollers_.load() == 0 && flaw_ != Flaw::kSleepsBesideNobody)
                                 : on.arming != 0 && is_readable();
            };
            const auto is_awake = [&] {
                return is_told() || me.event.level.is_raised() ||
                       (may_be_interrupted && interrupted_.is_raised());
            };
            // By one reference, which needs no memory: a schedule that fails is abandoned here.
            det::block_until([&is_awake] { return is_awake(); });
            if (me.event.level.is_raised())
                me.event.take();
            if (is_told()) {
                told_of = is_beside ? proto::SleepsOn::kNotBeside : on.arming;
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
    ModelNapWord word_;
    DetAtomic<std::uint64_t> signals_{0}, came_{0};
    DetAtomic<std::uint32_t> is_transport_armed_{0}, pollers_{0};
    unsigned wake_ups_ = 0;
};

}  // namespace tagwire::test
