// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/pending_groups.hpp"

#include <utility>

#include "uct/ib/message_ep.hpp"

namespace tagwire::ib {

ucs_status_t PendingGroups::init() {
    return pool_.init({.name = "pending groups", .elements_per_chunk = 64});
}

ucs_status_t PendingGroups::add(MessageEp& ep, uct_pending_req_t* request) {
    if (ep.group == nullptr) {
        ep.group = pool_.create();
        if (ep.group == nullptr)
            return UCS_ERR_NO_MEMORY;
        grouped_.push_back(ep.id);
    }
    queue_.add(*ep.group, request);
    return UCS_OK;
}

void PendingGroups::put_first(MessageEp& ep) {
    queue_.put_first(*ep.group);
}

unsigned PendingGroups::dispatch() {
    constexpr std::size_t kDispatchMax = 32;
    return static_cast<unsigned>(queue_.dispatch(kDispatchMax));
}

void PendingGroups::release(MessageEp& ep) {
    if (ep.group != nullptr)
        pool_.destroy(std::exchange(ep.group, nullptr));
}

void PendingGroups::release_all(const EpTable& eps) {
    for (const std::uint32_t id : grouped_)
        if (MessageEp* ep = eps.find(id); ep != nullptr)
            release(*ep);
    grouped_.clear();
}

}  // namespace tagwire::ib
