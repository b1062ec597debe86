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
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "provider.hpp"

namespace tagwire::fi {

class Ep;
struct NoticeLetter;
struct Peer;
struct RemoteKey;

/// The two kinds of operations on memory of a peer, as endpoints count them (fi_endpoint(3)): an
/// atomic with results is a read. A region counts it as a write, too, if it changes the memory
/// (fi_mr(3), FI_REMOTE_WRITE): Mr::count().
enum class Access : std::uint32_t { kRead, kWrite };

class KeyService {
  public:
    struct Data {
        std::uint64_t imm;
        std::uint64_t length;  ///< Bytes of the operation.
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
    /// Tells the peer that an operation of this side on its regions of these keys, each once, has
    /// ended; to be called for operations that is_counted() of, once their data is there.
    void tell(const Peer& peer, std::span<const std::uint64_t> keys, Access access);
    /// The same of a write, with data for the peer's queue (FI_REMOTE_CQ_DATA).
    void tell_data(const Peer& peer, std::span<const std::uint64_t> keys, const Data& data);
    /// Counts an operation of a peer at this endpoint.
    void count(Access access) const;

  private:
    static void on_ask(void* arg, tw_am_t* am);
    static void on_tell(void* arg, tw_am_t* am);
    static void on_revoke(void* arg, tw_am_t* am);
    static void on_forgot(void* arg, tw_am_t* am);
    static void on_notice(void* arg, tw_am_t* am);
    void notify(const Peer& peer, std::span<const std::uint64_t> keys, NoticeLetter notice);
    void answer(std::uint64_t worker_id, std::uint64_t key);
    void forgotten(std::uint64_t worker_id, std::uint64_t key);

    Ep& owner_;
    /// Peers by key, each once: those who know it, and those who have been told to forget it.
    using Peers = std::unordered_map<std::uint64_t, std::vector<std::uint64_t>>;
    Peers told_;
    Peers revoked_;
    /// Connected peers that have ever been given a key: only they may send notices.
    std::unordered_set<std::uint64_t> informed_;
};

}  // namespace tagwire::fi
