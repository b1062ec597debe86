// SPDX-License-Identifier: BSD-3-Clause
// Costs of a rail before anything was measured: from the attributes of its interface and its memory
// domain, and constants where they have none.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>

#include "protocols/cost/cost.hpp"

namespace tagwire::proto {

/// Each message costs system calls, and the processors of both sides move its data.
inline bool goes_through_kernel(const uct_iface_attr_t& iface) {
    // Transports that need none have a tenth of this overhead at most.
    constexpr double kSystemCallSeconds = 1e-6;
    return iface.overhead >= kSystemCallSeconds;
}

struct RailFacts {
    const uct_iface_attr_t& iface;
    const uct_md_attr_t& domain;
    uct_device_type_t device;
    bool registers;         // a message may register its buffer
    std::size_t eager_max;  // bytes of an eager message
};

RailCosts start_costs(const RailFacts& facts);

}  // namespace tagwire::proto
