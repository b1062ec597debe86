// SPDX-License-Identifier: BSD-3-Clause
// TAGWIRE_SM_FORCE: what an interface would choose by itself, chosen by a test.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <string_view>

namespace tagwire::sm {

/// Detection of dead peers: SO_PEERPIDFD, pidfd_open(2), or the hang-up of the socket alone; kAuto:
/// the first that works.
enum class DeathMode : int { kAuto, kPeerPidfd, kPidfd, kHangup };
/// Memory that an idle call of progress polls: rings, or one word whatever the number of peers, for
/// which senders pay two atomic operations for each message; kAuto: that word while calls are far
/// apart (crowding.hpp).
enum class PollMode : int { kAuto, kRings, kBell };
/// Side that executes the barrier of the wake-up: the receiver before it sleeps, or the sender at
/// each send; kAuto: the receiver if the kernel has membarrier(2).
enum class WakeupMode : int { kAuto, kMembarrier, kFence };

struct SmForce {
    std::uint64_t ring_start = 0;  // first position of new rings
    DeathMode death = DeathMode::kAuto;
    PollMode poll = PollMode::kAuto;
    WakeupMode wakeup = WakeupMode::kAuto;
};

/// The text of the option: NAME:VALUE, separated by commas. UCS_ERR_INVALID_PARAM: logged, with
/// what is accepted.
ucs_status_t parse_force(std::string_view text, SmForce* force_p);

}  // namespace tagwire::sm
