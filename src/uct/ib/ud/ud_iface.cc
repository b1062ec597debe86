// SPDX-License-Identifier: BSD-3-Clause
// Set-up, tear-down, attributes and addresses of the ud interface.
#include "uct/ib/ud/ud_iface.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/ud/ud.hpp"
#include "uct/ops.hpp"

namespace tagwire::ud {

constexpr ucs::CounterTable<UdCounter> kUdCounterInfos = ucs::counter_table<UdCounter>({
    {UdCounter::kDelivered, "delivered", "messages", "active messages that arrived"},
    {UdCounter::kDuplicates, "duplicates", "packets", "packets received again"},
    {UdCounter::kEarly, "early", "packets", "packets that arrived out of order and were kept"},
    {UdCounter::kBeyond, "beyond", "packets",
     "packets dropped because they arrived too far out of order, or too many were kept"},
    {UdCounter::kGarbage, "garbage", "datagrams", "malformed datagrams dropped"},
    {UdCounter::kForeign, "foreign", "packets",
     "packets received for a connection or process that does not exist"},
    {UdCounter::kAcks, "acks", "packets", "packets sent only to acknowledge others"},
    {UdCounter::kResent, "resent", "packets", "packets sent again"},
    {UdCounter::kResets, "resets", "packets",
     "packets sent to inform a peer that its connection does not exist"},
    {UdCounter::kProbes, "probes", "packets", "packets sent to probe a silent peer"},
    {UdCounter::kEvicted, "evicted", "connections",
     "connections of silent peers removed to make room for new ones"},
    {UdCounter::kNoResource, "no_resource", "calls", "sends refused for lack of room"},
    {UdCounter::kPeerFailures, "peer_failures", "endpoints", "endpoints that failed"},
});
static_assert(static_cast<int>(UdCounter::kDelivered) == static_cast<int>(Event::kDelivered) &&
              static_cast<int>(UdCounter::kEvicted) == static_cast<int>(Event::kEvicted));

namespace {

constexpr unsigned kCqSpare = 64;

std::uint32_t random_cookie() {
    std::uint32_t cookie = 0;
    while (cookie == 0)
        cookie = static_cast<std::uint32_t>(ucs::random_u64());
    return cookie;
}

}  // namespace

// ---- Set-up

UdIface::UdIface(ib::IbMd& md, uct::Worker& worker, const UdOptions& options)
    : UdQueuePair(md, worker, uct::make_ops<UdIface, UdEp>(), progress_callback<UdIface>, options) {
}

ucs_status_t UdIface::open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                           const void* values, uct_iface_h* iface_p) {
    auto* const iface = new UdIface(md, worker, *static_cast<const UdOptions*>(values));
    std::unique_ptr<uct::BaseIface> owner(iface);
    const ucs_status_t status = iface->init(params);
    if (status == UCS_OK)
        *iface_p = owner.release();
    return status;
}

ucs_status_t UdIface::init(const uct_iface_params_t& params) {
    ucs_status_t status = open_port(params);
    if (status == UCS_OK)
        status = open_queues();
    if (status == UCS_OK)
        status = open_queue_pair(receive_cq_.get(), receives_.srq());
    if (status == UCS_OK)
        make_node();
    return status;
}

ucs_status_t UdIface::open_queues() {
    datagram_bytes_ = port().mtu_bytes();
    ucs_status_t status = waiters_.init();
    const auto depth = static_cast<unsigned>(options_.rx_depth);
    if (status == UCS_OK)
        status = receive_cq_.open(ib_md(), depth + kCqSpare, channel(), false, &mailbox());
    if (status == UCS_OK)
        status = open_send_queue(datagram_bytes_);
    if (status != UCS_OK)
        return status;
    // A datagram longer than its buffer ends the queue pair, so the buffers take what the link
    // carries, though a peer of the same TAGWIRE_IB_MTU sends less.
    const std::size_t longest = std::max<std::size_t>(datagram_bytes_, link_mtu_bytes());
    const unsigned others = kHeldEarlyMax + ib::CompletionQueue::kBatch;
    return receives_.open(ib_md(),
                          {.depth = depth,
                           .buffers_max = depth + static_cast<unsigned>(options_.rx_held) + others,
                           .message_bytes = kGrhBytes + longest,
                           .front_bytes = kGrhBytes + kHeaderBytes,
                           .headroom = params().rx_headroom,
                           .alignment = params().am_alignment,
                           .align_offset = params().am_align_offset,
                           .context = &mailbox()},
                          released, this);
}

void UdIface::make_node() {
    NodeParams node;
    node.cookie = random_cookie();
    node.sender.window = static_cast<std::uint32_t>(options_.window);
    node.sender.timeout_ns = options_.timeout_ns;
    node.sender.timeout_max_ns = std::max(options_.timeout_max_ns, options_.timeout_ns);
    node.sender.peer_timeout_ns = options_.peer_timeout_ns;
    node.sender.remote_timeout_ns = std::max(options_.remote_timeout_ns, options_.peer_timeout_ns);
    if (params().err_handler != nullptr && options_.keepalive_ns > 0) {
        node.sender.keepalive_ns = params().keepalive_interval_ns > 0
                                       ? params().keepalive_interval_ns
                                       : options_.keepalive_ns;
    }
    node.ahead_max = static_cast<std::uint32_t>(options_.window);
    node.held_max = kHeldEarlyMax;
    node.ack_delay_ns = options_.ack_delay_ns;
    node_.emplace(*this, node);
    peers_.init(ib_md(), port());
    peers_.life.open(node.cookie, qp_->qp_num);
    own_address_ = {ib::pack_port(port()), pack(own_interface())};
}

// ---- Tear-down

void UdIface::close() {
    if (eps_.size() > destroyed_.size())
        TW_LOG_WARN("ud interface closed with %zu endpoints", eps_.size() - destroyed_.size());
    for (std::size_t i = 0; i < eps_.size(); ++i) {  // callbacks may make others
        UdEp* ep = eps_[i];
        pending_.purge(ep->group_, [](uct_pending_req_t*) {});
        node_->close(*ep);
        waiters_.end_all(ep->waiters_, UCS_ERR_CANCELED);
    }
    farewell();
    delete this;
}

// Peers that are connected, or about to connect, shall not have to wait for a timeout. Posted
// packets have to leave before the queue pair is destroyed.
void UdIface::farewell() {
    signal_every_ = 1;
    const std::uint64_t end = ucs::clock_now_ns() + kFarewellNs;
    node_->farewell();
    while (!is_broken_ && ucs::clock_now_ns() < end) {
        const unsigned arrived = poll_receives();
        poll_sends();
        if (arrived > 0)
            continue;
        if (acked_ + unsignaled_ == posted_)
            break;
        ucs::step_aside();
    }
}

UdIface::~UdIface() {
    while (!eps_.empty()) {
        UdEp* ep = eps_.back();
        eps_.pop_back();
        delete ep;
    }
    node_.reset();
    qp_.reset();  // from here on the device writes nothing of ours
    receives_.close();
}

// ---- Capabilities

ucs_status_t UdIface::query(uct_iface_attr_t* attr) {
    query_base(attr);
    const std::size_t message = datagram_bytes_ - kHeaderBytes;
    attr->cap.am.max_short = std::min(kShortBytes, message);
    attr->cap.am.max_bcopy = message;
    attr->cap.am.max_iov = UINT16_MAX;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu = datagram_bytes_;
    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_CB_SYNC |
                      UCT_IFACE_FLAG_EP_CHECK | UCT_IFACE_FLAG_EP_KEEPALIVE |
                      UCT_IFACE_FLAG_ERRHANDLE_SHORT_BUF | UCT_IFACE_FLAG_ERRHANDLE_AM_ID |
                      UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN | UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    attr->cap.event_flags =
        UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;
    attr->iface_addr_len = sizeof(InterfaceAddress);
    attr->ep_addr_len = 0;
    attr->max_conn_priv = 0;
    attr->max_num_eps = 1U << 20;
    return UCS_OK;
}

// ---- Addresses

InterfaceAddress UdIface::own_interface() const {
    InterfaceAddress own;
    own.datagram_bytes = static_cast<std::uint16_t>(datagram_bytes_);
    own.qp_num = qp_->qp_num;
    own.cookie = node_->params().cookie;
    own.host = peers_.life.told_host();
    return own;
}

ucs_status_t UdIface::get_address(uct_iface_addr_t* addr) {
    std::memcpy(addr, &own_address_.interface, sizeof own_address_.interface);
    return UCS_OK;
}

bool UdIface::reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                        std::string* reason) {
    if (!port_reachable(dev_addr, reason))
        return false;
    if (iface_addr == nullptr)
        return true;
    std::string why;
    const auto peer = parse_interface(
        std::span(reinterpret_cast<const std::byte*>(iface_addr), sizeof(InterfaceAddress)), &why);
    const bool agreed = peer && agrees(own_interface(), *peer, options_.window, &why);
    if (!agreed && reason != nullptr)
        *reason = why;
    return agreed;
}

UdPeer* UdIface::peer_of(const void* message) {
    ReturnAddress from;
    std::memcpy(&from, static_cast<const std::byte*>(message) + kHeaderBytes, sizeof from);
    std::string reason;
    const auto port_address = ib::parse_port(std::as_bytes(std::span(&from.port, 1)), &reason);
    const auto interface = parse_interface(std::as_bytes(std::span(&from.interface, 1)), &reason);
    if (!port_address || !interface || !ib::is_reachable(port(), *port_address, &reason)) {
        TW_LOG_DEBUG("ud dropped a packet: %s", reason.c_str());
        return nullptr;
    }
    return peers_.get(*port_address, *interface, acked_);
}

// ---- Descriptions

void UdIface::describe(const uct::DescribeSink& sink) const {
    describe_base(sink);
    sink.number("qp_num", qp_->qp_num);
    sink.number("endpoints", eps_.size());
    sink.number("incoming_connections", node_->inbounds());
    sink.number("peers", peers_.size());
    sink.number("address_handles", peers_.handles());
    sink.number("qps", 1);
    sink.number("qps_per_peer", 0);
    sink.number("bytes_per_peer", sizeof(UdEp));
    sink.number("receive_buffers_posted", receives_.posted());
    sink.number("receive_buffers_held", receives_.kept());
    sink.number("send_buffers_out", long_.out() + short_.out());
    sink.number("inline_bytes", inline_max_);
}

void UdIface::describe_ep(uct_ep_h handle, const uct::DescribeSink& sink) const {
    const UdEp& ep = *static_cast<const UdEp*>(handle);
    const char* state = ep.failure_ != UCS_OK ? (ep.is_settled_ ? "failed" : "failing")
                        : ep.sender.is_open() ? "open"
                                              : "connecting";
    sink.text("state", state);
    sink.number("peer_qp_num", ep.peer->qp_num);
    sink.number("packets_unacknowledged", ep.sender.given() - ep.sender.first_unacknowledged());
    sink.number("packets_resent", ep.sender.resent());
    sink.number("timeout_ns", ep.sender.timeout_ns());
}

// ---- The row of the table

const ib::Transport& transport() {
    static constexpr ib::Transport row{
        .tl = {.name = "ud", .first_contact_rank = 20},
        .options = [] { return &ud_option_table(); },
        .usable =
            [](const ib::Device& device, std::string* reason_p) {
                if (device.attr().orig_attr.max_srq > 0)
                    return true;
                *reason_p = "has no shared receive queues";
                return false;
            },
        .open = &UdIface::open,
    };
    return row;
}

}  // namespace tagwire::ud
