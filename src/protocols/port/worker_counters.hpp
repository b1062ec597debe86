// SPDX-License-Identifier: BSD-3-Clause
// The counters of a worker. Each has its name, unit and text in worker_counters.cc.
#pragma once

#include "ucs/stats/counters.hpp"

namespace tagwire::proto {

enum class WorkerCounter {
    kTxShort,
    kTxEager,
    kTxParts,
    kTxRndv,
    kTxQueued,
    kOpsKept,
    kRxExpected,
    kRxUnexpected,
    kRxRndv,
    kRxAm,
    kRndvGet,
    kRndvLent,
    kRndvPut,
    kRndvCopy,
    kAdvice,
    kRmaShort,
    kRmaAsked,
    kRmaRefused,
    kRndvFallback,
    kRndvStriped,
    kRndvRailBytes,
    kRndvRailLost,
    kRegCached,
    kRegMade,
    kRegRefused,
    kTxTagged,
    kTxPlaceholders,
    kTagGiven,
    kTagMatched,
    kTagBounced,
    kTagTakenBack,
    kTagRecalled,
    kTagKeptKind,
    kTagKeptOrder,
    kTagKeptPeers,
    kTagKeptFull,
    kPausedEager,
    kPaused,
    kOrphansDropped,
    kAmDropped,
    kCallTimeouts,
    kCallLate,
    kCallRefused,
    kCallTurnedAway,
    kLate,
    kGarbage,
    kYields,
    kNaps,
    kAwayNs,
    kWakeUps,
    kCount
};

using WorkerCounters = ucs::CounterArray<WorkerCounter>;
ucs::CounterSet set_of(const WorkerCounters& counters);

}  // namespace tagwire::proto
