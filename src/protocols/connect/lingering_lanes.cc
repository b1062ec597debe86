// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/lingering_lanes.hpp"

#include <utility>

namespace tagwire::proto {

void LingeringLanes::add(uct_ep_h lane, std::uint64_t now_ns) {
    if (lanes_.size() == kLanesMax) {
        uct_ep_destroy(lanes_.front().ep);
        lanes_.erase(lanes_.begin());
    }
    lanes_.push_back({lane, now_ns + kLingerNs});
}

void LingeringLanes::destroy_arrived(std::uint64_t now_ns) {
    std::erase_if(lanes_, [now_ns](const Lane& each) {
        const ucs_status_t flushed = uct_ep_flush(each.ep, UCT_FLUSH_FLAG_LOCAL, nullptr);
        if ((flushed == UCS_INPROGRESS || flushed == UCS_ERR_NO_RESOURCE) && now_ns < each.until_ns)
            return false;
        uct_ep_destroy(each.ep);
        return true;
    });
}

void LingeringLanes::clear() {
    for (const Lane& each : std::exchange(lanes_, {}))
        uct_ep_destroy(each.ep);
}

}  // namespace tagwire::proto
