// SPDX-License-Identifier: BSD-3-Clause
// Incidents that a test or the command `tagwire-vhca inject` wants.
#include <cerrno>

#include "vhca/face/context.hpp"
#include "vhca/face/extension.hpp"

using namespace tagwire::vhca;

int tagwire_vhca_inject(ibv_context* context, const char* incident) {
    const auto wanted = incident_of(incident);
    return wanted ? face(context).engine->happen(*wanted) : EINVAL;
}
