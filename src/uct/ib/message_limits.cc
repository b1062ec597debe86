// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/message_limits.hpp"

#include "ucs/log/log.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

namespace {

// Cap on the credits of one peer: this many bytes of messages, but not below the minimum.
constexpr std::size_t kCreditBytes = std::size_t{5} << 20;
constexpr std::uint64_t kCreditsMin = 16;
constexpr std::uint64_t kSignalEvery = 64;  // one request of so many asks for a completion

ucs_status_t too_few(const std::string& option, std::uint64_t wanted, const char* what,
                     std::uint64_t limit) {
    TW_LOG_ERROR("TAGWIRE_%s=%llu: the device has at most %llu %s", option.c_str(),
                 static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(limit),
                 what);
    return UCS_ERR_EXCEEDS_LIMIT;
}

}  // namespace

ucs_status_t MessageLimits::choose_matching(const Device& device, bool has_tag_callbacks,
                                            const char* obstacle) {
    has_device_tags = false;
    const auto wanted = static_cast<TagMatching>(options.tag_matching);
    if (!has_tag_callbacks) {
        matching_reason = "none: opened without both tag callbacks";
    } else if (wanted == TagMatching::kSoftware) {
        matching_reason = "software: TAGWIRE_" + prefix + "_TAG_MATCHING=software";
    } else if (obstacle == nullptr) {
        matching_reason = "device";
        has_device_tags = true;
    } else if (wanted == TagMatching::kDevice) {
        TW_LOG_ERROR("TAGWIRE_%s_TAG_MATCHING=device on %s: %s", prefix.c_str(),
                     device.name().c_str(), obstacle);
        return UCS_ERR_UNSUPPORTED;
    } else {
        matching_reason = std::string("software: ") + obstacle;
    }
    return UCS_OK;
}

void MessageLimits::match_by_software(const Device& device, const std::string& refusal) {
    has_device_tags = false;
    matching_reason = "software: the device cannot create a tag-matching SRQ: " + refusal;
    TW_LOG_INFO("%s: tags are matched by %s", device.name().c_str(), matching_reason.c_str());
}

ucs_status_t MessageLimits::fit_depths(const Device& device) {
    const ibv_device_attr& attr = device.attr().orig_attr;
    seg_bytes = options.seg_bytes;
    if (options.tx_depth > static_cast<std::uint64_t>(attr.max_qp_wr))
        return too_few(prefix + "_TX_DEPTH", options.tx_depth, "requests in a send queue",
                       static_cast<std::uint64_t>(attr.max_qp_wr));
    options.tx_depth = std::max<std::uint64_t>(options.tx_depth / queue_shares, 4);
    // Buffers come back in turn: more than a cache holds would make long messages slow.
    options.credits = std::min<std::uint64_t>(
        options.credits, std::max<std::uint64_t>(kCreditsMin, kCreditBytes / seg_bytes));
    if (options.rx_depth + options.rndv_max >
        static_cast<std::uint64_t>(std::max(attr.max_srq_wr, 0)))
        return too_few(
            prefix + "_RX_DEPTH", options.rx_depth,
            ("buffers in an SRQ, including those of TAGWIRE_" + prefix + "_RNDV_MAX").c_str(),
            static_cast<std::uint64_t>(attr.max_srq_wr));
    return UCS_OK;
}

// Limits that follow from the depths, from the side that matches tags, and from the device.
void MessageLimits::set(const IbMd& md, const Port& port) {
    const Device& device = md.device();
    const ibv_device_attr& attr = device.attr().orig_attr;
    mtu_bytes = port.mtu_bytes();
    has_atomics = attr.atomic_cap != IBV_ATOMIC_NONE;
    sges_max = std::min({kSgesMax, md.tx_sges(), static_cast<unsigned>(attr.max_sge)});
    message_max = std::min<std::size_t>(port.attr.max_msg_sz, std::size_t{1} << 30);
    rndv_bytes_max = has_device_tags ? message_max : std::size_t{UINT32_MAX};
    rndv_behind_max = seg_bytes - sizeof(ibv_rvh);
    if (has_device_tags) {
        rndv_behind_max = std::min<std::size_t>(
            rndv_behind_max, device.attr().tm_caps.max_rndv_hdr_size - kTmhBytes - sizeof(ibv_rvh));
        receive_bytes_min = seg_bytes;
    }
    cq_places = static_cast<std::uint32_t>(options.tx_cq_depth);
    cq_reserve = std::min<std::uint32_t>(16, cq_places / 4);
    eager_parts_max = has_device_tags
                          ? 1
                          : std::min<std::size_t>({kEagerPartsMax, options.credits,
                                                   options.tx_depth - 1, cq_places - cq_reserve});
    reads_max = static_cast<unsigned>(std::min<std::uint64_t>(
        {options.reads, static_cast<std::uint64_t>(std::max(attr.max_qp_rd_atom, 1)), 255}));
    reads_out_max = static_cast<unsigned>(std::min<std::uint64_t>(
        reads_max, static_cast<std::uint64_t>(std::max(attr.max_qp_init_rd_atom, 1))));
    signal_every = static_cast<std::uint32_t>(std::max<std::uint64_t>(
        1, std::min({kSignalEvery, options.tx_depth / 4, options.tx_cq_depth / 4})));
    credit_step = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, options.credits / 4));
}

std::string MessageLimits::differing_matching() const {
    const std::string advice = ": set TAGWIRE_" + prefix + "_TAG_MATCHING=software on both sides";
    if (has_device_tags)
        return "our device matches tags, the peer's does not" + advice;
    return "the peer's device matches its tags, ours does not (" + matching_reason + ")" + advice;
}

ucs_status_t MessageLimits::take_inline(const Device& device, std::uint32_t of_device) {
    inline_max = std::min<std::uint32_t>(
        {of_device, kInlineBytesMax, static_cast<std::uint32_t>(seg_bytes)});
    if (inline_max >= kInlineBytesMin)
        return UCS_OK;
    TW_LOG_ERROR("%s allows %u bytes of inline data per request; %u are needed",
                 device.name().c_str(), inline_max, kInlineBytesMin);
    return UCS_ERR_UNSUPPORTED;
}

void MessageLimits::query(uct_iface_attr_t* attr, const Port& port, bool has_tag_callbacks) const {
    const std::size_t seg = seg_bytes;
    attr->cap.am.max_short = inline_max - kPrefixBytes;
    attr->cap.am.max_bcopy = seg;
    attr->cap.am.max_zcopy = seg;
    attr->cap.am.max_hdr = std::min(kZcopyHeaderMax, seg);
    attr->cap.am.max_iov = sges_max - 1;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu = port.mtu_bytes();

    attr->cap.put.max_short = inline_max;
    attr->cap.put.max_bcopy = seg;
    attr->cap.put.max_zcopy = message_max;
    attr->cap.put.max_iov = sges_max - 1;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu = port.mtu_bytes();
    attr->cap.get.max_bcopy = seg;
    attr->cap.get.max_zcopy = message_max;
    attr->cap.get.max_iov = sges_max - 1;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu = port.mtu_bytes();

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
    if (has_atomics) {
        attr->cap.flags |= UCT_IFACE_FLAG_ATOMIC_DEVICE;
        attr->cap.atomic64.op_flags = UCS_BIT(UCT_ATOMIC_OP_ADD);
        attr->cap.atomic64.fop_flags = UCS_BIT(UCT_ATOMIC_OP_ADD) | UCS_BIT(UCT_ATOMIC_OP_CSWAP);
    }
    if (has_tag_callbacks)
        query_tags(attr);
}

void MessageLimits::query_tags(uct_iface_attr_t* attr) const {
    attr->cap.flags |= UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_EAGER_BCOPY |
                       UCT_IFACE_FLAG_TAG_EAGER_ZCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
    attr->cap.tag.recv.min_recv = receive_bytes_min;
    attr->cap.tag.recv.max_zcopy = rndv_bytes_max;
    attr->cap.tag.recv.max_iov = 1;
    attr->cap.tag.recv.max_outstanding = options.tag_depth;
    attr->cap.tag.eager.max_short = inline_max - kTmhBytes;
    attr->cap.tag.eager.max_bcopy = seg_bytes;
    attr->cap.tag.eager.max_zcopy = eager_parts_max * seg_bytes;
    attr->cap.tag.eager.max_iov = sges_max - 1;
    attr->cap.tag.rndv.max_zcopy = rndv_bytes_max;
    attr->cap.tag.rndv.max_hdr = rndv_header_max();
    attr->cap.tag.rndv.max_iov = 1;
}

}  // namespace tagwire::ib
