// SPDX-License-Identifier: BSD-3-Clause
// A fabric of many devices in one process, on a simulated clock. Everything that happens follows
// from the seed and the caller's calls, so a run can be repeated.
//
// Time stops while the caller posts and polls; step() moves it to the next event.
// Packets of one path (sending node, receiving queue pair) keep their order unless
// SimConfig::reorders_path; those of different paths overtake each other when delays differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

/// xorshift64*: small, and the same everywhere.
class SimRandom {
  public:
    explicit SimRandom(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 0x1234567) {}
    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1d;
    }
    /// Below `end`, which is not 0.
    std::uint64_t below(std::uint64_t end) { return (next() >> 11) % end; }
    bool chance(double probability) {
        return probability > 0 && static_cast<double>(next() >> 11) < probability * 0x1p53;
    }

  private:
    std::uint64_t state_;
};

struct SimConfig {
    double loss = 0, duplication = 0;  // probabilities of a packet
    Time delay_min = 1000, delay_max = 1000;
    bool reorders_path = false;
    std::uint32_t room_packets = 1024;  // under way from one node to another; more are refused
};

struct SimCounters {
    std::uint64_t delivered = 0, lost = 0, duplicated = 0, refused = 0;
};

class SimFabric {
  public:
    SimFabric(const SimConfig& config, std::uint64_t seed);
    ~SimFabric();

    /// Nodes are numbered from 0; the number is the Route.
    Device& add_node(const DeviceConfig& config, EventSink& sink);
    [[nodiscard]] Device& device(std::size_t node);
    [[nodiscard]] static Route route(std::size_t node) { return {node}; }
    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] const SimCounters& counters() const { return counters_; }
    [[nodiscard]] SimConfig& config() { return config_; }

    /// Lets every device work, then time passes until the next packet arrives or timer runs out.
    /// False: nothing will ever happen by itself.
    bool step();
    /// Steps until `is_done()`, at most `steps_max` times. Its last value.
    template <typename F>
    bool run(F&& is_done, std::size_t steps_max = 1'000'000) {
        for (std::size_t step_count = 0; !is_done(); ++step_count)
            if (step_count == steps_max || !step())
                return is_done();
        return true;
    }
    /// Until nothing is due at or before `end`; then it is `end`.
    void run_until(Time end);

    /// Packets sent between the two from now on are lost, or no longer.
    void set_partitioned(std::size_t a, std::size_t b, bool is_partitioned);
    /// The device and all that is under way to it are gone.
    void crash(std::size_t node);
    /// A packet that no device sent.
    void inject(Route from, Route to, std::span<const std::byte> packet);

  private:
    class Node;
    struct Flight {
        Time time;
        std::uint64_t sequence;  // among those of the same time
        std::uint32_t from, to, buffer, bytes;
    };
    struct Later {
        bool operator()(const Flight& a, const Flight& b) const {
            return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
        }
    };

    [[nodiscard]] bool has_room(std::size_t from, Route to);
    [[nodiscard]] std::uint32_t new_buffer();
    [[nodiscard]] std::byte* at(std::uint32_t buffer) { return buffers_[buffer].get(); }
    void send(std::size_t from, Route to, std::uint32_t buffer, std::size_t bytes);
    void launch(std::size_t from, std::size_t to, std::uint32_t buffer, std::size_t bytes);
    [[nodiscard]] Time arrival(std::size_t from, std::size_t to, const std::byte* packet);
    void deliver_due();
    Time progress_all();
    [[nodiscard]] std::uint32_t& under_way(std::size_t from, std::size_t to) {
        return under_way_[from << 32 | to];
    }

    SimConfig config_;
    SimRandom random_;
    std::uint64_t seed_;
    Time now_ = 1;
    SimCounters counters_;
    std::uint64_t next_sequence_ = 0;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<Flight> flights_;  // heap by Later
    std::vector<std::unique_ptr<std::byte[]>> buffers_;
    std::vector<std::uint32_t> free_buffers_;
    std::unordered_map<std::uint64_t, std::uint32_t> under_way_;
    std::unordered_map<std::uint64_t, Time> newest_arrival_;  // by path
    std::set<std::pair<std::size_t, std::size_t>> partitions_;
};

}  // namespace tagwire::vhca
