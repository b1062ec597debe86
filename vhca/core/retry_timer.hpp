// SPDX-License-Identifier: BSD-3-Clause
// A retry timer decides when a requester sends again, and limits the number of retries.
//
//   stopped --arm()---> waits for an acknowledgement --> kTimeout
//           --pause()-> paused: the peer was not ready (RNR) --> kResume
//
// (1) The acknowledgement timeout runs while the peer can answer: time in which its process did not
//     run is none of it. An answer that has arrived when it is over is received first.
// (2) Every reply that brings progress refills both budgets of retries; when one is used up, the
//     request fails.
#pragma once

#include <cstdint>

#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

class QueuePair;

class RetryTimer {
  public:
    enum class Due : std::uint8_t { kNothing, kResume, kTimeout };

    explicit RetryTimer(QueuePair& qp) : qp_(qp) {}

    /// Starts the acknowledgement timeout, unless the timer runs.
    void arm();
    /// Nothing is sent until the delay of this code is over (IBTA table 45).
    void pause(std::uint8_t rnr_code);
    void stop() {
        deadline_ = kNever;
        is_paused_ = is_over_ = false;
    }
    [[nodiscard]] bool is_paused() const { return is_paused_; }
    [[nodiscard]] Due run();
    [[nodiscard]] Time deadline() const { return deadline_; }

    // ---- Budgets
    void refill();
    void refill_retries();
    /// False: none is left.
    [[nodiscard]] bool take_retry();
    [[nodiscard]] bool take_rnr_retry();

  private:
    void start_timeout();

    QueuePair& qp_;
    Time deadline_ = kNever;
    Turn turn_;                // of the peer, when the timeout began
    unsigned steps_left_ = 0;  // until what arrived before it was over has been received
    std::uint8_t retries_left_ = 0, rnr_retries_left_ = 0;
    bool is_paused_ = false, is_over_ = false;
};

}  // namespace tagwire::vhca
