// SPDX-License-Identifier: BSD-3-Clause
#include "away.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <utility>

#include "ep.hpp"
#include "fabric.hpp"

namespace tagwire::fi {

namespace {

std::uint64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

void Away::take(std::span<Ep* const> polled) {
    for (Ep* ep : polled) {
        if (!ep->away)
            continue;
        asking_ = ep;
        how_ = *std::exchange(ep->away, std::nullopt);
    }
    if (asking_ != nullptr && how_ == TW_AWAY_NAP && !arm())
        asking_ = nullptr;
}

/// False: there is something to do, or an endpoint cannot be slept on.
bool Away::arm() {
    count_ = 0;
    if (domain_.eps.size() > kNapMax)
        return false;
    return std::ranges::all_of(domain_.eps, [this](const Ep* ep) {
        pollfd& one = slept_on_[count_++];
        one = {-1, POLLIN, 0};
        return !ep->is_restless && tw_worker_fd(ep->worker, &one.fd) == TW_OK &&
               tw_worker_arm(ep->worker) == TW_OK;
    });
}

bool Away::go() {
    if (asking_ == nullptr)
        return false;
    const std::uint64_t begin = monotonic_ns();
    if (how_ == TW_AWAY_YIELD) {
        sched_yield();
    } else {
        const timespec time{0, TW_NAP_NS};
        ppoll(slept_on_.data(), count_, &time, nullptr);
    }
    const std::uint64_t end = monotonic_ns();
    const Guard guard(domain_);
    // Another thread may have closed it.
    if (std::ranges::find(domain_.eps, asking_) != domain_.eps.end())
        tw_worker_was_away(asking_->worker, how_, begin, end);
    return true;
}

}  // namespace tagwire::fi
