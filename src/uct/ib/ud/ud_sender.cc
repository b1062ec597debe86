// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_sender.hpp"

namespace tagwire::ud {

Sender::Sender(const SenderParams& params, std::uint64_t now)
    : params_(params),
      slots_(std::bit_ceil(params.window)),
      mask_(std::bit_ceil(params.window) - 1),
      una_(params.first_psn),
      sent_(params.first_psn),
      high_(params.first_psn),
      next_(params.first_psn),
      congestion_(std::min(kCongestionMin, params.window)),
      recovery_end_(params.first_psn),
      deadline_(kNever),
      silent_since_(now),
      timeout_(params.timeout_ns) {}

// ---- Sending

Sender::Next Sender::next() const {
    if (is_dead_) [[unlikely]]
        return {Step::kDead, 0, false};
    if (!is_open_) [[unlikely]]
        return {wants_connect_ ? Step::kConnect : Step::kNothing, params_.first_psn, false};
    if (wants_probe_) [[unlikely]]
        return {Step::kProbe, asked_, false};
    if (wants_repair_) [[unlikely]]
        return {Step::kData, una_, true};
    if (sent_ == next_ || sent_ - una_ >= flight_max())
        return {Step::kNothing, 0, false};
    // Asked for often enough that the answer is here before the window is used up and endpoints get
    // their turns in small steps, and whenever nothing will follow until it comes.
    const std::uint32_t part = std::max(flight_max() / 8, 1U);
    const bool is_last = sent_ + 1 - una_ == flight_max() || sent_ + 1 - una_ == params_.window;
    return {Step::kData, sent_, is_last || sent_ % part == 0 || sent_ != high_};
}

void Sender::did(const Next& step, std::uint64_t now) {
    const bool awaited = awaits() && deadline_ != kNever && !is_keepalive_;
    switch (step.step) {
        case Step::kConnect:
            wants_connect_ = false;
            break;
        case Step::kProbe:
            wants_probe_ = false;
            break;
        case Step::kData: {
            Slot& data = slot(step.psn);
            const bool is_again = is_before(step.psn, high_);
            data.was_resent = is_again;
            data.sent_ns = now;
            resent_ += is_again ? 1 : 0;
            if (wants_repair_ && step.psn == una_)
                wants_repair_ = false;
            if (step.psn == sent_)
                ++sent_;
            if (!is_again)
                high_ = step.psn + 1;
            break;
        }
        default:
            return;
    }
    if (awaited) [[likely]]
        return;
    silent_since_ = now;
    set_deadline(now);
}

// ---- Arrivals

bool Sender::accepted(std::uint32_t peer_id, std::uint32_t ahead_max, std::uint64_t now) {
    if (is_open_ || is_dead_)
        return false;
    is_open_ = true;
    wants_connect_ = false;
    peer_id_ = peer_id;
    ahead_max_ = std::max(ahead_max, 1U);
    heard(now);
    return true;
}

void Sender::answered(std::uint32_t probe, std::uint64_t now) {
    if (!is_open_ || probe - answered_ > asked_ - answered_)
        return;
    answered_ = probe;
    heard(now);
}

void Sender::heard(std::uint64_t now) {
    attempts_ = 0;
    silent_since_ = now;
    set_deadline(now);
}

// The rule of TCP: smoothed round trip and four times its variation (RFC 6298).
void Sender::measure(std::uint64_t sample) {
    if (round_trip_ == 0) {
        round_trip_ = sample;
        variation_ = sample / 2;
    } else {
        const std::uint64_t off =
            sample > round_trip_ ? sample - round_trip_ : round_trip_ - sample;
        variation_ = (3 * variation_ + off) / 4;
        round_trip_ = (7 * round_trip_ + sample) / 8;
    }
    timeout_ = std::clamp(round_trip_ + 4 * variation_, params_.timeout_ns,
                          std::max(params_.timeout_ns, params_.timeout_max_ns));
}

// Later packets have arrived, this one has not: it is sent again at once; if that is lost, too,
// after a few round trips, and in the end by the ordinary deadline.
void Sender::lost_one() {
    wants_repair_ = true;
    has_repaired_ = true;
    repaired_ = una_;
    if (is_before(una_, recovery_end_))
        return;
    recovery_end_ = high_;
    congestion_ = std::max(congestion_ / 2, std::min(kCongestionMin, params_.window));
}

// ---- Time

void Sender::set_deadline(std::uint64_t now) {
    is_keepalive_ = !awaits();
    is_quick_ = has_repaired_ && repaired_ == una_ && una_ != high_ && quick_ < kQuickRepairsMax;
    if (is_quick_) {
        deadline_ = now + std::clamp(2 * (round_trip_ + 4 * variation_), kQuickRepairNsMin,
                                     std::max(timeout_, kQuickRepairNsMin));
        return;
    }
    if (is_keepalive_) {
        deadline_ = params_.keepalive_ns == 0 ? kNever : now + params_.keepalive_ns;
        return;
    }
    const unsigned doublings = std::min(attempts_, 20U);
    const std::uint64_t bound = std::max(params_.timeout_max_ns, timeout_);
    deadline_ = now + std::min(timeout_ << doublings, bound);
    if (attempts_ == 0) [[likely]]
        return;
    retry_at_ = deadline_;
    deadline_ = std::min(deadline_, std::max(std::min(question_due(), silence_ends()), now + 1));
}

std::uint64_t Sender::question_due() const {
    return params_.peer_timeout_ns == kNever
               ? kNever
               : std::max(silent_since_, judged_ns_) + params_.peer_timeout_ns;
}

std::uint64_t Sender::silence_ends() const {
    const bool is_known_alive = was_alive_ && judged_ns_ >= silent_since_;
    return params_.remote_timeout_ns == kNever || attempts_ < kAttemptsMin || is_known_alive
               ? kNever
               : silent_since_ + params_.remote_timeout_ns;
}

bool Sender::expire(std::uint64_t now) {
    if (now < deadline_ || is_dead_)
        return false;
    if (is_keepalive_) {
        ask();
        silent_since_ = now;
        set_deadline(now);
        return false;
    }
    if (attempts_ > 0 && now >= std::min(question_due(), silence_ends()))
        return true;
    if (is_quick_) {
        ++quick_;
        wants_repair_ = true;
        set_deadline(now);
        return false;
    }
    try_again(now);
    return false;
}

void Sender::judged(Liveness liveness, std::uint64_t now) {
    judged_ns_ = now;
    was_alive_ = liveness == Liveness::kAlive;
    if (liveness == Liveness::kDead || now >= silence_ends()) {
        is_dead_ = true;
        deadline_ = kNever;
    } else if (now >= retry_at_) {
        try_again(now);
    } else {
        deadline_ =
            std::min(retry_at_, std::max(std::min(question_due(), silence_ends()), now + 1));
    }
}

void Sender::try_again(std::uint64_t now) {
    ++attempts_;
    wants_connect_ = !is_open_;
    if (is_open_ && una_ != high_) {
        sent_ = una_;
        has_repaired_ = wants_repair_ = false;
        recovery_end_ = high_;
        congestion_ = std::min(kCongestionMin, params_.window);
    }
    // A probe tells where we are: who does not know us can say so.
    if (is_open_ && (attempts_ > 1 || una_ == high_))
        wants_probe_ = true;
    set_deadline(now);
}

}  // namespace tagwire::ud
