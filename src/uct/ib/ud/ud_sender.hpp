// SPDX-License-Identifier: BSD-3-Clause
// The sending end of a connection: what to send when, without a clock, a wire or memory of its own.
//
// Its user asks next() what to do, does it and says so by did(); tells what arrived; and calls
// expire() when deadline() has come. Packets are opaque.
//
//   state    connecting --ACCEPT--> open          any --RESET, or silence for too long--> dead
//
//   packets  ... released | una: sent, not acknowledged | sent: may be sent | next: not given yet
//                                        high: never sent before
//
// Threads: owner of the interface.
// Invariants
//  (1) una <= sent <= next, una <= high <= next in the arithmetic of 32 bits; next - una <= window.
//  (2) At most min(congestion window, what the peer takes ahead of order) are sent and not
//      acknowledged.
//  (3) Whenever an answer is awaited (connecting, sent packets, a probe) a deadline is set. At each
//      deadline something that the peer answers is sent, after twice the time of the one before, up
//      to a bound.
//  (4) Whenever an answer is awaited and none of any kind has come for peer_timeout_ns, the caller
//      is asked whether the peer lives: known to be dead, it is dead; known to live, it is waited
//      for without bound, however long it does not call progress.
//  (5) Dead by silence: nothing is known of the peer, nothing has come for remote_timeout_ns, and
//      an answer was asked for kAttemptsMin times at least, so that a process that was stopped
//      itself looks at what has arrived meanwhile before it gives up.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ud {

inline constexpr std::uint64_t kNever = UINT64_MAX;

/// State of a peer's process, known by other means than its packets.
enum class Liveness : std::uint8_t { kUnknown, kAlive, kDead };

/// Numbers wrap.
constexpr bool is_before(std::uint32_t one, std::uint32_t other) {
    return static_cast<std::int32_t>(one - other) < 0;
}

struct SenderParams {
    std::uint32_t window = 256;  // packets that were given and are not acknowledged
    std::uint32_t first_psn = 0;
    std::uint64_t timeout_ns = 10'000'000;  // the shortest
    std::uint64_t timeout_max_ns = 1'000'000'000;
    std::uint64_t peer_timeout_ns = 1'000'000'000;     // between questions; kNever: none
    std::uint64_t remote_timeout_ns = 30'000'000'000;  // not below peer_timeout_ns
    std::uint64_t keepalive_ns = 0;                    // 0: a silent peer is not asked
};

class Sender {
  public:
    static constexpr unsigned kAttemptsMin = 4;
    static constexpr unsigned kQuickRepairsMax = 3;
    static constexpr std::uint64_t kQuickRepairNsMin = 50'000;
    // In the beginning, and after a timeout. It grows by what is acknowledged, so that endpoints
    // that begin together share the wire, and a receiver that loses what it has no room for gets
    // less.
    static constexpr std::uint32_t kCongestionMin = 16;

    enum class Step : std::uint8_t { kNothing, kConnect, kProbe, kData, kDead };
    struct Next {
        Step step;
        std::uint32_t psn;  // kData; of a probe its number
        bool wants_ack;     // kData
    };

    Sender(const SenderParams& params, std::uint64_t now);

    // ---- Giving
    [[nodiscard]] bool has_room(std::uint32_t packets = 1) const {
        return next_ - una_ + packets <= params_.window;
    }
    /// There is room.
    void push(void* packet) {
        slot(next_) = {packet, 0, false};
        ++next_;
    }
    /// The peer shall be asked whether it is there. Returns the number that an answer must reach.
    std::uint32_t ask() {
        wants_probe_ = true;
        return ++asked_;
    }

    // ---- Sending
    [[nodiscard]] Next next() const;
    void did(const Next& step, std::uint64_t now);
    [[nodiscard]] void* packet(std::uint32_t psn) { return slot(psn).packet; }

    // ---- Arrivals
    /// False: not while connecting.
    bool accepted(std::uint32_t peer_id, std::uint32_t ahead_max, std::uint64_t now);
    /// All before `psn` have arrived; `release(packet)` is called for each that had not been
    /// acknowledged. False: it cannot be, and was ignored.
    template <class Release>
    bool acknowledged(std::uint32_t psn, bool has_gap, std::uint64_t now, Release&& release);
    /// The answer to a probe.
    void answered(std::uint32_t probe, std::uint64_t now);

    // ---- Time
    [[nodiscard]] std::uint64_t deadline() const { return deadline_; }
    /// Does nothing before the deadline. True: find out whether the peer lives, then judged().
    [[nodiscard]] bool expire(std::uint64_t now);
    void judged(Liveness liveness, std::uint64_t now);

    // ---- The end
    /// Gives all packets back.
    template <class Release>
    void drop_all(Release&& release);
    void kill() { is_dead_ = true; }

    [[nodiscard]] bool is_open() const { return is_open_; }
    [[nodiscard]] bool is_dead() const { return is_dead_; }
    [[nodiscard]] std::uint32_t peer_id() const { return peer_id_; }
    [[nodiscard]] std::uint32_t first_unacknowledged() const { return una_; }
    [[nodiscard]] std::uint32_t given() const { return next_; }
    [[nodiscard]] std::uint32_t first_psn() const { return params_.first_psn; }
    [[nodiscard]] bool is_idle() const { return una_ == next_; }
    [[nodiscard]] std::uint32_t last_answered() const { return answered_; }
    [[nodiscard]] std::uint64_t resent() const { return resent_; }
    [[nodiscard]] std::uint64_t timeout_ns() const { return timeout_; }

  private:
    struct Slot {
        void* packet;
        std::uint64_t sent_ns;
        bool was_resent;  // its acknowledgement tells no round-trip time
    };

    Slot& slot(std::uint32_t psn) { return slots_[psn & mask_]; }
    [[nodiscard]] std::uint32_t flight_max() const { return std::min(congestion_, ahead_max_); }
    [[nodiscard]] bool awaits() const { return !is_open_ || una_ != high_ || asked_ != answered_; }
    void heard(std::uint64_t now);
    void set_deadline(std::uint64_t now);
    void measure(std::uint64_t round_trip_ns);
    void lost_one();
    void try_again(std::uint64_t now);
    [[nodiscard]] std::uint64_t question_due() const;
    [[nodiscard]] std::uint64_t silence_ends() const;

    SenderParams params_;
    ucs::ReserveVector<Slot> slots_;
    std::uint32_t mask_;
    std::uint32_t una_;
    std::uint32_t sent_;
    std::uint32_t high_;
    std::uint32_t next_;
    std::uint32_t peer_id_ = 0;
    std::uint32_t ahead_max_ = 0;
    std::uint32_t congestion_;
    std::uint32_t repaired_ = 0;  // the packet that a gap made us send again
    std::uint32_t recovery_end_;  // a loss before it has been counted
    std::uint32_t asked_ = 0;
    std::uint32_t answered_ = 0;
    std::uint64_t deadline_;
    std::uint64_t silent_since_;    // and an answer is awaited
    std::uint64_t judged_ns_ = 0;   // the last answer about the peer's life
    std::uint64_t retry_at_ = 0;    // from the second attempt on: something is sent again
    std::uint64_t timeout_;         // from the measured round trips
    std::uint64_t round_trip_ = 0;  // smoothed
    std::uint64_t variation_ = 0;
    std::uint64_t resent_ = 0;
    unsigned attempts_ = 0;   // deadlines since the peer was heard
    bool was_alive_ = false;  // when it was judged
    bool is_open_ = false;
    bool is_dead_ = false;
    bool wants_connect_ = true;
    bool wants_probe_ = false;
    bool wants_repair_ = false;  // una again
    bool has_repaired_ = false;
    unsigned quick_ = 0;         // repairs in short time since una moved
    bool is_keepalive_ = false;  // the deadline is that of a silent peer
    bool is_quick_ = false;      // the deadline is that of a repair
};

template <class Release>
bool Sender::acknowledged(std::uint32_t psn, bool has_gap, std::uint64_t now, Release&& release) {
    const std::uint32_t count = psn - una_;
    if (!is_open_ || count > high_ - una_)
        return false;
    if (count > 0) {
        const Slot& last = slot(psn - 1);
        if (!last.was_resent)
            measure(now - last.sent_ns);
        congestion_ = std::min(params_.window, congestion_ + count);
        wants_repair_ = false;
        quick_ = 0;
    }
    while (una_ != psn) {
        void* packet = slot(una_).packet;
        ++una_;
        release(packet);
    }
    if (is_before(sent_, una_))
        sent_ = una_;
    if (has_gap && una_ != high_ && !(has_repaired_ && repaired_ == una_))
        lost_one();
    heard(now);
    return true;
}

template <class Release>
void Sender::drop_all(Release&& release) {
    while (una_ != next_) {
        void* packet = slot(una_).packet;
        ++una_;
        release(packet);
    }
    sent_ = high_ = next_;
    deadline_ = kNever;
}

}  // namespace tagwire::ud
