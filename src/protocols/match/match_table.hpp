// SPDX-License-Identifier: BSD-3-Clause
// The two name spaces of messages of a worker, and the unexpected messages with their memory.
//
//            arrives, no receive                    receive, taken by a probe, buffered receive
//     peer ----------------------> in a name space ---------------------------------------> taken
//                                        |
//                                        | the peer goes: all of it is here
//                                        '-------------------------------------> orphan
//
// 1. Each message counts against the budget (budget.hpp) from make() to release(), and so does each
//    notice of a put until it is polled.
// 2. Peers are paused in two steps: first they keep their data, and requests of rendezvous come in
//    its place, so that an expected message gets through; then they send nothing.
// 3. Memory of short messages is of one size, so that the table keeps some blocks of it.
// 4. Complete messages of peers that are gone (orphans) give way to those of peers that are there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "protocols/cost/options.hpp"
#include "protocols/index/id_table.hpp"
#include "protocols/match/budget.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/match/unexpected.hpp"
#include "protocols/port/worker_counters.hpp"
#include "protocols/request/request.hpp"
#include "protocols/wire/eager_header.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

struct Arrival;
class MatchTable;

/// The worker as the table knows it; the functions' first argument is `owner`.
struct MatchPort {
    WorkerCounters& counters;
    const IdCount& peers;
    const bool is_multi;
    void* const owner;
    /// Visits all peers; `visit` may end the one that it gets.
    void (*const visit_peers)(void* owner, MatchTable& table,
                              void (*visit)(MatchTable& table, MatchPeer& peer));
    /// Frees a receive that ends with the worker.
    void (*const release)(void* owner, Request& receive);
};

class MatchTable {
  public:
    MatchTable(const MatchPort& worker, const Options& options)
        : worker_(worker),
          options_(options),
          budget_(options.unexpected_bytes, options.envelopes_max) {}
    MatchTable(const MatchTable&) = delete;
    MatchTable& operator=(const MatchTable&) = delete;
    ~MatchTable();

    MatchSpace& space(bool is_tagged) { return spaces_[is_tagged ? 1 : 0]; }

    // ---- Messages

    /// nullptr: it cannot be kept, and its connection has ended. Its peer is to be paused
    /// (pause_if_full()) when the message is where it belongs.
    Unexpected* make(MatchPeer& peer, const Arrival& arrival);
    /// The message waits for a receive.
    void add(MatchPeer& peer, const Arrival& arrival);
    /// As add(), for an eager message that has arrived in full and whose sender is told nothing.
    /// False: the message takes the slow path.
    bool add_plain(MatchPeer& peer, const Header& header, std::uint64_t imm,
                   std::span<const std::byte> data);
    /// More memory is needed for a message that is kept.
    void grow(Unexpected& message, std::size_t bytes);
    /// Removes the message from its name space. Whatever callbacks do, it stays until release().
    void take(Unexpected& message);
    /// The program has it, or a buffered receive.
    void claim(Unexpected& message);
    /// nullptr: it is no message that the program has, or a buffered receive has it.
    Unexpected* claimed(tw_message_h message) const;
    /// Drops a message that the program has. False: it is none.
    bool drop(tw_message_h message);
    /// The program keeps it, a rendezvous: its sender may take it back.
    void name(Unexpected& message);
    void unclaim(Unexpected& message) { claimed_.erase(&message); }
    /// release() of a plain message of a peer that is there.
    void release_plain(Unexpected& message);
    /// Frees a message that is in no name space, as soon as its handler does not run.
    void release(Unexpected& message);
    /// As release(), for the program: the sender learns that it was taken.
    void discard(Unexpected& message);
    /// Drops what the sender wants back, or marks it. False: it was matched, or is not here.
    bool withdraw(const MatchPeer& peer, std::uint32_t send_id);
    /// The peer is gone: messages stay that are here as a whole, unless it has flooded.
    void drop_messages_of(MatchPeer& peer);
    /// The worker ends: all messages, and the posted receives.
    void clear();

    // ---- Budget

    /// Whether so many more bytes of that peer may be kept: it may not send on after Pause.
    bool may_keep(MatchPeer& peer, std::uint64_t bytes);
    /// As may_keep(); ends the peer's connection if not.
    bool admit(MatchPeer& peer, std::uint64_t bytes);
    /// Memory of a message that is kept, with so many bytes of data, header and keys.
    static std::size_t bytes_of(std::size_t length);
    /// Bytes that are kept of the peer elsewhere (announced messages).
    void charge(MatchPeer& peer, std::size_t bytes);
    void refund(MatchPeer& peer, std::size_t bytes);
    /// A notice of a put waits for the program's poll. It is of no peer's quota, and may outlive
    /// its endpoint.
    static constexpr std::size_t kNoticeBytes = sizeof(Request);
    void add_notice() { budget_.add(kNoticeBytes); }
    /// The program has it.
    void remove_notice() { budget_.remove(kNoticeBytes); }
    /// Something of that peer is kept from now on; what was may go.
    void pause_if_full(MatchPeer& peer);
    /// Something of that peer is kept no more; null: it is gone.
    void resume_if_free(MatchPeer* peer);
    void drop_orphans();

    std::string description() const;

  private:
    static constexpr std::size_t kBlockBytes = 320;
    /// Data of a short message, which fits a block.
    static constexpr std::size_t kShortBytes = kBlockBytes - sizeof(Unexpected);
    /// Builds that check memory are to see each message go.
    static constexpr bool kKeepsBlocks = !ucs::kDebugChecks;
    static constexpr std::size_t kSpareMax = 16;

    Unexpected* allocate(std::size_t behind);
    void free(Unexpected& message);
    std::size_t share() const;
    bool may_send_data(const MatchPeer& peer) const;
    void release_send_id(Unexpected& message);
    void add_orphan(Unexpected& message);
    void remove_orphan(Unexpected& message);
    void end(Unexpected& message, bool is_dropped);

    const MatchPort worker_;
    const Options& options_;
    MatchSpace spaces_[2];
    Budget budget_;
    bool has_paused_ = false;        // some peer was told to send nothing
    bool has_paused_eager_ = false;  // some peer was told to send no data
    bool has_dropped_orphans_ = false;
    UnexpectedList orphans_;  // oldest first
    ucs::detail::TagIndex<MessageSendKeys> by_send_id_;
    ucs::ReserveHashSet<Unexpected*> claimed_;
    std::array<void*, kSpareMax> spare_;  // the first spare_count_: blocks that are free
    std::size_t spare_count_ = 0;
};

}  // namespace tagwire::proto
