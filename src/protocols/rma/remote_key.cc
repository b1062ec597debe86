// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/rma/remote_key.hpp"

#include <algorithm>
#include <mutex>
#include <new>

#include "protocols/connect/connector.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rma/rma_ops.hpp"
#include "protocols/rma/rma_sender.hpp"

namespace tagwire::proto {

void LaneKey::settle(std::uint64_t address) {
    void* pointer = nullptr;
    const ucs_status_t status = uct_rkey_ptr(component, &bundle, address, &pointer);
    is_direct.store(status == UCS_OK, std::memory_order_relaxed);  // Relaxed: see there
    is_settled.store(status != UCS_ERR_NO_RESOURCE,
                     std::memory_order_relaxed);  // Relaxed: likewise
}

RemoteKey::RemoteKey(std::uint64_t worker_id, const MemoryKeyMessage& message)
    : use(key_use(worker_id, message.key.owner)), message_(message) {
    const MemoryKey& key = message.key;
    const auto reach = [&](std::uint32_t access) {
        return (key.access & access) != 0 ? key.length : 0;
    };
    reach_ = {reach(TW_ACCESS_READ), reach(TW_ACCESS_WRITE), reach(TW_ACCESS_ATOMIC), key.length};
}

RemoteKey::~RemoteKey() {
    for (std::atomic<LaneKey*>& slot : lane_keys_) {
        // SYNC rma_key_holders: let_go() has seen the last holder go; so relaxed.
        LaneKey* const key = slot.load(std::memory_order_relaxed);
        if (key == nullptr)
            continue;
        uct_rkey_release(key->component, &key->bundle);
        delete key;
    }
}

void RemoteKey::let_go() {
    // SYNC rma_key_holders: a holder's use comes before the end, in whichever thread.
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1)
        delete this;
}

WireBytes RemoteKey::packed_of(std::uint8_t domain) const {
    if (const WireBytes packed = message_.key_of(domain); !packed.empty())
        return packed;
    // SYNC rma_told_keys: the bytes were there before.
    const Told* const told = told_.load(std::memory_order_acquire);
    return told == nullptr ? WireBytes() : proto::key_of({told->bytes, told->used}, domain);
}

const LaneKey* RemoteKey::resolve(std::uint8_t domain, const Domain& own) {
    const WireBytes packed = packed_of(domain);
    if (packed.empty() || packed.size() != own.attr.rkey_packed_size)
        return nullptr;
    const std::lock_guard guard(lock_);
    // SYNC rma_lane_key: as in found(); only who holds the lock writes.
    if (LaneKey* made = lane_keys_[domain].load(std::memory_order_acquire)) {
        made->settle(message_.key.address);
        return made;
    }
    auto key = std::make_unique<LaneKey>();
    if (uct_rkey_unpack(own.component, packed.data(), &key->bundle) != UCS_OK)
        return nullptr;
    key->component = own.component;
    key->settle(message_.key.address);
    LaneKey* const made = key.release();
    // SYNC rma_lane_key: pairs with found().
    lane_keys_[domain].store(made, std::memory_order_release);
    return made;
}

void RemoteKey::list(KeyList* keys) const {
    for (std::size_t domain = 0; domain < kKeyDomainsMax; ++domain) {
        const WireBytes key = packed_of(static_cast<std::uint8_t>(domain));
        if (key.empty())
            continue;
        const KeyHead head{static_cast<std::uint8_t>(domain),
                           static_cast<std::uint8_t>(key.size())};
        std::memcpy(keys->bytes + keys->used, &head, sizeof head);
        std::memcpy(keys->bytes + keys->used + sizeof head, key.data(), key.size());
        keys->used += sizeof head + key.size();
    }
}

// ---- Keys that the packed one has no room for

/// The lane lacks it, or a rail that long data could be divided over.
bool RemoteKey::lacks_key(const KeyPorts& by) const {
    const Rail& rail = by.lane.rail();
    if (!rail.can_get() || !rail.can_put())
        return false;
    if (packed_of(by.rma_lane.peer_domain).empty())
        return true;
    const auto lacks = [&](const PeerRail& other) { return packed_of(other.domain).empty(); };
    return rail.stripe_plan(true).rails() > 1 &&
           std::ranges::any_of(by.connector.peer_rails(), lacks);
}

bool RemoteKey::wants_keys(const KeyPorts& by) {
    // Relaxed: a claim that was just ended is seen by the next operation.
    if (is_claimed_.load(std::memory_order_relaxed) || !lacks_key(by))
        return false;
    // SYNC rma_key_claim: pairs with question_ended(): what the endpoint before has done is over.
    return !is_claimed_.exchange(true, std::memory_order_acquire);
}

bool RemoteKey::ask_owner(const KeyPorts& by) {
    tw_op_t how{};
    how.complete = [](const tw_completion_t*) {};
    // The library's own: the program's requests may all be in use, and one that a call of another
    // thread was promised is not taken.
    Request* request = by.requests.make_internal(RequestKind::kRma, how);
    if (request == nullptr)
        return false;
    RmaWish wish;
    wish.key = this;
    wish.kind = RmaKind::kKeys;
    void* const memory = ucs::reserve_try_allocate(sizeof(Told));
    if (memory == nullptr || !by.ops.add(*request, wish)) {
        ucs::reserve_free(memory);
        by.requests.release(*request);
        return false;
    }
    asked_.reset(::new (memory) Told);
    request->buffer.base = asked_->bytes;
    request->buffer.length = sizeof asked_->bytes;
    return by.peer.lane.submit(*request);
}

void RemoteKey::owner_told(std::size_t bytes) {
    asked_->used = bytes;
    // SYNC rma_told_keys: pairs with packed_of().
    told_.store(asked_.get(), std::memory_order_release);
}

void RemoteKey::question_ended() {
    if (is_told())
        return;
    asked_.reset();
    // SYNC rma_key_claim: pairs with wants_keys().
    is_claimed_.store(false, std::memory_order_release);
}

}  // namespace tagwire::proto
