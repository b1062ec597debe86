// SPDX-License-Identifier: BSD-3-Clause
// Makes explanations of the API. Control path only.
#pragma once

#include <cstddef>

#include "protocols/api/tw_explain.h"
#include "protocols/request/rail.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

/// `stripes`: of the endpoint that is asked about, if it has chosen rails; else null, and all rails
/// are taken to lead to the peer. `advice`: what its receiver has advised; null: nothing.
tw_explanation_t explain(const Rail& rail, std::size_t length, tw_buffer_kind_t buffer,
                         const Stripes* stripes, const Advice* advice);

}  // namespace tagwire::proto
