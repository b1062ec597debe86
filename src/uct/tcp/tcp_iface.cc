// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/tcp_iface.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "ucs/log/log.hpp"
#include "uct/ops.hpp"
#include "uct/tcp/congestion.hpp"
#include "uct/tcp/networks.hpp"
#include "uct/tcp/tcp_ep.hpp"

namespace tagwire::tcp {

constexpr ucs::CounterTable<TcpCounter> kTcpCounterInfos = ucs::counter_table<TcpCounter>({
    {TcpCounter::kDelivered, "delivered", "messages",
     "active messages and eager tagged messages that came"},
    {TcpCounter::kUnexpected, "unexpected", "messages",
     "tagged messages that found no posted receive"},
    {TcpCounter::kMatched, "matched", "messages",
     "tagged messages that completed a posted receive"},
    {TcpCounter::kNoResource, "no_resource", "calls",
     "sends refused: no room in the connection's queue, or earlier requests pending"},
    {TcpCounter::kBlocked, "blocked", "times",
     "times that the kernel took no more bytes of a connection"},
    {TcpCounter::kCooled, "cooled", "connections", "connections that progress stopped reading"},
    {TcpCounter::kConnections, "connections", "peers",
     "connections established, in either direction"},
    {TcpCounter::kCrossed, "crossed", "connections",
     "connections of peers that crossed one of this side, which stood"},
    {TcpCounter::kRefused, "refused", "connections",
     "accepted connections that were refused: another protocol, a wrong cookie, silence"},
    {TcpCounter::kViolations, "violations", "peers",
     "connections ended because the peer sent malformed or impossible data"},
    {TcpCounter::kPeerFailures, "peer_failures", "peers",
     "connections with endpoints that ended in an error"},
});

namespace {

constexpr uct_iface_ops_t kOps = uct::make_ops<TcpIface, TcpEp>();

}  // namespace

TcpIface::TcpIface(TcpMd& md, uct::Worker& worker, const TcpOptions& options)
    : BaseIface(md, worker, kOps, progress_callback<TcpIface>), md_(md), options_(options) {}

ucs_status_t TcpIface::open(TcpMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                            const TcpOptions& options, uct_iface_h* iface_p) {
    std::unique_ptr<TcpIface> iface(new TcpIface(md, worker, options));
    const ucs_status_t status = iface->init(params);
    if (status != UCS_OK)
        return status;
    *iface_p = iface.release();
    return UCS_OK;
}

ucs_status_t TcpIface::find_device() {
    const auto find = [this](const DeviceList::Devices& devices) {
        const auto found = std::ranges::find(*devices, params().dev_name, &Device::name);
        return found == devices->end() ? nullptr : &*found;
    };
    DeviceList::Devices devices = md_.devices().now();
    const Device* found = find(devices);
    if (found == nullptr || !found->problem.empty()) {
        devices = md_.devices().renew();  // it may have come up since
        found = find(devices);
    }
    if (found != nullptr && found->problem.empty()) {
        device_ = *found;
        speed_ = speed_of(device_);
        return UCS_OK;
    }
    if (found != nullptr) {
        TW_LOG_ERROR("network interface %s is not used for TCP: %s", params().dev_name.c_str(),
                     found->problem.c_str());
        return UCS_ERR_NO_DEVICE;
    }
    std::string names;
    for (const Device& device : *devices)
        names += (names.empty() ? "" : ", ") + device.name;
    TW_LOG_ERROR("network interface %s does not exist; there are: %s", params().dev_name.c_str(),
                 names.c_str());
    return UCS_ERR_NO_DEVICE;
}

ucs_status_t TcpIface::init(const uct_iface_params_t& iface_params) {
    ucs_status_t status = take_params(iface_params);
    if (status != UCS_OK)
        return status;
    if (worker().thread_mode() == UCS_THREAD_MODE_MULTI) {
        TW_LOG_ERROR(
            "tcp does not support a worker of UCS_THREAD_MODE_MULTI: use UCS_THREAD_MODE_SINGLE, "
            "or UCS_THREAD_MODE_SERIALIZED with a lock of the program");
        return UCS_ERR_UNSUPPORTED;
    }
    status = find_device();
    if (status == UCS_OK)
        status = pools.open();
    if (status == UCS_OK) {
        status = staging.init(
            {.name = "tcp gets", .element_bytes = options_.seg_bytes, .elements_per_chunk = 16});
    }
    if (status == UCS_OK)
        status = reader.open(params());
    if (status == UCS_OK)
        status = tags.open(has_tag_callbacks() ? options_.tag_depth : 0);
    if (status == UCS_OK)
        status = events.open();
    if (status != UCS_OK)
        return status;
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_)
        return ucs::fd_error("timerfd_create", errno);
    if (!events.watch(timer_.get(), EventSet::token(Watched::kTimer, 0), EPOLLIN))
        return UCS_ERR_IO_ERROR;
    const std::uint64_t interval = params().keepalive_interval_ns;
    keepalive.open(interval != 0 ? interval : options_.peer_timeout_ns);
    return listener.open();
}

TcpIface::~TcpIface() {
    for (const auto& connection : connections.all()) {
        if (connection->incoming != nullptr && connection->incoming->posted != nullptr)
            tags.destroy(*std::exchange(connection->incoming->posted, nullptr));
        while (Op* receive = connection->receives.front()) {
            Posted& posted = *receive->posted;
            ops.end_receive(*receive);
            tags.destroy(posted);
        }
        reader.drop(*connection);
        connection->tx.clear(pools);
    }
    tags.destroy_all();
}

// The program's callbacks run here, too, and may destroy endpoints themselves: so one at a time.
void TcpIface::close() {
    const auto any = [this]() -> TcpEp* {
        for (const auto& connection : connections.all())
            if (connection->eps != nullptr)
                return connection->eps;
        return connections.cancelled().eps;
    };
    std::size_t eps = 0;
    for (TcpEp* ep = any(); ep != nullptr; ep = any(), ++eps)
        ep->destroy();
    if (eps > 0)
        TW_LOG_WARN("tcp interface closed with %zu endpoints", eps);
    closing.run();
    delete this;
}

// ---- Capabilities

ucs_status_t TcpIface::query(uct_iface_attr_t* attr) {
    std::memset(attr, 0, sizeof *attr);
    constexpr std::size_t kZcopyMax = std::size_t{1} << 40;
    const std::size_t seg = options_.seg_bytes;

    attr->cap.am.max_short = static_cast<unsigned>(seg);
    attr->cap.am.max_bcopy = seg;
    attr->cap.am.max_zcopy = seg;
    attr->cap.am.max_hdr = seg;
    attr->cap.am.max_iov = uct::kIovMax;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu = 1;

    attr->cap.put.max_short = static_cast<unsigned>(seg);
    attr->cap.put.max_bcopy = seg;
    attr->cap.put.max_zcopy = kZcopyMax;
    attr->cap.put.max_iov = uct::kIovMax;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu = 1;
    attr->cap.get.max_bcopy = seg;
    attr->cap.get.max_zcopy = kZcopyMax;
    attr->cap.get.max_iov = uct::kIovMax;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu = 1;

    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                      UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                      UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_BCOPY |
                      UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                      UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_EP_CHECK |
                      UCT_IFACE_FLAG_EP_KEEPALIVE | UCT_IFACE_FLAG_ERRHANDLE_SHORT_BUF |
                      UCT_IFACE_FLAG_ERRHANDLE_AM_ID | UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN |
                      UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM | UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE |
                      TAGWIRE_UCT_IFACE_FLAG_FLUSH_REMOTE | TAGWIRE_UCT_IFACE_FLAG_GATHERS |
                      TAGWIRE_UCT_IFACE_FLAG_RMA_BY_PROGRESS;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV |
                            UCT_IFACE_FLAG_EVENT_RECV_SIG | UCT_IFACE_FLAG_EVENT_FD;

    if (has_tag_callbacks()) {
        attr->cap.flags |= UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_EAGER_BCOPY |
                           UCT_IFACE_FLAG_TAG_EAGER_ZCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
        attr->cap.tag.recv.min_recv = 0;
        attr->cap.tag.recv.max_zcopy = kZcopyMax;
        attr->cap.tag.recv.max_iov = uct::kIovMax;
        attr->cap.tag.recv.max_outstanding = options_.tag_depth;
        attr->cap.tag.eager.max_short = seg;
        attr->cap.tag.eager.max_bcopy = seg;
        attr->cap.tag.eager.max_zcopy = seg;
        attr->cap.tag.eager.max_iov = uct::kIovMax;
        attr->cap.tag.rndv.max_zcopy = kZcopyMax;
        attr->cap.tag.rndv.max_hdr = seg;
        attr->cap.tag.rndv.max_iov = 1;
    }

    const bool is_loopback = device_.address.is_loopback;
    attr->device_addr_len = sizeof(DeviceAddress);
    attr->iface_addr_len = sizeof(IfaceAddress);
    attr->ep_addr_len = 0;
    attr->max_conn_priv = 0;
    attr->overhead = 2e-6;
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared = speed_.bytes_per_s;
    attr->latency = ucs_linear_func_make(is_loopback ? 8e-6 : 15e-6, 0);
    attr->priority = 0;
    attr->max_num_eps = SIZE_MAX;
    attr->dev_num_paths = 1;
    return UCS_OK;
}

// ---- Addresses

ucs_status_t TcpIface::get_device_address(uct_device_addr_t* addr) {
    const DeviceAddress device = pack(device_.address);
    std::memcpy(addr, &device, sizeof device);
    return UCS_OK;
}

ucs_status_t TcpIface::get_address(uct_iface_addr_t* addr) {
    const IfaceAddress address = connections.address(listener.port());
    std::memcpy(addr, &address, sizeof address);
    return UCS_OK;
}

bool TcpIface::reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                         std::string* reason) {
    const auto say = [&](const char* text) {
        if (reason != nullptr)
            *reason = text;
        return false;
    };
    const auto device = parse_device_address(dev_addr);
    if (!device)
        return say("the device address is not one of a network interface");
    const IpAddress peer = ip_of(*device);
    if (peer.is_inet6 != device_.address.is_inet6) {
        return say(peer.is_inet6
                       ? "the peer has an IPv6 address, this network interface an IPv4 address "
                         "(TAGWIRE_TCP_AF)"
                       : "the peer has an IPv4 address, this network interface an IPv6 address "
                         "(TAGWIRE_TCP_AF)");
    }
    if (peer.is_loopback != device_.address.is_loopback)
        return say("only one of the two network interfaces is a loopback");
    if (peer.is_loopback && !is_same_space(*device, pack(device_.address)))
        return say("the peer's loopback is that of another host or network namespace");
    if (peer.bytes == device_.address.bytes && !is_same_space(*device, pack(device_.address)))
        return say("the peer's network interface has the address of this one, in another network");
    if (iface_addr != nullptr) {
        IfaceAddress address;
        std::memcpy(&address, iface_addr, sizeof address);
        if (port_of(address) == 0)
            return say("the interface address has no port");
    }
    return true;
}

bool TcpIface::is_on_route(const uct_device_addr_t* dev_addr) {
    const auto device = parse_device_address(dev_addr);
    if (!device)
        return false;
    IpAddress to = ip_of(*device);
    to.scope = device_.address.scope;
    const auto source = source_towards(to);
    return source && source->bytes == device_.address.bytes;
}

// ---- Flush, fence

ucs_status_t TcpIface::flush(unsigned flags, uct_completion_t* comp) {
    if (comp != nullptr)
        return UCS_ERR_UNSUPPORTED;
    if (!pending.empty())
        return UCS_ERR_NO_RESOURCE;
    ucs_status_t all = UCS_OK;
    for (const auto& connection : connections.all()) {
        if (connection->failure == UCS_OK && sender.flush_of(*connection, flags) != UCS_OK)
            all = UCS_INPROGRESS;
    }
    return all;
}

ucs_status_t TcpIface::fence(unsigned) {
    for (const auto& connection : connections.all())
        connection->fence_waits = connection->gets > 0;
    return UCS_OK;
}

// ---- Sockets

void TcpIface::set_socket_options(int fd) const {
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const auto set_bytes = [fd](int option, std::uint64_t bytes) {
        const int value = static_cast<int>(bytes);
        if (value != 0)
            ::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value);
    };
    set_bytes(SO_SNDBUF, options_.socket_send_bytes);
    set_bytes(SO_RCVBUF, options_.socket_receive_bytes);
    keepalive.set_socket_options(fd);
}

// ---- Descriptions

void TcpIface::describe(const uct::DescribeSink& sink) const {
    const auto count_of = [this](State state) {
        return static_cast<std::uint64_t>(std::ranges::count_if(
            connections.all(),
            [state](const auto& connection) { return connection->state == state; }));
    };
    sink.text("address", text_of(device_.address));
    sink.number("port", listener.port());
    sink.number("mbit_per_s", static_cast<std::uint64_t>(speed_.bytes_per_s * 8e-6));
    sink.flag("speed_assumed", speed_.is_assumed);
    sink.number("peers", connections.all().size());
    sink.number("peers_ready", count_of(State::kReady));
    sink.number("half_open", listener.half_open());
    sink.number("hot_connections", hot_count_);
    // Listener, epoll, timer.
    sink.number("fds", 3 + connections.all().size() + listener.half_open());
    sink.number("bytes_per_silent_peer", sizeof(Connection));
    sink.number("posted_receives", tags.posted());
}

void TcpIface::describe_ep(uct_ep_h handle, const uct::DescribeSink& sink) const {
    static constexpr const char* kStates[] = {"connecting", "greeted", "waiting", "ready",
                                              "failed"};
    const Connection& connection = static_cast<const TcpEp*>(handle)->connection();
    sink.text("state", kStates[static_cast<std::size_t>(connection.state)]);
    sink.text("peer", text_of(connection.address));
    sink.number("peer_port", connection.port);
    sink.flag("opened_by_us", connection.was_opened_by_us);
    sink.text("congestion_control", congestion_control_of(connection.fd.get()));
    sink.number("queued_bytes", connection.tx.copied_bytes());
    sink.number("operations", connection.ops_count);
}

}  // namespace tagwire::tcp
