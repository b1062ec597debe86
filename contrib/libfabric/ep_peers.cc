// SPDX-License-Identifier: BSD-3-Clause
// Connections of an endpoint, one for each worker: from the first use of an address to the last
// one, or to a failure.
#include <algorithm>
#include <memory>
#include <utility>

#include "ep.hpp"
#include "name.hpp"

namespace tagwire::fi {

tw_ep_h Ep::connect(fi_addr_t addr, ssize_t* error_p) {
    const Name* name = av_->find(addr);
    const auto id = name == nullptr ? std::nullopt : name->worker_id();
    *error_p = -FI_EINVAL;
    if (!id)
        return nullptr;
    tw_ep_h connected = nullptr;
    *error_p = without_exceptions([&] {
        if (addr >= peers_.size()) {
            peer_room_.resize(addr + 1);
            peers_ = peer_room_;
        }
        const auto [found, is_new] = known_.try_emplace(*id, *this, *id, av_->addr_of(*id));
        Peer& peer = found->second;
        if (peer.source == FI_ADDR_NOTAVAIL)
            peer.source = av_->addr_of(*id);
        if (is_new) {
            const tw_status_t status = open_peer(*name, peer);
            if (status != TW_OK) {
                known_.erase(found);
                return -error_of(status);
            }
        }
        // Another can only be made when the peer's library has everything that was sent before.
        if (peer.is_closing)
            return -FI_EAGAIN;
        if (peer.waiting == 0)
            peers_[addr] = peer.ep;
        connected = peer.ep;
        return 0;
    });
    if (*error_p == -FI_EAGAIN)
        *error_p = try_again();
    return connected;
}

void Ep::hold_sends(const Peer& peer) {
    av_->for_each_addr(peer.worker_id, [this](fi_addr_t addr) { forget(addr); });
}

tw_status_t Ep::open_peer(const Name& name, Peer& peer) {
    const auto address = name.address();
    const tw_ep_params_t params = {
        .address = address.data(), .address_length = address.size(), .user_data = &peer};
    return tw_ep_create(worker, &params, &peer.ep);
}

Peer* Ep::find_peer(std::uint64_t worker_id) {
    const auto found = known_.find(worker_id);
    return found == known_.end() ? nullptr : &found->second;
}

tw_ep_h Ep::reply_to(std::uint64_t worker_id, tw_status_t* status_p) {
    const int error = without_exceptions([&] {
        *status_p = TW_ERR_NOT_CONNECTED;
        if (is_left_)
            return 0;
        const auto [found, is_new] =
            known_.try_emplace(worker_id, *this, worker_id,
                               av_ == nullptr ? FI_ADDR_NOTAVAIL : av_->addr_of(worker_id));
        Peer& peer = found->second;
        *status_p = TW_OK;
        if (is_new)
            *status_p = tw_ep_create_to(worker, worker_id, &peer, &peer.ep);
        else if (peer.is_closing)
            *status_p = TW_ERR_NO_RESOURCE;
        if (is_new && *status_p != TW_OK)
            known_.erase(found);
        return 0;
    });
    if (error != 0)
        *status_p = TW_ERR_NO_MEMORY;
    return *status_p == TW_OK ? find_peer(worker_id)->ep : nullptr;
}

void Ep::left_peer(Peer& peer, int error) {
    keys.drop(peer, error);
    key_service.drop(peer.worker_id);
    one_sided.drop(peer, error);
    atomics.drop(peer.ep, error);
}

void Ep::on_failed(void*, tw_ep_h ep, tw_status_t status) {
    FI_INFO(&provider, FI_LOG_EP_CTRL, "the endpoint to a peer failed: %s\n",
            tw_status_string(status));
    Peer& peer = peer_of(ep);
    if (peer.is_closing)
        return;
    peer.owner.left_peer(peer, error_of(status));
    // The program does not know it, so nobody else would forget it.
    if (peer.source == FI_ADDR_NOTAVAIL)
        peer.owner.lose(peer.worker_id);
}

void Ep::on_peer_event(void* arg, std::uint64_t worker_id, tw_peer_event_t event, tw_status_t) {
    Ep& ep = *static_cast<Ep*>(arg);
    if (event != TW_PEER_UP)
        ep.key_service.forget(worker_id);
    if (event == TW_PEER_UP)
        ep.connected();
    else if (event == TW_PEER_CLOSED || event == TW_PEER_FAILED)
        ep.disconnected(worker_id);
}

/// Where there is no memory for that the spare room has to do.
void Ep::connected() {
    ++connected_;
    without_exceptions([this] {
        const std::size_t wanted = connected_ + kStrangersSpare;
        if (lost_strangers_.capacity() < wanted)
            lost_strangers_.reserve(2 * wanted);
        return 0;
    });
}

void Ep::disconnected(std::uint64_t worker_id) {
    --connected_;
    std::erase(lost_strangers_, worker_id);
}

void Ep::lose(std::uint64_t worker_id) {
    Peer* const peer = find_peer(worker_id);
    const bool is_new = std::ranges::find(lost_strangers_, worker_id) == lost_strangers_.end();
    if (peer != nullptr && !peer->is_closing)
        peer->is_lost = has_lost_peers_ = true;
    else if (is_new && lost_strangers_.size() < lost_strangers_.capacity())
        lost_strangers_.push_back(worker_id);
    backlog_changed();
}

/// True: there is nothing more to do about it.
bool Ep::drop_stranger(std::uint64_t worker_id) {
    if (Peer* const peer = find_peer(worker_id); peer != nullptr) {
        has_lost_peers_ |= !peer->is_closing;
        return peer->is_lost = !peer->is_closing;
    }
    tw_ep_h ep = nullptr;
    const tw_status_t status = tw_ep_create_to(worker, worker_id, nullptr, &ep);
    if (status == TW_OK)
        tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr);
    return status != TW_ERR_NO_MEMORY && status != TW_ERR_NO_RESOURCE;
}

void Ep::drop_lost_peers() {
    for (std::size_t i = 0; i < lost_strangers_.size();) {
        const std::uint64_t worker_id = lost_strangers_[i];
        if (drop_stranger(worker_id))
            std::erase(lost_strangers_, worker_id);
        else
            ++i;
    }
    if (!std::exchange(has_lost_peers_, false))
        return;
    for (auto it = known_.begin(); it != known_.end();) {
        Peer& peer = it->second;
        if (!peer.is_lost || peer.is_closing) {
            ++it;
            continue;
        }
        left_peer(peer, FI_ECONNABORTED);
        if (av_ != nullptr)
            hold_sends(peer);
        tw_ep_close(peer.ep, TW_CLOSE_FORCE, nullptr, nullptr);
        it = known_.erase(it);
    }
}

void Ep::forget(fi_addr_t addr) {
    if (addr < peers_.size())
        peers_[addr] = nullptr;
}

void Ep::renumber(std::uint64_t worker_id, fi_addr_t source) {
    const auto found = known_.find(worker_id);
    if (found == known_.end())
        return;
    found->second.source = source;
    if (source == FI_ADDR_NOTAVAIL && close_peer(found->second))
        known_.erase(found);
}

bool Ep::close_peer(Peer& peer) {
    if (peer.is_closing)
        return false;
    left_peer(peer, FI_ECANCELED);
    tw_op_t op{};
    op.context = &peer;
    op.complete = on_closed;
    const tw_status_t status = tw_ep_close(peer.ep, TW_FLUSH_DELIVERED, &op, nullptr);
    peer.is_closing = status == TW_INPROGRESS;
    // No memory to wait for the peer with.
    if (status == TW_ERR_NO_RESOURCE || status == TW_ERR_NO_MEMORY)
        tw_ep_close(peer.ep, TW_CLOSE_FORCE, nullptr, nullptr);
    return !peer.is_closing;
}

void Ep::on_closed(const tw_completion_t* done) {
    const auto& peer = *static_cast<const Peer*>(done->context);
    peer.owner.known_.erase(peer.worker_id);
}

}  // namespace tagwire::fi
