// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/incident.hpp"

#include <array>
#include <string>

namespace tagwire::vhca {
namespace {

struct Named {
    std::string_view name;
    Incident incident;
};

constexpr std::array kNamed = {
    Named{"device-fatal", Incident::kDeviceFatal}, Named{"port-down", Incident::kPortDown},
    Named{"port-up", Incident::kPortUp},           Named{"lid-change", Incident::kLidChange},
    Named{"gid-change", Incident::kGidChange},     Named{"pkey-change", Incident::kPkeyChange},
    Named{"sm-change", Incident::kSmChange},       Named{"reregister", Incident::kClientReregister},
    Named{"srq-error", Incident::kSrqError},
};

std::string list_names() {
    std::string names;
    for (const Named& known : kNamed)
        names.append(names.empty() ? "" : ", ").append(known.name);
    return names;
}

}  // namespace

std::optional<Incident> incident_of(std::string_view name) {
    for (const Named& known : kNamed)
        if (known.name == name)
            return known.incident;
    return std::nullopt;
}

const char* incident_names() {
    static const std::string names = list_names();
    return names.c_str();
}

}  // namespace tagwire::vhca
