// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/message_parts.hpp"

namespace tagwire::ib {

constexpr ucs::CounterTable<MessageCounter> kMessageCounterInfos =
    ucs::counter_table<MessageCounter>({
        {MessageCounter::kDelivered, "delivered", "messages", "active messages that arrived"},
        {MessageCounter::kUnexpected, "unexpected", "messages",
         "tagged messages that found no posted receive"},
        {MessageCounter::kMatched, "matched", "messages",
         "receives that software matched or continued"},
        {MessageCounter::kDeviceMatched, "device_matched", "messages",
         "receives that the device matched"},
        {MessageCounter::kNoResource, "no_resource", "calls", "sends refused for lack of room"},
        {MessageCounter::kNoCredit, "no_credit", "calls",
         "sends refused because the peer had not handled what was sent"},
        {MessageCounter::kCreditMessages, "credit_messages", "messages",
         "messages that only tell the peer how much was handled"},
        {MessageCounter::kSoftwareReads, "software_reads", "operations",
         "rendezvous whose data software read"},
        {MessageCounter::kRnrFailures, "rnr_failures", "requests",
         "sends that failed because the peer had no receive buffer until the last retry"},
        {MessageCounter::kReceiveLow, "receive_low", "events",
         "times that few receive buffers were left"},
        {MessageCounter::kGarbage, "garbage", "messages", "malformed messages dropped"},
        {MessageCounter::kProbes, "probes", "requests", "empty writes that probe a silent peer"},
        {MessageCounter::kPeerFailures, "peer_failures", "endpoints", "endpoints that failed"},
        {MessageCounter::kPostedAgain, "posted_again", "requests",
         "requests posted again behind one of another endpoint that failed"},
    });

ShortSend::ShortSend() {
    request.sg_list = sges;
    request.opcode = IBV_WR_SEND;
    sges[0].addr = address_of(&head);
}

}  // namespace tagwire::ib
