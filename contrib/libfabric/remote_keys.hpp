// SPDX-License-Identifier: BSD-3-Clause
// Keys of peers' memory that an endpoint has learnt: libfabric's keys have 64 bits, those of the
// messaging layer up to 64 bytes. The owner is asked for a key that is not known (letters.hpp), and
// operations wait for its reply.
//
//     find() -- known ------------------------------------> the operation begins
//        '-- not known --> wait_for(): one question, and a list of operations
//                              '-- reply: ready(remote, 0) of each, in the order of the calls
//                              '-- refusal, failure or end of the peer: ready(nullptr, error)
//
// 1. A key is forgotten when its owner revokes it, when an operation finds that it leads nowhere
//    (forget()), and with its peer.
// 2. An operation that waits is nobody's but this class's until ready() is called, once.
// 3. Operations that wait have not begun, so an operation with FI_FENCE never waits, nor passes
//    those that do (ask_for_fenced()).
// 4. All of this runs with the domain's lock. find() is on the data path: one multiplication, one
//    line of memory.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "provider.hpp"

namespace tagwire::fi {

class Ep;
struct Peer;
struct TellKeyLetter;

/// Facts about a region of a peer.
enum RegionFlag : std::uint32_t {
    kCountsReads = 1 << 0,          ///< The region has a counter of reads; it is told of each.
    kCountsWrites = 1 << 1,         ///< The same of writes, and of atomics.
    kEndpointCountsReads = 1 << 2,  ///< The peer's endpoint has such a counter.
    kEndpointCountsWrites = 1 << 3,
    kGivesReads = 1 << 4,   ///< FI_REMOTE_READ
    kGivesWrites = 1 << 5,  ///< FI_REMOTE_WRITE
    kHasNoBytes = 1 << 6
};

/// Memory of a peer. Valid until anything else is called.
struct RemoteKey {
    tw_key_h key = nullptr;    ///< nullptr: the region has no bytes.
    std::uint64_t origin = 0;  ///< Added to what the program names, it is the owner's address.
    std::uint64_t base = 0;    ///< Where the region begins, by the owner's addresses.
    std::uint64_t length = 0;
    std::uint32_t flags = 0;   ///< RegionFlag
    std::uint32_t serial = 0;  ///< Larger whenever the key was learnt anew.

    /// 0: the region has that memory and gives `right` (kGivesReads, kGivesWrites), else a positive
    /// errno of libfabric. `address` as the program names it.
    int check(std::uint64_t address, std::size_t bytes, RegionFlag right) const {
        const std::uint64_t at = address + origin - base;
        if (at > length || bytes > length - at)
            return FI_EINVAL;
        return (flags & right) != 0 ? 0 : FI_EACCES;
    }
};

/// Base of an operation that waits for a key.
struct KeyWaiter {
    /// `error` 0: it may begin now, with `remote`. Else `remote` is null and `error` a positive
    /// errno of libfabric: nothing has happened, and nothing will.
    void (*ready)(KeyWaiter& waiter, const RemoteKey* remote, int error) = nullptr;
    KeyWaiter* next_waiter = nullptr;
};

class RemoteKeys {
  public:
    explicit RemoteKeys(Ep& owner);
    RemoteKeys(const RemoteKeys&) = delete;
    RemoteKeys& operator=(const RemoteKeys&) = delete;
    ~RemoteKeys();

    /// The region of this key at the peer of `ep`. nullptr: not known.
    const RemoteKey* find(tw_ep_h ep, std::uint64_t key) const {
        std::size_t at = slot_of(ep, key);
        for (;; at = (at + 1) & mask_) {
            const Slot& slot = slots_[at];
            if (slot.ep == ep && slot.key == key) [[likely]]
                return &slot.remote;
            if (slot.ep == nullptr)
                return nullptr;
        }
    }
    /// The key is not known: asks for it, unless that was done, and calls waiter.ready() later. 0,
    /// or a negative errno: it does not wait.
    int wait_for(Peer& peer, std::uint64_t key, KeyWaiter& waiter);
    /// An operation waits for the key no longer: it ends by itself.
    void leave(Peer& peer, std::uint64_t key, KeyWaiter& waiter);
    /// The key is not known, and the operation must not wait. -FI_EAGAIN: the peer was asked, try
    /// again. Another error: the peer has refused.
    int ask_for_fenced(Peer& peer, std::uint64_t key);
    /// A key led nowhere. Does nothing if it was learnt anew since it had that serial.
    void forget(tw_ep_h ep, std::uint64_t key, std::uint32_t serial_max);
    /// The peer has failed or is left: ends all that waits, and forgets its keys. `error` is
    /// positive.
    void drop(Peer& peer, int error);
    /// Forgets all keys: the worker is about to be destroyed.
    void clear();

    // ---- Letters of the owner

    /// False: nobody has asked.
    bool on_told(Peer& peer, const TellKeyLetter& told);
    void on_revoked(const Peer& peer, std::uint64_t key);

  private:
    struct Slot {
        tw_ep_h ep = nullptr;  ///< nullptr: free.
        std::uint64_t key = 0;
        RemoteKey remote;
    };
    /// A question under way.
    struct Asked {
        KeyWaiter* first = nullptr;
        KeyWaiter* last = nullptr;
        int refusal = 0;  ///< For operations that could not wait.
        bool is_for_fenced = false;
        bool is_pending = false;
    };
    using Name = std::pair<std::uint64_t, std::uint64_t>;  // worker id, key

    std::size_t slot_of(tw_ep_h ep, std::uint64_t key) const {
        constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
        const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(ep) ^ key) * kGolden;
        return (mixed >> 32) & mask_;
    }
    void insert(tw_ep_h ep, std::uint64_t key, const RemoteKey& remote);
    void erase(std::size_t at);
    std::size_t index_of(const RemoteKey& known) const {
        const auto at = reinterpret_cast<std::uintptr_t>(&known);
        return (at - reinterpret_cast<std::uintptr_t>(slots_.get())) / sizeof(Slot);
    }
    void grow();
    /// Asks, unless that was done. 0, or a negative errno: nothing has changed. May throw for want
    /// of memory.
    int ask(Peer& peer, std::uint64_t key, Asked** asked_p);
    int learn(Peer& peer, const TellKeyLetter& told, RemoteKey* remote_p);
    static void end(Peer& peer, KeyWaiter* first, const RemoteKey* remote, int error);

    Ep& owner_;
    std::unique_ptr<Slot[]> slots_;
    std::size_t mask_;
    std::size_t known_ = 0;
    std::uint32_t serial_ = 0;
    std::map<Name, Asked> asked_;
};

}  // namespace tagwire::fi
