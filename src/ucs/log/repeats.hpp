// SPDX-License-Identifier: BSD-3-Clause
// Failures that a peer or a program can bring about again and again are logged the 1st, 2nd, 4th,
// 8th ... time: the log tells that they go on, and does not fill up.
//
//     ucs::Repeats refused_;
//     ...
//     TW_LOG_REPEATED(LogLevel::kWarn, refused_.due(why), "%s is turned away: %s", peer, why);
//
// 1. One text is one thing, whose times are counted apart. At most kKinds are remembered: one more
//    takes the place of the one that was noted longest ago.
// 2. N failures write some log2(N) lines of each kind, however many kinds there are: of the kinds
//    that take a place, too, the 1st, 2nd, 4th ... is logged.
// 3. Nothing is allocated.
//
// Threads: whoever has the lock of the owner.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::ucs {

class Repeats {
  public:
    static constexpr std::size_t kKinds = 16;

    /// `what` has happened. The times that it has, if they are to be logged; else 0. Without a text
    /// all is one thing.
    std::uint64_t due(std::string_view what = {}) {
        Kind& kind = of(what);
        kind.noted = ++noted_;
        const bool is_due = std::has_single_bit(++kind.times);
        return !std::exchange(kind.is_one_more, false) && is_due ? kind.times : 0;
    }

    /// The problem is over: the next time is the first one.
    void forget(std::string_view what) { of(what).times = 0; }

  private:
    struct Kind {
        std::size_t hash = 0;
        std::uint64_t times = 0;
        std::uint64_t noted = 0;   // when, in notes
        bool is_one_more = false;  // its first time is not logged
    };

    Kind& of(std::string_view what) {
        const std::size_t hash = std::hash<std::string_view>{}(what);
        const auto found = std::ranges::find(kinds_, hash, &Kind::hash);
        if (found != kinds_.end())
            return *found;
        Kind& oldest = *std::ranges::min_element(kinds_, {}, &Kind::noted);
        forgotten_ += oldest.noted != 0 ? 1 : 0;
        oldest = {hash, 0, 0, forgotten_ != 0 && !std::has_single_bit(forgotten_)};
        return oldest;
    }

    std::array<Kind, kKinds> kinds_;
    std::uint64_t noted_ = 0;
    std::uint64_t forgotten_ = 0;
};

}  // namespace tagwire::ucs

/// `times`: of Repeats::due(). `format` is a literal.
#define TW_LOG_REPEATED(level, times, format, ...)                              \
    do {                                                                        \
        if (const unsigned long tw_times = (times); tw_times == 1) {            \
            TW_LOG(level, format, __VA_ARGS__);                                 \
        } else if (tw_times > 1) {                                              \
            TW_LOG(level, format " (%lu times so far)", __VA_ARGS__, tw_times); \
        }                                                                       \
    } while (false)
