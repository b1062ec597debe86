// SPDX-License-Identifier: BSD-3-Clause
//
// Naive models of the matchers, by tag and by tag and source, and the steps with which property
// tests drive both.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <ostream>
#include <vector>

namespace tagwire::test {

/** Agrees with every source; the only one where there are no sources. */
inline constexpr std::uint32_t kModelAnySource = UINT32_MAX;

/** The entries in order; they are known by their number. */
class NaiveMatcher {
  public:
    struct Entry {
        std::uint64_t tag;
        std::uint64_t mask;
        std::size_t number;
        std::uint32_t source = kModelAnySource;
    };

    void add(const Entry& entry) { entries_.push_back(entry); }

    /** The first entry that agrees with `tag` in every bit of its own mask and of `mask`, and with
     * `source`. */
    std::optional<std::size_t> find(std::uint64_t tag, std::uint64_t mask,
                                    std::uint32_t source = kModelAnySource) const {
        const auto found = std::find_if(entries_.begin(), entries_.end(), [=](const Entry& entry) {
            return ((entry.tag ^ tag) & entry.mask & mask) == 0 &&
                   (entry.source == source || entry.source == kModelAnySource ||
                    source == kModelAnySource);
        });
        if (found == entries_.end())
            return std::nullopt;
        return found->number;
    }

    /** As find(), and removes it. */
    std::optional<std::size_t> take(std::uint64_t tag, std::uint64_t mask,
                                    std::uint32_t source = kModelAnySource) {
        const auto number = find(tag, mask, source);
        if (number.has_value())
            remove(*number);
        return number;
    }

    void remove(std::size_t number) {
        const auto is_it = [=](const Entry& entry) { return entry.number == number; };
        entries_.erase(std::find_if(entries_.begin(), entries_.end(), is_it));
    }

    std::size_t count_of(std::uint32_t source) const {
        const auto is_of = [=](const Entry& entry) { return entry.source == source; };
        return static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), is_of));
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

/** One step of a scenario; which fields count depends on the kind and on the matcher. */
struct MatcherStep {
    enum class Kind { kAdd, kTake, kRemove };
    Kind kind;
    std::uint64_t tag;
    std::uint64_t mask;
    std::size_t position;
    std::uint32_t source;     // of a message
    bool is_directed = true;  // the receive takes messages of that source only
    std::uint32_t receive_source() const { return is_directed ? source : kModelAnySource; }
};

inline std::ostream& operator<<(std::ostream& out, const MatcherStep& step) {
    static constexpr const char* kNames[] = {"add", "take", "remove"};
    return out << kNames[static_cast<int>(step.kind)] << " tag " << step.tag << " mask "
               << step.mask << " position " << step.position << " source " << step.source
               << (step.is_directed ? " directed" : "");
}

}  // namespace tagwire::test
