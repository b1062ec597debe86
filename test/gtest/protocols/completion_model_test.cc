// SPDX-License-Identifier: BSD-3-Clause
// Completion queues and counters (protocols/completion) in every order in which producers,
// consumers and sleepers may take their steps, with a model of weak memory. A wake-up that is lost
// is a deadlock, which the scheduler finds.
#include "protocols/completion_model.hpp"

#include <array>
#include <memory>

#include "common/model_fences.hpp"
#include "protocols/completion/counter_protocol.hpp"

namespace tagwire::test {
namespace {

using Right = ModelEnv<std::memory_order_seq_cst, true>;
using PublishesByRelease = ModelEnv<std::memory_order_release, true>;
using PublishesRelaxed = ModelEnv<std::memory_order_relaxed, true>;
using PassesNothingOn = ModelEnv<std::memory_order_seq_cst, false>;

constexpr std::size_t kCapacity = 2;
constexpr unsigned kRequests = 2;

/// A queue, and the workers that fill it, each with few requests.
template <class Env>
class QueueModel {
  public:
    using Kept = typename Env::Kept;

    explicit QueueModel(DetRun& run) : run_(run) {}

    /// The worker's operation number `number` ends. It needs a request; returns false if all are
    /// in the queue.
    bool try_push(unsigned worker, std::uint64_t number) {
        Worker& me = workers_[worker];
        take_back(me);
        if (me.free.empty())
            return false;
        Kept& request = *me.free.back();
        const std::uint64_t begin = history.now(), value = worker * 100 + number;
        request.value = value;
        request.home = &me.returns;
        if (!queue.push(value, request))
            me.free.pop_back();
        history.pushed(value, begin);
        return true;
    }
    void push_all(unsigned worker, unsigned count) {
        for (unsigned i = 0; i < count; ++i)
            while (!try_push(worker, i))
                DetFences::pause();
    }
    /// Takes up to `max` in one call, each an answer of its own.
    unsigned poll(unsigned max) {
        std::array<std::uint64_t, 4> values{};
        const std::uint64_t begin = history.now();
        return note(values, queue.poll(values.data(), max), begin);
    }
    void poll_all(std::size_t wanted, unsigned max) {
        while (taken < wanted)
            if (poll(max) == 0)
                DetFences::pause();
    }
    proto::CqWait wait(unsigned max, std::uint64_t end_ns = UINT64_MAX) {
        std::array<std::uint64_t, 4> values{};
        const std::uint64_t begin = history.now();
        unsigned count = 0;
        const proto::CqWait how = queue.wait_until(values.data(), max, end_ns, &count);
        run_.check((how == proto::CqWait::kSome) == (count > 0), "status and number agree");
        if (count > 0)
            note(values, count, begin);
        return how;
    }
    /// Outside of threads: takes the rest.
    void check() {
        while (poll(1) > 0) {
        }
        const char* wrong = history.wrong();
        run_.check(wrong == nullptr, wrong == nullptr ? "" : wrong);
        for (Worker& worker : workers_) {
            take_back(worker);
            run_.check(worker.free.size() == kRequests, "each request has come back");
        }
    }

    proto::QueueProtocol<Env> queue{kCapacity};
    History history;
    std::size_t taken = 0;

  private:
    struct Worker {
        Worker() {
            for (Kept& request : requests)
                free.push_back(&request);
        }
        std::array<Kept, kRequests> requests;
        std::vector<Kept*> free;
        proto::KeptReturns<Env> returns;
    };

    void take_back(Worker& me) {
        Kept* kept = me.returns.take_all();
        while (kept != nullptr) {
            me.free.push_back(kept);
            kept = kept->next;
        }
    }
    unsigned note(const std::array<std::uint64_t, 4>& values, unsigned count, std::uint64_t begin) {
        for (unsigned i = 0; i < count; ++i) {
            history.popped(values[i], begin);
            for (unsigned later = i + 1; later < count; ++later)
                run_.check(values[i] / 100 != values[later] / 100 || values[i] < values[later],
                           "the order within a call");
        }
        if (count == 0)
            history.popped(std::nullopt, begin);
        taken += count;
        return count;
    }

    DetRun& run_;
    std::array<Worker, 2> workers_;
};

template <class Env>
void producers_and_pollers(DetRun& run) {
    QueueModel<Env> model(run);
    const unsigned max = 1 + static_cast<unsigned>(run.random(3));
    run.spawn([&] { model.push_all(0, 4); });
    run.spawn([&] { model.push_all(1, 3); });
    run.spawn([&] { model.poll_all(7, 1); });
    run.spawn([&] { model.poll_all(7, max); });
    run.run();
    model.check();
}

template <class Env>
void producers_and_sleepers(DetRun& run) {
    QueueModel<Env> model(run);
    run.spawn([&] {
        model.wait(1);
        model.wait(1);
    });
    run.spawn([&] { model.wait(1); });
    run.spawn([&] { model.wait(1); });
    run.spawn([&] { model.push_all(0, 3); });
    run.spawn([&] { model.push_all(1, 1); });
    run.run();
    model.check();
}

TEST(CqModel, what_many_threads_take_is_what_a_fifo_gives) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, producers_and_pollers<Right>));
}

TEST(CqModel, an_item_that_is_published_too_weakly_would_be_read_too_early) {
    EXPECT_TRUE(fails_with("race", producers_and_pollers<PublishesRelaxed>));
}

TEST(CqModel, every_completion_finds_a_thread_that_sleeps) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, producers_and_sleepers<Right>));
}

TEST(CqModel, a_completion_published_by_a_release_alone_would_not_wake) {
    EXPECT_TRUE(fails_with("deadlock", producers_and_sleepers<PublishesByRelease>));
}

TEST(CqModel, a_thread_that_does_not_pass_on_would_leave_others_asleep) {
    EXPECT_TRUE(fails_with("deadlock", producers_and_sleepers<PassesNothingOn>));
}

TEST(CqModel, one_completion_wakes_no_more_than_one) {
    EXPECT_TRUE(always_passes({.schedules = schedules(10'000)}, [](DetRun& run) {
        QueueModel<Right> model(run);
        unsigned with_one = 0;
        for (int i = 0; i < 3; ++i)
            run.spawn([&] { with_one += model.wait(1) == proto::CqWait::kSome; });
        run.spawn([&] {
            model.push_all(0, 1);
            run.check(model.queue.word().woken() <= 1, "one was woken");
            model.queue.close();
        });
        run.run();
        model.check();
        run.check(with_one <= 1, "one has it");
    }));
}

TEST(CqModel, a_thread_whose_time_is_over_takes_nobodys_wake_up) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        QueueModel<Right> model(run);
        const auto close_after_the_last = [&] {
            if (model.taken == 3)
                model.queue.close();
        };
        run.spawn([&] {
            model.wait(1, 1);
            close_after_the_last();
        });
        for (const unsigned max : {1U, 2U})
            run.spawn([&, max] {
                while (model.wait(max) != proto::CqWait::kClosed)
                    close_after_the_last();
            });
        run.spawn([&] { model.push_all(0, 3); });
        run.run();
        model.check();
    }));
}

TEST(CqModel, a_signal_ends_every_wait) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        QueueModel<Right> model(run);
        for (int i = 0; i < 3; ++i)
            run.spawn([&] {
                while (model.wait(1) != proto::CqWait::kClosed) {
                }
            });
        run.spawn([&] { model.push_all(0, 3); });
        run.spawn([&] { model.queue.close(); });
        run.run();
        model.check();
    }));
}

// ---- Completion counters

template <class Env>
void adders_and_sleepers(DetRun& run) {
    proto::CounterProtocol<Env> counter;
    const auto wait = [&](std::uint64_t number) {
        run.check(counter.wait_until(number, UINT64_MAX), "reached");
        run.check(counter.ended() >= number, "not before");
    };
    run.spawn([&] { wait(1); });
    run.spawn([&] { wait(3); });
    run.spawn([&] { wait(2); });
    run.spawn([&] {
        counter.add(1, 0);
        counter.add(1, 0);
    });
    run.spawn([&] { counter.add(0, 1); });
    run.run();
    run.check(counter.successes() == 2 && counter.failures() == 1, "each counted once");
    run.check(!counter.has_sleepers(), "nobody sleeps");
}

TEST(CounterModel, every_number_that_is_reached_wakes_its_thread) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, adders_and_sleepers<Right>));
}

/// Puts arrive by two threads that progress; the program reads what was counted, which a data race
/// would give away.
template <class Env>
void arrivals_and_readers(DetRun& run) {
    proto::CounterProtocol<Env> counter;
    std::array<DetPlain<std::uint32_t>, 2> puts{};
    DetPlain<std::uint32_t> failed{0};
    run.spawn([&] {
        for (DetPlain<std::uint32_t>& put : puts) {
            put = 1;
            counter.add(1, 0);
        }
    });
    run.spawn([&] {
        failed = 1;
        counter.add(0, 1);
    });
    run.spawn([&] {
        run.check(counter.wait_until(3, UINT64_MAX), "reached");
        run.check(puts[0] == 1U && puts[1] == 1U && failed == 1U, "all data is there");
    });
    run.spawn([&] {
        const std::uint64_t successes = counter.successes();
        for (std::uint64_t i = 0; i < successes; ++i)
            run.check(puts[i] == 1U, "the data of what was counted is there");
        if (counter.failures() == 1)
            run.check(failed == 1U, "... and of failures");
    });
    run.run();
}

TEST(CounterModel, who_reads_or_waits_sees_the_data_of_what_was_counted) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, arrivals_and_readers<Right>));
}

TEST(CounterModel, a_number_that_is_announced_by_a_release_alone_would_be_missed) {
    EXPECT_TRUE(fails_with("deadlock", adders_and_sleepers<PublishesByRelease>));
}

TEST(CounterModel, a_thread_whose_time_is_over_leaves_the_others) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)}, [](DetRun& run) {
        proto::CounterProtocol<Right> counter;
        run.spawn([&] { counter.wait_until(2, 1); });
        run.spawn([&] { counter.wait_until(2, UINT64_MAX); });
        run.spawn([&] { counter.wait_until(1, 1); });
        run.spawn([&] { counter.add(1, 0); });
        run.spawn([&] { counter.add(0, 1); });
        run.run();
    }));
}

}  // namespace
}  // namespace tagwire::test
