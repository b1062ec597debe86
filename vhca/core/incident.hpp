// SPDX-License-Identifier: BSD-3-Clause
// Incidents that end a device, take its port down, or change what programs know of it. Nothing but
// an order from outside causes them: the command `tagwire-vhca inject`, or a test.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tagwire::vhca {

enum class Incident : std::uint8_t {
    kDeviceFatal,  // the device dies, for good
    kPortDown,     // the first port loses its cable
    kPortUp,       // the first port has its cable again
    kLidChange,    // for this and those below: the event alone
    kGidChange,
    kPkeyChange,
    kSmChange,
    kClientReregister,
    kSrqError,  // every SRQ fails, and the queue pairs that use one
};

/// "device-fatal", "port-down" and so on; nullopt: there is no such incident.
std::optional<Incident> incident_of(std::string_view name);
/// The names of all, separated by ", ".
const char* incident_names();

}  // namespace tagwire::vhca
