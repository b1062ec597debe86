// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/faulty_wire.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::vhca {

FaultyWire::FaultyWire(Wire& below, const FaultConfig& config, std::function<Time()> clock)
    : below_(below), config_(config), clock_(std::move(clock)), random_(config.seed) {}

std::byte* FaultyWire::claim(Route to, std::size_t bytes) {
    // A delayed packet may be sent after its successors, but room is checked now, so that the
    // device notices a full ring.
    const auto held = held_for_.find(to.node);
    if ((held != held_for_.end() && held->second >= kHeldMax) || is_full(to))
        return nullptr;
    return below_.claim(to, bytes) != nullptr ? scratch_.data() : nullptr;
}

bool FaultyWire::is_full(Route to) const {
    return std::ranges::find(full_, to.node) != full_.end();
}

bool FaultyWire::happens(double probability) {
    if (probability <= 0)
        return false;
    constexpr double kScale = 0x1p-53;
    return static_cast<double>(random_() >> 11) * kScale < probability;
}

void FaultyWire::commit(Route to, std::size_t bytes) {
    ++counters_.packets;
    if (config_.carried && to.service != *config_.carried) [[unlikely]] {
        note_misclassed(to.service);
        return;
    }
    if (happens(config_.loss)) {
        ++counters_.lost;
        return;
    }
    const Time now = clock_();
    if (happens(config_.duplication)) {
        ++counters_.duplicated;
        send(to, bytes, now);
    }
    send(to, bytes, now);
}

void FaultyWire::note_misclassed(ServiceClass service) {
    ++counters_.lost;
    if (counters_.misclassed++ == 0) {
        TW_LOG_WARN(
            "virtual HCA: a packet of service level %u and traffic class %u is lost: the network "
            "carries %u and %u only (TAGWIRE_VHCA_NETWORK_CLASS); later losses are not logged",
            service.level, service.traffic, config_.carried->level, config_.carried->traffic);
    }
}

void FaultyWire::send(Route to, std::size_t bytes, Time now) {
    Time late = config_.delay_ns;
    if (late != 0)
        ++counters_.delayed;
    if (happens(config_.reordering)) {
        ++counters_.reordered;
        late += 1 + random_() % (config_.reordering_ns_max + 1);
    }
    if (late != 0 || !pass(to, scratch_.data(), bytes))
        hold(to, bytes, now + late);
}

void FaultyWire::hold(Route to, std::size_t bytes, Time until) {
    held_.emplace(until, Packet{to, {scratch_.data(), scratch_.data() + bytes}});
    ++held_for_[to.node];
}

bool FaultyWire::pass(Route to, const std::byte* bytes, std::size_t count) {
    std::byte* place = below_.claim(to, count);
    if (place == nullptr)
        return false;
    std::memcpy(place, bytes, count);
    below_.commit(to, count);
    ++counters_.passed;
    return true;
}

Time FaultyWire::progress(Time now) {
    full_.clear();
    for (auto next = held_.begin(); next != held_.end() && next->first <= now;) {
        const Packet& packet = next->second;
        if (!is_full(packet.to) && pass(packet.to, packet.bytes.data(), packet.bytes.size())) {
            if (const auto held = held_for_.find(packet.to.node); --held->second == 0)
                held_for_.erase(held);
            next = held_.erase(next);
            continue;
        }
        if (!is_full(packet.to))
            full_.push_back(packet.to.node);
        ++next;
    }
    return held_.empty() ? kNever : held_.begin()->first;
}

}  // namespace tagwire::vhca
