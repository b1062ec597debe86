// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/listener.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "uct/tcp/congestion.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr int kBacklog = 1024;
constexpr unsigned kAcceptsPerCall = 16;

struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
};

/// False: neither a port nor a range of ports.
bool parse_ports(std::string_view text, PortRange* range_p) {
    const auto number = [](std::string_view part, std::uint16_t* number_p) {
        const auto [end, error] =
            std::from_chars(part.data(), part.data() + part.size(), *number_p);
        return error == std::errc() && end == part.data() + part.size();
    };
    const std::size_t dash = text.find('-');
    if (!number(text.substr(0, dash), &range_p->first))
        return false;
    range_p->last = range_p->first;
    return dash == std::string_view::npos ||
           (number(text.substr(dash + 1), &range_p->last) && range_p->first > 0 &&
            range_p->first <= range_p->last);
}

std::uint16_t bound_port(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
        return 0;
    if (address.ss_family == AF_INET6)
        return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

ucs_status_t Listener::open() {
    const char* text = iface_.options().ports.text;
    PortRange range;
    if (!parse_ports(text, &range)) {
        TW_LOG_ERROR(
            "TAGWIRE_TCP_PORTS=%s: expected a port (20000), a range of ports (20000-20100), or 0 "
            "for any port",
            text);
        return UCS_ERR_INVALID_PARAM;
    }
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    for (std::uint32_t port = range.first; port <= range.last && status == UCS_ERR_NO_RESOURCE;
         ++port)
        status = bind(static_cast<std::uint16_t>(port));
    if (status == UCS_ERR_NO_RESOURCE) {
        TW_LOG_ERROR("TAGWIRE_TCP_PORTS=%s: none of these ports of %s is free", text,
                     text_of(iface_.device().address).c_str());
        return UCS_ERR_BUSY;
    }
    if (status != UCS_OK)
        return status;
    places_.reserve(iface_.options().half_open_max);
    const bool is_watched =
        iface_.events.watch(socket_.get(), EventSet::token(Watched::kListener, 0), EPOLLIN);
    return is_watched ? UCS_OK : UCS_ERR_IO_ERROR;
}

/// UCS_ERR_NO_RESOURCE: the port is taken.
ucs_status_t Listener::bind(std::uint16_t port) {
    const IpAddress& ip = iface_.device().address;
    const int family = ip.is_inet6 ? AF_INET6 : AF_INET;
    socket_.reset(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_)
        return ucs::fd_error("socket", errno);
    if (const ucs_status_t status =
            set_congestion_control(socket_.get(), iface_.options().congestion.text);
        status != UCS_OK)
        return status;
    socklen_t bytes = 0;
    const sockaddr_storage address = sockaddr_of(ip, port, &bytes);
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
        ::listen(socket_.get(), kBacklog) != 0) {
        const int error = errno;
        return error == EADDRINUSE ? UCS_ERR_NO_RESOURCE : ucs::fd_error("bind", error);
    }
    port_ = bound_port(socket_.get());
    return port_ != 0 ? UCS_OK : UCS_ERR_IO_ERROR;
}

unsigned Listener::accept() {
    unsigned count = 0;
    for (; count < kAcceptsPerCall; ++count) {
        ucs::UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd) {
            if ((errno == EMFILE || errno == ENFILE) && !std::exchange(is_out_of_fds_, true))
                ucs::fd_error("accept4", errno);
            break;
        }
        is_out_of_fds_ = false;
        admit(std::move(fd));
    }
    return count;
}

void Listener::admit(ucs::UniqueFd fd) {
    HalfOpen& half = free_place();
    const auto index = static_cast<std::uint64_t>(&half - places_.data());
    half.fd = std::move(fd);
    half.have = 0;
    half.deadline = ucs::clock_now_ns() + iface_.options().hello_timeout_ns;
    ++half_open_;
    const std::uint64_t which = index << 32 | ++half.serial;
    if (!iface_.events.watch(half.fd.get(), EventSet::token(Watched::kHalfOpen, which), EPOLLIN))
        close(half);
    iface_.note_deadline(half.deadline);
}

Listener::HalfOpen& Listener::free_place() {
    for (HalfOpen& half : places_)
        if (!half.fd)
            return half;
    if (places_.size() < iface_.options().half_open_max)
        return places_.emplace_back();
    HalfOpen& oldest = *std::ranges::min_element(places_, {}, &HalfOpen::deadline);
    TW_LOG_DEBUG("tcp: a silent connection was ended to make room (TAGWIRE_TCP_HALF_OPEN)");
    iface_.count(TcpCounter::kRefused);
    close(oldest);
    return oldest;
}

void Listener::close(HalfOpen& half) {
    half.fd.reset();
    --half_open_;
}

unsigned Listener::read(std::uint64_t token) {
    const std::uint64_t which = token >> kWatchedBits;
    const std::size_t index = which >> 32;
    if (index >= places_.size() || !places_[index].fd ||
        static_cast<std::uint32_t>(which) != places_[index].serial)
        return 0;  // ended meanwhile
    HalfOpen& half = places_[index];
    auto* to = reinterpret_cast<std::byte*>(&half.hello) + half.have;
    const ssize_t got = ::recv(half.fd.get(), to, sizeof(Hello) - half.have, MSG_DONTWAIT);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            close(half);
        return 0;
    }
    half.have += static_cast<std::uint32_t>(got);
    // Whoever begins with other bytes is told so at once.
    const std::size_t known = std::min<std::size_t>(half.have, sizeof half.hello.magic);
    if (std::memcmp(&half.hello, &kHelloMagic, known) != 0 || half.have == sizeof(Hello))
        answer(half);
    return 1;
}

void Listener::answer(HalfOpen& half) {
    iface_.events.unwatch(half.fd.get());
    --half_open_;
    const Hello hello = half.hello;
    iface_.connections.take_hello(std::move(half.fd), hello, half.have == sizeof(Hello));
}

void Listener::expire(std::uint64_t now_ns) {
    for (HalfOpen& half : places_) {
        if (!half.fd)
            continue;
        if (now_ns >= half.deadline) {
            TW_LOG_DEBUG(
                "tcp: an accepted connection did not greet in time "
                "(TAGWIRE_TCP_HELLO_TIMEOUT)");
            iface_.count(TcpCounter::kRefused);
            close(half);
        } else {
            iface_.note_deadline(half.deadline);
        }
    }
}

}  // namespace tagwire::tcp
