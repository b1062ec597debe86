// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/message_parts.hpp"

namespace tagwire::ib {

constexpr ucs::CounterTable<MessageCounter> kMessageCounterInfos =
    ucs::counter_table<MessageCounter>({
        {MessageCounter::kDelivered, "delivered", "messages", "active messages that arrived"},
        {MessageCounter::kUnexpected, "unexpected", "messages",
         "tagged messages that found no posted receive"},
        {MessageCounter::kMatched, "matched", "messages",
         "tagged messages that software matched to a posted receive"},
        {MessageCounter::kDeviceMatched, "device_matched", "messages",
         "tagged messages that the device matched to a posted receive"},
        {MessageCounter::kNoResource, "no_resource", "calls", "sends refused for lack of room"},
        {MessageCounter::kNoCredit, "no_credit", "calls",
         "sends refused because the peer had not yet handled enough earlier messages"},
        {MessageCounter::kCreditMessages, "credit_messages", "messages",
         "messages sent for flow control alone: credits granted, and over dc requests for credits"},
        {MessageCounter::kSoftwareReads, "software_reads", "operations",
         "rendezvous messages whose data software read, not the device"},
        {MessageCounter::kRnrFailures, "rnr_failures", "requests",
         "sends that failed because the peer still had no receive buffer at the last retry"},
        {MessageCounter::kReceiveLow, "receive_low", "events",
         "times that the shared receive queue fell below its limit"},
        {MessageCounter::kGarbage, "garbage", "messages", "malformed messages dropped"},
        {MessageCounter::kProbes, "probes", "requests", "empty writes sent to probe a silent peer"},
        {MessageCounter::kPeerFailures, "peer_failures", "endpoints", "endpoints that failed"},
        {MessageCounter::kPostedAgain, "posted_again", "requests",
         "requests flushed by the failure of another endpoint's request and posted again"},
    });

ShortSend::ShortSend() {
    request.sg_list = sges;
    request.opcode = IBV_WR_SEND;
    sges[0].addr = address_of(&head);
}

}  // namespace tagwire::ib
