// SPDX-License-Identifier: BSD-3-Clause
// Makes explanations of the API. Control path only.
#pragma once

#include <cstddef>

#include "protocols/api/tw_explain.h"
#include "protocols/api/tw_rma.h"
#include "protocols/request/rail.hpp"
#include "protocols/rndv/rndv_sender.hpp"
#include "protocols/transfer/stripe.hpp"

namespace tagwire::proto {

class RemoteKey;

/// `stripes`: of the endpoint that is asked about, if it has chosen rails; else null, and all rails
/// are taken to lead to the peer. `sender`: of that endpoint, whose receiver may have advised it;
/// null: nobody has.
tw_explanation_t explain(const Rail& rail, std::size_t length, tw_buffer_kind_t buffer,
                         const Stripes* stripes, const RndvSender* sender);

/// With an endpoint that is kReady.
tw_rma_explanation_t explain(const Endpoint& ep, RemoteKey& key, tw_rma_kind_t kind,
                             tw_atomic_op_t operation, std::size_t length, bool is_mapped);

}  // namespace tagwire::proto
