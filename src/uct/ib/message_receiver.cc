// SPDX-License-Identifier: BSD-3-Clause
// All fields from the peer but length and kind are checked here before use.
#include "uct/ib/message_receiver.hpp"

#include <endian.h>

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/completion.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

namespace {

constexpr unsigned kCqSpare = 64;
constexpr unsigned kFirstBuffers = 64;  // of a receive queue; endpoints and rendezvous add theirs
// Firmware matches nothing before it has this many receives for unexpected messages.
constexpr unsigned kDeviceReceivesMin = 33;
static_assert(kFirstBuffers >= kDeviceReceivesMin);
constexpr std::size_t kEndBytesMax = 64;  // of what ends a rendezvous: headers alone

}  // namespace

// ---- Receive queues

// A device that says that it matches tags may yet be unable to make the SRQ (libmlx5 connects a
// queue pair of its own to itself by LID, on port 1): that is known when it was tried.
ucs_status_t MessageReceiver::open_receiving() {
    const ibv_tm_caps& tm = ib_md().device().attr().tm_caps;
    const auto tags = limits.has_device_tags ? static_cast<unsigned>(std::min<std::uint64_t>(
                                                   limits.options.tag_depth, tm.max_num_tags))
                                             : 0U;
    const unsigned tag_ops = tags == 0 ? 0 : std::min(tm.max_ops, TagList::ops_for(tags));
    if (tags != 0)
        limits.options.rx_depth =
            std::max<std::uint64_t>(limits.options.rx_depth, kDeviceReceivesMin);
    const auto depth = static_cast<unsigned>(limits.options.rx_depth + limits.options.rndv_max);
    ucs_status_t status = receive_cq.open(ib_md(), depth + 2 * tags + tag_ops + kCqSpare, channel(),
                                          tags != 0, &mailbox());
    std::string refusal;
    const bool may_fall_back = tags != 0 && limits.may_match_by_software();
    if (status == UCS_OK)
        status = open_receives(tags, tag_ops, may_fall_back ? &refusal : nullptr);
    if (!refusal.empty()) {
        has_fins_queue = false;
        limits.match_by_software(ib_md().device(), refusal);
        return open_receiving();
    }
    if (status != UCS_OK || tags == 0)
        return status;
    limits.options.tag_depth = tags;
    return tag_list.open(receives.srq(), receive_cq, tags, tag_ops);
}

// Where the end of a rendezvous comes like any message it has a buffer kept there.
ucs_status_t MessageReceiver::open_receives(unsigned tags, unsigned tag_ops,
                                            std::string* refusal_p) {
    const auto ends = static_cast<unsigned>(limits.options.rndv_max);
    const unsigned depth =
        static_cast<unsigned>(limits.options.rx_depth) + (has_fins_queue ? 0U : ends);
    const ucs_status_t status = receives.open(
        ib_md(),
        {.depth = depth,
         .wanted = kFirstBuffers,
         .buffers_max = depth + static_cast<unsigned>(limits.options.rx_held),
         .message_bytes = kTmhBytes + limits.seg_bytes,
         .headroom = params().rx_headroom,
         .alignment = params().am_alignment,
         .align_offset = params().am_align_offset,
         .tags = tags,
         .tag_ops = tag_ops,
         .cq = receive_cq.get(),
         .limit = depth / 8,
         .context = &mailbox(),
         .refusal_p = refusal_p},
        [](void* self, std::uint64_t ep_id) {
            static_cast<MessageReceiver*>(self)->flow->released(ep_id);
        },
        this);
    if (status != UCS_OK || !has_fins_queue)
        return status;
    return fins.open(ib_md(),
                     {.depth = ends,
                      .wanted = kFirstBuffers,
                      .buffers_max = ends + CompletionQueue::kBatch,
                      .message_bytes = kEndBytesMax,
                      .context = &mailbox()},
                     nullptr, nullptr);
}

void MessageReceiver::drop_receives() {
    receives.close();
    fins.close();
    if (limits.has_device_tags)
        tag_list.take_all([&](TagEntry& entry) { tag_list.finish(entry); });
    tags_.destroy_all();
}

// ---- Delivery

void MessageReceiver::garbage(const char* what) {
    count(MessageCounter::kGarbage);
    if (counts.value(MessageCounter::kGarbage) == 1) {
        TW_LOG_WARN("%s: dropped %s from a peer; later malformed messages are only counted",
                    ib_md().device().name().c_str(), what);
    } else {
        TW_LOG_DEBUG("dropped %s", what);
    }
}

void MessageReceiver::deliver_bare(MessageEp* ep, std::byte* message, const BareHead& head,
                                   std::size_t bytes) {
    message[0] = std::byte{head.first};
    std::byte* data = message;
    // The buffer is aligned for data behind a prefix.
    if (params().am_alignment > kPrefixBytes) [[unlikely]] {
        data = message + kPrefixBytes;
        std::memmove(data, message, bytes);
    }
    count(MessageCounter::kDelivered);
    after_callback(ep, message, invoke_am(head.am_id, data, bytes, UCT_CB_PARAM_FLAG_DESC));
}

void MessageReceiver::deliver_eager(MessageEp* ep, std::byte* message, std::size_t bytes,
                                    uct_tag_t tag, std::uint64_t imm) {
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        void* context = nullptr;
        return give_eager(ep, message, bytes, tag, imm, UCT_CB_PARAM_FLAG_FIRST, &context);
    }
    if (bytes > 0 && bytes <= receive->capacity())
        std::memcpy(receive->buffer, message + kTmhBytes, bytes);
    put_back(ep, message);
    complete(*receive, tag, imm, bytes, UCS_OK);
}

void MessageReceiver::give_eager(MessageEp* ep, std::byte* message, std::size_t bytes,
                                 uct_tag_t tag, std::uint64_t imm, unsigned flags, void** context) {
    count(MessageCounter::kUnexpected);
    const ucs_status_t status = invoke_unexpected_eager(
        message + kTmhBytes, bytes, flags | UCT_CB_PARAM_FLAG_DESC, tag, imm, context);
    after_callback(ep, message, status);
}

void MessageReceiver::deliver_request(MessageEp* ep, std::byte* message, std::size_t bytes,
                                      uct_tag_t tag) {
    const auto length = static_cast<unsigned>(bytes - kTmhBytes);
    const std::byte* header = message + kTmhBytes;
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        count(MessageCounter::kUnexpected);
        invoke_unexpected_rndv(0, tag, header, length, 0, 0, nullptr);
    } else {
        count(MessageCounter::kMatched);
        tags_.complete_rndv(*receive, tag, header, length);
    }
    put_back(ep, message);
}

void MessageReceiver::deliver_rndv(MessageEp& ep, std::byte* message, std::size_t bytes,
                                   uct_tag_t tag) {
    ibv_tmh head;
    ibv_rvh from;
    std::memcpy(&head, message, sizeof head);
    std::memcpy(&from, message + sizeof head, sizeof from);
    const std::size_t tail = head.reserved[0];
    if (tail > kRndvTailBytes || bytes + tail > kTmhBytes + limits.seg_bytes) [[unlikely]] {
        put_back(&ep, message);
        return garbage("a rendezvous with an impossible header");
    }
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        count(MessageCounter::kUnexpected);
        const std::size_t length = be32toh(from.len);
        const PackedRkey key{kRkeyMagic, be32toh(from.rkey)};
        const std::size_t headers = sizeof head + sizeof from + answer_to.size();
        std::memcpy(message + bytes, &head.reserved[1], tail);
        invoke_unexpected_rndv(0, tag, message + headers,
                               static_cast<unsigned>(bytes + tail - headers), be64toh(from.va),
                               length, &key);
    }
    put_back(&ep, message);
    if (receive != nullptr)
        reads.start(ep, *receive, tag, head, from);
}

void MessageReceiver::deliver_fin(const MessageEp* from, std::uint32_t id) {
    RndvSend* send = rndv_sends.find(id);
    if (send == nullptr || (from != nullptr && send->ep != from))
        return;  // cancelled meanwhile, or never ours
    MessageEp& ep = *send->ep;
    uct_completion_t* comp = send->comp;
    rndv_sends.drop(*send);
    uct::invoke_completion(comp, UCS_OK);
    OpEnds::settle_flushes(ep);
}

}  // namespace tagwire::ib
