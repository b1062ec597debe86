// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/retry_timer.hpp"

#include <array>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

namespace {

constexpr Time kMicrosecond = 1000;

/// IBTA table 45: how long to wait, by the code of the responder.
constexpr std::array<Time, 32> kRnrDelays = {
    655'360'000, 10'000,      20'000,      30'000,     40'000,     60'000,     80'000,
    120'000,     160'000,     240'000,     320'000,    480'000,    640'000,    960'000,
    1'280'000,   1'920'000,   2'560'000,   3'840'000,  5'120'000,  7'680'000,  10'240'000,
    15'360'000,  20'480'000,  30'720'000,  40'960'000, 61'440'000, 81'920'000, 122'880'000,
    163'840'000, 245'760'000, 327'680'000, 491'520'000};
static_assert(kRnrDelays[0] == 655'360 * kMicrosecond && kRnrDelays[31] == 491'520 * kMicrosecond);

constexpr std::uint8_t kForeverRnr = 7;

}  // namespace

void RetryTimer::arm() {
    if (deadline_ == kNever && qp_.context().is_reliable() && qp_.context().attr().timeout != 0) {
        start_timeout();
        turn_ = qp_.device.wire.turn_of(qp_.context().route());
        qp_.device.schedule_timer(qp_, deadline_);
    }
}

void RetryTimer::start_timeout() {
    constexpr Time kUnit = 4096;
    deadline_ = qp_.device.now + qp_.device.wait_of(kUnit << qp_.context().attr().timeout);
}

void RetryTimer::pause(std::uint8_t rnr_code) {
    is_paused_ = true;
    is_over_ = false;
    deadline_ = qp_.device.now + qp_.device.wait_of(kRnrDelays[rnr_code]);
    qp_.device.schedule_timer(qp_, deadline_);
}

RetryTimer::Due RetryTimer::run() {
    if (qp_.device.now < deadline_)
        return Due::kNothing;
    if (is_paused_) {
        stop();
        return Due::kResume;
    }
    if (!is_over_) {
        if (!qp_.device.wire.has_had_turn(qp_.context().route(), turn_)) {
            start_timeout();
            return Due::kNothing;
        }
        is_over_ = true;
        steps_left_ = qp_.device.wire.steps_to_catch_up();
    }
    if (steps_left_ != 0) {
        --steps_left_;
        return Due::kNothing;
    }
    stop();
    return Due::kTimeout;
}

void RetryTimer::refill() {
    refill_retries();
    rnr_retries_left_ = qp_.context().attr().rnr_retry;
}

void RetryTimer::refill_retries() {
    retries_left_ = qp_.context().attr().retry_cnt;
}

bool RetryTimer::take_retry() {
    if (retries_left_ == 0)
        return false;
    --retries_left_;
    return true;
}

bool RetryTimer::take_rnr_retry() {
    if (qp_.context().attr().rnr_retry == kForeverRnr)
        return true;
    if (rnr_retries_left_ == 0)
        return false;
    --rnr_retries_left_;
    return true;
}

}  // namespace tagwire::vhca
