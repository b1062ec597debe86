// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_endpoints.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>

#include "ucs/log/log.hpp"
#include "uct/ib/dc/dc_iface.hpp"

namespace tagwire::dc {

ucs_status_t DcEndpoints::init() {
    return pool_.init({.name = "dc endpoints", .elements_per_chunk = 256});
}

DcEp* DcEndpoints::make(const ib::PortAddress& port_address, std::uint64_t key,
                        std::uint32_t number, ucs_status_t* status_p) {
    *status_p = UCS_ERR_IO_ERROR;
    Path* path = owner_.has_lost_device() ? nullptr : path_to(port_address);
    if (path == nullptr)
        return nullptr;
    DcEp* ep = pool_.create(owner_, *path, key, number);
    *status_p = ep == nullptr ? UCS_ERR_NO_MEMORY : owner_.eps.add(*ep);
    if (ep != nullptr && *status_p != UCS_OK)
        pool_.destroy(ep);
    if (*status_p == UCS_OK)
        return ep;
    if (path->endpoints == 0)
        paths_.erase(port_address);
    return nullptr;
}

void DcEndpoints::destroy(DcEp& ep) {
    owner_.pending.release(ep);
    owner_.eps.remove(ep);
    Path& path = *ep.path;
    pool_.destroy(&ep);
    if (path.endpoints == 0)
        paths_.erase(ib::PortAddress(path.port));
}

Path* DcEndpoints::path_to(const ib::PortAddress& port_address) {
    Path& path = paths_[port_address];
    if (path.ah != nullptr)
        return &path;
    ibv_ah_attr attr = ib::path_to(owner_.port(), port_address, owner_.ib_md().traffic_class(),
                                   owner_.ib_md().service_level());
    ibv_ah* ah = owner_.verbs().create_ah(owner_.ib_md().pd(), &attr);
    if (ah == nullptr) {
        ib::call_failed(owner_.ib_md().device(), "ibv_create_ah", errno);
        paths_.erase(port_address);
        return nullptr;
    }
    path.ah = ib::owned(ah, owner_.verbs().destroy_ah);
    path.port = port_address;
    return &path;
}

DcEp* DcEndpoints::way_back_to(const ReturnAddress& address) {
    if (const auto found = ways_back_.find(address); found != ways_back_.end()) {
        WayBack& way = found->second;
        if (way.ep->failure == UCS_OK) {
            way.used = ++ways_used_;
            return way.ep;
        }
        ways_back_.erase(found);  // it ends by itself; its peer may be there all the same
    }
    std::string reason;
    const auto peer_port = ib::parse_port(std::as_bytes(std::span(&address.port, 1)), &reason);
    if (!peer_port || !ib::is_reachable(owner_.port(), *peer_port, &reason) ||
        !ib::has_same_mtu(owner_.port(), *peer_port, &reason)) {
        TW_LOG_DEBUG("dc: a return address cannot be used: %s", reason.c_str());
        return nullptr;
    }
    forget_idle_ways();
    ucs_status_t status = UCS_OK;
    DcEp* ep = make(*peer_port, be64toh(address.target.key),
                    be32toh(address.target.number) & 0xffffff, &status);
    if (ep == nullptr)
        return nullptr;
    ep->is_internal = true;
    ep->is_destroyed = true;  // for the user there never was one: its failure is not told
    ways_back_.emplace(address, WayBack{ep, ++ways_used_});
    owner_.receives.want(owner_.buffers_per_peer());  // what cannot be posted now is later
    return ep;
}

// A way is made again when it is needed, which costs an address handle; so those with nothing under
// way make room that were used least lately, and half of all stay.
void DcEndpoints::forget_idle_ways() {
    if (ways_back_.size() < kWaysBackMax)
        return;
    ucs::ReserveVector<std::uint64_t> uses;
    for (const auto& [address, way] : ways_back_)
        uses.push_back(way.used);
    const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
    std::ranges::nth_element(uses, middle);
    std::erase_if(ways_back_, [this, newest = *middle](const auto& entry) {
        const WayBack& way = entry.second;
        DcEp& ep = *way.ep;
        const bool is_idle =
            way.used <= newest && ep.failure == UCS_OK && ep.reads == 0 && ep.has_ended() &&
            (owner_.lender().pool().is_shared() || !owner_.lender().has_channel(ep));
        if (is_idle) {
            destroy(ep);
            owner_.receives.want_less(owner_.buffers_per_peer());
        }
        return is_idle;
    });
}

void DcEndpoints::forget_way_back(const DcEp& ep) {
    std::erase_if(ways_back_, [&](const auto& entry) { return entry.second.ep == &ep; });
    owner_.receives.want_less(owner_.buffers_per_peer());
}

void DcEndpoints::describe(const uct::DescribeSink& sink) const {
    sink.number("paths", paths_.size());
    sink.number("ways_back", ways_back_.size());
}

}  // namespace tagwire::dc
