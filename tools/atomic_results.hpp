// SPDX-License-Identifier: BSD-3-Clause
// Checks of the words that tests of atomics change, at both levels.
#pragma once

#include <cstdint>

#include "tools/job.hpp"

namespace tagwire::tools {

/// A word here, to which the other side adds one with each message.
template <class Word>
class AddedWord {
  public:
    explicit AddedWord(const Job& job) : validate_(job.validate) {}

    /// `AnyInbox`: an Inbox or a MsgInbox.
    template <class AnyInbox>
    bool has_arrived(const AnyInbox& inbox, std::uint64_t sequence) {
        const Word value = inbox.template load<Word>(0);
        const Word expected = static_cast<Word>(sequence + 1);
        if (value != expected && value != static_cast<Word>(sequence)) [[unlikely]]
            ++errors_;
        validated_ += validate_ && value == expected ? 1 : 0;
        return value == expected;
    }

    Outcome outcome() const { return {validated_, errors_}; }

  private:
    bool validate_;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

/// A word there, to which this side alone adds one with each operation, and the results of these.
template <class Word>
class FetchedWord {
  public:
    explicit FetchedWord(const Job& job) : validate_(job.validate) {}

    void expect(std::uint64_t sequence) { expected_ = static_cast<Word>(sequence); }
    /// Operands of a compare-and-swap.
    const Word& expected() const { return expected_; }
    Word next() const { return static_cast<Word>(expected_ + 1); }
    /// Where the operation's result goes.
    Word* result() { return &result_; }

    void check() {
        if (result_ != expected_) [[unlikely]]
            ++errors_;
        validated_ += validate_ ? 1 : 0;
    }

    Outcome outcome() const { return {validated_, errors_}; }

  private:
    bool validate_;
    Word result_ = 0;
    Word expected_ = 0;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace tagwire::tools
