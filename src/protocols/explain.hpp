// SPDX-License-Identifier: BSD-3-Clause
// Fills explanations of the API. Control path only.
#pragma once

#include <cstddef>

#include "protocols/api/tw_explain.h"
#include "protocols/rail.hpp"

namespace tagwire::proto {

void explain(const Rail& rail, std::size_t length, tw_buffer_kind_t buffer, tw_explanation_t* out);

}  // namespace tagwire::proto
