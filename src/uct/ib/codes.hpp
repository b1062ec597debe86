// SPDX-License-Identifier: BSD-3-Clause
// Conversions to the codes of verbs: timeouts and access flags of a queue pair, completion
// statuses.
#pragma once

#include <cstdint>

#include "uct/ib/device.hpp"

namespace tagwire::ib {

/// The code of the next time in 4.096 us times powers of two that is not shorter.
std::uint8_t timeout_code(std::uint64_t ns);
/// The code of the next RNR timer that is not shorter (InfiniBand specification, table of AETH
/// syndromes); code 0 is the longest.
std::uint8_t rnr_code(std::uint64_t ns);
/// IBV_ACCESS_x: what peers may do with registered memory, as far as the device can.
unsigned access_of(const Device& device);

/// The status that a completion means for its endpoint.
ucs_status_t status_of(ibv_wc_status status);
/// The failure of an endpoint whose request ended so. Flushed: its queue pair went to the error
/// state by itself, and nobody has cancelled anything.
ucs_status_t failure_of(ibv_wc_status status);

}  // namespace tagwire::ib
