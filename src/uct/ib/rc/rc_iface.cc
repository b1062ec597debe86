// SPDX-License-Identifier: BSD-3-Clause
// Set-up and addresses of the rc interface.
#include "uct/ib/rc/rc_iface.hpp"

#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/ib/rc/rc.hpp"
#include "uct/ib/rc/rc_address.hpp"
#include "uct/ops.hpp"

namespace tagwire::rc {

// ---- Set-up

RcIface::RcIface(ib::IbMd& md, uct::Worker& worker, const RcOptions& options)
    : MessageIface(md, worker, uct::make_ops<RcIface, RcEp>(), progress_callback<RcIface>, "RC",
                   options.messages),
      retries_(options.retries) {
    source = this;
    flow = &credits_;
    set_move_pieces(&ib::RmaEp::move_pieces);
}

ucs_status_t RcIface::open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                           const void* values, uct_iface_h* iface_p) {
    auto* const iface = new RcIface(md, worker, *static_cast<const RcOptions*>(values));
    std::unique_ptr<uct::BaseIface> owner(iface);
    const ucs_status_t status = iface->init(params);
    if (status == UCS_OK)
        *iface_p = owner.release();
    return status;
}

ucs_status_t RcIface::init(const uct_iface_params_t& params) {
    ucs_status_t status = open_port(params);
    if (status == UCS_OK)
        status = limits.choose_matching(ib_md().device(), has_tag_callbacks(), matching_obstacle());
    has_fins_queue = limits.has_device_tags;
    if (status == UCS_OK)
        status = open_queues();
    if (status == UCS_OK)
        status = measure_inline();
    return status;
}

// On Ethernet the capability is there all the same, but drivers make the SRQ over InfiniBand only.
// There it is made only for a user who asks for it and for nothing else.
const char* RcIface::matching_obstacle() const {
    if (!ib_md().device().matches_tags())
        return "the device has no tag-matching SRQ";
    if (port().is_ethernet && limits.may_match_by_software())
        return "the port is on Ethernet (RoCE), where drivers make no tag-matching SRQ";
    return nullptr;
}

// The inline limit that a queue pair really has is known once one was made. Where not even one
// with the minimum can be made, inline data are not the cause: requests of many pieces take
// several places of a ring, so a device may hold fewer of them than it says.
ucs_status_t RcIface::measure_inline() {
    std::uint32_t wanted = limits.inline_wanted();
    std::uint32_t given = 0;
    int error = probe_queue_pair(wanted, &given);
    if (error != 0 && probe_queue_pair(ib::kInlineBytesMin, &given) != 0) {
        TW_LOG_ERROR(
            "%s: a queue pair of TAGWIRE_RC_TX_DEPTH=%llu requests of %u gather elements each "
            "cannot be created, even without inline data: %s; set a smaller depth",
            ib_md().device().name().c_str(),
            static_cast<unsigned long long>(limits.options.tx_depth), limits.sges_max,
            std::strerror(error));
        return error == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_EXCEEDS_LIMIT;
    }
    while (error != 0 && wanted >= 2 * ib::kInlineBytesMin) {
        wanted /= 2;
        error = probe_queue_pair(wanted, &given);
    }
    return limits.take_inline(ib_md().device(), given);
}

/// Makes one as endpoints have it, and drops it. 0 or an errno value.
int RcIface::probe_queue_pair(std::uint32_t inline_bytes, std::uint32_t* given_p) {
    ibv_qp_init_attr init{};
    init.send_cq = sends.cq().get();
    init.recv_cq = receive_cq.get();
    init.srq = limits.has_device_tags ? fins.srq() : receives.srq();
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = static_cast<std::uint32_t>(limits.options.tx_depth);
    init.cap.max_send_sge = limits.sges_max;
    init.cap.max_inline_data = inline_bytes;
    ibv_qp* qp = verbs().create_qp(ib_md().pd(), &init);
    if (qp == nullptr)
        return errno;
    verbs().destroy_qp(qp);
    *given_p = init.cap.max_inline_data;
    return 0;
}

void RcIface::close() {
    if (eps.count() > destroyed_.size())
        TW_LOG_WARN("rc interface closed with %zu endpoints", eps.count() - destroyed_.size());
    delete this;
}

// Queue pairs first: from then on the device writes nothing of ours. Callbacks of an endpoint may
// give back descriptors of any other, so all endpoints are there until the last operation has
// ended.
RcIface::~RcIface() {
    const auto of_each = [this](auto&& call) {
        for (ib::MessageEp* ep : eps)
            if (ep != nullptr)
                call(static_cast<RcEp&>(*ep));
    };
    of_each([this](RcEp& ep) {
        ep.purge([](uct_pending_req_t*) {});
        pending.release(ep);
        if (ep.failure == UCS_OK)
            ep.failure = UCS_ERR_CANCELED;
        ep.destroy_queue_pairs();
    });
    op_ends.finish_late(nullptr);
    of_each([this](RcEp& ep) {
        while (ib::SendOp* op = ep.own_queue_.take_any())
            op_ends.finish(*op, UCS_ERR_CANCELED);
        end_operations(ep);
    });
    of_each([](RcEp& ep) { delete &ep; });
    drop_receives();
}

// ---- Endpoints

void RcIface::map_qp(std::uint32_t qp_num, RcEp* ep) {
    heard_last_ = nullptr;
    auto& page = by_qp_[(qp_num >> 12) & 0xfff];
    if (page == nullptr) {
        if (ep == nullptr)
            return;
        page = std::make_unique<QpPage>();
    }
    page->eps[qp_num & 0xfff] = ep;
}

// ---- Capabilities

ucs_status_t RcIface::query(uct_iface_attr_t* attr) {
    query_messages(attr);
    attr->cap.flags |= UCT_IFACE_FLAG_CONNECT_TO_EP;
    attr->iface_addr_len = sizeof(RcIfaceAddress);
    attr->ep_addr_len = sizeof(RcEpAddress);
    attr->max_conn_priv = 0;
    attr->max_num_eps = ib::kIndexMask;
    return UCS_OK;
}

// ---- Addresses

ucs_status_t RcIface::get_address(uct_iface_addr_t* addr) {
    const RcIfaceAddress packed =
        pack(RcIfaceAddress{.version = kRcAddressVersion,
                            .flags = limits.has_device_tags ? kDeviceMatches : std::uint8_t{0},
                            .reserved = 0,
                            .check = 0,
                            .seg_bytes = static_cast<std::uint32_t>(limits.seg_bytes)});
    std::memcpy(addr, &packed, sizeof packed);
    return UCS_OK;
}

bool RcIface::agrees(std::uint8_t flags, std::uint32_t seg_bytes, std::string* reason_p) const {
    const bool peer_has_device_tags = (flags & kDeviceMatches) != 0;
    if (peer_has_device_tags != limits.has_device_tags) {
        *reason_p = limits.differing_matching();
        return false;
    }
    if (seg_bytes != limits.seg_bytes) {
        *reason_p = "the peer's messages have up to " + std::to_string(seg_bytes) +
                    " bytes, ours " + std::to_string(limits.seg_bytes) +
                    ": set the same TAGWIRE_RC_SEG_BYTES on both sides";
        return false;
    }
    return true;
}

bool RcIface::reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                        std::string* reason) {
    std::string why;
    if (!port_reachable(dev_addr, reason))
        return false;
    if (iface_addr == nullptr)
        return true;
    const auto peer = parse_iface_address(
        std::span(reinterpret_cast<const std::byte*>(iface_addr), sizeof(RcIfaceAddress)), &why);
    const bool agreed = peer && agrees(peer->flags, peer->seg_bytes, &why);
    if (!agreed && reason != nullptr)
        *reason = why;
    return agreed;
}

// ---- Descriptions

void RcIface::describe(const uct::DescribeSink& sink) const {
    describe_base(sink);
    describe_messages(sink);
    sink.number("qps", eps.count() * (limits.has_device_tags ? 2 : 1));
    sink.number("qps_per_peer", limits.has_device_tags ? 2 : 1);
    sink.number("bytes_per_peer", sizeof(RcEp));
}

void RcIface::describe_ep(uct_ep_h handle, const uct::DescribeSink& sink) const {
    static constexpr const char* kStates[] = {"created", "connected", "failing", "failed"};
    const RcEp& ep = *static_cast<const RcEp*>(handle);
    sink.text("state", kStates[static_cast<std::size_t>(ep.state)]);
    if (ep.own_queue_.qp != nullptr)
        sink.number("qp_num", ep.own_queue_.qp->qp_num);
    if (ep.device_qp_ != nullptr)
        sink.number("device_qp_num", ep.device_qp_->qp_num);
    sink.number("requests_under_way", ep.own_queue_.posted - ep.own_queue_.acked);
    sink.number("credits", ep.window - (ep.sent - ep.peer_released));
    sink.number("messages_unhandled", ep.released - ep.told);
}

// ---- The row of the table

const ib::Transport& transport() {
    static constexpr ib::Transport row{
        .tl = {.name = "rc", .first_contact_rank = 0},
        .options = [] { return &rc_option_table(); },
        .usable =
            [](const ib::Device& device, std::string* reason_p) {
                if (device.attr().orig_attr.max_srq > 0)
                    return true;
                *reason_p = "has no shared receive queues";
                return false;
            },
        .open = &RcIface::open,
    };
    return row;
}

}  // namespace tagwire::rc
