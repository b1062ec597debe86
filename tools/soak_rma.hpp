// SPDX-License-Identifier: BSD-3-Clause
// The part of a soak that uses memory of the other side, and its handler of active messages: puts,
// gets, a counter, and messages in order. Each side has a window that only the other one writes, so
// that one knows what must be there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/channel.hpp"
#include "tools/msg_link.hpp"
#include "tools/random.hpp"
#include "tools/soak.hpp"

namespace tagwire::tools {

class SoakRma {
  public:
    /// The link is connected. Both sides make theirs at the same time.
    SoakRma(MsgLink& link, Channel& channel);
    ~SoakRma();
    SoakRma(const SoakRma&) = delete;
    SoakRma& operator=(const SoakRma&) = delete;

    /// Some operations; returns when each has ended. Throws Failure.
    void run_round(Random& random, SoakCounts* counts);
    /// Numbers that the other side compares in check_end().
    void tell_end(Encoder* message) const;
    /// All that the other side has done has arrived. Throws Failure.
    void check_end(Decoder* message);

  private:
    static constexpr std::size_t kDataBytes = 100'000;
    static constexpr std::size_t kWindowBytes = 64 + kDataBytes;  // a counter first
    static constexpr std::size_t kHandledMax = 200'000;
    static constexpr unsigned kHandler = 1;  // id

    void put(Random& random);
    void get(Random& random);
    void add();
    void send(Random& random);
    template <class Call>
    void run(const char* what, const Call& call);
    struct Receiving;
    void handle(tw_am_t* am);
    void check_data(std::uint64_t number, std::span<const std::uint8_t> data);
    void found(std::string what);

    MsgLink& link_;
    std::vector<std::uint8_t> own_;
    void* window_ = nullptr;
    tw_mem_h memory_ = nullptr;
    tw_key_h key_ = nullptr;
    std::uint64_t address_ = 0;         // of the other's window
    std::vector<std::uint8_t> theirs_;  // what its data must be
    std::uint64_t puts_ = 0, adds_ = 0, sends_ = 0;
    // Messages of the other side: whose handler was called, and those with checked data.
    std::uint64_t arrived_ = 0, handled_ = 0;
    std::string wrong_;  // the first thing that a handler has found
};

}  // namespace tagwire::tools
