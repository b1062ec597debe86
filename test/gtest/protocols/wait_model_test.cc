// SPDX-License-Identifier: BSD-3-Clause
// The wait protocol (protocols/worker/wait_protocol.hpp) in every order in which threads may take
// the worker's lock, sleep, signal, be interrupted, and messages may come. A wake-up that is lost
// is a deadlock, which the scheduler finds.
#include "protocols/wait_model.hpp"

namespace tagwire::test {
namespace {

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

// ---- Beside threads that poll

template <Flaw kFlaw>
void sleepers_beside_a_thread_that_polls(DetRun& run) {
    ModelWorker worker(kFlaw);
    auto calls = static_cast<unsigned>(run.random(20));  // then it polls no more
    run.spawn([&] { worker.wait_until(1, 1); });
    run.spawn([&] { worker.wait_until(2, 3); });
    run.spawn([&] { worker.poll(3, [&] { return worker.have_ended(3) || calls-- == 0; }); });
    run.spawn([&] {
        worker.message();
        worker.message();
        worker.message();
    });
    run.run();
}

TEST(WaitModel, a_sleeper_beside_a_thread_that_polls_hears_of_its_end) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              sleepers_beside_a_thread_that_polls<Flaw::kNone>));
}

TEST(WaitModel, a_sleeper_that_did_not_look_itself_would_miss_that_nobody_polls) {
    EXPECT_TRUE(
        fails_with("deadlock", sleepers_beside_a_thread_that_polls<Flaw::kSleepsBesideNobody>));
}

template <Flaw kFlaw>
void a_signal_beside_a_thread_that_polls(DetRun& run) {
    ModelWorker worker(kFlaw);
    DetAtomic<std::uint32_t> has_heard{0};
    run.spawn([&] {
        worker.wait_for_news(1);
        has_heard.store(1);
    });
    run.spawn([&] { worker.poll(2, [&] { return has_heard.load() != 0; }); });
    run.spawn([&] { worker.signal(); });
    run.run();
}

TEST(WaitModel, a_signal_ends_a_wait_beside_a_thread_that_polls) {
    EXPECT_TRUE(always_passes({.schedules = schedules(10'000)},
                              a_signal_beside_a_thread_that_polls<Flaw::kNone>));
}

TEST(WaitModel, a_sleeper_beside_a_thread_that_polls_would_miss_signals_by_its_own_event_alone) {
    EXPECT_TRUE(fails_with("livelock", a_signal_beside_a_thread_that_polls<Flaw::kIsDeafBeside>));
}

/// The thread that polls takes every message, and the other one waits for the last.
TEST(WaitModel, a_thread_that_polls_wakes_nobody_for_what_others_wait_for) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(3'000), .steps_max = 200'000}, [](DetRun& run) {
            constexpr unsigned kMessages = 40, kWakeUpsMax = 2;  // that somebody polls, and the end
            ModelWorker worker(Flaw::kNone);
            run.spawn([&] { worker.wait_until(1, kMessages); });
            run.spawn([&] { worker.poll(2, [&] { return worker.have_ended(kMessages); }); });
            run.spawn([&] {
                for (unsigned i = 0; i < kMessages; ++i)
                    worker.message();
            });
            run.run();
            run.check(worker.wake_ups() <= kWakeUpsMax,
                      "one that waits for the last is woken for others");
        }));
}

// ---- Naps

template <Flaw kFlaw>
void two_threads_that_nap(DetRun& run) {
    ModelWorker worker(kFlaw);
    run.spawn([&] { worker.nap_until(1, 1); });
    run.spawn([&] { worker.nap_until(2, 2); });
    run.spawn([&] {
        worker.message();
        worker.message();
    });
    run.run();
}

TEST(WaitModel, a_message_ends_the_naps_of_all_threads) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, two_threads_that_nap<Flaw::kNone>));
}

TEST(WaitModel, a_nap_at_the_first_wish_would_miss_an_end_that_another_thread_saw) {
    EXPECT_TRUE(fails_with("deadlock", two_threads_that_nap<Flaw::kNapsAtOnce>));
}

/// The next message comes when the end of the first one has been seen by whom it is for.
template <Flaw kFlaw>
void one_naps_on_behind_the_end_of_the_other(DetRun& run) {
    ModelWorker worker(kFlaw);
    run.spawn([&] { worker.nap_until(1, 2); });
    run.spawn([&] {
        worker.nap_until(2, 1);
        worker.message();
    });
    run.spawn([&] { worker.message(); });
    run.run();
}

TEST(WaitModel, an_end_that_another_thread_saw_ends_a_nap) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              one_naps_on_behind_the_end_of_the_other<Flaw::kNone>));
}

TEST(WaitModel, a_nap_on_the_descriptor_alone_would_miss_an_end_that_another_thread_saw) {
    EXPECT_TRUE(
        fails_with("deadlock", one_naps_on_behind_the_end_of_the_other<Flaw::kNapHasNoEvent>));
}

TEST(WaitModel, naps_and_sleeps_of_threads_take_nobodys_wake_up) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        ModelWorker worker(Flaw::kNone);
        run.spawn([&] { worker.nap_until(1, 2); });
        run.spawn([&] { worker.wait_until(2, 1); });
        run.spawn([&] { worker.wait_until(3, 2); });
        run.spawn([&] { worker.message(); });
        run.spawn([&] { worker.message(); });
        run.run();
    }));
}

TEST(WaitModel, a_program_that_polls_the_descriptor_is_woken_beside_a_thread_that_naps) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        ModelWorker worker(Flaw::kNone);
        run.spawn([&] { worker.poll_until(1, 1); });
        run.spawn([&] { worker.nap_until(2, 2); });
        run.spawn([&] {
            worker.message();
            worker.message();
        });
        run.run();
    }));
}

template <Flaw kFlaw>
void work_begins_beside_a_nap(DetRun& run) {
    ModelWorker worker(kFlaw);
    run.spawn([&] { worker.nap_until(1, 2); });
    run.spawn([&] {
        worker.begin(2);
        worker.begin(2);
    });
    run.run();
}

TEST(WaitModel, work_that_a_call_leaves_ends_a_nap) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(30'000)}, work_begins_beside_a_nap<Flaw::kNone>));
}

template <Flaw kFlaw, bool kHasWord>
void work_begins_beside_a_nap_on_the_transport(DetRun& run) {
    ModelWorker worker(kFlaw);
    run.spawn([&] { worker.nap_on_transport_until(1, 3, kHasWord); });
    run.spawn([&] {
        worker.begin(2);
        worker.begin(2);
    });
    run.spawn([&] { worker.message(); });
    run.run();
}

TEST(WaitModel, work_that_a_call_leaves_ends_a_nap_on_the_transport) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              work_begins_beside_a_nap_on_the_transport<Flaw::kNone, false>));
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              work_begins_beside_a_nap_on_the_transport<Flaw::kNone, true>));
}

TEST(WaitModel, a_nap_on_the_transport_alone_would_miss_work_that_a_call_leaves) {
    EXPECT_TRUE(fails_with("deadlock",
                           work_begins_beside_a_nap_on_the_transport<Flaw::kNapHasNoEvent, false>));
    EXPECT_TRUE(fails_with("deadlock",
                           work_begins_beside_a_nap_on_the_transport<Flaw::kNapHasNoEvent, true>));
}

/// Each takes what wakes the other: one that naps, one that sleeps.
template <bool kHasWord>
void naps_on_the_transport_and_sleeps(DetRun& run) {
    ModelWorker worker(Flaw::kNone);
    run.spawn([&] { worker.nap_on_transport_until(1, 2, kHasWord); });
    run.spawn([&] { worker.nap_on_transport_until(2, 1, kHasWord); });
    run.spawn([&] { worker.wait_until(3, 2); });
    run.spawn([&] {
        worker.message();
        worker.message();
    });
    run.run();
}

TEST(WaitModel, naps_on_the_transport_and_sleeps_take_nobodys_wake_up) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(30'000)}, naps_on_the_transport_and_sleeps<false>));
    EXPECT_TRUE(
        always_passes({.schedules = schedules(30'000)}, naps_on_the_transport_and_sleeps<true>));
}

TEST(WaitModel, a_nap_that_others_do_not_know_of_would_go_on) {
    EXPECT_TRUE(fails_with("deadlock", work_begins_beside_a_nap<Flaw::kNapIsHidden>));
}

/// The thread that progresses is the one that the signal is for: as a loop over the descriptor.
template <Flaw kFlaw>
void a_signal_to_a_program_that_naps(DetRun& run) {
    ModelWorker worker(kFlaw);
    DetAtomic<std::uint32_t> is_told{0};
    run.spawn([&] { worker.poll_until_told(1, is_told, run); });
    run.spawn([&] {
        is_told.store(1);
        worker.signal();
    });
    run.run();
}

TEST(WaitModel, a_nap_leaves_a_signal_to_whom_it_is_for) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              a_signal_to_a_program_that_naps<Flaw::kNone>));
}

TEST(WaitModel, a_nap_that_took_a_signal_would_leave_the_program_asleep) {
    EXPECT_TRUE(fails_with("deadlock", a_signal_to_a_program_that_naps<Flaw::kNapTakesSignals>));
}

}  // namespace
}  // namespace tagwire::test
