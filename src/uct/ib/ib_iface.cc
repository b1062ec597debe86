// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ib_iface.hpp"

#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "ucs/log/log.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::ib {

namespace {

/// Bytes per second of data on a link: width times speed, less the coding.
double bandwidth_of(const ibv_port_attr& attr) {
    double lane_gbps = 2.5 * 0.8;
    switch (attr.active_speed) {
        case 1:
            lane_gbps = 2.5 * 0.8;
            break;
        case 2:
            lane_gbps = 5.0 * 0.8;
            break;
        case 4:
            lane_gbps = 10.0 * 0.8;
            break;
        case 8:
            lane_gbps = 10.3125 * 64 / 66;
            break;
        case 16:
            lane_gbps = 14.0625 * 64 / 66;
            break;
        case 32:
            lane_gbps = 25.78125 * 64 / 66;
            break;
        case 64:
            lane_gbps = 53.125 * 64 / 66;
            break;
        case 128:
            lane_gbps = 106.25 * 64 / 66;
            break;
        default:
            break;
    }
    const double lanes = attr.active_width == 1   ? 1
                         : attr.active_width == 2 ? 4
                         : attr.active_width == 4 ? 8
                         : attr.active_width == 8 ? 12
                                                  : 2;
    return lane_gbps * lanes * 1e9 / 8;
}

}  // namespace

IbIface::IbIface(IbMd& md, uct::Worker& worker, const uct_iface_ops_t& table,
                 ucs_callback_t progress)
    : BaseIface(md, worker, table, progress),
      md_(md),
      has_virtual_hca_(md.device().library().has_virtual_hca) {}

IbIface::~IbIface() {
    if (has_mailbox_)
        md_.async().remove(mailbox_);
}

ucs_status_t IbIface::open_port(const uct_iface_params_t& given) {
    ucs_status_t status = take_params(given);
    if (status != UCS_OK)
        return status;
    const std::string& name = params().dev_name;
    const std::uint8_t number = port_number_of(name);
    std::string problem =
        "a device of " + md_.device().name() + " is named \"" + md_.device().name() + ":PORT\"";
    status = UCS_ERR_NO_DEVICE;
    if (number > 0 && name.substr(0, name.rfind(':')) == md_.device().name())
        status = md_.device().port(number, md_.port_choice(), &port_, &problem);
    link_mtu_bytes_ = port_.mtu_bytes();
    // From here on it is the longest packet that the port has: peers learn it with our address.
    port_.attr.active_mtu = std::min(port_.attr.active_mtu, md_.mtu_max());
    if (status != UCS_OK) {
        TW_LOG_ERROR("%s on %s cannot be opened: %s", params().tl_name.c_str(), name.c_str(),
                     problem.c_str());
        return status;
    }
    return open_descriptors();
}

ucs_status_t IbIface::open_descriptors() {
    ibv_comp_channel* made = verbs().create_comp_channel(md_.device().context());
    if (made == nullptr)
        return ucs::fd_error("ibv_create_comp_channel", errno);
    channel_ = owned(made, verbs().destroy_comp_channel);
    if (!ucs::make_nonblocking(made->fd))
        return ucs::fd_error("fcntl of a completion channel", errno);
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_)
        return ucs::fd_error("epoll_create1", errno);
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_)
        return ucs::fd_error("timerfd_create", errno);
    md_.async().add(mailbox_);
    has_mailbox_ = true;
    watch(made->fd);
    watch(timer_.get());
    watch(md_.async().fd());
    return UCS_OK;
}

void IbIface::watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        TW_LOG_ERROR("epoll_ctl failed: %s", std::strerror(errno));
}

ucs_status_t IbIface::event_fd_get(int* fd_p) {
    *fd_p = epoll_.get();
    return UCS_OK;
}

ucs_status_t IbIface::get_device_address(uct_device_addr_t* addr) {
    const PortAddress packed = pack_port(port_);
    std::memcpy(addr, &packed, sizeof packed);
    return UCS_OK;
}

bool IbIface::port_reachable(const uct_device_addr_t* addr, std::string* reason) const {
    std::string why;
    const auto peer =
        parse_port(std::span(reinterpret_cast<const std::byte*>(addr), sizeof(PortAddress)), &why);
    const bool reachable = peer && ib::is_reachable(port_, *peer, &why);
    if (!reachable && reason != nullptr)
        *reason = why;
    return reachable;
}

bool IbIface::drain_descriptors() {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof expirations);
    bool any = false;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (verbs().get_cq_event(channel_.get(), &cq, &context) == 0) {
        verbs().ack_cq_events(cq, 1);
        any = true;
    }
    return any;
}

void IbIface::wake_after(std::uint64_t ns) {
    const itimerspec when{{0, 0}, ucs::timespec_of(ns)};
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

ucs::ReserveVector<AsyncEvent> IbIface::take_async_events() {
    ucs::ReserveVector<AsyncEvent> events = md_.async().collect(mailbox_);
    for (const AsyncEvent& event : events)
        if (event.type == IBV_EVENT_GID_CHANGE && event.port == port_.number)
            find_gid_again();
    return events;
}

// Peers have the GID. Endpoints that connect from now on name its entry in the table, which another
// address may have by now.
void IbIface::find_gid_again() {
    const int index = md_.device().index_of_gid(port_);
    if (index == port_.gid_index)
        return;
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET6, port_.gid.raw, text.data(), text.size());
    if (index < 0) {
        TW_LOG_WARN(
            "%s: port %d has lost the address %s: peers cannot connect to the interface any "
            "more; open another one",
            md_.device().name().c_str(), port_.number, text.data());
        return;
    }
    TW_LOG_INFO("%s: the address %s of port %d has moved from entry %d of its GIDs to %d",
                md_.device().name().c_str(), text.data(), port_.number, port_.gid_index, index);
    port_.gid_index = index;
}

void IbIface::query_base(uct_iface_attr_t* attr) const {
    std::memset(attr, 0, sizeof *attr);
    attr->device_addr_len = sizeof(PortAddress);
    attr->overhead = 75e-9;
    attr->bandwidth.dedicated = bandwidth_of(port_.attr);
    attr->bandwidth.shared = 0;
    attr->latency = ucs_linear_func_make(600e-9, 1e-9);
    attr->priority = 0;
    attr->dev_num_paths = 1;
}

void IbIface::describe_base(const uct::DescribeSink& sink) const {
    sink.text("library", name_of(md_.device().origin()));
    sink.text("link_layer", port_.is_ethernet ? "ethernet" : "infiniband");
    sink.number("lid", port_.attr.lid);
    sink.number("gid_index", static_cast<std::uint64_t>(port_.gid_index));
    sink.text("pkey", fmt::format("{:#06x}", port_.pkey));
    sink.number("mtu_bytes", port_.mtu_bytes());
}

}  // namespace tagwire::ib
