// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/port/worker_counters.hpp"

namespace tagwire::proto {

namespace {

constexpr auto kCounters = ucs::counter_table<WorkerCounter>({
    {WorkerCounter::kTxShort, "tx_short", "messages",
     "short messages sent in one piece on the fast path"},
    {WorkerCounter::kTxEager, "tx_eager", "messages",
     "eager messages sent in one piece, copied by the transport"},
    {WorkerCounter::kTxParts, "tx_parts", "parts",
     "parts of eager messages that are longer than one piece"},
    {WorkerCounter::kTxRndv, "tx_rndv", "messages", "messages announced by a rendezvous request"},
    {WorkerCounter::kTxQueued, "tx_queued", "messages",
     "messages that had to wait for the transport, the peer or a fence"},
    {WorkerCounter::kOpsKept, "ops_kept", "operations",
     "operations that TW_OP_QUEUE kept where their calls would have answered TW_ERR_NO_RESOURCE"},
    {WorkerCounter::kRxExpected, "rx_expected", "messages",
     "messages that matched a posted receive when they arrived"},
    {WorkerCounter::kRxUnexpected, "rx_unexpected", "messages",
     "messages that arrived before a matching receive was posted"},
    {WorkerCounter::kRxRndv, "rx_rndv", "messages", "messages received by rendezvous"},
    {WorkerCounter::kRxAm, "rx_am", "messages", "active messages given to their handlers"},
    {WorkerCounter::kRndvGet, "rndv_get", "messages",
     "rendezvous messages received by reading the sender's memory"},
    {WorkerCounter::kRndvLent, "rndv_lent", "messages",
     "rendezvous messages whose buffer was read without a registration, which rndv_get counts too"},
    {WorkerCounter::kRndvPut, "rndv_put", "messages",
     "rendezvous messages received that the sender wrote into the receive buffer"},
    {WorkerCounter::kRndvCopy, "rndv_copy", "messages",
     "rendezvous messages received as messages through buffers of the transport"},
    {WorkerCounter::kAdvice, "advice", "messages",
     "times that a peer was told from which length on rendezvous are faster than eager messages"},
    {WorkerCounter::kRmaShort, "rma_short", "operations",
     "one-sided operations that ended within their call, on the fast path"},
    {WorkerCounter::kRmaAsked, "rma_asked", "operations",
     "one-sided operations that the memory's owner was asked for, by messages"},
    {WorkerCounter::kRmaRefused, "rma_refused", "operations",
     "operations of peers on memory of this side that were refused: unknown key, range or right"},
    {WorkerCounter::kRndvFallback, "rndv_fallback", "messages",
     "rendezvous messages received as by scheme copy although TAGWIRE_RNDV_SCHEME is get or put"},
    {WorkerCounter::kRndvStriped, "rndv_striped", "messages",
     "rendezvous messages that this side read or wrote over several rails"},
    {WorkerCounter::kRndvRailBytes, "rndv_rail_bytes", "bytes",
     "bytes of rendezvous messages assigned to rails other than the lane's"},
    {WorkerCounter::kRndvRailLost, "rndv_rail_lost", "parts",
     "parts of rendezvous messages that the lane moved because their own rail had failed"},
    {WorkerCounter::kRegCached, "reg_cached", "buffers", "buffers found in the registration cache"},
    {WorkerCounter::kRegMade, "reg_made", "buffers",
     "buffers registered for the registration cache"},
    {WorkerCounter::kRegRefused, "reg_refused", "buffers",
     "buffers not cached: the registration cache had no room, or the device refused them"},
    {WorkerCounter::kTxTagged, "tx_tagged", "messages",
     "eager tagged messages sent to be matched by the peer's device"},
    {WorkerCounter::kTxPlaceholders, "tx_placeholders", "messages",
     "placeholders sent to the peer's matching device for messages that do not go through it"},
    {WorkerCounter::kTagGiven, "tag_given", "receives",
     "receives posted to a device that matches tags"},
    {WorkerCounter::kTagMatched, "tag_matched", "messages", "messages that a device matched"},
    {WorkerCounter::kTagBounced, "tag_bounced", "receives",
     "receives posted to a device with a buffer of the library instead of the program's"},
    {WorkerCounter::kTagTakenBack, "tag_taken_back", "receives",
     "receives removed from a device because software matched a message to them"},
    {WorkerCounter::kTagRecalled, "tag_recalled", "receives",
     "receives moved from a device back to software because of a new peer"},
    {WorkerCounter::kTagKeptKind, "tag_kept_kind", "receives",
     "receives not posted to a device: directed at one source, or buffered"},
    {WorkerCounter::kTagKeptOrder, "tag_kept_order", "receives",
     "receives not posted to a device: an older receive in software could match their messages"},
    {WorkerCounter::kTagKeptPeers, "tag_kept_peers", "receives",
     "receives not posted to a device: a peer on another transport could match them"},
    {WorkerCounter::kTagKeptFull, "tag_kept_full", "receives",
     "receives not posted to a device: its list was full"},
    {WorkerCounter::kPausedEager, "paused_eager", "times",
     "requests to a peer to pause eager data and send rendezvous requests instead"},
    {WorkerCounter::kPaused, "paused", "times", "requests to a peer to pause all messages"},
    {WorkerCounter::kOrphansDropped, "orphans_dropped", "messages",
     "complete messages of departed peers, dropped to stay within TAGWIRE_UNEXPECTED_BYTES and "
     "TAGWIRE_UNEXPECTED_MAX"},
    {WorkerCounter::kAmDropped, "am_dropped", "messages",
     "active messages dropped because no handler was registered for their id"},
    {WorkerCounter::kCallTimeouts, "call_timeouts", "calls",
     "remote calls ended because no reply had come in time"},
    {WorkerCounter::kCallLate, "call_late", "replies",
     "replies dropped because their call had ended: by time, by cancellation, or by a reply "
     "before"},
    {WorkerCounter::kCallRefused, "call_refused", "messages",
     "requests and replies of remote calls dropped because they were malformed, or came from "
     "another "
     "worker than the one that was called"},
    {WorkerCounter::kCallTurnedAway, "call_turned_away", "requests",
     "requests of peers refused: no such method, TAGWIRE_CALL_REQUESTS_MAX or TAGWIRE_CALL_BYTES "
     "used up, or no memory"},
    {WorkerCounter::kLate, "late", "messages",
     "messages dropped because their endpoint had been closed or had failed"},
    {WorkerCounter::kGarbage, "garbage", "messages", "malformed or impossible messages dropped"},
    {WorkerCounter::kYields, "yields", "times",
     "times that progress or a wait yielded the processor"},
    {WorkerCounter::kNaps, "naps", "times",
     "times that progress or a wait slept for a moment, since other programs had kept the "
     "processor before"},
    {WorkerCounter::kAwayNs, "away", "ns", "time spent in yields and naps"},
    {WorkerCounter::kWakeUps, "wake_ups", "times",
     "times that a thread that slept or napped was woken by another thread of the program"},
});

}  // namespace

ucs::CounterSet set_of(const WorkerCounters& counters) {
    return counters.set(kCounters);
}

}  // namespace tagwire::proto
