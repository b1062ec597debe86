// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/force.hpp"

#include <algorithm>
#include <charconv>

#include "ucs/log/log.hpp"

namespace tagwire::sm {

namespace {

constexpr std::string_view kRingStart = "ring_start";

struct Choice {
    std::string_view name;
    std::string_view value;
    void (*set)(SmForce* force);
};

constexpr Choice kChoices[] = {
    {"death", "peerpidfd", [](SmForce* force) { force->death = DeathMode::kPeerPidfd; }},
    {"death", "pidfd", [](SmForce* force) { force->death = DeathMode::kPidfd; }},
    {"death", "hangup", [](SmForce* force) { force->death = DeathMode::kHangup; }},
    {"poll", "rings", [](SmForce* force) { force->poll = PollMode::kRings; }},
    {"poll", "bell", [](SmForce* force) { force->poll = PollMode::kBell; }},
    {"wakeup", "membarrier", [](SmForce* force) { force->wakeup = WakeupMode::kMembarrier; }},
    {"wakeup", "fence", [](SmForce* force) { force->wakeup = WakeupMode::kFence; }},
};

bool take_position(std::string_view value, std::uint64_t* position_p) {
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), *position_p);
    return parsed.ec == std::errc() && parsed.ptr == value.data() + value.size();
}

bool take(std::string_view one, SmForce* force) {
    const std::size_t colon = one.find(':');
    if (colon == std::string_view::npos)
        return false;
    const std::string_view name = one.substr(0, colon);
    const std::string_view value = one.substr(colon + 1);
    if (name == kRingStart)
        return take_position(value, &force->ring_start);
    const auto* choice = std::ranges::find_if(
        kChoices, [&](const Choice& row) { return row.name == name && row.value == value; });
    if (choice == std::end(kChoices))
        return false;
    choice->set(force);
    return true;
}

}  // namespace

ucs_status_t parse_force(std::string_view text, SmForce* force_p) {
    SmForce force;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        if (!take(one, &force)) {
            TW_LOG_ERROR(
                "TAGWIRE_SM_FORCE: %.*s is not accepted: expected ring_start:POSITION, "
                "death:peerpidfd, death:pidfd, death:hangup, poll:rings, poll:bell, "
                "wakeup:membarrier or wakeup:fence, separated by commas",
                static_cast<int>(one.size()), one.data());
            return UCS_ERR_INVALID_PARAM;
        }
        text.remove_prefix(std::min(one.size() + 1, text.size()));
    }
    *force_p = force;
    return UCS_OK;
}

}  // namespace tagwire::sm
