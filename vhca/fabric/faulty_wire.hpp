// SPDX-License-Identifier: BSD-3-Clause
// A wire that loses, repeats, reorders and delays what goes to another wire, by a seeded generator.
// It loses nothing else: what is due and finds no room below waits for it, and meanwhile the device
// above finds none for that node either.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

/// Probabilities are per packet, from 0 to 1.
struct FaultConfig {
    double loss = 0, duplication = 0, reordering = 0;
    Time delay_ns = 0;                 // of every packet
    Time reordering_ns_max = 100'000;  // a reordered packet is late by up to this
    std::uint64_t seed = 1;
    std::optional<ServiceClass> carried{};  // if set, packets of other classes are lost

    [[nodiscard]] bool is_any() const {
        return loss > 0 || duplication > 0 || reordering > 0 || delay_ns > 0 || carried;
    }
};

/// packets + duplicated = lost + passed + held back at present.
struct FaultCounters {
    std::uint64_t misclassed = 0;  // of those that were lost: they had another class
    std::uint64_t packets = 0, lost = 0, duplicated = 0, reordered = 0, delayed = 0, passed = 0;
};

class FaultyWire final : public Wire {
  public:
    static constexpr std::size_t kHeldMax = 8192;  // packets to one node that are late at one time

    FaultyWire(Wire& below, const FaultConfig& config, std::function<Time()> clock);

    std::byte* claim(Route to, std::size_t bytes) override;
    void commit(Route to, std::size_t bytes) override;
    Turn turn_of(Route to) override { return below_.turn_of(to); }
    bool has_had_turn(Route to, const Turn& since) override {
        return below_.has_had_turn(to, since);
    }
    [[nodiscard]] unsigned steps_to_catch_up() const override { return below_.steps_to_catch_up(); }

    /// Sends what is due. Returns when the next packet is, kNever if none is held back; a time that
    /// is over if one waits for room below.
    Time progress(Time now);

    [[nodiscard]] const FaultCounters& counters() const { return counters_; }
    [[nodiscard]] std::size_t held() const { return held_.size(); }

  private:
    struct Packet {
        Route to;
        std::vector<std::byte> bytes;
    };

    bool happens(double probability);
    [[nodiscard]] bool is_full(Route to) const;
    void note_misclassed(ServiceClass service);
    void send(Route to, std::size_t bytes, Time now);
    bool pass(Route to, const std::byte* bytes, std::size_t count);
    void hold(Route to, std::size_t bytes, Time until);

    Wire& below_;
    const FaultConfig config_;
    const std::function<Time()> clock_;
    std::mt19937_64 random_;
    FaultCounters counters_;
    std::multimap<Time, Packet> held_;  // by the time they are due; equal times keep their order
    std::map<std::uint64_t, std::size_t> held_for_;  // how many, by node
    std::vector<std::uint64_t> full_;                // nodes for which some of them are due
    std::array<std::byte, kPacketBytesMax> scratch_{};
};

}  // namespace tagwire::vhca
