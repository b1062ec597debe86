// SPDX-License-Identifier: BSD-3-Clause
// Makes explanations of the API. Control path only.
#pragma once

#include <cstddef>

#include "protocols/api/tw_explain.h"
#include "protocols/request/rail.hpp"
#include "protocols/rndv/rndv_sender.hpp"
#include "protocols/transfer/stripe.hpp"

namespace tagwire::proto {

/// `stripes`: of the endpoint that is asked about, if it has chosen rails; else null, and all rails
/// are taken to lead to the peer. `sender`: of that endpoint, whose receiver may have advised it;
/// null: nobody has.
tw_explanation_t explain(const Rail& rail, std::size_t length, tw_buffer_kind_t buffer,
                         const Stripes* stripes, const RndvSender* sender);

}  // namespace tagwire::proto
