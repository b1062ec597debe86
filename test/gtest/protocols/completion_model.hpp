// SPDX-License-Identifier: BSD-3-Clause
// For models of completion queues and counters (protocols/completion): what their `Env` gives under
// the seeded scheduler; and a check of what a queue has answered against those of a FIFO.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "protocols/completion/queue_protocol.hpp"
#include "ucs/debug/check.hpp"

namespace tagwire::test {

class ModelLock {
  public:
    void lock() {
        while (held_.exchange(1) != 0)
            det::block_until([this] { return held_.load() == 0; });
    }
    void unlock() { held_.store(0, std::memory_order_release); }

  private:
    DetAtomic<std::uint32_t> held_{0};
};

/// A futex: a thread looks at the word and sleeps in one step.
class ModelWord {
  public:
    std::uint32_t load(std::memory_order order) const { return word_.load(order); }
    void store(std::uint32_t value, std::memory_order order) { word_.store(value, order); }
    std::uint32_t fetch_add(std::uint32_t operand, std::memory_order order) {
        return word_.fetch_add(operand, order);
    }
    /// With another end than UINT64_MAX the time may come at once.
    bool wait_until(std::uint32_t value, std::uint64_t end_ns) {
        if (word_.load() != value)
            return true;
        bool is_woken = false;
        TW_CHECK(sleepers_ < asleep_.size());
        asleep_[sleepers_++] = &is_woken;
        if (end_ns == UINT64_MAX) {
            det::block_until([&is_woken] { return is_woken; });
            return true;
        }
        for (int i = 0; i < 3 && !is_woken; ++i)
            word_.load();  // a step
        const auto end = asleep_.begin() + sleepers_;
        sleepers_ =
            static_cast<unsigned>(std::remove(asleep_.begin(), end, &is_woken) - asleep_.begin());
        return is_woken;
    }
    void wake_one() {
        DetFences::store_load();  // of the system call
        wake_first();
    }
    void wake_all() {
        DetFences::store_load();
        while (wake_first()) {
        }
    }
    /// Threads that were awakened.
    unsigned woken() const { return woken_; }

  private:
    bool wake_first() {
        if (sleepers_ == 0)
            return false;
        *asleep_.front() = true;
        std::move(asleep_.begin() + 1, asleep_.begin() + sleepers_, asleep_.begin());
        --sleepers_;
        ++woken_;
        return true;
    }

    DetAtomic<std::uint32_t> word_{0};
    // Without memory of their own: a schedule that fails is abandoned with a thread asleep.
    std::array<bool*, 8> asleep_{};
    unsigned sleepers_ = 0;
    unsigned woken_ = 0;
};

template <std::memory_order kOrder, bool kPasses, bool kKeepsBehind = true>
struct ModelEnv {
    template <class T>
    using Atom = DetAtomic<T>;
    using Item = std::uint64_t;
    struct Slot {
        DetPlain<std::uint64_t> value;
        void put(Item item) { value = item; }
        void get(Item* item) const { *item = value; }
    };
    /// A request whose completion was kept; its memory is used again when it has come back.
    struct Kept {
        Kept* next = nullptr;
        proto::KeptReturns<ModelEnv>* home = nullptr;
        DetPlain<std::uint64_t> value;
        Item item() const { return value; }
        void give_back() { home->push(*this); }
    };
    using Lock = ModelLock;
    using Word = ModelWord;
    static constexpr std::memory_order kPublish = kOrder;
    static constexpr bool kPassesOn = kPasses;
    static constexpr bool kIsBehind = kKeepsBehind;
};

/// Calls of threads on a queue, with its answers and times. Values differ.
class History {
  public:
    struct Push {
        std::uint64_t value, begin, end;
    };
    struct Pop {
        std::optional<std::uint64_t> value;
        std::uint64_t begin, end;
    };

    std::uint64_t now() { return ++clock_; }
    void pushed(std::uint64_t value, std::uint64_t begin) {
        pushes_.push_back({value, begin, now()});
    }
    void popped(std::optional<std::uint64_t> value, std::uint64_t begin) {
        pops_.push_back({value, begin, now()});
    }

    /// nullptr: some order of the calls, each at a time within it, makes this a FIFO's answers, and
    /// everything was taken. Any violation is one of these; an answer that there is nothing is
    /// judged if nothing else was under way, as a position that was claimed hides those behind it.
    const char* wrong() const {
        for (const Push& push : pushes_) {
            const auto is_it = [&](const Pop& pop) { return pop.value == push.value; };
            if (std::ranges::none_of(pops_, is_it))
                return "a completion was lost";
            if (std::ranges::count_if(pops_, is_it) > 1)
                return "a completion was taken twice";
            if (pop_of(push.value).end < push.begin)
                return "a completion was taken before it was there";
            for (const Push& later : pushes_)
                if (push.end < later.begin && pop_of(later.value).end < pop_of(push.value).begin)
                    return "completions were taken out of order";
            for (const Pop& pop : pops_)
                if (!pop.value && push.end < pop.begin && pop.end < pop_of(push.value).begin &&
                    is_alone(pop))
                    return "a queue with completions said that it has none";
        }
        const auto values =
            std::ranges::count_if(pops_, [](const Pop& pop) { return pop.value.has_value(); });
        return static_cast<std::size_t>(values) == pushes_.size() ? nullptr
                                                                  : "more than was there was taken";
    }

  private:
    const Pop& pop_of(std::uint64_t value) const {
        return *std::ranges::find(pops_, std::optional(value), &Pop::value);
    }
    bool is_alone(const Pop& pop) const {
        const auto overlaps = [&](const auto& other) {
            return other.begin < pop.end && pop.begin < other.end && other.begin != pop.begin;
        };
        return std::ranges::none_of(pushes_, overlaps) && std::ranges::none_of(pops_, overlaps);
    }

    std::uint64_t clock_ = 0;
    std::vector<Push> pushes_;
    std::vector<Pop> pops_;
};

}  // namespace tagwire::test
