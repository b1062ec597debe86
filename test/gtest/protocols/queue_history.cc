// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/queue_history.hpp"

#include <algorithm>

#include "ucs/debug/check.hpp"

namespace tagwire::test {

std::size_t QueueHistory::add(Kind kind, std::uint64_t value, std::uint64_t begin,
                              std::uint64_t end, std::size_t before) {
    TW_CHECK(calls_.size() < kCallsMax);
    calls_.push_back({kind, value, begin, end, before});
    return calls_.size() - 1;
}

bool QueueHistory::is_linearizable(bool has_kept) const {
    std::set<State> dead;
    return search({}, has_kept, dead);
}

/// Whether the calls that are left can take effect from here on. Each step has one more of them
/// done, so it ends.
// NOLINTNEXTLINE(misc-no-recursion): as deep as there are calls
bool QueueHistory::search(const State& state, bool has_kept, std::set<State>& dead) const {
    const std::uint64_t all =
        calls_.size() == kCallsMax ? ~std::uint64_t{0} : (std::uint64_t{1} << calls_.size()) - 1;
    if (state.done == all)
        return true;
    if (dead.contains(state))
        return false;
    for (std::size_t call = 0; call < calls_.size(); ++call) {
        State next = state;
        if (may_be_next(state, call) && apply(next, call, has_kept) && search(next, has_kept, dead))
            return true;
    }
    dead.insert(state);
    return false;
}

/// It has not taken effect, and no other that has not has ended before it began.
bool QueueHistory::may_be_next(const State& state, std::size_t call) const {
    const auto is_done = [&](std::size_t i) { return (state.done >> i & 1) != 0; };
    if (is_done(call))
        return false;
    if (calls_[call].before != kNone && !is_done(calls_[call].before))
        return false;
    for (std::size_t i = 0; i < calls_.size(); ++i)
        if (!is_done(i) && calls_[i].end < calls_[call].begin)
            return false;
    return true;
}

bool QueueHistory::apply(State& state, std::size_t call, bool has_kept) const {
    const Call& it = calls_[call];
    switch (it.kind) {
        case Kind::kPush:
            state.content.push_back(call);
            break;
        case Kind::kTake:
            if (state.content.empty() || calls_[state.content.front()].value != it.value)
                return false;
            state.content.erase(state.content.begin());
            break;
        case Kind::kNothing:
            if (!may_be_nothing(state, call, has_kept))
                return false;
            break;
    }
    state.done |= std::uint64_t{1} << call;
    return true;
}

bool QueueHistory::may_be_nothing(const State& state, std::size_t call, bool has_kept) const {
    const Call& it = calls_[call];
    if (state.content.empty() || calls_[state.content.front()].end > it.begin)
        return true;
    const auto overlaps = [&](const Call& other) {
        return other.kind != Kind::kPush && other.begin != it.begin && other.begin < it.end &&
               it.begin < other.end;
    };
    const auto overlaps_unjudged = [&](const auto& other) {
        return other.first < it.end && it.begin < other.second;
    };
    return has_kept && (std::ranges::any_of(calls_, overlaps) ||
                        std::ranges::any_of(unjudged_, overlaps_unjudged));
}

std::string QueueHistory::text() const {
    constexpr const char* kNames[] = {"push", "take", "nothing"};
    std::string all;
    for (const Call& call : calls_)
        all += std::string(kNames[static_cast<std::size_t>(call.kind)]) + " " +
               std::to_string(call.value) + ", " + std::to_string(call.begin) + " to " +
               std::to_string(call.end) + "\n";
    return all;
}

}  // namespace tagwire::test
