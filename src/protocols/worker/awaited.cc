// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/awaited.hpp"

#include <algorithm>

#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

void Awaited::know(Endpoint& ep) {
    if (ep.source >= by_source_.size())
        by_source_.resize(ep.source + 1, nullptr);
    by_source_[ep.source] = &ep;
}

void Awaited::forget(const Endpoint& ep) {
    if (known(ep.source) == &ep)
        by_source_[ep.source] = nullptr;
}

void Awaited::begin(Endpoint& ep) {
    ++operations_;
    for (Busy& busy : std::span(busy_, busy_count_)) {
        if (busy.ep == &ep) {
            ++busy.operations;
            return;
        }
    }
    if (busy_count_ == kFew)
        ++others_;
    else
        busy_[busy_count_++] = {&ep, 1};
}

void Awaited::end(Endpoint& ep) {
    --operations_;
    for (Busy& busy : std::span(busy_, busy_count_)) {
        if (busy.ep != &ep)
            continue;
        if (--busy.operations == 0)
            busy = busy_[--busy_count_];
        return;
    }
    --others_;
}

unsigned Awaited::lanes_of(WorkerCore& worker, std::span<uct_ep_h> lanes) const {
    const auto& tagged = worker.space(true).posted;
    const auto& untagged = worker.space(false).posted;
    // A flush, a send that waits for room, a receive from anybody's active messages: more requests
    // than these.
    if (others_ > 0 || worker.requests().in_use() != operations_ + tagged.size() + untagged.size())
        return 0;
    unsigned count = 0;
    const auto add = [&](const Endpoint* ep) {
        if (ep == nullptr || ep->lane() == nullptr)
            return false;
        const auto end = lanes.begin() + count;
        if (std::find(lanes.begin(), end, ep->lane()) != end)
            return true;
        if (count == lanes.size())
            return false;
        lanes[count++] = ep->lane();
        return true;
    };
    for (const Busy& busy : std::span(busy_, busy_count_))
        if (!add(busy.ep))
            return 0;
    const auto add_source = [&](const Request& receive) {
        return add(known(receive.source));  // there is none of kAnySource
    };
    return tagged.all_of_few(kFew, add_source) && untagged.all_of_few(kFew, add_source) ? count : 0;
}

}  // namespace tagwire::proto
