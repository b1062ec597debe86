// SPDX-License-Identifier: BSD-3-Clause
// Counters of one object (an interface, a worker): the owner thread counts, any thread may read.
//
//     enum class SmCounter { kSent, kReceived, kCount };
//     constexpr auto kSmCounters = counter_table<SmCounter>({
//         {SmCounter::kSent, "sent", "messages", "messages published to a peer's ring"},
//         {SmCounter::kReceived, "received", "messages", "messages delivered"},
//     });
//     CounterArray<SmCounter> counters_;
//     counters_.add(SmCounter::kSent);                        // one addition in memory
//     CounterSet counters() const { return counters_.set(kSmCounters); }
//
// There is no registry: who has the object has its counters, and shows them through the API.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/sys/one_writer.hpp"

namespace tagwire::ucs {

struct CounterInfo {
    const char* name;
    const char* unit;
    const char* doc;  // stands alone: programs show it without the other counters
};

/// One row of a table of counters.
template <class Enum>
struct CounterRow {
    Enum counter;
    const char* name;
    const char* unit;
    const char* doc;
};

template <class Enum>
using CounterTable = std::array<CounterInfo, static_cast<std::size_t>(Enum::kCount)>;

/// The rows by counter. Does not compile if one is missing, or is not at its place.
template <class Enum, std::size_t N>
consteval CounterTable<Enum> counter_table(const CounterRow<Enum> (&rows)[N]) {
    static_assert(N == static_cast<std::size_t>(Enum::kCount), "each counter has one row");
    CounterTable<Enum> table{};
    for (std::size_t i = 0; i < N; ++i) {
        if (rows[i].counter != static_cast<Enum>(i))
            throw "a row is not at the place of its counter";
        table[i] = {rows[i].name, rows[i].unit, rows[i].doc};
    }
    return table;
}

/// One writer. Relaxed: a reader sees each counter some time later, and no order between two of
/// them.
class Counter {
  public:
    void add(std::uint64_t amount = 1) { add_alone(value_, amount); }
    std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> value_{0};
};

/// A view of an object's counters, valid as long as the object. Both spans have the same length.
struct CounterSet {
    std::span<const CounterInfo> infos;
    std::span<const Counter> values;
};

/// `Enum` is an enum class whose last enumerator is kCount.
template <class Enum>
class CounterArray {
  public:
    static constexpr std::size_t kSize = static_cast<std::size_t>(Enum::kCount);

    void add(Enum counter, std::uint64_t amount = 1) {
        counters_[static_cast<std::size_t>(counter)].add(amount);
    }
    std::uint64_t value(Enum counter) const {
        return counters_[static_cast<std::size_t>(counter)].value();
    }
    CounterSet set(std::span<const CounterInfo, kSize> infos) const { return {infos, counters_}; }

  private:
    std::array<Counter, kSize> counters_;
};

}  // namespace tagwire::ucs
