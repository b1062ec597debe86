// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_peers.hpp"

#include <bit>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"

namespace tagwire::ud {

UdPeer* PeerTable::get(const ib::PortAddress& port, const InterfaceAddress& interface,
                       std::uint32_t completed) {
    const ReturnAddress address{port, pack(interface)};
    const auto key = std::bit_cast<Key>(address);
    auto found = peers_.find(key);
    if (found == peers_.end()) {
        UdPath* path = path_of(port, completed);
        if (path == nullptr)
            return nullptr;
        auto peer = std::make_unique<UdPeer>();
        peer->cookie = interface.cookie;
        peer->qp_num = interface.qp_num;
        peer->path = path->handle.get();
        peer->owner_of_path = path;
        peer->address = address;
        peer->host = interface.host;
        found = peers_.emplace(key, std::move(peer)).first;
    }
    ++found->second->users;
    return found->second.get();
}

void PeerTable::put(UdPeer& peer, std::uint32_t posted) {
    if (--peer.users > 0)
        return;
    life.close(peer.life);
    UdPath& path = *peer.owner_of_path;
    if (--path.users == 0) {
        path.last_request = posted;
        path.idle = idle_.insert(idle_.end(), &path);
    }
    peers_.erase(std::bit_cast<Key>(peer.address));
}

UdPath* PeerTable::path_of(const ib::PortAddress& port, std::uint32_t completed) {
    const auto key = std::bit_cast<PortKey>(port);
    if (const auto found = paths_.find(key); found != paths_.end()) {
        if (found->second.users++ == 0)
            idle_.erase(found->second.idle);
        return &found->second;
    }
    recycle(completed);
    if (paths_.size() >= kPortsMax)
        return nullptr;
    ibv_ah_attr path = ib::path_to(*port_, port, md_->traffic_class(), md_->service_level());
    ibv_ah* made = md_->verbs().create_ah(md_->pd(), &path);
    if (made == nullptr) {
        TW_LOG_ERROR("%s: ibv_create_ah failed: %s", md_->device().name().c_str(),
                     std::strerror(errno));
        return nullptr;
    }
    UdPath& kept =
        paths_.emplace(key, UdPath{key, ib::owned(made, md_->verbs().destroy_ah)}).first->second;
    kept.users = 1;
    return &kept;
}

void PeerTable::recycle(std::uint32_t completed) {
    while (idle_.size() > kIdleMax && !is_before(completed, idle_.front()->last_request)) {
        const PortKey oldest = idle_.front()->key;
        idle_.pop_front();
        paths_.erase(oldest);
    }
}

}  // namespace tagwire::ud
