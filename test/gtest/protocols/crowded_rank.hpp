// SPDX-License-Identifier: BSD-3-Clause
// A rank of a job that has more ranks than the host has cores: it sends every kind of work to every
// other one, checks each byte that comes, and meets its fate when a quarter of its work is done.
//
//   test                                  rank
//    | <- address, key, memory ----------  opens
//    | -- those of all ----------------->  connects, and works until nothing is left
//    | <- signal ------------------------  all of its operations have ended
//    | -- signal ----------------------->  checks its memory, closes its endpoints
//    | <- signal ------------------------  all are closed
//    | -- signal ----------------------->  goes
//
// The kind, sender, receiver and number of an operation decide its length and content.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "process/harness.hpp"
#include "protocols/fixture.hpp"
#include "protocols/rma_pair.hpp"

namespace tagwire::test {

constexpr unsigned kCrowdedRanksMax = 16;

enum class Fate : std::uint8_t {
    kLives,
    kKilled,    // by SIGKILL
    kStopped,   // by SIGSTOP, until the test continues it
    kComputes,  // without a call for a second
    kForks,     // a child, which stays for as long as the rank
    kForksBriefly,
};

struct CrowdedPlan {
    unsigned ranks = 0;
    unsigned rounds = 0;         // operations of each kind to each peer
    std::size_t long_bytes = 0;  // of a rendezvous, at least
    std::map<unsigned, Fate> fates;

    [[nodiscard]] Fate fate_of(unsigned rank) const {
        const auto found = fates.find(rank);
        return found == fates.end() ? Fate::kLives : found->second;
    }
    [[nodiscard]] bool is_doomed(unsigned rank) const { return fate_of(rank) == Fate::kKilled; }
};

/// Memory that outlives a rank that was killed. All processes of a job share it.
struct CrowdedBoard {
    using Numbers = std::array<std::atomic<std::uint32_t>, kCrowdedRanksMax>;
    std::array<Numbers, kCrowdedRanksMax> handled;    // by whom, from whom: active messages
    std::array<Numbers, kCrowdedRanksMax> delivered;  // from whom, to whom: their sender was told
};

class CrowdedRank {
  public:
    CrowdedRank(const CrowdedPlan& plan, CrowdedBoard& board, unsigned rank);
    CrowdedRank(const CrowdedRank&) = delete;
    CrowdedRank& operator=(const CrowdedRank&) = delete;
    ~CrowdedRank();

    [[nodiscard]] Bytes introduction() const;
    void connect(const std::vector<Bytes>& introductions);
    /// Until nothing is left to do, and the doomed have failed. A failure when that takes too long.
    void work();
    /// Everybody has worked.
    void check_memory() const;
    void close();
    /// Progresses until the test says something.
    void await(const Channel& control);

  private:
    enum class Kind : std::uint8_t { kEager, kRendezvous, kPut, kGet, kAtomic, kAm, kCount };
    static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kCount);
    static constexpr std::uint32_t kWindow = 2;  // operations of a kind and peer at a time
    static constexpr std::size_t kPutBytes = 6000;
    static constexpr unsigned kAmId = 1;

    struct Peer;
    struct Slot {
        Peer* peer = nullptr;
        Kind kind = Kind::kEager;
        bool is_receive = false;
        bool is_used = false;
        std::uint32_t number = 0;
        Bytes bytes;
    };
    /// Operations of a kind, in one direction.
    struct Stream {
        std::array<Slot, kWindow> slots;
        std::uint32_t begun = 0;
    };
    struct Peer {
        unsigned rank = 0;
        tw_ep_h ep = nullptr;
        tw_key_h key = nullptr;
        std::uint64_t memory = 0;
        bool has_failed = false;
        std::array<Stream, kKinds> sends;
        std::array<Stream, 2> receives;  // kEager, kRendezvous
        std::uint32_t next_am = 0;
        int closes = 0;  // completions
    };
    /// The ways in which programs wait.
    enum class Way : std::uint8_t {
        kSpins,
        kSharesWorker,
        kWaitsSpinning,
        kWaitsYielding,
        kSleeps
    };

    [[nodiscard]] std::size_t length_of(Kind kind, unsigned from, unsigned to,
                                        std::uint32_t number) const;
    [[nodiscard]] Bytes content(Kind kind, unsigned from, unsigned to, std::uint32_t number) const;
    [[nodiscard]] std::size_t put_offset(unsigned from, std::uint32_t number) const;
    [[nodiscard]] std::size_t counter_offset(unsigned from) const;

    template <class Action>
    void for_each_slot(Peer& peer, const Action& action);
    void fill(Peer& peer);
    void fill(Peer& peer, Stream& stream);
    tw_status_t begin(Slot& slot);
    tw_status_t begin_receive(Slot& slot);
    void move(std::uint64_t timeout_ns);
    void take_ends();
    void take_end(Slot& slot, const tw_completion_t& done);
    void take_failures();
    void take_am(const tw_am_t& am);
    void meet_fate();
    [[nodiscard]] bool is_over(Peer& peer);
    [[nodiscard]] std::string missing();

    const CrowdedPlan& plan_;
    CrowdedBoard& board_;
    const unsigned rank_;
    const Way way_;
    tw_context_h context_ = nullptr;
    std::unique_ptr<Node> node_;
    std::unique_ptr<Shared> memory_;
    std::deque<Peer> peers_;
    std::deque<Bytes> long_ams_;
    std::size_t failures_taken_ = 0;
    std::uint64_t ended_ = 0;
    bool has_met_fate_ = false;
    int child_pipe_ = -1;  // open: a child of its own lives
    pid_t child_ = -1;
};

}  // namespace tagwire::test
