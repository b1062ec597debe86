// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/notices.hpp"

#include <utility>

namespace tagwire::proto {

void Notices::add_failure(PeerEndpoint& ep, tw_status_t status, std::uint64_t after) {
    if (params_.ep_failed == nullptr)
        return;
    ep.marks.has_notice = true;
    Notice& notice = queue_.emplace_back();
    notice.ep = &ep;
    notice.status = status;
    notice.after = after;
}

void Notices::add_event(std::uint64_t worker_id, tw_peer_event_t event, tw_status_t status,
                        std::uint64_t after) {
    if (params_.peer_event == nullptr)
        return;
    Notice& notice = queue_.emplace_back();
    notice.worker_id = worker_id;
    notice.event = event;
    notice.status = status;
    notice.after = after;
    notice.is_event = true;
}

void Notices::drop(PeerEndpoint& ep) {
    if (!std::exchange(ep.marks.has_notice, false))
        return;
    for (Notice& notice : queue_)
        if (notice.ep == &ep)
            notice.ep = nullptr;
}

bool Notices::is_due(std::uint64_t told) {
    if (queue_.empty() || queue_.front().after > told)
        return false;
    const PeerEndpoint* ep = queue_.front().ep;
    return ep == nullptr || ep->marks.draining == 0;
}

unsigned Notices::run(std::uint64_t told) {
    unsigned count = 0;
    for (std::size_t left = queue_.size(); left > 0 && is_due(told); --left) {
        const Notice notice = queue_.front();
        queue_.pop_front();
        tell(notice);
        ++count;
    }
    return count;
}

void Notices::tell(const Notice& notice) const {
    if (notice.is_event) {
        const ProgramCall call(callbacks_);
        return params_.peer_event(params_.peer_event_arg, notice.worker_id, notice.event,
                                  notice.status);
    }
    if (notice.ep == nullptr)
        return;
    notice.ep->marks.has_notice = false;
    if (!notice.ep->closing().is_open() || notice.ep->closing().is_closing())
        return;
    const ProgramCall call(callbacks_);
    params_.ep_failed(params_.ep_failed_arg, notice.ep, notice.status);
}

}  // namespace tagwire::proto
