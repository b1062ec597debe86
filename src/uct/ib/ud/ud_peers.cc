// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_peers.hpp"

#include <bit>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"

namespace tagwire::ud {

UdPeer* PeerTable::get(const ib::PortAddress& port, const InterfaceAddress& interface) {
    const ReturnAddress address{port, pack(interface)};
    const auto key = std::bit_cast<Key>(address);
    auto found = peers_.find(key);
    if (found == peers_.end()) {
        ibv_ah* path = path_of(port);
        if (path == nullptr)
            return nullptr;
        auto peer = std::make_unique<UdPeer>(UdPeer{.cookie = interface.cookie,
                                                    .qp_num = interface.qp_num,
                                                    .path = path,
                                                    .address = address,
                                                    .host = interface.host});
        found = peers_.emplace(key, std::move(peer)).first;
    }
    ++found->second->users;
    return found->second.get();
}

void PeerTable::put(UdPeer& peer) {
    if (--peer.users > 0)
        return;
    life.close(peer.life);
    peers_.erase(std::bit_cast<Key>(peer.address));
}

ibv_ah* PeerTable::path_of(const ib::PortAddress& port) {
    const auto key = std::bit_cast<PortKey>(port);
    if (const auto found = paths_.find(key); found != paths_.end())
        return found->second.get();
    if (paths_.size() >= kPortsMax)
        return nullptr;
    ibv_ah_attr path = ib::path_to(*port_, port, md_->traffic_class(), md_->service_level());
    ibv_ah* made = md_->verbs().create_ah(md_->pd(), &path);
    if (made == nullptr) {
        TW_LOG_ERROR("%s: ibv_create_ah failed: %s", md_->device().name().c_str(),
                     std::strerror(errno));
        return nullptr;
    }
    paths_.emplace(key, ib::owned(made, md_->verbs().destroy_ah));
    return made;
}

}  // namespace tagwire::ud
