// SPDX-License-Identifier: BSD-3-Clause
// Incidents that a test or the command `tagwire-vhca inject` wants.
#include <cerrno>

#include "vhca/engine/control.hpp"
#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"

using namespace tagwire::vhca;

int tagwire_vhca_inject(ibv_context* context, const char* incident) {
    const auto wanted = incident_of(incident);
    return wanted ? face(context).engine->happen(*wanted) : EINVAL;
}

int tagwire_vhca_order(int process, unsigned device, const char* incident) {
    return order_incident(process, device, incident);
}

const char* tagwire_vhca_incidents(void) {
    return incident_names();
}

int tagwire_vhca_check_options(void) {
    return check_options();
}
