// SPDX-License-Identifier: BSD-3-Clause
#include <ucs/datastruct/callbackq.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr unsigned kFast = UCS_CALLBACKQ_FLAG_FAST;
constexpr unsigned kSlow = 0;
constexpr unsigned kOneshot = UCS_CALLBACKQ_FLAG_ONESHOT;

// A callback that writes its name into the log of its test, then does what it was told.
struct Recorder {
    std::vector<int>* calls;
    int name;
    std::function<void()> action;
    int id = UCS_CALLBACKQ_ID_NULL;

    static unsigned run(void* self) {
        auto* recorder = static_cast<Recorder*>(self);
        recorder->calls->push_back(recorder->name);
        if (recorder->action)
            recorder->action();
        return 1;
    }
};

class CallbackQueueTest : public ::testing::Test {
  protected:
    CallbackQueueTest() { EXPECT_EQ(ucs_callbackq_init(&queue_), UCS_OK); }
    ~CallbackQueueTest() override { ucs_callbackq_cleanup(&queue_); }

    Recorder& add(unsigned flags, std::function<void()> action = {}) {
        const int name = static_cast<int>(recorders_.size());
        recorders_.push_back({&calls_, name, std::move(action)});
        Recorder& recorder = recorders_.back();
        recorder.id = ucs_callbackq_add(&queue_, Recorder::run, &recorder, flags);
        EXPECT_GE(recorder.id, 0);
        return recorder;
    }

    void remove(Recorder& recorder) {
        ucs_callbackq_remove(&queue_, recorder.id);
        recorder.id = UCS_CALLBACKQ_ID_NULL;
    }

    std::vector<int> dispatch() {
        calls_.clear();
        const unsigned done = ucs_callbackq_dispatch(&queue_);
        EXPECT_EQ(done, calls_.size());
        return calls_;
    }

    void remove_all() {
        for (Recorder& recorder : recorders_)
            if (recorder.id != UCS_CALLBACKQ_ID_NULL)
                remove(recorder);
        EXPECT_THAT(dispatch(), IsEmpty());
    }

    ucs_callbackq_t queue_;
    std::vector<int> calls_;
    std::deque<Recorder> recorders_;
};

using CallbackQueue = CallbackQueueTest;

TEST_F(CallbackQueue, empty_queue_does_nothing) {
    EXPECT_THAT(dispatch(), IsEmpty());
}

TEST_F(CallbackQueue, fast_callbacks_run_in_order_of_addition) {
    add(kFast);
    add(kFast);
    add(kFast);
    EXPECT_THAT(dispatch(), ElementsAre(0, 1, 2));
    EXPECT_THAT(dispatch(), ElementsAre(0, 1, 2));
    remove_all();
}

TEST_F(CallbackQueue, more_callbacks_than_the_array_holds_all_run_once) {
    std::vector<int> names;
    for (int i = 0; i < 40; ++i) {
        add(kFast);
        names.push_back(i);
        EXPECT_THAT(dispatch(), UnorderedElementsAreArray(names));
    }
    remove_all();
}

TEST_F(CallbackQueue, dispatch_stops_at_the_end_of_a_full_array) {
    for (int i = 0; i < UCS_CALLBACKQ_FAST_COUNT + 1; ++i)
        add(kFast);
    EXPECT_NE(queue_.fast_elems[UCS_CALLBACKQ_FAST_COUNT - 1].cb, nullptr);
    EXPECT_EQ(queue_.fast_elems[UCS_CALLBACKQ_FAST_COUNT].cb, nullptr);
    remove_all();
}

TEST_F(CallbackQueue, array_is_empty_again_when_the_last_slow_callback_went) {
    Recorder& slow = add(kSlow);
    EXPECT_THAT(dispatch(), ElementsAre(0));
    remove(slow);
    dispatch();
    EXPECT_EQ(queue_.fast_elems[0].cb, nullptr);
}

TEST_F(CallbackQueue, removed_callback_does_not_run) {
    add(kFast);
    Recorder& b = add(kFast);
    add(kSlow);
    Recorder& d = add(kSlow);
    remove(b);
    remove(d);
    EXPECT_THAT(dispatch(), UnorderedElementsAre(0, 2));
    remove_all();
}

TEST_F(CallbackQueue, callback_may_remove_itself) {
    for (const unsigned flags : {kFast, kSlow}) {
        Recorder& self = add(flags);
        self.action = [this, &self] { remove(self); };
        EXPECT_THAT(dispatch(), ElementsAre(self.name));
        EXPECT_THAT(dispatch(), IsEmpty());
    }
}

TEST_F(CallbackQueue, callback_removed_by_an_earlier_one_does_not_run) {
    for (const unsigned flags : {kFast, kSlow}) {
        Recorder& first = add(flags);
        Recorder& second = add(flags);
        first.action = [this, &second] {
            if (second.id != UCS_CALLBACKQ_ID_NULL)
                remove(second);
        };
        EXPECT_THAT(dispatch(), ElementsAre(first.name));
        remove(first);
        dispatch();
    }
}

TEST_F(CallbackQueue, removal_delays_another_callback_by_one_round_at_most) {
    Recorder& self = add(kFast);
    add(kFast);
    add(kFast);
    self.action = [this, &self] { remove(self); };
    EXPECT_THAT(dispatch(), ElementsAre(0, 1));
    EXPECT_THAT(dispatch(), UnorderedElementsAre(1, 2));
    remove_all();
}

TEST_F(CallbackQueue, callback_may_add_others) {
    Recorder& adder = add(kSlow);
    adder.action = [this, &adder] {
        adder.action = nullptr;
        add(kSlow);
        add(kFast);
    };
    dispatch();
    EXPECT_THAT(dispatch(), UnorderedElementsAre(0, 1, 2));
    remove_all();
}

TEST_F(CallbackQueue, callback_that_replaces_itself_ends_the_round) {
    std::function<void(Recorder&)> replace = [&](Recorder& self) {
        remove(self);
        Recorder& next = add(self.name % 2 == 0 ? kSlow : kFast);
        next.action = [&] { replace(next); };
    };
    Recorder& first = add(kSlow);
    first.action = [&] { replace(first); };
    for (int i = 0; i < 10; ++i)
        EXPECT_THAT(dispatch().size(), AllOf(Ge(1U), ::testing::Le(2U)));
    for (Recorder& recorder : recorders_)
        recorder.action = nullptr;
    remove_all();
}

TEST_F(CallbackQueue, oneshot_runs_once) {
    add(kFast);
    add(kOneshot).id = UCS_CALLBACKQ_ID_NULL;
    EXPECT_THAT(dispatch(), ElementsAre(0, 1));
    EXPECT_THAT(dispatch(), ElementsAre(0));
    remove_all();
}

TEST_F(CallbackQueue, oneshot_can_be_removed_before_it_ran) {
    Recorder& once = add(kOneshot);
    remove(once);
    EXPECT_THAT(dispatch(), IsEmpty());
}

TEST_F(CallbackQueue, oneshot_that_adds_itself_again_runs_in_the_next_round) {
    Recorder& once = add(kOneshot);
    once.action = [this, &once] {
        once.id = ucs_callbackq_add(&queue_, Recorder::run, &once, kOneshot);
    };
    EXPECT_THAT(dispatch(), ElementsAre(0));
    EXPECT_THAT(dispatch(), ElementsAre(0));
    remove_all();
}

TEST_F(CallbackQueue, many_oneshots_run_once_each) {
    std::vector<int> names;
    for (int i = 0; i < 50; ++i) {
        add(kOneshot).id = UCS_CALLBACKQ_ID_NULL;
        names.push_back(i);
    }
    EXPECT_THAT(dispatch(), UnorderedElementsAreArray(names));
    EXPECT_THAT(dispatch(), IsEmpty());
}

TEST_F(CallbackQueue, callback_may_dispatch) {
    int depth = 0;
    Recorder& outer = add(kSlow);
    Recorder& other = add(kSlow);
    outer.action = [&] {
        if (depth++ == 0) {
            ucs_callbackq_dispatch(&queue_);
            if (other.id != UCS_CALLBACKQ_ID_NULL)
                remove(other);
        }
    };
    ucs_callbackq_dispatch(&queue_);
    EXPECT_THAT(calls_, ElementsAre(0, 0, 1));
    depth = 1;
    EXPECT_THAT(dispatch(), ElementsAre(0));
    remove_all();
}

TEST_F(CallbackQueue, identifiers_are_unique_while_in_use) {
    std::vector<int> ids;
    for (int i = 0; i < 20; ++i) {
        Recorder& recorder = add(i % 3 == 0 ? kSlow : kFast);
        EXPECT_THAT(ids, Not(Contains(recorder.id)));
        ids.push_back(recorder.id);
    }
    remove_all();
}

TEST_F(CallbackQueue, identifier_is_used_again_only_after_the_element_went) {
    Recorder& a = add(kSlow);
    const int id_of_a = a.id;
    remove(a);
    Recorder& b = add(kFast);
    EXPECT_NE(b.id, id_of_a);
    dispatch();
    EXPECT_EQ(add(kFast).id, id_of_a);
    EXPECT_THAT(dispatch(), UnorderedElementsAre(1, 2));
    remove_all();
}

TEST_F(CallbackQueue, remove_if_takes_those_selected) {
    for (int i = 0; i < 12; ++i)
        add(i % 4 == 0 ? kSlow : kFast);
    const auto is_odd = [](const ucs_callbackq_elem_t* element, void*) {
        return static_cast<Recorder*>(element->arg)->name % 2;
    };
    ucs_callbackq_remove_if(&queue_, is_odd, nullptr);
    for (Recorder& recorder : recorders_)
        if (recorder.name % 2 == 1)
            recorder.id = UCS_CALLBACKQ_ID_NULL;
    EXPECT_THAT(dispatch(), UnorderedElementsAre(0, 2, 4, 6, 8, 10));
    remove_all();
}

TEST_F(CallbackQueue, safe_forms_may_be_called_from_callbacks) {
    for (const unsigned flags : {kFast, kSlow}) {
        Recorder& self = add(flags);
        self.action = [this, &self] {
            ucs_callbackq_remove_safe(&queue_, self.id);
            self.id = UCS_CALLBACKQ_ID_NULL;
            recorders_.push_back({&calls_, static_cast<int>(recorders_.size()), {}});
            recorders_.back().id =
                ucs_callbackq_add_safe(&queue_, Recorder::run, &recorders_.back(), kOneshot);
            recorders_.back().id = UCS_CALLBACKQ_ID_NULL;
        };
        dispatch();
        EXPECT_THAT(dispatch(), Not(Contains(self.name)));
    }
    remove_all();
}

struct Shared {
    std::atomic<int> slow_calls{0};
    std::atomic<int> oneshot_calls{0};
    std::atomic<bool> finished{false};

    static unsigned count_slow(void* self) {
        static_cast<Shared*>(self)->slow_calls.fetch_add(1, std::memory_order_relaxed);
        return 0;
    }
    static unsigned count_oneshot(void* self) {
        static_cast<Shared*>(self)->oneshot_calls.fetch_add(1, std::memory_order_relaxed);
        return 0;
    }
};

TEST_F(CallbackQueue, other_threads_add_and_remove_while_one_dispatches) {
    constexpr int kRounds = 2000;
    Shared shared;
    Recorder& fast = add(kFast);
    std::thread other([this, &shared] {
        for (int i = 0; i < kRounds; ++i) {
            const int id = ucs_callbackq_add_safe(&queue_, Shared::count_slow, &shared, kSlow);
            ucs_callbackq_add_safe(&queue_, Shared::count_oneshot, &shared, kOneshot);
            ucs_callbackq_remove_safe(&queue_, id);
        }
        shared.finished.store(true, std::memory_order_release);
    });
    while (!shared.finished.load(std::memory_order_acquire))
        EXPECT_THAT(dispatch(), ElementsAre(fast.name));
    other.join();
    dispatch();
    EXPECT_EQ(shared.oneshot_calls.load(), kRounds);
    const int slow_calls = shared.slow_calls.load();
    dispatch();
    EXPECT_EQ(shared.slow_calls.load(), slow_calls) << "a removed callback was called";
    remove_all();
}

TEST_F(CallbackQueue, other_thread_removes_a_fast_callback) {
    Recorder& removed = add(kFast);
    add(kFast);
    std::thread([this, &removed] { ucs_callbackq_remove_safe(&queue_, removed.id); }).join();
    removed.id = UCS_CALLBACKQ_ID_NULL;
    EXPECT_THAT(dispatch(), ElementsAre(1));
    EXPECT_THAT(dispatch(), ElementsAre(1));
    remove_all();
}

TEST_F(CallbackQueue, forgotten_callback_is_reported) {
    ucs_callbackq_t queue;
    ASSERT_EQ(ucs_callbackq_init(&queue), UCS_OK);
    Recorder forgotten{&calls_, 0, {}};
    ucs_callbackq_add(&queue, Recorder::run, &forgotten, kFast);
    ::testing::internal::CaptureStderr();
    ucs_callbackq_cleanup(&queue);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("1 progress callbacks were never removed"));
}

}  // namespace
