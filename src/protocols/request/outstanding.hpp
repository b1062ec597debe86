// SPDX-License-Identifier: BSD-3-Clause
// The operations of an endpoint that have begun and not ended, by Request::stream, each stream in
// the order of the calls.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "protocols/request/request.hpp"

namespace tagwire::proto {

struct Outstanding : std::array<RequestList, kOperationLines> {
    std::size_t operations() const {
        std::size_t number = 0;
        for (const RequestList& stream : *this)
            number += stream.size();
        return number;
    }
    /// As operations() == 0, in a few steps.
    bool is_empty() const {
        std::uintptr_t any = 0;
        for (const RequestList& stream : *this)
            any |= reinterpret_cast<std::uintptr_t>(stream.front());
        return any == 0;
    }
    /// Request::order of the earliest; UINT64_MAX: there is none.
    std::uint64_t earliest() const {
        std::uint64_t order = UINT64_MAX;
        for (const RequestList& stream : *this)
            if (!stream.empty())
                order = std::min(order, stream.front()->order);
        return order;
    }
};

}  // namespace tagwire::proto
