// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/sim_fabric.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace tagwire::vhca {

class SimFabric::Node final : public Wire {
  public:
    Node(SimFabric& fabric, std::size_t number) : fabric_(fabric), number_(number) {}

    std::byte* claim(Route to, std::size_t /*bytes*/) override {
        if (!fabric_.has_room(number_, to)) {
            ++fabric_.counters_.refused;
            return nullptr;
        }
        if (!claimed_)
            claimed_ = fabric_.new_buffer();
        return fabric_.at(*claimed_);
    }

    void commit(Route to, std::size_t bytes) override {
        const std::uint32_t buffer = *claimed_;
        claimed_.reset();
        fabric_.send(number_, to, buffer, bytes);
    }

    std::unique_ptr<Device> device;

  private:
    SimFabric& fabric_;
    std::size_t number_;
    std::optional<std::uint32_t> claimed_;
};

SimFabric::SimFabric(const SimConfig& config, std::uint64_t seed)
    : config_(config), random_(seed), seed_(seed) {}
SimFabric::~SimFabric() = default;

Device& SimFabric::add_node(const DeviceConfig& config, EventSink& sink) {
    nodes_.push_back(std::make_unique<Node>(*this, nodes_.size()));
    Node& node = *nodes_.back();
    node.device = std::make_unique<Device>(config, node, sink, seed_ * 1000 + nodes_.size());
    return *node.device;
}

Device& SimFabric::device(std::size_t node) {
    return *nodes_[node]->device;
}

bool SimFabric::has_room(std::size_t from, Route to) {
    return to.node >= nodes_.size() || under_way(from, to.node) < config_.room_packets;
}

std::uint32_t SimFabric::new_buffer() {
    if (free_buffers_.empty()) {
        buffers_.push_back(std::make_unique<std::byte[]>(kPacketBytesMax));
        return static_cast<std::uint32_t>(buffers_.size() - 1);
    }
    const std::uint32_t buffer = free_buffers_.back();
    free_buffers_.pop_back();
    return buffer;
}

Time SimFabric::arrival(std::size_t from, std::size_t to, const std::byte* packet) {
    const Time spread = config_.delay_max - config_.delay_min;
    Time time = now_ + config_.delay_min + (spread == 0 ? 0 : random_.below(spread + 1));
    if (spread != 0 && !config_.reorders_path) {
        std::uint32_t qpn = 0;
        std::memcpy(&qpn, packet + 4, sizeof qpn);  // the destination, as it stands in the BTH
        Time& newest = newest_arrival_[(from << 48 | to << 32) ^ qpn];
        newest = time = std::max(time, newest);
    }
    return time;
}

void SimFabric::launch(std::size_t from, std::size_t to, std::uint32_t buffer, std::size_t bytes) {
    ++under_way(from, to);
    flights_.push_back({arrival(from, to, at(buffer)), next_sequence_++,
                        static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), buffer,
                        static_cast<std::uint32_t>(bytes)});
    std::push_heap(flights_.begin(), flights_.end(), Later{});
}

void SimFabric::send(std::size_t from, Route to, std::uint32_t buffer, std::size_t bytes) {
    const bool is_lost = to.node >= nodes_.size() || nodes_[to.node]->device == nullptr ||
                         partitions_.contains(std::minmax<std::size_t>(from, to.node)) ||
                         random_.chance(config_.loss);
    if (is_lost) {
        ++counters_.lost;
        free_buffers_.push_back(buffer);
        return;
    }
    if (random_.chance(config_.duplication)) {
        ++counters_.duplicated;
        const std::uint32_t copy = new_buffer();
        std::memcpy(at(copy), at(buffer), bytes);
        launch(from, to.node, copy, bytes);
    }
    launch(from, to.node, buffer, bytes);
}

void SimFabric::inject(Route from, Route to, std::span<const std::byte> packet) {
    const std::uint32_t buffer = new_buffer();
    std::memcpy(at(buffer), packet.data(), std::min(packet.size(), kPacketBytesMax));
    launch(from.node, to.node, buffer, std::min(packet.size(), kPacketBytesMax));
}

void SimFabric::deliver_due() {
    while (!flights_.empty() && flights_.front().time <= now_) {
        std::pop_heap(flights_.begin(), flights_.end(), Later{});
        const Flight flight = flights_.back();
        flights_.pop_back();
        --under_way(flight.from, flight.to);
        if (Device* device = nodes_[flight.to]->device.get(); device != nullptr) {
            ++counters_.delivered;
            device->receive({flight.from}, {at(flight.buffer), flight.bytes}, now_);
        }
        free_buffers_.push_back(flight.buffer);
    }
}

/// The earliest time that a device wants to be called again. If one waits for room while no packet
/// is under way that could make some, it looks again after a while.
Time SimFabric::progress_all() {
    Time wake = kNever;
    for (const auto& node : nodes_)
        if (node->device != nullptr)
            wake = std::min(wake, node->device->progress(now_));
    constexpr Time kWhile = 1000;
    return wake <= now_ && flights_.empty() ? now_ + kWhile : wake;
}

bool SimFabric::step() {
    const Time wake = progress_all();
    if (flights_.empty()) {
        now_ = wake == kNever ? now_ : std::max(now_, wake);
        return wake != kNever;
    }
    // A device that wants to go on at once waits for room; an arriving packet makes some.
    const Time arrives = flights_.front().time;
    now_ = std::max(now_, wake > now_ ? std::min(wake, arrives) : arrives);
    deliver_due();
    return true;
}

void SimFabric::run_until(Time end) {
    for (;;) {
        const Time wake = progress_all();
        const Time arrives = flights_.empty() ? kNever : flights_.front().time;
        const Time next = std::min(arrives, wake > now_ ? wake : kNever);
        if (next > end)
            break;
        now_ = std::max(now_, next);
        deliver_due();
    }
    now_ = std::max(now_, end);
    progress_all();
}

void SimFabric::set_partitioned(std::size_t a, std::size_t b, bool is_partitioned) {
    const auto pair = std::minmax(a, b);
    if (is_partitioned)
        partitions_.insert(pair);
    else
        partitions_.erase(pair);
}

void SimFabric::crash(std::size_t node) {
    nodes_[node]->device.reset();
}

}  // namespace tagwire::vhca
