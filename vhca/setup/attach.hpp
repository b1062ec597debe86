// SPDX-License-Identifier: BSD-3-Clause
// From the options of this process to its engines; both faces begin here.
#pragma once

#include <cstdint>

#include "vhca/engine/engine.hpp"

namespace tagwire::vhca {

/// Ours, in address attributes and tables.
inline constexpr int kCompVectors = 8;
inline constexpr std::uint16_t kPkeyTableEntries = 1;
inline constexpr std::uint16_t kDefaultPkeyEntry = 0xffff;

/// Looks at the options of all devices and makes none. 0, or EINVAL: the log says what is wrong.
int check_options();
/// Number of devices: TAGWIRE_VHCA_DEVICES.
unsigned device_count();

/// Changes what the options made of the device, before it is made.
using Adapt = void (*)(DeviceConfig& config);

/// The engine of a device of this process, made now if it was not yet; `adapt` may be nullptr. Its
/// events go to `sink` from now on. 0, or an errno value: EINVAL for an option, which was named in
/// the log, else as Engine::get().
int attach_engine(unsigned index, EventSink& sink, Adapt adapt, Engine** engine_p);

/// Host order, of a device whose engine could not be made.
std::uint64_t guid_without_engine();

}  // namespace tagwire::vhca
