// SPDX-License-Identifier: BSD-3-Clause
#include "info.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "name.hpp"
#include "rma.hpp"
#include "service.hpp"
#include "ways.hpp"

namespace tagwire::fi {

namespace {

constexpr std::uint64_t kTagGeneric = 0xAAAAAAAAAAAAAAAAULL;

struct Limits {
    bool are_known = false;
    std::optional<std::size_t> inject_bytes;
};
std::mutex limits_lock;
Limits limits;

struct FreeInfo {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

/// Throws for want of memory, which may not last.
std::optional<std::size_t> ask_worker() {
    const tw_context_params_t params = {
        .transports = settings().transports.empty() ? nullptr : settings().transports.c_str(),
        .tag_sender_mask = 0};
    tw_context_h context = nullptr;
    tw_worker_h worker = nullptr;
    tw_worker_attr_t attr{};
    tw_status_t status = tw_context_create(&params, &context);
    if (status == TW_OK)
        status = tw_worker_create(context, nullptr, &worker);
    if (status == TW_OK)
        status = tw_worker_query(worker, &attr);
    tw_worker_destroy(worker);
    tw_context_destroy(context);
    if (status == TW_OK)
        return attr.inject_bytes_max;
    if (status == TW_ERR_NO_MEMORY)
        throw std::bad_alloc();
    FI_WARN(&provider, FI_LOG_CORE, "cannot create a worker: %s\n", tw_status_string(status));
    return std::nullopt;
}

std::uint64_t caps_for(const fi_info* hints) {
    if (hints == nullptr || hints->caps == 0)
        return kCaps & ~FI_VARIABLE_MSG;
    std::uint64_t caps = hints->caps | kFreeCaps;
    if ((caps & (kMessages | kOneSided)) == 0)
        caps |= kMessages;
    caps = with_ways(caps);
    if ((caps & FI_RECV) == 0)
        caps &= ~std::uint64_t{FI_MULTI_RECV};
    if ((caps & (FI_SEND | kTxWays)) == 0)
        caps &= ~std::uint64_t{FI_FENCE};
    return caps;
}

/// No mode is needed, so that each one that the program could serve is cleared (fi_mr(3)). The two
/// values of early versions stand for all modes and for none, and are kept in later ones as well.
int mr_mode_for(std::uint32_t version, const fi_domain_attr* hints) {
    const int asked = hints == nullptr ? 0 : hints->mr_mode;
    if (asked == kMrModeBasic || asked == kMrModeScalable)
        return asked;
    return FI_VERSION_LT(version, FI_VERSION(1, 5)) ? kMrModeScalable : 0;
}

void fill_transmit(fi_tx_attr& attr, std::uint64_t caps, const fi_tx_attr* hints) {
    attr.caps = tx_caps_of(caps, hints == nullptr ? 0 : hints->caps & ~kDomainCaps);
    attr.op_flags = hints == nullptr ? 0 : hints->op_flags;
    attr.msg_order = orders_of(caps);
    attr.comp_order = kOrderNone;
    attr.inject_size = inject_bytes_max().value_or(0);
    attr.size = hints == nullptr || hints->size == 0 ? kQueueDefault : hints->size;
    attr.iov_limit = TW_IOV_MAX;
    attr.rma_iov_limit = (caps & kOneSided) != 0 ? kRmaIovMax : 0;
}

void fill_receive(fi_rx_attr& attr, std::uint64_t caps, std::uint64_t mode,
                  const fi_rx_attr* hints) {
    attr.caps = rx_caps_of(caps, hints == nullptr ? 0 : hints->caps & ~kDomainCaps);
    attr.mode = mode & kBufferedRecv;
    attr.op_flags = hints == nullptr ? 0 : hints->op_flags;
    attr.msg_order = orders_of(caps);
    attr.comp_order = kOrderNone;
    attr.size = hints == nullptr || hints->size == 0 ? kQueueDefault : hints->size;
    attr.iov_limit = TW_IOV_MAX;
}

void fill_endpoint(fi_ep_attr& attr, std::uint64_t caps, const fi_ep_attr* hints) {
    attr.type = FI_EP_RDM;
    attr.protocol = kProtocol;
    attr.protocol_version = 1;
    attr.max_msg_size = SIZE_MAX;
    attr.max_order_raw_size = attr.max_order_war_size = attr.max_order_waw_size =
        ordered_bytes_of(caps);
    const bool has_format = hints != nullptr && hints->mem_tag_format != 0;
    attr.mem_tag_format = has_format ? hints->mem_tag_format : kTagGeneric;
    attr.tx_ctx_cnt = 1;
    attr.rx_ctx_cnt = 1;
}

void fill_domain(fi_domain_attr& attr, std::uint32_t version, const fi_domain_attr* hints) {
    attr.name = strdup(kName);
    attr.threading = FI_THREAD_SAFE;
    attr.control_progress = FI_PROGRESS_MANUAL;
    attr.data_progress = FI_PROGRESS_MANUAL;
    attr.resource_mgmt = FI_RM_ENABLED;
    attr.av_type = FI_AV_UNSPEC;
    if (hints != nullptr) {
        attr.domain = hints->domain;
        if (hints->threading != FI_THREAD_UNSPEC)
            attr.threading = hints->threading;
        if (hints->control_progress != FI_PROGRESS_UNSPEC)
            attr.control_progress = hints->control_progress;
        if (hints->data_progress == FI_PROGRESS_AUTO)
            attr.data_progress = FI_PROGRESS_AUTO;
        if (hints->av_type != FI_AV_UNSPEC)
            attr.av_type = hints->av_type;
    }
    attr.mr_mode = mr_mode_for(version, hints);
    attr.mr_key_size = sizeof(std::uint64_t);
    attr.cq_data_size = sizeof(std::uint64_t);
    attr.cq_cnt = attr.ep_cnt = attr.cntr_cnt = kObjectsMax;
    attr.tx_ctx_cnt = attr.rx_ctx_cnt = kObjectsMax;
    attr.max_ep_tx_ctx = attr.max_ep_rx_ctx = 1;
    attr.mr_iov_limit = 1;
    attr.mr_cnt = kObjectsMax;
    attr.caps = kDomainCaps;
}

/// Mode bits are what the program could do; only the buffered receives change what it gets.
std::uint64_t mode_for(const fi_info* hints) {
    const bool asks = hints != nullptr && hints->mode != ~std::uint64_t{0};
    return asks ? hints->mode & kBufferedRecv : 0;
}

/// The addresses that node and service resolve to.
struct Found {
    std::optional<Name> source;
    std::optional<Name> peer;
};

/// Copies `found`, or else the name or place that `hint` points to; zeroes if there is neither.
void* copy_of(const std::optional<Name>& found, const void* hint) {
    void* copy = std::calloc(1, kNameBytes);
    const void* from = found ? found->bytes.data() : hint;
    if (copy != nullptr && from != nullptr)
        std::memcpy(copy, from, kNameBytes);
    return copy;
}

bool set_addresses(fi_info& info, const fi_info* hints, const Found& found) {
    info.addr_format = kAddressFormat;
    // An endpoint gets its name when it is opened; zeroes, or the name of another, stand for any.
    info.src_addr = copy_of(found.source, hints == nullptr ? nullptr : hints->src_addr);
    info.src_addrlen = kNameBytes;
    const void* hint = hints == nullptr ? nullptr : hints->dest_addr;
    if (!found.peer && hint == nullptr)
        return info.src_addr != nullptr;
    info.dest_addr = copy_of(found.peer, hint);
    info.dest_addrlen = kNameBytes;
    return info.src_addr != nullptr && info.dest_addr != nullptr;
}

int make_info(std::uint32_t version, const fi_info* hints, const Found& found, fi_info** info_p) {
    InfoPtr info(fi_allocinfo());
    if (info == nullptr || !set_addresses(*info, hints, found))
        return -FI_ENOMEM;
    info->caps = caps_for(hints);
    info->mode = mode_for(hints);
    fill_transmit(*info->tx_attr, info->caps, hints == nullptr ? nullptr : hints->tx_attr);
    fill_receive(*info->rx_attr, info->caps, info->mode,
                 hints == nullptr ? nullptr : hints->rx_attr);
    fill_endpoint(*info->ep_attr, info->caps, hints == nullptr ? nullptr : hints->ep_attr);
    fill_domain(*info->domain_attr, version, hints == nullptr ? nullptr : hints->domain_attr);
    info->fabric_attr->name = strdup(kName);
    if (hints != nullptr && hints->fabric_attr != nullptr)
        info->fabric_attr->fabric = hints->fabric_attr->fabric;
    if (info->domain_attr->name == nullptr || info->fabric_attr->name == nullptr)
        return -FI_ENOMEM;
    *info_p = info.release();
    return 0;
}

/// False: they stand for nothing, or for nothing that can be reached.
bool look_up(const char* node, const char* service, std::uint64_t flags, Found* found_p) {
    if (node == nullptr && service == nullptr)
        return true;
    if ((flags & FI_SOURCE) != 0) {
        if (const auto place = Place::resolve(node, service, flags))
            found_p->source = place->name();
        return found_p->source.has_value();
    }
    found_p->peer = named(node, service, flags & FI_NUMERICHOST);
    return found_p->peer.has_value();
}

}  // namespace

std::optional<std::size_t> inject_bytes_max() {
    const std::lock_guard guard(limits_lock);
    if (!limits.are_known) {
        limits.inject_bytes = ask_worker();
        limits.are_known = true;
    }
    return limits.inject_bytes;
}

void forget_limits() {
    limits = {};
}

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) {
    // The core adds flags of its own when it asks for utility providers.
    constexpr std::uint64_t kFlags = FI_NUMERICHOST | FI_SOURCE | FI_PROV_ATTR_ONLY | kRescan;
    if ((flags & ~kFlags) != 0)
        return -FI_ENODATA;
    return without_exceptions([&] {
        if ((hints != nullptr && !meets(version, *hints)) || !inject_bytes_max())
            return -FI_ENODATA;
        Found found;
        if ((flags & FI_PROV_ATTR_ONLY) == 0 && !look_up(node, service, flags, &found))
            return -FI_ENODATA;
        return make_info(version, hints, found, info);
    });
}

}  // namespace tagwire::fi
