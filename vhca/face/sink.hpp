// SPDX-License-Identifier: BSD-3-Clause
// The sink of the device's events: it puts them into the queues of channels and contexts.
#pragma once

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

EventSink& face_sink();

}  // namespace tagwire::vhca
