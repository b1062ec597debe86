// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_atomic(3).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>

#include <cstdint>

namespace tagwire::fi {

class Ep;

/// Chooses the table of an endpoint by its state and its capabilities.
void set_atomic_table(Ep& ep);

int query_atomic(fid_domain* domain, fi_datatype datatype, fi_op op, fi_atomic_attr* attr,
                 std::uint64_t flags);

}  // namespace tagwire::fi
