// SPDX-License-Identifier: BSD-3-Clause
// Histories of the completion queue under the seeded scheduler are those of a sequential queue
// (queue_history.hpp has the specification); flaws that are planted are found.
#include "protocols/queue_history.hpp"

#include <array>

#include "common/det_atomic.hpp"
#include "common/model_fences.hpp"
#include "protocols/completion_model.hpp"

namespace tagwire::test {
namespace {

using HistoryKind = QueueHistory::Kind;
using Right = ModelEnv<std::memory_order_seq_cst, true>;
using OvertakesKept = ModelEnv<std::memory_order_seq_cst, true, false>;

constexpr unsigned kProducersMax = 3, kEach = 4;

/// Producers that push, and consumers that poll until everything is taken. Each producer has a
/// request for each of its completions.
template <class Env>
class Recorded {
  public:
    Recorded(DetRun& run, std::size_t capacity) : run_(run), queue_(capacity) {}

    void push(unsigned producer, unsigned number) {
        typename Env::Kept& request = requests_.at(producer).at(number);
        const std::uint64_t value = producer * 10 + number + 1, begin = history_.now();
        request.value = value;
        request.home = &returns_;
        has_kept_ |= !queue_.push(value, request);
        history_.add(HistoryKind::kPush, value, begin, history_.now());
    }
    void poll(unsigned max) {
        std::array<std::uint64_t, 4> values{};
        const std::uint64_t begin = history_.now();
        const unsigned count = queue_.poll(values.data(), max);
        const std::uint64_t end = history_.now();
        std::size_t before = QueueHistory::kNone;
        for (unsigned i = 0; i < count; ++i)
            before = history_.add(HistoryKind::kTake, values.at(i), begin, end, before);
        taken_ += count;
        // A thread that looks in vain again and again: the search takes some of its calls.
        if (count < max && history_.size() < kRecordedNothings)
            history_.add(HistoryKind::kNothing, 0, begin, end, before);
        else if (count < max)
            history_.add_unjudged(begin, end);
    }
    void poll_until(unsigned wanted, unsigned max) {
        while (taken_ < wanted) {
            poll(max);
            DetFences::pause();
        }
    }
    void check() {
        while (taken_ < wanted_)
            poll(1);
        if (!history_.is_linearizable(has_kept_))
            run_.check(false, "no order of the calls is that of a queue");
    }
    void want(unsigned count) { wanted_ = count; }

  private:
    static constexpr std::size_t kRecordedNothings = 28;

    DetRun& run_;
    proto::QueueProtocol<Env> queue_;
    QueueHistory history_;
    std::array<std::array<typename Env::Kept, kEach>, kProducersMax> requests_;
    proto::KeptReturns<Env> returns_;
    unsigned taken_ = 0, wanted_ = 0;
    bool has_kept_ = false;
};

/// 2 or 3 of each kind, with room for 2 or 4 completions, so that some find none.
template <class Env>
void producers_and_consumers(DetRun& run) {
    const std::size_t capacity = run.random(2) == 0 ? 2 : 4;
    const auto producers = static_cast<unsigned>(2 + run.random(2));
    const auto consumers = static_cast<unsigned>(2 + run.random(2));
    const auto each = static_cast<unsigned>(2 + run.random(producers == 2 ? 3 : 2));
    Recorded<Env> recorded(run, capacity);
    recorded.want(producers * each);
    for (unsigned i = 0; i < producers; ++i)
        run.spawn([&recorded, i, each] {
            for (unsigned number = 0; number < each; ++number)
                recorded.push(i, number);
        });
    for (unsigned i = 0; i < consumers; ++i)
        run.spawn([&recorded, i, all = producers * each] { recorded.poll_until(all, 1 + i); });
    run.run();
    recorded.check();
}

TEST(QueueHistories, those_of_many_threads_are_those_of_a_sequential_queue) {
    EXPECT_TRUE(always_passes({.schedules = schedules(10'000)}, producers_and_consumers<Right>));
}

TEST(QueueHistories, a_completion_that_overtakes_those_that_are_kept_would_be_found) {
    EXPECT_TRUE(fails_with("no order", producers_and_consumers<OvertakesKept>));
}

// ---- The search

QueueHistory history(std::initializer_list<std::array<std::uint64_t, 4>> calls) {
    QueueHistory all;
    for (const auto& [kind, value, begin, end] : calls)
        all.add(static_cast<HistoryKind>(kind), value, begin, end);
    return all;
}
constexpr std::uint64_t kPush = 0, kTake = 1, kNothing = 2;

TEST(QueueHistories, pushes_at_the_same_time_may_take_effect_in_either_order) {
    EXPECT_TRUE(history({{kPush, 1, 1, 4}, {kPush, 2, 2, 3}, {kTake, 2, 5, 6}, {kTake, 1, 7, 8}})
                    .is_linearizable(false));
}

TEST(QueueHistories, pushes_one_after_the_other_are_taken_in_their_order) {
    EXPECT_FALSE(history({{kPush, 1, 1, 2}, {kPush, 2, 3, 4}, {kTake, 2, 5, 6}, {kTake, 1, 7, 8}})
                     .is_linearizable(true));
}

TEST(QueueHistories, takes_at_the_same_time_may_take_effect_in_either_order) {
    EXPECT_TRUE(history({{kPush, 1, 1, 2}, {kPush, 2, 3, 4}, {kTake, 2, 5, 8}, {kTake, 1, 6, 7}})
                    .is_linearizable(false));
}

TEST(QueueHistories, an_order_that_no_pair_of_calls_contradicts_is_searched_for) {
    // 1 is pushed before 3 and taken at the same time; 2 may be anywhere, but not twice.
    EXPECT_FALSE(history({{kPush, 1, 1, 2},
                          {kPush, 2, 3, 9},
                          {kPush, 3, 4, 5},
                          {kTake, 3, 6, 7},
                          {kTake, 1, 8, 10}})
                     .is_linearizable(true));
}

TEST(QueueHistories, nothing_is_made_up_and_nothing_taken_twice) {
    EXPECT_FALSE(history({{kPush, 1, 1, 2}, {kTake, 2, 3, 4}}).is_linearizable(true));
    EXPECT_FALSE(
        history({{kPush, 1, 1, 2}, {kTake, 1, 3, 4}, {kTake, 1, 5, 6}}).is_linearizable(true));
}

TEST(QueueHistories, a_completion_is_not_taken_before_it_is_pushed) {
    EXPECT_FALSE(history({{kTake, 1, 1, 2}, {kPush, 1, 3, 4}}).is_linearizable(true));
    EXPECT_TRUE(history({{kTake, 1, 1, 4}, {kPush, 1, 2, 3}}).is_linearizable(false));
}

TEST(QueueHistories, a_queue_with_a_completion_does_not_say_that_it_has_none) {
    EXPECT_FALSE(
        history({{kPush, 1, 1, 2}, {kNothing, 0, 3, 4}, {kTake, 1, 5, 6}}).is_linearizable(true));
}

TEST(QueueHistories, a_push_under_way_hides_what_is_behind_it) {
    EXPECT_TRUE(history({{kPush, 1, 1, 8},
                         {kPush, 2, 2, 3},
                         {kNothing, 0, 4, 5},
                         {kTake, 1, 9, 10},
                         {kTake, 2, 11, 12}})
                    .is_linearizable(false));
    // ... not what is before it
    EXPECT_FALSE(history({{kPush, 2, 1, 2},
                          {kPush, 1, 3, 8},
                          {kNothing, 0, 4, 5},
                          {kTake, 2, 9, 10},
                          {kTake, 1, 11, 12}})
                     .is_linearizable(false));
}

TEST(QueueHistories, kept_completions_are_hidden_while_another_thread_moves_them) {
    const auto all = history({{kPush, 1, 1, 2},
                              {kPush, 2, 3, 4},
                              {kTake, 1, 5, 8},
                              {kNothing, 0, 6, 7},
                              {kTake, 2, 9, 10}});
    EXPECT_TRUE(all.is_linearizable(true));
    EXPECT_FALSE(all.is_linearizable(false));
}

TEST(QueueHistories, what_one_call_takes_is_in_order) {
    QueueHistory all = history({{kPush, 1, 1, 2}, {kPush, 2, 3, 4}});
    const std::size_t first = all.add(HistoryKind::kTake, 2, 5, 6);
    all.add(HistoryKind::kTake, 1, 5, 6, first);
    EXPECT_FALSE(all.is_linearizable(true));
}

}  // namespace
}  // namespace tagwire::test
