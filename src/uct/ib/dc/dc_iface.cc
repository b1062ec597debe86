// SPDX-License-Identifier: BSD-3-Clause
// Set-up of dc, its addresses.
#include "uct/ib/dc/dc_iface.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/dc/dc.hpp"
#include "uct/ops.hpp"

namespace tagwire::dc {

// ---- Set-up

namespace {

// Each request may end in a completion. Besides the pool there is the initiator of answers.
ib::MessageOptions messages_of(const DcOptions& options) {
    ib::MessageOptions messages = options.messages;
    messages.tx_cq_depth = (options.dci.dcis + 1) * messages.tx_depth;
    return messages;
}

}  // namespace

DcIface::DcIface(ib::IbMd& md, uct::Worker& worker, const DcOptions& options)
    : MessageIface(md, worker, uct::make_ops<DcIface, DcEp>(), progress_callback<DcIface>, "DC",
                   messages_of(options)),
      retries_(options.retries),
      lender_(*this, flow_, options) {
    source = &lender_;
    flow = &flow_;
    set_move_pieces(&ib::RmaEp::move_pieces);
}

ucs_status_t DcIface::open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                           const void* values, uct_iface_h* iface_p) {
    auto* const iface = new DcIface(md, worker, *static_cast<const DcOptions*>(values));
    std::unique_ptr<uct::BaseIface> owner(iface);
    const ucs_status_t status = iface->init(params);
    if (status == UCS_OK)
        *iface_p = owner.release();
    return status;
}

ucs_status_t DcIface::init(const uct_iface_params_t& params) {
    ucs_status_t status = open_port(params);
    if (status != UCS_OK)
        return status;
    std::string reason;
    const DcVerbs* dc = dc_verbs_of(ib_md().device(), &reason);
    if (dc == nullptr) {
        TW_LOG_ERROR("%s %s", ib_md().device().name().c_str(), reason.c_str());
        return UCS_ERR_UNSUPPORTED;
    }
    status = limits.choose_matching(ib_md().device(), has_tag_callbacks(), matching_obstacle());
    if (status == UCS_OK)
        status = endpoints_.init();
    lender_.pool().choose_streams(*dc);
    if (status == UCS_OK)
        status = open_queues();
    if (status != UCS_OK)
        return status;
    limits.eager_parts_max = 1;  // a part would not say whose it is
    status = make_own_target(*dc);
    limits.rndv_behind_max -= answer_to.size();
    if (status == UCS_OK)
        status = receives.want(buffers_per_peer());
    return status == UCS_OK ? lender_.pool().open(&mailbox()) : status;
}

const char* DcIface::matching_obstacle() const {
    if (!dc_tag_matching_of(ib_md().device()).is_offered)
        return "the device has no tag-matching SRQ for DC";
    // A rendezvous that software goes on with has room for a LID, not for a GID.
    return port().is_ethernet ? "the port is on Ethernet (RoCE), where dc matches by software"
                              : nullptr;
}

ucs_status_t DcIface::make_own_target(const DcVerbs& dc) {
    key_ = ucs::random_u64();
    const ucs_status_t status = make_target(ib_md(), dc, port(),
                                            {.key = key_,
                                             .srq = receives.srq(),
                                             .cq = receive_cq.get(),
                                             .context = &mailbox(),
                                             .rnr_timer_code = ib::rnr_code(retries_.rnr_timer_ns)},
                                            &target_);
    if (status != UCS_OK)
        return status;
    const std::uint32_t level = ib_md().service_level();
    return_address_ = {.target = {.number = htobe32(level << 24 | target_->qp_num),
                                  .reserved = 0,
                                  .lid = htobe16(port().attr.lid),
                                  .key = htobe64(key_)},
                       .port = ib::pack_port(port())};
    const auto bytes = std::as_bytes(std::span(&return_address_, 1));
    answer_to = limits.has_device_tags ? bytes.first(sizeof(ReturnTarget)) : bytes;
    static_assert(sizeof(ReturnAddress) <= ib::kAnswerBytesMax);
    return UCS_OK;
}

void DcIface::close() {
    const auto left = std::ranges::count_if(eps, [](ib::MessageEp* each) {
        const auto* ep = static_cast<const DcEp*>(each);
        return ep != nullptr && !ep->is_internal && !ep->is_destroyed;
    });
    if (left > 0)
        TW_LOG_WARN("dc interface closed with %td endpoints", left);
    delete this;
}

// Queue pairs first: from then on the device writes nothing of ours.
DcIface::~DcIface() {
    lender_.pool().close();
    target_.reset();
    for (ib::MessageEp* each : eps) {
        auto* ep = static_cast<DcEp*>(each);
        if (ep == nullptr)
            continue;
        ep->purge([](uct_pending_req_t*) {});
        if (ep->failure == UCS_OK)
            ep->failure = UCS_ERR_CANCELED;
    }
    op_ends.finish_late(nullptr);
    for (const auto& channel : lender_.pool().all_channels())
        while (ib::SendOp* op = channel->take_any())
            op_ends.finish(*op, UCS_ERR_CANCELED);
    for (ib::MessageEp* ep : eps)
        if (ep != nullptr)
            end_operations(*ep);
    for (ib::MessageEp* ep : eps)
        if (ep != nullptr)
            endpoints_.destroy(static_cast<DcEp&>(*ep));
    drop_receives();
}

ucs_status_t DcIface::query(uct_iface_attr_t* attr) {
    query_messages(attr);
    attr->cap.flags |= UCT_IFACE_FLAG_CONNECT_TO_IFACE;
    attr->iface_addr_len = sizeof(DcAddress);
    attr->ep_addr_len = 0;
    attr->max_conn_priv = 0;
    attr->max_num_eps = ib::kIndexMask;
    return UCS_OK;
}

ucs_status_t DcIface::get_address(uct_iface_addr_t* addr) {
    const DcAddress packed =
        pack({.version = kDcAddressVersion,
              .flags = limits.has_device_tags ? kDeviceMatches : std::uint8_t{0},
              .reserved = 0,
              .check = 0,
              .seg_bytes = static_cast<std::uint32_t>(limits.seg_bytes),
              .number = target_->qp_num,
              .key = key_});
    std::memcpy(addr, &packed, sizeof packed);
    return UCS_OK;
}

bool DcIface::agrees(const DcAddress& peer, std::string* reason_p) const {
    if (((peer.flags & kDeviceMatches) != 0) != limits.has_device_tags) {
        *reason_p = limits.differing_matching();
        return false;
    }
    if (peer.seg_bytes != limits.seg_bytes) {
        *reason_p = "the peer's messages have up to " + std::to_string(peer.seg_bytes) +
                    " bytes, ours " + std::to_string(limits.seg_bytes) +
                    ": set the same TAGWIRE_DC_SEG_BYTES on both sides";
        return false;
    }
    return true;
}

bool DcIface::reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                        std::string* reason) {
    std::string why;
    if (!port_reachable(dev_addr, reason))
        return false;
    const auto port_of_peer = ib::parse_port(
        std::span(reinterpret_cast<const std::byte*>(dev_addr), sizeof(ib::PortAddress)), &why);
    const auto peer = parse_address(
        std::span(reinterpret_cast<const std::byte*>(iface_addr), sizeof(DcAddress)), &why);
    const bool agreed = port_of_peer && peer && ib::has_same_mtu(port(), *port_of_peer, &why) &&
                        agrees(*peer, &why);
    if (!agreed && reason != nullptr)
        *reason = why;
    return agreed;
}

// ---- The ends of endpoints

// Whoever failed has no requests any more.
bool DcIface::settled(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    lender_.take_back(ep);
    if (ep.is_internal)
        endpoints_.forget_way_back(ep);
    if (!ep.is_destroyed && !ep.is_internal)
        return true;
    endpoints_.destroy(ep);
    return false;
}

// Nobody says how many peers there are: when buffers run low there are more than was thought.
void DcIface::take_event(const ib::AsyncEvent& event) {
    if (event.type == IBV_EVENT_SRQ_LIMIT_REACHED)
        receives.want_twice();
    MessageIface::take_event(event);
}

// ---- Descriptions

void DcIface::describe(const uct::DescribeSink& sink) const {
    describe_base(sink);
    describe_messages(sink);
    sink.number("qps_per_peer", 0);
    sink.number("bytes_per_peer", sizeof(DcEp));
    lender_.pool().describe(sink);
    endpoints_.describe(sink);
}

void DcIface::describe_ep(uct_ep_h handle, const uct::DescribeSink& sink) const {
    static constexpr const char* kStates[] = {"created", "connected", "failing", "failed"};
    const DcEp& ep = *static_cast<const DcEp*>(handle);
    sink.text("state", kStates[static_cast<std::size_t>(ep.state)]);
    sink.number("target", ep.number);
    sink.number("requests_under_way",
                lender_.pool().is_shared() ? ep.under_way : ep.queue->posted - ep.queue->acked);
    sink.number("credits", ep.window - (ep.sent - ep.peer_released));
}

// ---- The row of the table

const ib::Transport& transport() {
    static constexpr ib::Transport row{
        .tl = {.name = "dc", .first_contact_rank = 10},
        .options = [] { return &dc_option_table(); },
        .usable = [](const ib::Device& device,
                     std::string* reason_p) { return dc_verbs_of(device, reason_p) != nullptr; },
        .open = &DcIface::open,
    };
    return row;
}

}  // namespace tagwire::dc
