// SPDX-License-Identifier: BSD-3-Clause
// Checks every hint of fi_getinfo(3) against the capabilities and limits of the provider.
#include <cstring>

#include "info.hpp"
#include "rma.hpp"
#include "ways.hpp"

namespace tagwire::fi {

namespace {

constexpr std::size_t kKeyBytesMax = 8;

#define TW_FI_REFUSE(...)                                     \
    do {                                                      \
        FI_INFO(&provider, FI_LOG_CORE, "hint " __VA_ARGS__); \
        return false;                                         \
    } while (0)

/// `asked` has bits that are not offered.
bool has_others(const char* what, std::uint64_t asked, std::uint64_t offered) {
    if ((asked & ~offered) != 0)
        FI_INFO(&provider, FI_LOG_CORE, "hint %s: bits 0x%llx are not supported\n", what,
                static_cast<unsigned long long>(asked & ~offered));
    return (asked & ~offered) != 0;
}

bool is_above(const char* what, std::size_t asked, std::size_t offered) {
    if (asked > offered)
        FI_INFO(&provider, FI_LOG_CORE, "hint %s: %zu exceeds the limit of %zu\n", what, asked,
                offered);
    return asked > offered;
}

bool meets_endpoint(const fi_ep_attr& hints, std::size_t ordered_bytes) {
    if (hints.type != FI_EP_UNSPEC && hints.type != FI_EP_RDM)
        TW_FI_REFUSE("ep_attr->type %d: only FI_EP_RDM\n", static_cast<int>(hints.type));
    if (hints.protocol != FI_PROTO_UNSPEC && hints.protocol != kProtocol)
        TW_FI_REFUSE("ep_attr->protocol 0x%x: only 0x%x\n", hints.protocol, kProtocol);
    if (hints.auth_key_size != 0)
        TW_FI_REFUSE("ep_attr->auth_key is not supported\n");
    // FI_SHARED_CONTEXT is SIZE_MAX.
    return !is_above("ep_attr->protocol_version", hints.protocol_version, 1) &&
           !is_above("ep_attr->msg_prefix_size", hints.msg_prefix_size, 0) &&
           !is_above("ep_attr->tx_ctx_cnt", hints.tx_ctx_cnt, 1) &&
           !is_above("ep_attr->rx_ctx_cnt", hints.rx_ctx_cnt, 1) &&
           !is_above("ep_attr->max_order_raw_size", hints.max_order_raw_size, ordered_bytes) &&
           !is_above("ep_attr->max_order_war_size", hints.max_order_war_size, ordered_bytes) &&
           !is_above("ep_attr->max_order_waw_size", hints.max_order_waw_size, ordered_bytes);
}

bool meets_transmit(const fi_tx_attr& hints, std::uint64_t caps, std::uint64_t orders) {
    return !has_others("tx_attr->caps", hints.caps, tx_caps_of(caps, 0) | kFreeCaps) &&
           !has_others("tx_attr->op_flags", hints.op_flags, kTxOpFlags) &&
           !has_others("tx_attr->msg_order", hints.msg_order, orders) &&
           !has_others("tx_attr->comp_order", hints.comp_order, kOrderNone) &&
           !is_above("tx_attr->inject_size", hints.inject_size, inject_bytes_max().value_or(0)) &&
           !is_above("tx_attr->size", hints.size, kQueueMax) &&
           !is_above("tx_attr->iov_limit", hints.iov_limit, TW_IOV_MAX) &&
           !is_above("tx_attr->rma_iov_limit", hints.rma_iov_limit, kRmaIovMax);
}

bool meets_receive(const fi_rx_attr& hints, std::uint64_t caps, std::uint64_t orders) {
    return !has_others("rx_attr->caps", hints.caps, rx_caps_of(caps, 0) | kFreeCaps) &&
           !has_others("rx_attr->op_flags", hints.op_flags, kRxOpFlags) &&
           !has_others("rx_attr->msg_order", hints.msg_order, orders) &&
           !has_others("rx_attr->comp_order", hints.comp_order, kOrderNone) &&
           !is_above("rx_attr->total_buffered_recv", hints.total_buffered_recv, 0) &&
           !is_above("rx_attr->size", hints.size, kQueueMax) &&
           !is_above("rx_attr->iov_limit", hints.iov_limit, TW_IOV_MAX);
}

/// Ways that belong to no capability that is asked for.
bool has_stray_ways(std::uint64_t caps) {
    const bool has_events = (caps & FI_RMA_EVENT) != 0;
    if ((caps & kOneSided) == 0 && (has_events || (caps & (kTxWays | kRxWays)) != 0)) {
        FI_INFO(&provider, FI_LOG_CORE,
                "hint caps: FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE and FI_RMA_EVENT "
                "need FI_RMA or FI_ATOMIC\n");
        return true;
    }
    if (has_events && (with_ways(caps) & kRxWays) == 0) {
        FI_INFO(&provider, FI_LOG_CORE,
                "hint caps: FI_RMA_EVENT needs FI_REMOTE_READ or FI_REMOTE_WRITE\n");
        return true;
    }
    return false;
}

bool meets_domain(const fi_domain_attr& hints) {
    if (hints.name != nullptr && std::strcmp(hints.name, kName) != 0)
        TW_FI_REFUSE("domain_attr->name %s: only %s\n", hints.name, kName);
    if (static_cast<unsigned>(hints.threading) > FI_THREAD_ENDPOINT)
        TW_FI_REFUSE("domain_attr->threading %d is unknown\n", static_cast<int>(hints.threading));
    if (static_cast<unsigned>(hints.av_type) > FI_AV_TABLE)
        TW_FI_REFUSE("domain_attr->av_type %d is unknown\n", static_cast<int>(hints.av_type));
    if (hints.auth_key_size != 0)
        TW_FI_REFUSE("domain_attr->auth_key is not supported\n");
    return !has_others("domain_attr->caps", hints.caps, kDomainCaps) &&
           !is_above("domain_attr->mr_key_size", hints.mr_key_size, kKeyBytesMax) &&
           !is_above("domain_attr->cq_data_size", hints.cq_data_size, sizeof(std::uint64_t)) &&
           !is_above("domain_attr->cq_cnt", hints.cq_cnt, kObjectsMax) &&
           !is_above("domain_attr->ep_cnt", hints.ep_cnt, kObjectsMax) &&
           !is_above("domain_attr->cntr_cnt", hints.cntr_cnt, kObjectsMax) &&
           !is_above("domain_attr->tx_ctx_cnt", hints.tx_ctx_cnt, kObjectsMax) &&
           !is_above("domain_attr->rx_ctx_cnt", hints.rx_ctx_cnt, kObjectsMax) &&
           !is_above("domain_attr->max_ep_tx_ctx", hints.max_ep_tx_ctx, 1) &&
           !is_above("domain_attr->max_ep_rx_ctx", hints.max_ep_rx_ctx, 1) &&
           !is_above("domain_attr->max_ep_stx_ctx", hints.max_ep_stx_ctx, 0) &&
           !is_above("domain_attr->max_ep_srx_ctx", hints.max_ep_srx_ctx, 0) &&
           !is_above("domain_attr->mr_iov_limit", hints.mr_iov_limit, 1) &&
           !is_above("domain_attr->mr_cnt", hints.mr_cnt, kObjectsMax);
}

}  // namespace

bool meets(std::uint32_t api_version, const fi_info& hints) {
    if (has_others("caps", hints.caps, kCaps) || has_stray_ways(hints.caps))
        return false;
    const std::uint64_t caps = hints.caps == 0 ? kCaps : hints.caps;
    if (hints.addr_format != FI_FORMAT_UNSPEC && hints.addr_format != kAddressFormat)
        TW_FI_REFUSE("addr_format %u: only 0x%x\n", hints.addr_format, kAddressFormat);
    if (hints.handle != nullptr)
        TW_FI_REFUSE("handle must be NULL: there are no connections\n");
    if (hints.fabric_attr != nullptr && hints.fabric_attr->name != nullptr &&
        std::strcmp(hints.fabric_attr->name, kName) != 0)
        TW_FI_REFUSE("fabric_attr->name %s: only %s\n", hints.fabric_attr->name, kName);
    if (hints.src_addr != nullptr && hints.src_addrlen != kNameBytes)
        TW_FI_REFUSE("src_addr has %zu bytes, expected %zu\n", hints.src_addrlen, kNameBytes);
    if (hints.dest_addr != nullptr && hints.dest_addrlen != kNameBytes)
        TW_FI_REFUSE("dest_addr has %zu bytes, expected %zu\n", hints.dest_addrlen, kNameBytes);
    const std::uint64_t primary = FI_MSG | FI_TAGGED;
    if ((hints.caps & FI_VARIABLE_MSG) != 0 && (hints.caps & primary) == 0)
        TW_FI_REFUSE("caps: FI_VARIABLE_MSG needs FI_MSG or FI_TAGGED\n");
    if (hints.domain_attr != nullptr && FI_VERSION_LT(api_version, FI_VERSION(1, 5)) &&
        hints.domain_attr->mr_mode > kMrModeScalable)
        TW_FI_REFUSE("domain_attr->mr_mode %d does not exist before API 1.5\n",
                     hints.domain_attr->mr_mode);
    return (hints.ep_attr == nullptr ||
            meets_endpoint(*hints.ep_attr, ordered_bytes_of(hints.caps))) &&
           (hints.tx_attr == nullptr ||
            meets_transmit(*hints.tx_attr, caps, orders_of(hints.caps))) &&
           (hints.rx_attr == nullptr ||
            meets_receive(*hints.rx_attr, caps, orders_of(hints.caps))) &&
           (hints.domain_attr == nullptr || meets_domain(*hints.domain_attr));
}

}  // namespace tagwire::fi
