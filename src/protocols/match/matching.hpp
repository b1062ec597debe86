// SPDX-License-Identifier: BSD-3-Clause
// Finds the posted receive of a message that has come.
#pragma once

#include <cstdint>

#include "protocols/match/match_table.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/request_table.hpp"

namespace tagwire::proto {

/// nullptr: no posted receive matches, or there is no memory for the part of a multi-receive that
/// does. Any other matching receive is removed from the posted list.
inline Request* match(MatchTable& matches, RequestTable& requests, bool is_tagged,
                      std::uint64_t tag, std::uint32_t source) {
    auto& posted = matches.space(is_tagged).posted;
    if (is_tagged) [[likely]]
        return static_cast<Request*>(posted.match(tag, source));
    auto* request = static_cast<Request*>(posted.find(tag, source));
    if (request == nullptr)
        return nullptr;
    if ((request->flags & kMultiReceive) == 0) {
        posted.cancel(*request);
        return request;
    }
    return requests.make_part(*request);
}

}  // namespace tagwire::proto
