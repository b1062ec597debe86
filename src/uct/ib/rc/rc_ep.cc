// SPDX-License-Identifier: BSD-3-Clause
// Set-up and tear-down of endpoints: queue pairs and their states.
#include "uct/ib/rc/rc_ep.hpp"

#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/rc/rc_address.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;

}  // namespace

RcEp::RcEp(RcIface& owner) : MessageOps(owner, own_queue_) {
    own_queue_.owner = this;
}

RcEp::~RcEp() {
    destroy_queue_pairs();
}

// After that the device touches no memory of ours.
void RcEp::destroy_queue_pairs() {
    for (ibv_qp** qp_p : {&own_queue_.qp, &device_qp_}) {
        ibv_qp* qp = std::exchange(*qp_p, nullptr);
        if (qp == nullptr)
            continue;
        const std::uint32_t number = qp->qp_num;
        owner().map_qp(number, nullptr);
        if (owner().verbs().destroy_qp(qp) != 0)
            TW_LOG_ERROR("ibv_destroy_qp failed: %s", std::strerror(errno));
        owner().ib_md().async().forget(owner().mailbox(), number);
    }
}

ucs_status_t RcEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) {
    if ((params->field_mask & UCT_EP_PARAM_FIELD_IFACE) == 0) {
        TW_LOG_ERROR("uct_ep_create on rc needs iface (field_mask 0x%llx)",
                     static_cast<unsigned long long>(params->field_mask));
        return UCS_ERR_INVALID_PARAM;
    }
    constexpr std::uint64_t kAddresses =
        UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    if ((params->field_mask & kAddresses) != 0) {
        TW_LOG_ERROR(
            "uct_ep_create on rc: dev_addr and iface_addr are not accepted: exchange the addresses "
            "of uct_ep_get_address() and call uct_ep_connect_to_ep()");
        return UCS_ERR_UNSUPPORTED;
    }
    auto& owner = static_cast<RcIface&>(uct::iface_of(params->iface));
    if (owner.has_lost_device()) {
        TW_LOG_ERROR("uct_ep_create on rc: the device of the interface has failed");
        return UCS_ERR_IO_ERROR;
    }
    auto* ep = new RcEp(owner);
    ucs_status_t status = ep->make_queue_pairs();
    if (status == UCS_OK)
        status = owner.eps.add(*ep);
    if (status == UCS_OK) {
        ep->lasting_id = owner.eps.newest_lasting_id();
        ep->own_queue_.id = ep->id;
        owner.sends.add(ep->own_queue_);
    } else {
        delete ep;
        return status;
    }
    *ep_p = ep;
    return UCS_OK;
}

ucs_status_t RcEp::make_queue_pairs() {
    RcIface& own = owner();
    const auto depth = static_cast<unsigned>(own.limits.options.tx_depth);
    const bool has_two = own.limits.has_device_tags;
    ucs_status_t status =
        make_queue_pair(depth, has_two ? own.fins.srq() : own.receives.srq(), &own_queue_.qp);
    if (status == UCS_OK && has_two)
        status = make_queue_pair(0, own.receives.srq(), &device_qp_);
    if (status != UCS_OK)
        return status;
    last_requests_ = has_two ? 2 : 1;
    message_qp_num_ = has_two ? device_qp_->qp_num : own_queue_.qp->qp_num;
    own_queue_.free = depth;
    return UCS_OK;
}

ucs_status_t RcEp::make_queue_pair(unsigned depth, ibv_srq* srq, ibv_qp** qp_p) {
    RcIface& own = owner();
    ibv_qp_init_attr init{};
    init.qp_context = &own.mailbox();
    init.send_cq = own.sends.cq().get();
    init.recv_cq = own.receive_cq.get();
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = depth;
    init.cap.max_send_sge = depth == 0 ? 0 : own.limits.sges_max;
    init.cap.max_inline_data = depth == 0 ? 0 : own.limits.inline_max;
    ibv_qp* qp = own.verbs().create_qp(own.ib_md().pd(), &init);
    if (qp == nullptr)
        return ib::call_failed(own.ib_md().device(), "ibv_create_qp", errno);
    *qp_p = qp;
    own.map_qp(qp->qp_num, this);
    return to_init(qp);
}

ucs_status_t RcEp::to_init(ibv_qp* qp) {
    RcIface& own = owner();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = own.port().pkey_index;
    attr.port_num = own.port().number;
    attr.qp_access_flags = ib::access_of(own.ib_md().device());
    const int error = own.verbs().modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return error == 0 ? UCS_OK
                      : ib::call_failed(own.ib_md().device(), "ibv_modify_qp to INIT", error);
}

ucs_status_t RcEp::get_address(uct_ep_addr_t* addr) {
    const RcIface& own = owner();
    if (failure != UCS_OK)
        return failure;
    const RcEpAddress packed =
        pack(RcEpAddress{.version = kRcAddressVersion,
                         .flags = own.limits.has_device_tags ? kDeviceMatches : std::uint8_t{0},
                         .reads = static_cast<std::uint8_t>(own.limits.reads_max),
                         .check = 0,
                         .seg_bytes = static_cast<std::uint32_t>(own.limits.seg_bytes),
                         .qp_num = own_queue_.qp->qp_num,
                         .device_qp_num = own.limits.has_device_tags ? message_qp_num_ : 0,
                         .psn = own_queue_.qp->qp_num * 2654435761U & kPsnMask,
                         .credits = static_cast<std::uint16_t>(own.limits.options.credits)});
    std::memcpy(addr, &packed, sizeof packed);
    return UCS_OK;
}

ucs_status_t RcEp::connect_to_ep(const uct_device_addr_t* dev_addr, const uct_ep_addr_t* ep_addr) {
    RcIface& own = owner();
    if (failure != UCS_OK)
        return failure;
    std::string reason;
    const auto peer_port = ib::parse_port(
        std::span(reinterpret_cast<const std::byte*>(dev_addr), sizeof(ib::PortAddress)), &reason);
    const auto peer = parse_ep_address(
        std::span(reinterpret_cast<const std::byte*>(ep_addr), sizeof(RcEpAddress)), &reason);
    ucs_status_t status = UCS_OK;
    if (!peer_port || !peer) {
        status = UCS_ERR_INVALID_ADDR;
    } else if (!ib::is_reachable(own.port(), *peer_port, &reason) ||
               !own.agrees(peer->flags, peer->seg_bytes, &reason)) {
        status = UCS_ERR_UNREACHABLE;
    } else if (state != State::kCreated) {
        reason = "the endpoint is connected already";
        status = UCS_ERR_ALREADY_EXISTS;
    }
    if (status != UCS_OK) {
        TW_LOG_ERROR("uct_ep_connect_to_ep: %s", reason.c_str());
        return status;
    }
    const ibv_ah_attr path = ib::path_to(own.port(), *peer_port, own.ib_md().traffic_class(),
                                         own.ib_md().service_level());
    const ibv_mtu mtu = ib::path_mtu(own.port(), *peer_port);
    status = own.receives.want(own.buffers_per_peer());
    if (status != UCS_OK)
        return status;
    // Each kind is connected to the other kind of the peer.
    const std::uint32_t answers =
        device_qp_ == nullptr ? std::uint32_t{peer->qp_num} : std::uint32_t{peer->device_qp_num};
    status = to_rts(own_queue_.qp, answers, *peer, path, mtu);
    if (status == UCS_OK && device_qp_ != nullptr)
        status = to_rts(device_qp_, peer->qp_num, *peer, path, mtu);
    if (status != UCS_OK) {
        own.receives.want_less(own.buffers_per_peer());
        to_created();
        return status;
    }
    window = peer->credits;
    state = State::kConnected;
    return UCS_OK;
}

// A connect that failed in the middle may be tried again.
void RcEp::to_created() {
    for (ibv_qp* qp : {own_queue_.qp, device_qp_}) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RESET;
        if (qp != nullptr && owner().verbs().modify_qp(qp, &attr, IBV_QP_STATE) == 0)
            to_init(qp);
    }
}

ucs_status_t RcEp::to_rts(ibv_qp* qp, std::uint32_t peer_qp, const RcEpAddress& peer,
                          const ibv_ah_attr& path, ibv_mtu mtu) {
    RcIface& own = owner();
    const ib::RetryOptions& options = own.retries_;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = path;
    attr.path_mtu = mtu;
    attr.dest_qp_num = peer_qp;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = static_cast<std::uint8_t>(own.limits.reads_max);
    attr.min_rnr_timer = ib::rnr_code(options.rnr_timer_ns);
    int error =
        own.verbs().modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error != 0)
        return ib::call_failed(own.ib_md().device(), "ibv_modify_qp to RTR", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = ib::timeout_code(options.timeout_ns);
    attr.retry_cnt = static_cast<std::uint8_t>(options.retry_count);
    attr.rnr_retry = static_cast<std::uint8_t>(options.rnr_retry);
    attr.sq_psn = own_queue_.qp->qp_num * 2654435761U & kPsnMask;
    attr.max_rd_atomic =
        static_cast<std::uint8_t>(std::min<unsigned>(own.limits.reads_out_max, peer.reads));
    error = own.verbs().modify_qp(qp, &attr,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return error == 0 ? UCS_OK
                      : ib::call_failed(own.ib_md().device(), "ibv_modify_qp to RTS", error);
}

// The peer can reach our memory no more, and the last request ends with a completion.
void RcEp::to_error() {
    for (ibv_qp* qp : {own_queue_.qp, device_qp_}) {
        if (qp == nullptr)
            continue;
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        const int error = owner().verbs().modify_qp(qp, &attr, IBV_QP_STATE);
        if (error != 0)
            TW_LOG_ERROR("ibv_modify_qp to ERR failed: %s", std::strerror(error));
        if (error == EIO)
            return owner().lose_device("the device does not stop a queue pair (EIO)");
    }
    owner().sends.mark_end(own_queue_, *this);
}

void RcEp::destroy() {
    RcIface& own = owner();
    unsigned dropped = 0;
    purge([&](uct_pending_req_t*) { ++dropped; });
    if (dropped > 0)
        TW_LOG_WARN("rc endpoint destroyed with %u pending requests", dropped);
    own.bury(*this);
}

}  // namespace tagwire::rc
