// SPDX-License-Identifier: BSD-3-Clause
// The parts of an interface of messages, each with its state: the interface puts them together, and
// its endpoints and transports reach them here.
//
// Threads: owner of the interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/stats/counters.hpp"
#include "uct/ib/completion_queue.hpp"
#include "uct/ib/ep_table.hpp"
#include "uct/ib/flow_control.hpp"
#include "uct/ib/message.hpp"
#include "uct/ib/message_limits.hpp"
#include "uct/ib/pending_groups.hpp"
#include "uct/ib/queue_source.hpp"
#include "uct/ib/receive_queue.hpp"
#include "uct/ib/rndv_sends.hpp"
#include "uct/ib/send_pool.hpp"
#include "uct/ib/tag_list.hpp"
#include "uct/ib/work_queues.hpp"
#include "uct/progress_guard.hpp"

namespace tagwire::ib {

enum class MessageCounter {
    kDelivered,
    kUnexpected,
    kMatched,
    kDeviceMatched,
    kNoResource,
    kNoCredit,
    kCreditMessages,
    kSoftwareReads,
    kRnrFailures,
    kReceiveLow,
    kGarbage,
    kProbes,
    kPeerFailures,
    kPostedAgain,
    kCount
};
extern const ucs::CounterTable<MessageCounter> kMessageCounterInfos;

/// A request for a short message. The device has copied it when the post returns, so one does for
/// all.
struct ShortSend {
    union Head {
        struct {
            Prefix prefix;
            std::uint64_t header;
        } am;
        ibv_tmh tagged;
    };
    ShortSend();
    ShortSend(const ShortSend&) = delete;
    ShortSend& operator=(const ShortSend&) = delete;

    ibv_send_wr request{};
    ibv_sge sges[2]{};  // the head, the data
    Head head{};
};

struct MessageParts {
    MessageParts(const char* option_prefix, const MessageOptions& options)
        : limits(option_prefix, options) {}

    void count(MessageCounter counter, std::uint64_t amount = 1) { counts.add(counter, amount); }
    /// Where the ends of our rendezvous come.
    [[nodiscard]] ReceiveQueue& fins_queue() { return has_fins_queue ? fins : receives; }

    // The transport sets both in its constructor.
    QueueSource* source = nullptr;
    FlowControl* flow = nullptr;
    bool has_work = false;     // for the next progress: any of the lists is not empty
    uct::ProgressGuard guard;  // inside: callbacks run
    ShortSend short_send;
    MessageLimits limits;

    // ---- Sending
    WorkQueues sends{has_work};
    SendPool buffers;  // with room for a segment
    SendPool small;    // with room for headers
    EpTable eps;
    PendingGroups pending;
    RndvSends rndv_sends;
    std::span<const std::byte> answer_to;  // travels behind the RVH

    // ---- Receiving
    CompletionQueue receive_cq;
    ReceiveQueue receives;
    ReceiveQueue fins;  // of our rendezvous sends
    bool has_fins_queue = false;
    TagList tag_list;

    ucs::CounterArray<MessageCounter> counts;
};

}  // namespace tagwire::ib
