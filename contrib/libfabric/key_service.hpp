// SPDX-License-Identifier: BSD-3-Clause
// The other side of RemoteKeys: answers peers that ask for keys of this domain's regions, tells
// them when a region is closed, and counts what they do with it.
//
// A key that the program chooses again may only name the new region when nobody uses it for the old
// one: peers tell when they have forgotten it.
//
// A peer is only asked to send notices where somebody counts: of a region whose counters change
// the key is revoked, so that all who know it ask again.
#pragma once

#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "provider.hpp"

namespace tagwire::fi {

class Ep;
struct Peer;
struct RemoteKey;

/// The two kinds of operations on memory of a peer, as endpoints count them (fi_endpoint(3)): an
/// atomic with results is a read. A region counts it as a write, too, if it changes the memory
/// (fi_mr(3), FI_REMOTE_WRITE): Mr::count().
enum class Access : std::uint32_t { kRead, kWrite };

class KeyService {
  public:
    /// Facts about an operation of this side that the owner of the memory cannot see.
    struct Notice {
        bool is_read = false;
        bool is_further = false;  ///< Its operation has a notice already.
        bool has_data = false;    ///< FI_REMOTE_CQ_DATA, for the owner's queue.
        std::uint64_t imm = 0;
        std::uint64_t length = 0;  ///< Bytes of the operation.
    };

    explicit KeyService(Ep& owner) : owner_(owner) {}

    /// Prepares the endpoint's worker for letters, before anybody can know its address.
    tw_status_t listen();
    /// All peers that have learnt this key forget it.
    void revoke(std::uint64_t key);
    /// The same of all keys: the endpoint counts from now on what peers do.
    void revoke_all();
    /// Not all of them have said that they did.
    bool is_revoking(std::uint64_t key) const { return revoked_.contains(key); }
    /// A peer is left or has failed. Its notices still count: its own connection may live on.
    void drop(std::uint64_t worker_id);
    /// ... which it does not.
    void forget(std::uint64_t worker_id) {
        drop(worker_id);
        informed_.erase(worker_id);
    }

    // ---- Notices (FI_RMA_EVENT)

    /// Somebody at the peer counts operations of this kind on the region.
    static bool is_counted(const RemoteKey& remote, Access access);
    /// Tells the peer that an operation of this side on its region of that key has ended, once its
    /// data is there. An operation on several regions tells of each, once. False: there is no
    /// memory for that now, and the caller repeats it.
    bool tell(const Peer& peer, std::uint64_t key, const Notice& what);
    /// Counts an operation of a peer at this endpoint.
    void count(Access access) const;

  private:
    using Peers = std::unordered_map<std::uint64_t, std::vector<std::uint64_t>>;

    static void on_ask(void* arg, tw_am_t* am);
    static void on_tell(void* arg, tw_am_t* am);
    static void on_revoke(void* arg, tw_am_t* am);
    static void on_forgot(void* arg, tw_am_t* am);
    static void on_notice(void* arg, tw_am_t* am);
    static void add(Peers& peers, std::uint64_t key, std::uint64_t worker_id);
    void answer(std::uint64_t worker_id, std::uint64_t key);
    void forgotten(std::uint64_t worker_id, std::uint64_t key);

    Ep& owner_;
    /// Peers by key, each once: those who know it, and those who have been told to forget it.
    Peers told_;
    Peers revoked_;
    /// Connected peers that have ever been given a key: only they may send notices.
    std::unordered_set<std::uint64_t> informed_;
};

}  // namespace tagwire::fi
