// SPDX-License-Identifier: BSD-3-Clause
// The key to memory of a peer, unpacked for an endpoint of the program.
//
// 1. A lane's own key is made when the lane first needs it, and stays until the key goes: any
//    transmit context of the worker may make it, and reads it without a lock. A packed key may have
//    no room for it: then the owner is asked once for the keys of all its domains, and carries
//    operations out until it has told them.
// 2. Operations hold the key: one that the program has released goes with the last of them.
#pragma once

#include <uct/api/uct.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "protocols/api/tw_def.h"
#include "protocols/api/tw_memory.h"
#include "protocols/request/keys.hpp"
#include "protocols/wire/memory_key.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/spin_lock.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_key {};

namespace tagwire::proto {

class Connector;
class RequestTable;
class RmaOps;
struct LaneState;
struct MatchPeer;
struct RmaLane;

/// The world of a question to the owner.
struct KeyPorts {
    RequestTable& requests;
    RmaOps& ops;
    MatchPeer& peer;
    const LaneState& lane;
    const RmaLane& rma_lane;
    const Connector& connector;
};

/// A peer's memory by the transport of a lane.
struct LaneKey : ucs::FromReserve {
    uct_rkey_bundle_t bundle{};
    uct_component_h component = nullptr;
    // Loads and stores reach the memory: operations end within their call. Not settled: this is
    // not known yet, as the transport is still connecting.
    std::atomic<bool> is_direct{false};
    std::atomic<bool> is_settled{false};

    void settle(std::uint64_t address);
};

class RemoteKey : public tw_key, public ucs::FromReserve {
  public:
    RemoteKey(tw_worker_h of_worker, MatchPeer& of, const MemoryKeyMessage& message);
    RemoteKey(const RemoteKey&) = delete;
    RemoteKey& operator=(const RemoteKey&) = delete;

    const MemoryKey& memory() const { return message_.key; }
    /// `access`: one of TW_ACCESS_x, or TW_ACCESS_ALL: any.
    bool covers(std::uint64_t address, std::uint64_t length, std::uint32_t access) const {
        const std::uint64_t reach = reach_[access >> 1];
        const std::uint64_t offset = address - message_.key.address;  // huge where it is before
        return offset <= reach && length <= reach - offset;
    }

    /// The key of the peer's domain, at most kKeyDomainsMax, if one was made; nullptr: resolve()
    /// may make it.
    const LaneKey* found(std::uint8_t domain) const {
        // SYNC rma_lane_key: what resolve() has filled.
        return lane_keys_[domain].load(std::memory_order_acquire);
    }
    /// As found(), and makes the key if it is not there. nullptr: the packed key has none of that
    /// domain, or none of this component. The lane is connected.
    const LaneKey* resolve(std::uint8_t domain, const Domain& own);
    /// Keys of all domains, as of a rendezvous.
    void list(KeyList* keys) const;
    /// The endpoint is kReady: asks the owner for its keys, once, if the endpoint could use one
    /// that the packed key has no room for. With the worker's lock. False: there is no memory to
    /// ask, and it is to be called again.
    [[nodiscard]] bool ask_owner(const KeyPorts& by);
    /// The owner has told so many bytes of keys.
    void owner_told(std::size_t bytes);

    void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }  // Relaxed: a count
    void let_go();
    struct LetGo {
        void operator()(RemoteKey* key) const { key->let_go(); }
    };

    const tw_worker_h worker;
    MatchPeer* peer;                // of the endpoint; null: the program has closed that
    ucs::ListLink<RemoteKey> link;  // among the endpoint's

  private:
    /// Keys of all domains of the owner.
    struct Told : Keys, ucs::FromReserve {};

    ~RemoteKey();
    /// Empty: there is none.
    WireBytes packed_of(std::uint8_t domain) const;
    bool lacks_key(const KeyPorts& by) const;

    const MemoryKeyMessage message_;
    std::unique_ptr<Told> asked_;             // from the question on
    std::atomic<const Told*> told_{nullptr};  // the same, from the reply on
    // Bytes that may be read, written, changed, or any of these, from the memory's first on.
    static_assert(TW_ACCESS_READ >> 1 == 0 && TW_ACCESS_WRITE >> 1 == 1 &&
                  TW_ACCESS_ATOMIC >> 1 == 2 && TW_ACCESS_ALL >> 1 == 3);
    std::array<std::uint64_t, 4> reach_;
    std::array<std::atomic<LaneKey*>, kKeyDomainsMax + 1> lane_keys_{};  // the last: never
    ucs::SpinLock lock_;                                                 // makes a lane's key
    std::atomic<std::uint32_t> holders_{1};
};

using RemoteKeyList = ucs::List<RemoteKey, &RemoteKey::link>;

inline RemoteKey& key_of(tw_key_h handle) {
    return *static_cast<RemoteKey*>(handle);
}

}  // namespace tagwire::proto
