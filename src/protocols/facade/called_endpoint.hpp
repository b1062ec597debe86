// SPDX-License-Identifier: BSD-3-Clause
// The endpoint that a call of the C API names, for the bodies of such calls.
#pragma once

#include "protocols/worker/endpoint.hpp"

namespace tagwire::proto {

/// The endpoint by which messages of the calling thread leave.
inline Endpoint& way_of(Endpoint& ep) {
    Endpoint* way = ep.tx.contexts == nullptr ? nullptr : ep.tx.contexts->of_this_thread();
    return way == nullptr ? ep : *way;
}

}  // namespace tagwire::proto
