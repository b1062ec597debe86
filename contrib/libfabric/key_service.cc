// SPDX-License-Identifier: BSD-3-Clause
#include "key_service.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

#include "ep.hpp"
#include "flags.hpp"
#include "key_letters.hpp"

namespace tagwire::fi {

namespace {

/// Tells about a region of this side; packs its key. `caps`: those of the endpoint, which limit the
/// rights that the region gives.
int describe(const Mr& mr, std::uint64_t caps, TellKeyLetter* told) {
    const std::uint64_t rights = (caps & FI_RMA) != 0 ? mr.range.access & caps : 0;
    const bool reads = (rights & FI_REMOTE_READ) != 0;
    const bool writes = (rights & FI_REMOTE_WRITE) != 0;
    if (!reads && !writes)
        return FI_EACCES;
    told->origin = mr.origin();
    told->base = reinterpret_cast<std::uintptr_t>(mr.range.base);
    told->length = mr.range.length;
    told->flags = flag_if(reads, kGivesReads) | flag_if(writes, kGivesWrites) |
                  flag_if(mr.remote_reads != nullptr, kCountsReads) |
                  flag_if(mr.remote_writes != nullptr, kCountsWrites);
    if (mr.mem == nullptr) {
        told->flags |= kHasNoBytes;
        return 0;
    }
    std::size_t length = told->packed.size();
    const tw_status_t status = tw_mem_pack(mr.mem, told->packed.data(), &length);
    told->packed_bytes = static_cast<std::uint32_t>(length);
    return error_of(status);
}

}  // namespace

tw_status_t KeyService::listen() {
    const std::pair<Letter, tw_am_cb_t> handlers[] = {{kAskKey, on_ask},
                                                      {kTellKey, on_tell},
                                                      {kRevokeKey, on_revoke},
                                                      {kForgotKey, on_forgot},
                                                      {kNotice, on_notice}};
    for (const auto& [id, handler] : handlers) {
        const tw_status_t status = tw_am_register(owner_.worker, id, handler, this);
        if (status != TW_OK)
            return status;
    }
    return TW_OK;
}

// ---- Keys

void KeyService::on_ask(void* arg, tw_am_t* am) {
    auto& service = *static_cast<KeyService*>(arg);
    if (const auto letter = letter_of<KeyLetter>(*am, service.owner_.refusals))
        service.answer(am->source, letter->key);
}

void KeyService::answer(std::uint64_t worker_id, std::uint64_t key) {
    TellKeyLetter told{};
    told.key = key;
    const Mr* mr = owner_.domain.regions.find(key);
    int error = mr == nullptr ? FI_ENOKEY : describe(*mr, owner_.rx_caps, &told);
    if (error == 0) {
        told.flags |= flag_if(owner_.counters.remote_reads != nullptr, kEndpointCountsReads) |
                      flag_if(owner_.counters.remote_writes != nullptr, kEndpointCountsWrites);
        error = -without_exceptions([&] {
            informed_.insert(worker_id);
            add(told_, key, worker_id);
            return 0;
        });
    }
    told.error = static_cast<std::uint32_t>(error);
    owner_.outbox.send(worker_id, kTellKey, told);
}

void KeyService::on_tell(void* arg, tw_am_t* am) {
    Ep& ep = static_cast<KeyService*>(arg)->owner_;
    const auto letter = letter_of<TellKeyLetter>(*am, ep.refusals);
    Peer* peer = ep.find_peer(am->source);
    const bool is_known = peer != nullptr && !peer->is_closing;
    if (letter && (!is_known || !ep.keys.on_told(*peer, *letter)))
        ep.refusals.add(am->source, "nobody has asked for this key");
}

/// No list stays empty, which would be waited for in vain.
void KeyService::add(Peers& peers, std::uint64_t key, std::uint64_t worker_id) {
    const auto [found, is_new] = peers.try_emplace(key);
    auto& list = found->second;
    if (std::ranges::find(list, worker_id) != list.end())
        return;
    try {
        list.push_back(worker_id);
    } catch (const std::bad_alloc&) {
        if (is_new)
            peers.erase(found);
        throw;
    }
}

void KeyService::revoke(std::uint64_t key) {
    const auto found = told_.find(key);
    if (found == told_.end())
        return;
    const auto knowing = std::move(found->second);
    told_.erase(found);
    for (const std::uint64_t worker_id : knowing) {
        // Without memory nobody waits for the peer before the key is used again: its operations by
        // the old one reach nothing until it has this letter.
        without_exceptions([&] {
            add(revoked_, key, worker_id);
            return 0;
        });
        owner_.outbox.send(worker_id, kRevokeKey, KeyLetter{key});
    }
}

void KeyService::revoke_all() {
    while (!told_.empty())
        revoke(told_.begin()->first);
}

void KeyService::on_forgot(void* arg, tw_am_t* am) {
    auto& service = *static_cast<KeyService*>(arg);
    if (const auto letter = letter_of<KeyLetter>(*am, service.owner_.refusals))
        service.forgotten(am->source, letter->key);
}

void KeyService::forgotten(std::uint64_t worker_id, std::uint64_t key) {
    const auto found = revoked_.find(key);
    if (found == revoked_.end())
        return;
    std::erase(found->second, worker_id);
    if (found->second.empty())
        revoked_.erase(found);
}

void KeyService::drop(std::uint64_t worker_id) {
    for (Peers* peers : {&told_, &revoked_})
        for (auto it = peers->begin(); it != peers->end();) {
            std::erase(it->second, worker_id);
            it = it->second.empty() ? peers->erase(it) : std::next(it);
        }
}

void KeyService::on_revoke(void* arg, tw_am_t* am) {
    Ep& ep = static_cast<KeyService*>(arg)->owner_;
    const auto letter = letter_of<KeyLetter>(*am, ep.refusals);
    const Peer* peer = ep.find_peer(am->source);
    if (!letter)
        return;
    if (peer != nullptr && !peer->is_closing)
        ep.keys.on_revoked(*peer, letter->key);
    ep.outbox.send(am->source, kForgotKey, *letter);
}

// ---- Notices

bool KeyService::is_counted(const RemoteKey& remote, Access access) {
    return (remote.flags & (access == Access::kRead ? kCountsReads | kEndpointCountsReads
                                                    : kCountsWrites | kEndpointCountsWrites)) != 0;
}

bool KeyService::tell(const Peer& peer, std::uint64_t key, const Notice& what) {
    if (peer.is_closing)
        return true;
    const NoticeLetter letter = {.key = key,
                                 .imm = what.imm,
                                 .length = what.length,
                                 .is_read = what.is_read ? 1U : 0U,
                                 .has_data = static_cast<std::uint16_t>(what.has_data),
                                 .is_further = static_cast<std::uint16_t>(what.is_further)};
    return owner_.outbox.try_send(peer.worker_id, kNotice, letter) != TW_ERR_NO_MEMORY;
}

void KeyService::on_notice(void* arg, tw_am_t* am) {
    auto& service = *static_cast<KeyService*>(arg);
    const auto letter = letter_of<NoticeLetter>(*am, service.owner_.refusals);
    if (!letter)
        return;
    if (!service.informed_.contains(am->source))
        return service.owner_.refusals.add(am->source, "a notice of who has been given no key");
    const bool is_read = letter->is_read != 0;
    if (letter->is_further == 0)
        service.count(is_read ? Access::kRead : Access::kWrite);
    if (const Mr* mr = service.owner_.domain.regions.find(letter->key); mr != nullptr)
        mr->count(is_read ? FI_REMOTE_READ : FI_REMOTE_WRITE);
    if (letter->has_data != 0)
        service.owner_.push_remote_data(letter->imm, letter->length, am->ep, am->source);
}

void KeyService::count(Access access) const {
    const Counters& counters = owner_.counters;
    Cntr* const cntr = access == Access::kRead ? counters.remote_reads : counters.remote_writes;
    if (cntr != nullptr)
        cntr->count_success();
}

}  // namespace tagwire::fi
