// SPDX-License-Identifier: BSD-3-Clause
//
// Naive lists that say what the tag matcher must do, and the steps that property tests drive both
// with.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <ostream>
#include <vector>

namespace tagwire::test {

/** What is inside, in order; entries are known by their number. */
class NaiveMatcher {
  public:
    struct Entry {
        std::uint64_t tag;
        std::uint64_t mask;
        std::size_t number;
    };

    void add(const Entry& entry) { entries_.push_back(entry); }

    /** The first entry that agrees with `tag` in every bit of its own mask and of `mask`, removed.
     */
    std::optional<std::size_t> take(std::uint64_t tag, std::uint64_t mask) {
        const auto found = std::find_if(entries_.begin(), entries_.end(), [=](const Entry& entry) {
            return ((entry.tag ^ tag) & entry.mask & mask) == 0;
        });
        if (found == entries_.end())
            return std::nullopt;
        const std::size_t number = found->number;
        entries_.erase(found);
        return number;
    }

    /** The entry at `position` modulo the size, removed. */
    std::optional<std::size_t> remove_at(std::size_t position) {
        if (entries_.empty())
            return std::nullopt;
        const auto found =
            entries_.begin() + static_cast<std::ptrdiff_t>(position % entries_.size());
        const std::size_t number = found->number;
        entries_.erase(found);
        return number;
    }

    std::size_t size() const { return entries_.size(); }

  private:
    std::deque<Entry> entries_;
};

/** One step of a scenario; which fields count depends on the kind. */
struct MatcherStep {
    enum class Kind { kAdd, kTake, kRemove };
    Kind kind;
    std::uint64_t tag;
    std::uint64_t mask;
    std::size_t position;
};

inline std::ostream& operator<<(std::ostream& out, const MatcherStep& step) {
    static constexpr const char* kNames[] = {"add", "take", "remove"};
    return out << kNames[static_cast<int>(step.kind)] << " tag " << step.tag << " mask "
               << step.mask << " position " << step.position;
}

}  // namespace tagwire::test
