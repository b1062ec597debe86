// SPDX-License-Identifier: BSD-3-Clause
// The key to memory of a peer, unpacked for a worker of the program: it is used with any endpoint
// of that worker to the memory's owner, a context.
//
// 1. A lane's own key is made when a lane of the worker to that domain of the owner first needs it,
//    and stays until the key goes: any transmit context of the worker may make it, and reads it
//    without a lock. Nothing is kept for an endpoint.
// 2. A packed key may have no room for a lane's: then the owner is asked for the keys of all its
//    domains, by the endpoint whose operation lacks one, and carries operations out until it has
//    told them. One endpoint at a time asks; where its connection ends before the reply, the next
//    operation asks again.
//
//        unasked --wants_keys()--> claimed --ask_owner()--> asked --owner_told()--> told
//           ^------------question_ended()-----'----------------'
//
// 3. Operations and the endpoint that asks hold the key: one that the program has released goes
//    with the last of them.
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
    /// For the worker of that id.
    RemoteKey(std::uint64_t worker_id, const MemoryKeyMessage& message);
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
    /// The endpoint is kReady, and could use a key that the packed one has no room for, and nobody
    /// asks for it or has done so: ask_owner() or question_ended() follows. With the lock of the
    /// endpoint's worker, as what follows.
    [[nodiscard]] bool wants_keys(const KeyPorts& by);
    /// Asks the owner. False: there is no memory to ask, and it is to be called again.
    [[nodiscard]] bool ask_owner(const KeyPorts& by);
    /// The owner has told so many bytes of keys.
    void owner_told(std::size_t bytes);
    /// The question has ended, or was not asked: another one may be, if no reply came.
    void question_ended();
    /// Keys of other lanes may come: the owner was asked, and has not replied.
    bool is_asked() const {
        // Relaxed: it tells nothing else.
        return is_claimed_.load(std::memory_order_relaxed) && !is_told();
    }

    void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }  // Relaxed: a count
    void let_go();
    struct LetGo {
        void operator()(RemoteKey* key) const { key->let_go(); }
    };

    /// As RmaLane::key_use of the endpoints that it may be used with.
    const std::uint64_t use;
    ucs::ListLink<RemoteKey> link;  // among those that an endpoint is to ask for

  private:
    /// Keys of all domains of the owner.
    struct Told : Keys, ucs::FromReserve {};

    ~RemoteKey();
    /// The owner has replied.
    bool is_told() const {
        // SYNC rma_told_keys: as in packed_of().
        return told_.load(std::memory_order_acquire) != nullptr;
    }
    /// Empty: there is none.
    WireBytes packed_of(std::uint8_t domain) const;
    bool lacks_key(const KeyPorts& by) const;

    const MemoryKeyMessage message_;
    std::atomic<bool> is_claimed_{false};     // an endpoint asks, or the owner has told
    std::unique_ptr<Told> asked_;             // from the question on; of who has claimed it
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
