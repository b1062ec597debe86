// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/listener.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/time/clock.hpp"
#include "uct/tcp/congestion.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr int kBacklog = 1024;
constexpr unsigned kAcceptsPerCall = 16;
constexpr std::uint64_t kPauseNs = 100'000'000;
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

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

/// Strangers have any number of addresses of an IPv6 network.
std::uint64_t host_of(const sockaddr_storage& from) {
    const IpAddress ip = ip_of(from);
    std::uint64_t host = 0;
    std::memcpy(&host, ip.bytes.data(), sizeof host);
    return host;
}

/// The descriptors or the memory are others' for now.
bool is_out_of_descriptors(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Listener::Listener(TcpIface& owner) : iface_(owner), random_(ucs::random_u64()) {}

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
    // Connections that this host has closed keep a port for a minute.
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const auto silence_s =
        static_cast<int>((iface_.options().hello_timeout_ns + kNsPerSecond - 1) / kNsPerSecond);
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &silence_s, sizeof silence_s);
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
        sockaddr_storage from{};
        socklen_t bytes = sizeof from;
        ucs::PrivateFd fd(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &bytes,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd) {
            if (is_out_of_descriptors(errno))
                pause(errno);
            break;
        }
        admit(std::move(fd), host_of(from));
    }
    return count;
}

/// Those that wait stay in the kernel's queue.
void Listener::pause(int error) {
    TW_LOG_REPEATED(
        ucs::LogLevel::kWarn, pauses_.due(), "tcp: peers wait for %s port %u to accept them: %s",
        text_of(iface_.device().address).c_str(), port_, ucs::error_text(error).c_str());
    iface_.events.change(socket_.get(), EventSet::token(Watched::kListener, 0), 0);
    paused_until_ = ucs::clock_now_ns() + kPauseNs;
    iface_.note_deadline(paused_until_);
}

void Listener::admit(ucs::PrivateFd fd, std::uint64_t host) {
    HalfOpen& half = free_place();
    const auto index = static_cast<std::uint64_t>(&half - places_.data());
    half.fd = std::move(fd);
    half.have = 0;
    half.host = host;
    half.deadline = ucs::clock_now_ns() + iface_.options().hello_timeout_ns;
    ++half_open_;
    const std::uint64_t which = index << 32 | ++half.serial;
    if (!iface_.events.watch(half.fd.get(), EventSet::token(Watched::kHalfOpen, which), EPOLLIN))
        return close(half);
    iface_.note_deadline(half.deadline);
    read(EventSet::token(Watched::kHalfOpen, which));  // mostly the Hello is here
}

Listener::HalfOpen& Listener::free_place() {
    for (HalfOpen& half : places_)
        if (!half.fd)
            return half;
    if (places_.size() < iface_.options().half_open_max)
        return places_.emplace_back();
    HalfOpen& crowded = crowded_place();
    TW_LOG_DEBUG("tcp: a silent connection was ended to make room (TAGWIRE_TCP_HALF_OPEN)");
    iface_.count(TcpCounter::kRefused);
    close(crowded);
    return crowded;
}

/// All places are taken. A flood of one host has nearly all of them.
Listener::HalfOpen& Listener::crowded_place() {
    const auto draw = [this](std::size_t below) {
        random_ = random_ * 6364136223846793005 + 1442695040888963407;  // Knuth's
        return below == 0 ? 0 : (random_ >> 32) % below;
    };
    const auto places_of = [this](const HalfOpen& half) {
        return std::ranges::count(places_, half.host, &HalfOpen::host);
    };
    const std::size_t first = draw(places_.size());
    HalfOpen& one = places_[first];
    HalfOpen& other = places_[(first + 1 + draw(places_.size() - 1)) % places_.size()];
    return places_of(one) >= places_of(other) ? one : other;
}

void Listener::close(HalfOpen& half) {
    iface_.events.unwatch(half.fd.get());
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
    if (paused_until_ != 0 && now_ns >= paused_until_) {
        paused_until_ = 0;
        iface_.events.change(socket_.get(), EventSet::token(Watched::kListener, 0), EPOLLIN);
    } else if (paused_until_ != 0) {
        iface_.note_deadline(paused_until_);
    }
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
