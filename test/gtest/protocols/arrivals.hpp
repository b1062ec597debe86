// SPDX-License-Identifier: BSD-3-Clause
// Arrivals of messages at one worker, for the references of matching: the ticks between which each
// was, as far as anybody knows, and which came before which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tagwire::test {

/// A time that the test counts.
using Tick = std::uint64_t;

inline constexpr Tick kNever = UINT64_MAX;
inline constexpr std::size_t kNone = SIZE_MAX;

struct Arrival {
    Tick after = 0;
    Tick before = kNever;
    std::size_t receive = kNone;  // that got the message
    bool is_known = false;        // somebody saw it
    std::vector<std::size_t> earlier_than{};
    std::size_t predecessors = 0;
};

class Arrivals {
  public:
    void begin(std::size_t messages) { all_.assign(messages, {}); }
    Arrival& operator[](std::size_t i) { return all_[i]; }
    const Arrival& operator[](std::size_t i) const { return all_[i]; }
    /// Either may be kNone.
    void precede(std::size_t first, std::size_t second);
    /// Says `wrong(i, what)` of each that cannot have been, if each comes behind its predecessors.
    /// To be called once.
    void order(const std::function<void(std::size_t, const std::string&)>& wrong);

  private:
    std::vector<Arrival> all_;
};

}  // namespace tagwire::test
