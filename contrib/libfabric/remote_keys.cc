// SPDX-License-Identifier: BSD-3-Clause
#include "remote_keys.hpp"

#include <utility>

#include "ep.hpp"
#include "key_letters.hpp"

namespace tagwire::fi {

namespace {

constexpr std::size_t kSlotsMin = 16;

}  // namespace

RemoteKeys::RemoteKeys(Ep& owner)
    : owner_(owner), slots_(std::make_unique<Slot[]>(kSlotsMin)), mask_(kSlotsMin - 1) {}

RemoteKeys::~RemoteKeys() = default;

void RemoteKeys::clear() {
    for (std::size_t at = 0; at <= mask_; ++at) {
        tw_key_free(slots_[at].remote.key);
        slots_[at] = {};
    }
    known_ = 0;
}

// ---- The table: linear probing, at most half full

void RemoteKeys::insert(tw_ep_h ep, std::uint64_t key, const RemoteKey& remote) {
    std::size_t at = slot_of(ep, key);
    while (slots_[at].ep != nullptr)
        at = (at + 1) & mask_;
    slots_[at] = {ep, key, remote};
    ++known_;
}

void RemoteKeys::grow() {
    const std::size_t before = mask_ + 1;
    auto larger = std::make_unique<Slot[]>(2 * before);
    std::swap(slots_, larger);
    mask_ = 2 * before - 1;
    known_ = 0;
    for (std::size_t at = 0; at < before; ++at)
        if (larger[at].ep != nullptr)
            insert(larger[at].ep, larger[at].key, larger[at].remote);
}

/// Slots behind it move up, so that no search ends too early.
void RemoteKeys::erase(std::size_t at) {
    tw_key_free(slots_[at].remote.key);
    --known_;
    std::size_t next = at;
    for (;;) {
        next = (next + 1) & mask_;
        if (slots_[next].ep == nullptr)
            break;
        const std::size_t home = slot_of(slots_[next].ep, slots_[next].key);
        if (((next - home) & mask_) >= ((next - at) & mask_)) {
            slots_[at] = slots_[next];
            at = next;
        }
    }
    slots_[at] = {};
}

void RemoteKeys::forget(tw_ep_h ep, std::uint64_t key, std::uint32_t serial_max) {
    const RemoteKey* known = find(ep, key);
    if (known != nullptr && known->serial <= serial_max)
        erase(index_of(*known));
}

// ---- Questions

int RemoteKeys::ask(Peer& peer, std::uint64_t key, Asked** asked_p) {
    const auto [found, is_new] = asked_.try_emplace({peer.worker_id, key});
    *asked_p = &found->second;
    if (found->second.is_pending)
        return 0;
    const tw_status_t status = owner_.outbox.try_send(peer.worker_id, kAskKey, KeyLetter{key});
    if (status == TW_OK)
        found->second.is_pending = true;
    else if (is_new)
        asked_.erase(found);
    return -error_of(status);
}

int RemoteKeys::wait_for(Peer& peer, std::uint64_t key, KeyWaiter& waiter) {
    return without_exceptions([&] {
        Asked* asked = nullptr;
        if (const int error = ask(peer, key, &asked); error != 0)
            return error;
        waiter.next_waiter = nullptr;
        (asked->last == nullptr ? asked->first : asked->last->next_waiter) = &waiter;
        asked->last = &waiter;
        ++peer.waiting;
        owner_.hold_sends(peer);
        return 0;
    });
}

void RemoteKeys::leave(Peer& peer, std::uint64_t key, KeyWaiter& waiter) {
    Asked& asked = asked_.at({peer.worker_id, key});
    KeyWaiter* before = nullptr;
    for (KeyWaiter* at = asked.first; at != &waiter; at = at->next_waiter)
        before = at;
    (before == nullptr ? asked.first : before->next_waiter) = waiter.next_waiter;
    if (asked.last == &waiter)
        asked.last = before;
    --peer.waiting;
}

int RemoteKeys::ask_for_fenced(Peer& peer, std::uint64_t key) {
    return without_exceptions([&] {
        const auto found = asked_.find({peer.worker_id, key});
        if (found == asked_.end() || found->second.refusal == 0) {
            Asked* asked = nullptr;
            const int error = ask(peer, key, &asked);
            if (error != 0)
                return error;
            asked->is_for_fenced = true;
            return -FI_EAGAIN;
        }
        const int refusal = found->second.refusal;
        asked_.erase(found);
        return -refusal;
    });
}

/// A waiter may do anything, such as waiting for another key.
void RemoteKeys::end(Peer& peer, KeyWaiter* first, const RemoteKey* remote, int error) {
    while (first != nullptr) {
        KeyWaiter& waiter = *std::exchange(first, first->next_waiter);
        --peer.waiting;
        waiter.ready(waiter, remote, error);
    }
}

bool RemoteKeys::on_told(Peer& peer, const TellKeyLetter& told) {
    const auto found = asked_.find({peer.worker_id, told.key});
    if (found == asked_.end() || !found->second.is_pending)
        return false;
    RemoteKey remote{nullptr, told.origin, told.base, told.length, told.flags, ++serial_};
    int error = told.error < FI_ERRNO_MAX ? static_cast<int>(told.error) : FI_EOTHER;
    if (error == 0)
        error = learn(peer, told, &remote);
    KeyWaiter* const first = found->second.first;
    // An operation that could not wait is told the next time.
    if (error != 0 && first == nullptr && found->second.is_for_fenced)
        found->second = {.refusal = error};
    else
        asked_.erase(found);
    end(peer, first, error == 0 ? &remote : nullptr, error);
    return true;
}

int RemoteKeys::learn(Peer& peer, const TellKeyLetter& told, RemoteKey* remote_p) {
    return -without_exceptions([&] {
        const bool has_no_bytes = (told.flags & kHasNoBytes) != 0;
        if (told.packed_bytes > told.packed.size() || has_no_bytes != (told.packed_bytes == 0)) {
            owner_.refusals.add(peer.worker_id, "a packed key has another length");
            return -FI_EOTHER;
        }
        forget(peer.ep, told.key, serial_);
        if (known_ > mask_ / 2)
            grow();
        if (told.packed_bytes > 0) {
            const tw_status_t status =
                tw_key_unpack(owner_.worker, told.packed.data(), told.packed_bytes, &remote_p->key);
            if (status != TW_OK)
                return -error_of(status);
        }
        insert(peer.ep, told.key, *remote_p);
        return 0;
    });
}

void RemoteKeys::on_revoked(const Peer& peer, std::uint64_t key) {
    forget(peer.ep, key, serial_);
}

void RemoteKeys::drop(Peer& peer, int error) {
    for (std::size_t at = 0; at <= mask_;) {
        if (slots_[at].ep == peer.ep)
            erase(at);
        else
            ++at;
    }
    for (;;) {
        const auto found = asked_.lower_bound({peer.worker_id, 0});
        if (found == asked_.end() || found->first.first != peer.worker_id)
            return;
        KeyWaiter* const first = found->second.first;
        asked_.erase(found);
        end(peer, first, nullptr, error);
    }
}

}  // namespace tagwire::fi
