// SPDX-License-Identifier: BSD-3-Clause
// Where the device's events go: into the queues of channels and contexts.
#pragma once

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

EventSink& face_sink();

}  // namespace tagwire::vhca
