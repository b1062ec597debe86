// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/connections.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/time/clock.hpp"
#include "uct/tcp/congestion.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr std::uint8_t kHangUpsMax = 100;
/// A peer that replied "crossed" may have lost its own connection, and not know it yet: it is asked
/// again, so often within TAGWIRE_TCP_CONNECT_TIMEOUT.
constexpr std::uint8_t kCrossingsMax = 8;
constexpr std::uint64_t kSlowNs = 1'000'000'000;

/// The kernel tells of a reply when so many bytes of it are there.
void wait_for_bytes(int fd, std::size_t bytes) {
    const auto least = static_cast<int>(bytes);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

}  // namespace

Connections::Connections(TcpIface& owner)
    : iface_(owner),
      instance_(ucs::random_u64()),
      cookie_(random_cookie()),
      cancelled_(std::make_unique<Connection>(owner)) {
    cancelled_->failure = UCS_ERR_CANCELED;
    cancelled_->state = State::kFailed;
}

Connections::~Connections() = default;

Connection& Connections::add() {
    all_.push_back(std::make_unique<Connection>(iface_));
    all_.back()->place = static_cast<std::uint32_t>(all_.size() - 1);
    return *all_.back();
}

void Connections::destroy(Connection& connection) {
    const std::uint32_t place = connection.place;
    std::swap(all_[place], all_.back());
    all_[place]->place = place;
    all_.pop_back();
}

void Connections::forget(Connection& connection) {
    if (std::exchange(connection.is_known, false))
        known_.erase(connection.instance);
}

ucs_status_t Connections::connect(const DeviceAddress& device, const IfaceAddress& address,
                                  Connection** connection_p) {
    const std::uint64_t instance = instance_of(address);
    if (const auto found = known_.find(instance); found != known_.end()) {
        if (!is_equal(found->second->cookie, address.cookie)) {
            TW_LOG_ERROR("uct_ep_create: the address names a known peer but has another cookie");
            return UCS_ERR_UNREACHABLE;
        }
        *connection_p = found->second;
        return UCS_OK;
    }
    Connection& connection = add();
    connection.address = ip_of(device);
    connection.address.scope = iface_.device().address.scope;
    connection.port = port_of(address);
    connection.instance = instance;
    connection.cookie = address.cookie;
    connection.was_opened_by_us = true;
    const ucs_status_t status = open_socket(connection);
    if (status != UCS_OK) {
        destroy(connection);
        return status;
    }
    connection.is_known = true;
    known_.emplace(instance, &connection);
    *connection_p = &connection;
    return UCS_OK;
}

ucs_status_t Connections::open_socket(Connection& connection) {
    const IpAddress& own = iface_.device().address;
    const int family = own.is_inet6 ? AF_INET6 : AF_INET;
    connection.fd.reset(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!connection.fd)
        return ucs::fd_error("socket", errno);
    const int fd = connection.fd.get();
    iface_.set_socket_options(fd);
    if (const ucs_status_t status = set_congestion_control(fd, iface_.options().congestion.text);
        status != UCS_OK)
        return status;
    // From the interface's own address, by whatever route the kernel would prefer.
    const int one = 1;
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    socklen_t bytes = 0;
    const sockaddr_storage from = sockaddr_of(own, 0, &bytes);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&from), bytes) != 0)
        return ucs::fd_error("bind", errno);
    const sockaddr_storage to = sockaddr_of(connection.address, connection.port, &bytes);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), bytes) != 0 && errno != EINPROGRESS) {
        const std::string why = ucs::error_text(errno);
        if (connection.hang_ups == 0)
            TW_LOG_ERROR("tcp: connect to %s port %u: %s", text_of(connection.address).c_str(),
                         connection.port, why.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    if (!iface_.events.watch(fd, EventSet::token(connection), EPOLLOUT))
        return UCS_ERR_EXCEEDS_LIMIT;
    wait_for_bytes(fd, sizeof(Reply));
    set_deadline(connection, iface_.options().connect_timeout_ns);
    return UCS_OK;
}

void Connections::set_deadline(Connection& connection, std::uint64_t after_ns) {
    connection.deadline = ucs::clock_now_ns() + after_ns;
    iface_.note_deadline(connection.deadline - after_ns + std::min(after_ns, kSlowNs));
}

// ---- The opener's side

unsigned Connections::go_on(Connection& connection, std::uint32_t events) {
    if (connection.state == State::kConnecting)
        greet(connection);
    else if (connection.state == State::kGreeted && events != 0)
        read_reply(connection);
    return 1;
}

void Connections::greet(Connection& connection) {
    const int fd = connection.fd.get();
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == ECONNRESET || error == EPIPE)
        return hung_up(connection, error);
    if (error != 0) {
        TW_LOG_DEBUG("tcp: connect to %s port %u: %s", text_of(connection.address).c_str(),
                     connection.port, ucs::error_text(error).c_str());
        iface_.failures.fail(connection, UCS_ERR_UNREACHABLE);
        return;
    }
    const Hello hello{kHelloMagic, kVersionMin,       kVersionMax, iface_.port(), 0,
                      instance_,   connection.cookie, cookie_,     kSegBytesMax,  own_host()};
    // The socket's buffer is empty: a greeting fits, or the connection is no good.
    if (::send(fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t{sizeof hello})
        return hung_up(connection, errno);
    if (!iface_.events.change(fd, EventSet::token(connection), EPOLLIN)) {
        iface_.failures.fail(connection, UCS_ERR_EXCEEDS_LIMIT);
        return;
    }
    connection.state = State::kGreeted;
}

void Connections::read_reply(Connection& connection) {
    Reply reply{};
    const int fd = connection.fd.get();
    const ssize_t there = ::recv(fd, &reply, sizeof reply, MSG_DONTWAIT | MSG_PEEK);
    if (there < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (there <= 0)
        return hung_up(connection, there == 0 ? ECONNRESET : errno);
    if (there < ssize_t{sizeof reply})
        return;
    static_cast<void>(::recv(fd, &reply, sizeof reply, MSG_DONTWAIT));
    if (!is_reply(reply, connection.instance)) {
        TW_LOG_ERROR("tcp: %s port %u replied with bytes that are not of this protocol",
                     text_of(connection.address).c_str(), connection.port);
        iface_.failures.fail(connection, UCS_ERR_REJECTED);
    } else if (reply.verdict == Verdict::kCrossed) {
        wait_for_peer(connection);
    } else if (reply.verdict == Verdict::kWelcome && reply.version >= kVersionMin &&
               reply.version <= kVersionMax) {
        if (reply.host != own_host())
            leave_host(fd, iface_.options().congestion.text);
        stand(connection);
    } else {
        TW_LOG_ERROR("tcp: %s port %u refused the connection: %s",
                     text_of(connection.address).c_str(), connection.port,
                     sentence_of(reply.verdict));
        iface_.failures.fail(connection, UCS_ERR_REJECTED);
    }
}

void Connections::wait_for_peer(Connection& connection) {
    iface_.events.unwatch(connection.fd.get());
    connection.fd.reset();
    connection.was_opened_by_us = false;
    connection.state = State::kWaiting;
    set_deadline(connection, iface_.options().connect_timeout_ns / kCrossingsMax);
}

void Connections::open_again(Connection& connection) {
    connection.state = State::kConnecting;
    connection.was_opened_by_us = true;
    const ucs_status_t status = open_socket(connection);
    if (status != UCS_OK)
        iface_.failures.fail(connection, status);
}

/// Whoever is gone for good refuses the next one.
void Connections::hung_up(Connection& connection, int error) {
    TW_LOG_DEBUG("tcp: %s port %u hung up before it replied: %s",
                 text_of(connection.address).c_str(), connection.port,
                 ucs::error_text(error).c_str());
    const ucs_status_t status =
        error == ETIMEDOUT ? UCS_ERR_ENDPOINT_TIMEOUT : UCS_ERR_CONNECTION_RESET;
    if (status == UCS_ERR_CONNECTION_RESET && ++connection.hang_ups <= kHangUpsMax) {
        iface_.events.unwatch(connection.fd.get());
        return open_again(connection);
    }
    iface_.failures.fail(connection, status);
}

void Connections::stand(Connection& connection) {
    connection.state = State::kReady;
    connection.crossings = 0;
    wait_for_bytes(connection.fd.get(), 1);
    iface_.count(TcpCounter::kConnections);
    iface_.add_work(connection);
}

void Connections::expire(std::uint64_t now_ns) {
    for (const auto& connection : all_) {
        if (connection->state != State::kConnecting && connection->state != State::kWaiting)
            continue;
        if (now_ns < connection->deadline) {
            iface_.note_deadline(connection->deadline);
            tell_if_slow(*connection, now_ns);
            continue;
        }
        if (connection->state == State::kWaiting && ++connection->crossings < kCrossingsMax)
            open_again(*connection);
        else
            fail_expired(*connection);
    }
}

/// Where packets vanish nothing else tells for long what is waited for.
void Connections::tell_if_slow(Connection& connection, std::uint64_t now_ns) {
    const std::uint64_t at = connection.deadline - iface_.options().connect_timeout_ns + kSlowNs;
    // A ping asks whether there is anybody, so nothing waits for its answer.
    const bool has_messages = connection.tx.copied_bytes() > frame_bytes<NoBody>(0);
    if (connection.state != State::kConnecting || connection.is_slow || connection.eps == nullptr ||
        !has_messages)
        return;
    if (now_ns < at)
        return iface_.note_deadline(at);
    connection.is_slow = true;
    TW_LOG_REPEATED(
        ucs::LogLevel::kWarn, slow_.due(),
        "tcp: %s port %u has not taken a connection from %s for 1 s: a firewall drops packets to "
        "it, or it belongs to a network that this host does not reach; there TAGWIRE_TCP_DEVICES "
        "leaves it out of workers' addresses",
        text_of(connection.address).c_str(), connection.port,
        text_of(iface_.device().address).c_str());
}

void Connections::fail_expired(Connection& connection) {
    TW_LOG_DEBUG("tcp: no connection to %s port %u within TAGWIRE_TCP_CONNECT_TIMEOUT",
                 text_of(connection.address).c_str(), connection.port);
    iface_.failures.fail(connection, UCS_ERR_ENDPOINT_TIMEOUT);
}

}  // namespace tagwire::tcp
