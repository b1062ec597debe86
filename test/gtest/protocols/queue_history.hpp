// SPDX-License-Identifier: BSD-3-Clause
// Whether a history of calls on a completion queue is one of a sequential queue: each call takes
// effect at one moment between its begin and its end. The search is that of Wing and Gong, with
// Lowe's memory of states that have led nowhere.
//
// The sequential specification: a queue is a sequence of completions.
//
//   push(v)   v becomes the last
//   take      the first is removed, and is the answer. A call that may answer several takes each at
//             a moment of its own, in the order of its answer
//   nothing   the answer of a call that took none, or fewer than it may: there is none; or the call
//             that pushed the first has not ended before this one began (its position hides those
//             behind it); or, where completions were kept beyond the capacity, another call that
//             takes overlaps with this one (it may be moving what was kept)
//
// It is one sequence for all workers. The API promises less: the order of each worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tagwire::test {

class QueueHistory {
  public:
    static constexpr std::size_t kCallsMax = 64;
    enum class Kind : std::uint8_t { kPush, kTake, kNothing };

    /// The next time of a clock that all calls advance: no two times are the same.
    std::uint64_t now() { return ++clock_; }
    /// A call is added when it has ended; `before` is the take of the same call that precedes this
    /// one, as add() has returned it, or kNone.
    static constexpr std::size_t kNone = SIZE_MAX;
    std::size_t add(Kind kind, std::uint64_t value, std::uint64_t begin, std::uint64_t end,
                    std::size_t before = kNone);
    /// A call that took nothing, and whose answer is not judged: others may overlap with it.
    void add_unjudged(std::uint64_t begin, std::uint64_t end) { unjudged_.push_back({begin, end}); }
    std::size_t size() const { return calls_.size(); }

    /// `has_kept`: the last case of `nothing` is possible. At most kCallsMax calls.
    bool is_linearizable(bool has_kept) const;
    /// A line for each call.
    std::string text() const;

  private:
    struct Call {
        Kind kind;
        std::uint64_t value, begin, end;
        std::size_t before;
    };
    struct State {
        std::uint64_t done = 0;            // calls that have taken effect, a bit each
        std::vector<std::size_t> content;  // their pushes, the first one first
        auto operator<=>(const State&) const = default;
    };

    bool search(const State& state, bool has_kept, std::set<State>& dead) const;
    bool may_be_next(const State& state, std::size_t call) const;
    bool apply(State& state, std::size_t call, bool has_kept) const;
    bool may_be_nothing(const State& state, std::size_t call, bool has_kept) const;

    std::vector<Call> calls_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unjudged_;  // begin, end
    std::uint64_t clock_ = 0;
};

}  // namespace tagwire::test
