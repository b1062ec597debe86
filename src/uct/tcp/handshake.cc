// SPDX-License-Identifier: BSD-3-Clause
// The acceptor's side of the handshake.
#include <sys/socket.h>

#include "ucs/log/log.hpp"
#include "uct/tcp/congestion.hpp"
#include "uct/tcp/connections.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

void Connections::reply(int fd, Verdict verdict, const Hello& hello) const {
    const std::uint16_t version = verdict == Verdict::kWelcome ? version_of(hello) : kVersionMax;
    const Reply answer{kReplyMagic, verdict, 0, version, instance_, kSegBytesMax, own_host()};
    // Nothing was sent before, so it fits; a peer that is gone shows when it is read from.
    static_cast<void>(::send(fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT));
}

/// The connection that stands from now on; null: a new one.
Verdict Connections::judge(const Hello& hello, Connection** connection_p) {
    *connection_p = nullptr;
    const Verdict verdict = check_hello(hello, cookie_);
    if (verdict == Verdict::kWelcome && hello.instance == instance_)
        return is_equal(hello.own, cookie_) ? verdict : Verdict::kInstance;  // our own other end
    const auto found = known_.find(hello.instance);
    if (verdict != Verdict::kWelcome || found == known_.end())
        return verdict;
    Connection& known = *found->second;
    if (!is_equal(known.cookie, hello.own))
        return Verdict::kInstance;
    const bool ours_stands = known.was_opened_by_us && instance_ < hello.instance;
    if (known.state == State::kReady) {
        if (ours_stands) {
            // The peer's Hello may be older than the connection. If not, it has lost it: a ping
            // shows.
            iface_.sender.ping(known);
            return Verdict::kCrossed;
        }
        iface_.failures.fail(known, UCS_ERR_CONNECTION_RESET);
        return Verdict::kWelcome;
    }
    if (known.state != State::kWaiting && ours_stands)
        return Verdict::kCrossed;
    *connection_p = &known;
    return Verdict::kWelcome;
}

void Connections::take_hello(ucs::PrivateFd fd, const Hello& hello, bool is_complete) {
    Connection* connection = nullptr;
    const Verdict verdict = is_complete ? judge(hello, &connection) : Verdict::kForeign;
    iface_.set_socket_options(fd.get());
    reply(fd.get(), verdict, hello);
    if (verdict == Verdict::kCrossed) {
        iface_.count(TcpCounter::kCrossed);
        return;
    }
    if (verdict != Verdict::kWelcome) {
        iface_.count(TcpCounter::kRefused);
        TW_LOG_REPEATED(ucs::LogLevel::kWarn, refusals_.due(),
                        "tcp: a connection to %s port %u was refused: %s",
                        text_of(iface_.device().address).c_str(), iface_.port(),
                        sentence_of(verdict));
        return;
    }
    if (connection == nullptr) {
        connection = &add();
        connection->instance = hello.instance;
        connection->cookie = hello.own;
        connection->port = hello.port;
        sockaddr_storage from{};
        socklen_t bytes = sizeof from;
        ::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&from), &bytes);
        connection->address = ip_of(from);
        if (hello.instance != instance_) {
            connection->is_known = true;
            known_.emplace(hello.instance, connection);
        }
    } else if (connection->fd) {
        iface_.events.unwatch(connection->fd.get());
    }
    connection->was_opened_by_us = false;
    connection->fd = std::move(fd);
    if (hello.host != own_host())
        leave_host(connection->fd.get(), iface_.options().congestion.text);
    if (iface_.events.watch(connection->fd.get(), EventSet::token(*connection), EPOLLIN))
        stand(*connection);
    else
        iface_.failures.fail(*connection, UCS_ERR_EXCEEDS_LIMIT);
}

}  // namespace tagwire::tcp
