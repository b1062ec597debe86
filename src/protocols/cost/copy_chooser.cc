// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/copy_chooser.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::proto {

namespace {

/// From this ratio on the receiver is taken to be far, and below the other one to be near.
constexpr float kFar = 2;
constexpr float kNear = 1.7F;
/// More is no better known: the time may have a lost processor in it.
constexpr float kRatioMax = 4;
/// The first copies meet pages and code that are new.
constexpr std::uint32_t kColdCopies = 8;

}  // namespace

CopyChooser::Plan CopyChooser::choose(std::size_t message_bytes) {
    const std::size_t i = class_of(message_bytes);
    const std::uint32_t number = ++number_;
    const bool is_turn = number % (is_far_ ? kOtherEveryFar : kOtherEvery) == 0;
    const bool is_timed = number > kColdCopies && (is_turn || number % kTimedEvery == 1);
    const bool is_unknown = past_caches_[i] == 0 && is_timed;
    const bool is_past_caches = is_unknown || is_far_ != is_turn;
    return {is_past_caches ? ucs::CopyKind::kNonTemporal : near_for(message_bytes), is_timed};
}

/// While plain copies are in use, the time of one counts for a quarter, and no more than that of
/// the one before it: one may be an accident. A rare plain copy that is as fast as between near
/// processors is none.
void CopyChooser::took(ucs::CopyKind kind, std::size_t bytes, double time) {
    if (bytes < kFrom || time <= 0)
        return;
    const auto now = static_cast<float>(time / static_cast<double>(bytes));
    float& past_caches = past_caches_[class_of(bytes)];
    if (kind == ucs::CopyKind::kNonTemporal) {
        if (past_caches == 0 || now * 2 < past_caches)
            past_caches = now;
        else
            past_caches += (std::min(now, 2 * past_caches) - past_caches) / 4;
        return;
    }
    if (past_caches == 0)
        return;
    const float ratio = std::min(now / past_caches, kRatioMax);
    const float last = std::exchange(last_, ratio);
    if (is_far_ && ratio < kNear) {
        is_far_ = false;
        ratio_ = ratio;
    } else if (!is_far_) {
        ratio_ += (std::min(ratio, last) - ratio_) / 4;
        is_far_ = ratio_ > kFar;
    }
}

}  // namespace tagwire::proto
