// SPDX-License-Identifier: BSD-3-Clause
// Set-up and attributes of the interface base of rc and dc.
#include "uct/ib/message_iface.hpp"

#include <algorithm>
#include <bit>

#include "ucs/log/log.hpp"

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

namespace {

constexpr unsigned kCqSpare = 64;
constexpr unsigned kFirstBuffers = 64;  // of a receive queue; endpoints and rendezvous add theirs
// Firmware matches nothing before it has this many receives for unexpected messages.
constexpr unsigned kDeviceReceivesMin = 33;
static_assert(kFirstBuffers >= kDeviceReceivesMin);
constexpr std::size_t kEndBytesMax = 64;  // of what ends a rendezvous: headers alone
// Cap on the credits of one peer: this many bytes of messages, but not below the minimum.
constexpr std::size_t kCreditBytes = std::size_t{5} << 20;
constexpr std::uint64_t kCreditsMin = 16;

ucs_status_t too_few(const std::string& option, std::uint64_t wanted, const char* what,
                     std::uint64_t limit) {
    TW_LOG_ERROR("TAGWIRE_%s=%llu: the device has at most %llu %s", option.c_str(),
                 static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(limit),
                 what);
    return UCS_ERR_EXCEEDS_LIMIT;
}

}  // namespace

// ---- Set-up

MessageIface::MessageIface(IbMd& md, uct::Worker& worker, const uct_iface_ops_t& table,
                           ucs_callback_t progress_call, const char* prefix,
                           const MessageOptions& options)
    : IbIface(md, worker, table, progress_call), options_(options), prefix_(prefix) {}

MessageIface::ShortSend::ShortSend() {
    request.sg_list = sges;
    request.opcode = IBV_WR_SEND;
    sges[0].addr = address_of(&head);
}

ucs_status_t MessageIface::choose_matching(const char* obstacle) {
    has_device_tags_ = false;
    const auto wanted = static_cast<TagMatching>(options_.tag_matching);
    if (!has_tag_callbacks()) {
        matching_reason_ = "none: opened without both tag callbacks";
    } else if (wanted == TagMatching::kSoftware) {
        matching_reason_ = "software: TAGWIRE_" + prefix_ + "_TAG_MATCHING=software";
    } else if (obstacle == nullptr) {
        matching_reason_ = "device";
        has_device_tags_ = true;
    } else if (wanted == TagMatching::kDevice) {
        TW_LOG_ERROR("TAGWIRE_%s_TAG_MATCHING=device on %s: %s", prefix_.c_str(),
                     ib_md().device().name().c_str(), obstacle);
        return UCS_ERR_UNSUPPORTED;
    } else {
        matching_reason_ = std::string("software: ") + obstacle;
    }
    return UCS_OK;
}

ucs_status_t MessageIface::open_queues() {
    keepalive_ns_ = options_.keepalive_ns;
    if (keepalive_ns_ > 0 && params().keepalive_interval_ns > 0)
        keepalive_ns_ = params().keepalive_interval_ns;
    ucs_status_t status = check_depths();
    if (status == UCS_OK)
        status = open_receiving();
    if (status == UCS_OK) {
        set_limits();
        status = send_cq_.open(ib_md(), cq_free_ + kCqSpare, channel(), false, &mailbox());
    }
    rndv_index_bits_ = static_cast<unsigned>(std::bit_width(options_.rndv_max - 1));
    constexpr unsigned kReceivesAtFirst = 256;
    if (status == UCS_OK && !has_device_tags_ && !in_use_.reserve(kReceivesAtFirst))
        status = UCS_ERR_NO_MEMORY;
    if (status == UCS_OK)
        status = soft_receives_.init(
            {.name = "message receives", .elements_per_chunk = kReceivesAtFirst});
    if (status == UCS_OK)
        status = groups_.init({.name = "pending groups", .elements_per_chunk = 64});
    if (status == UCS_OK)
        status = reads_.init({.name = "rendezvous reads", .elements_per_chunk = 64});
    buffers_.init(ib_md(), kTmhBytes + seg_bytes_, static_cast<unsigned>(options_.tx_buffers));
    small_.init(ib_md(), kPrefixBytes + kZcopyHeaderMax + sizeof(std::uint64_t),
                static_cast<unsigned>(options_.tx_cq_depth) + kCqSpare);
    return status;
}

ucs_status_t MessageIface::check_depths() {
    const ibv_device_attr& device = ib_md().device().attr().orig_attr;
    seg_bytes_ = options_.seg_bytes;
    if (options_.tx_depth > static_cast<std::uint64_t>(device.max_qp_wr))
        return too_few(prefix_ + "_TX_DEPTH", options_.tx_depth, "requests in a send queue",
                       static_cast<std::uint64_t>(device.max_qp_wr));
    options_.tx_depth = std::max<std::uint64_t>(options_.tx_depth / queue_shares_, 4);
    // Buffers come back in turn: more than a cache holds would make long messages slow.
    options_.credits = std::min<std::uint64_t>(
        options_.credits, std::max<std::uint64_t>(kCreditsMin, kCreditBytes / seg_bytes_));
    if (options_.rx_depth + options_.rndv_max >
        static_cast<std::uint64_t>(std::max(device.max_srq_wr, 0)))
        return too_few(prefix_ + "_RX_DEPTH", options_.rx_depth,
                       ("buffers in an SRQ, with TAGWIRE_" + prefix_ + "_RNDV_MAX").c_str(),
                       static_cast<std::uint64_t>(device.max_srq_wr));
    return UCS_OK;
}

// Limits that follow from the depths, from the side that matches tags, and from the device.
void MessageIface::set_limits() {
    const ibv_device_attr& device = ib_md().device().attr().orig_attr;
    sges_max_ = std::min<unsigned>(kSgesMax, static_cast<unsigned>(device.max_sge));
    message_max_ = std::min<std::size_t>(port().attr.max_msg_sz, std::size_t{1} << 30);
    rndv_bytes_max_ = has_device_tags_ ? message_max_ : std::size_t{UINT32_MAX};
    rndv_behind_max_ = seg_bytes_ - sizeof(ibv_rvh);
    if (has_device_tags_) {
        rndv_behind_max_ = std::min<std::size_t>(
            rndv_behind_max_,
            ib_md().device().attr().tm_caps.max_rndv_hdr_size - kTmhBytes - sizeof(ibv_rvh));
        receive_bytes_min_ = seg_bytes_;
    }
    cq_free_ = static_cast<std::uint32_t>(options_.tx_cq_depth);
    cq_reserve_ = std::min<std::uint32_t>(16, cq_free_ / 4);
    eager_parts_max_ = has_device_tags_
                           ? 1
                           : std::min<std::size_t>({kEagerPartsMax, options_.credits,
                                                    options_.tx_depth - 1, cq_free_ - cq_reserve_});
    reads_max_ = static_cast<unsigned>(std::min<std::uint64_t>(
        {options_.reads, static_cast<std::uint64_t>(std::max(device.max_qp_rd_atom, 1)), 255}));
    signal_every_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(
        1, std::min({options_.tx_signal, options_.tx_depth / 4, options_.tx_cq_depth / 4})));
    credit_step_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, options_.credits / 4));
}

// A device that says that it matches tags may yet be unable to make the SRQ (libmlx5 connects a
// queue pair of its own to itself by LID, on port 1): that is known when it was tried.
ucs_status_t MessageIface::open_receiving() {
    const ibv_tm_caps& tm = ib_md().device().attr().tm_caps;
    const auto tags =
        has_device_tags_
            ? static_cast<unsigned>(std::min<std::uint64_t>(options_.tag_depth, tm.max_num_tags))
            : 0U;
    const unsigned tag_ops = tags == 0 ? 0 : std::min(tm.max_ops, TagList::ops_for(tags));
    if (tags != 0)
        options_.rx_depth = std::max<std::uint64_t>(options_.rx_depth, kDeviceReceivesMin);
    const auto depth = static_cast<unsigned>(options_.rx_depth + options_.rndv_max);
    ucs_status_t status = receive_cq_.open(ib_md(), depth + 2 * tags + tag_ops + kCqSpare,
                                           channel(), tags != 0, &mailbox());
    std::string refusal;
    const bool may_fall_back = tags != 0 && may_match_by_software();
    if (status == UCS_OK)
        status = open_receives(tags, tag_ops, may_fall_back ? &refusal : nullptr);
    if (!refusal.empty()) {
        has_device_tags_ = has_ends_queue_ = false;
        matching_reason_ = "software: the device cannot make its tag-matching SRQ: " + refusal;
        TW_LOG_INFO("%s: tags are matched by %s", ib_md().device().name().c_str(),
                    matching_reason_.c_str());
        return open_receiving();
    }
    if (status != UCS_OK || tags == 0)
        return status;
    options_.tag_depth = tags;
    return tag_list_.open(receives_.srq(), receive_cq_, tags, tag_ops);
}

// Where the end of a rendezvous comes like any message it has a buffer kept there.
ucs_status_t MessageIface::open_receives(unsigned tags, unsigned tag_ops, std::string* refusal_p) {
    const auto ends = static_cast<unsigned>(options_.rndv_max);
    const unsigned depth = static_cast<unsigned>(options_.rx_depth) + (has_ends_queue_ ? 0U : ends);
    const ucs_status_t status = receives_.open(
        ib_md(),
        {.depth = depth,
         .wanted = kFirstBuffers,
         .buffers_max = depth + static_cast<unsigned>(options_.rx_held),
         .message_bytes = kTmhBytes + seg_bytes_,
         .headroom = params().rx_headroom,
         .alignment = params().am_alignment,
         .align_offset = params().am_align_offset,
         .tags = tags,
         .tag_ops = tag_ops,
         .cq = receive_cq_.get(),
         .limit = depth / 8,
         .context = &mailbox(),
         .refusal_p = refusal_p},
        [](void* self, std::uint64_t ep_id) { static_cast<MessageIface*>(self)->released(ep_id); },
        this);
    if (status != UCS_OK || !has_ends_queue_)
        return status;
    return ends_.open(ib_md(),
                      {.depth = ends,
                       .wanted = kFirstBuffers,
                       .buffers_max = ends + CompletionQueue::kBatch,
                       .message_bytes = kEndBytesMax,
                       .context = &mailbox()},
                      nullptr, nullptr);
}

std::string MessageIface::differing_matching() const {
    const std::string advice = ": set TAGWIRE_" + prefix_ + "_TAG_MATCHING=software on both sides";
    if (has_device_tags_)
        return "our device matches tags, the peer's does not" + advice;
    return "the peer's device matches its tags, ours does not (" + matching_reason_ + ")" + advice;
}

std::uint32_t MessageIface::inline_wanted() const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(options_.inline_bytes, kInlineBytesMax));
}

ucs_status_t MessageIface::take_inline(std::uint32_t of_device) {
    inline_max_ = std::min<std::uint32_t>(
        {of_device, kInlineBytesMax, static_cast<std::uint32_t>(seg_bytes_)});
    if (inline_max_ >= kInlineBytesMin)
        return UCS_OK;
    TW_LOG_ERROR("%s takes %u bytes within a request, %u are needed",
                 ib_md().device().name().c_str(), inline_max_, kInlineBytesMin);
    return UCS_ERR_UNSUPPORTED;
}

void MessageIface::drop_receives() {
    receives_.close();
    ends_.close();
    if (has_device_tags_)
        tag_list_.take_all([&](TagEntry& entry) { tag_list_.finish(entry); });
    while (auto* receive = static_cast<SoftReceive*>(posted_.take_any()))
        soft_receives_.destroy(receive);
    for (SoftReceive* receive : cancelled_)
        soft_receives_.destroy(receive);
    cancelled_.clear();
}

// ---- Endpoints

ucs_status_t MessageIface::add(MessageEp& ep) {
    if (free_eps_.empty()) {
        if (eps_.size() > kIndexMask)
            return UCS_ERR_EXCEEDS_LIMIT;
        free_eps_.push_back(static_cast<std::uint32_t>(eps_.size()));
        eps_.push_back(nullptr);
    }
    const std::uint32_t index = free_eps_.back();
    free_eps_.pop_back();
    generation_ += 1U << kIndexBits;
    ep.id_ = generation_ | index;
    eps_[index] = &ep;
    ++ep_count_;
    return UCS_OK;
}

void MessageIface::remove(MessageEp& ep) {
    release_group(ep);
    const std::uint32_t index = ep.id_ & kIndexMask;
    eps_[index] = nullptr;
    free_eps_.push_back(index);
    --ep_count_;
}

void MessageIface::map_queue(SendQueue& queue) {
    const std::size_t index = queue.id & kIndexMask;
    if (queues_.size() <= index)
        queues_.resize(index + 1);
    queues_[index] = &queue;
}

void MessageIface::unmap_queue(SendQueue& queue) {
    queues_[queue.id & kIndexMask] = nullptr;
    if (busy_.is_linked(queue))
        busy_.erase(queue);
    queue.unsignaled |= SendQueue::kUnlisted;
}

// ---- Capabilities

void MessageIface::query_messages(uct_iface_attr_t* attr) const {
    query_base(attr);
    const std::size_t seg = seg_bytes_;
    attr->cap.am.max_short = inline_max_ - kPrefixBytes;
    attr->cap.am.max_bcopy = seg;
    attr->cap.am.max_zcopy = seg;
    attr->cap.am.max_hdr = std::min(kZcopyHeaderMax, seg);
    attr->cap.am.max_iov = sges_max_ - 1;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu = port().mtu_bytes();

    attr->cap.put.max_short = inline_max_;
    attr->cap.put.max_bcopy = seg;
    attr->cap.put.max_zcopy = message_max_;
    attr->cap.put.max_iov = sges_max_ - 1;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu = port().mtu_bytes();
    attr->cap.get.max_bcopy = seg;
    attr->cap.get.max_zcopy = message_max_;
    attr->cap.get.max_iov = sges_max_ - 1;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu = port().mtu_bytes();

    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                      UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                      UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_BCOPY |
                      UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_EP_CHECK |
                      UCT_IFACE_FLAG_EP_KEEPALIVE | UCT_IFACE_FLAG_ERRHANDLE_SHORT_BUF |
                      UCT_IFACE_FLAG_ERRHANDLE_AM_ID | UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN |
                      UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM | UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE |
                      TAGWIRE_UCT_IFACE_FLAG_FLUSH_REMOTE;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV |
                            UCT_IFACE_FLAG_EVENT_RECV_SIG | UCT_IFACE_FLAG_EVENT_FD;
    if (has_atomics()) {
        attr->cap.flags |= UCT_IFACE_FLAG_ATOMIC_DEVICE;
        attr->cap.atomic64.op_flags = UCS_BIT(UCT_ATOMIC_OP_ADD);
        attr->cap.atomic64.fop_flags = UCS_BIT(UCT_ATOMIC_OP_ADD) | UCS_BIT(UCT_ATOMIC_OP_CSWAP);
    }
    if (has_tag_callbacks())
        query_tags(attr);
}

void MessageIface::query_tags(uct_iface_attr_t* attr) const {
    attr->cap.flags |= UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_EAGER_BCOPY |
                       UCT_IFACE_FLAG_TAG_EAGER_ZCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
    attr->cap.tag.recv.min_recv = receive_bytes_min_;
    attr->cap.tag.recv.max_zcopy = rndv_bytes_max_;
    attr->cap.tag.recv.max_iov = 1;
    attr->cap.tag.recv.max_outstanding = options_.tag_depth;
    attr->cap.tag.eager.max_short = inline_max_ - kTmhBytes;
    attr->cap.tag.eager.max_bcopy = seg_bytes_;
    attr->cap.tag.eager.max_zcopy = eager_parts_max_ * seg_bytes_;
    attr->cap.tag.eager.max_iov = sges_max_ - 1;
    attr->cap.tag.rndv.max_zcopy = rndv_bytes_max_;
    attr->cap.tag.rndv.max_hdr = rndv_header_max();
    attr->cap.tag.rndv.max_iov = 1;
}

bool MessageIface::has_atomics() const {
    return ib_md().device().attr().orig_attr.atomic_cap != IBV_ATOMIC_NONE;
}

// ---- Descriptions

void MessageIface::describe_messages(const uct::DescribeSink& sink) const {
    sink.text("tag_matching", matching_reason_);
    sink.number("endpoints", ep_count_);
    sink.number("receive_buffers_wanted", receives_.wanted());
    sink.number("receive_buffers_posted", receives_.posted());
    sink.number("receive_buffers_held", receives_.kept());
    sink.number("posted_receives", has_device_tags_ ? tag_list_.size() : posted_.size());
    sink.number("rendezvous_under_way", rndvs_under_way_);
    sink.number("send_queues_busy", busy_.size());
    sink.number("inline_bytes", inline_max_);
}

}  // namespace tagwire::ib
