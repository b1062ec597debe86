// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/rndv/learning.hpp"

#include <algorithm>
#include <cstdint>

#include "protocols/request/rail.hpp"
#include "protocols/wire/control_message.hpp"
#include "ucs/time/clock.hpp"
#include "ucs/topo/topology.hpp"

namespace tagwire::proto {

namespace {

/// A sender copies eager messages through so many second-level caches before its first buffers come
/// again.
constexpr std::size_t kCachesPerTurn = 2;

/// Not for each message: until it is final, the length of a tick is measured anew each time.
Advice advice_of(const Advisor& advisor, Pattern pattern, std::size_t bytes) {
    const auto ps_of_byte = [&](bool rndv) {
        const double ps = advisor.time_of_byte(rndv, bytes) * ucs::tick_ns() * 1000;
        return static_cast<std::uint32_t>(std::min<double>(ps, UINT32_MAX));
    };
    Advice advice{};
    if (Advisor::is_threshold(advisor.threshold()))
        advice.rndv_from = static_cast<std::uint32_t>(advisor.threshold());
    advice.regime = static_cast<std::uint8_t>(advisor.regime());
    advice.regimes = static_cast<std::uint8_t>(advisor.regimes());
    advice.reason = static_cast<std::uint8_t>(advisor.reason());
    if (pattern == Pattern::kStream)
        advice.reason |= kAdviceOfStream;
    if (const unsigned rndv = advisor.trials(true); rndv != 0)
        advice.trials = static_cast<std::uint8_t>(rndv);
    else if (const unsigned eager = advisor.trials(false); eager != 0)
        advice.trials = static_cast<std::uint8_t>(eager + kTrialsOfEager);
    advice.eager_ps = ps_of_byte(false);
    advice.rndv_ps = ps_of_byte(true);
    return advice;
}

}  // namespace

Advisor& Learning::advisor_of(Pattern pattern) {
    std::unique_ptr<Advisor>& own = advisors_[index_of(pattern)];
    if (own == nullptr) {
        // The transport has read the topology when it was opened.
        own = std::make_unique<Advisor>(
            to_.lane.rail().selection().rndv_from(BufferKind::kPlain),
            kCachesPerTurn * ucs::system_topology().second_level_cache_bytes());
    }
    return *own;
}

void Learning::add(bool is_rndv, std::size_t bytes, const Timing& timing) {
    if (!is_on())
        return;
    Advisor& own = advisor_of(timing.pattern);
    const auto time = static_cast<double>(timing.until(ucs::ticks_now()));
    const bool has_news = own.add(is_rndv, bytes, time, timing.is_sample);
    // From the first such message on, or both sides would begin by different ways.
    const bool leads = timing.pattern == Pattern::kTurns && to_.may_lead;
    const bool begins_to_lead = leads && !to_.sender.has_own_advice();
    if (leads)
        to_.sender.lead(own.threshold(), bytes);
    if (!has_news && !begins_to_lead)
        return;
    const Advice advice = advice_of(own, timing.pattern, bytes);
    if (leads)
        to_.sender.note_own_advice(advice);
    if (!has_news)
        return;
    to_.worker.count(WorkerCounter::kAdvice);
    to_.port.control(advice);
}

}  // namespace tagwire::proto
