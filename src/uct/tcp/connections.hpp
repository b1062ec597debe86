// SPDX-License-Identifier: BSD-3-Clause
// The connections of an interface by their peers, and the handshake that makes them.
//
// One connection per peer interface, whoever opened it. When two cross, the one stands that was
// opened by the side with the smaller instance: its opener replies "crossed" to the other one's
// Hello and has its own Hello welcomed. An interface that connects to itself has two: endpoints use
// the one that it opened, the other one is not in the table.
//
// A peer whose host has taken the connection may reply as late as it likes, since a program that
// computes does not progress; keepalive.hpp finds a host that vanishes. A peer hangs up without a
// reply when our Hello is late, or when too many are half open: it gets another one.
//
// Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/private_fd.hpp"
#include "uct/tcp/connection.hpp"

namespace tagwire::tcp {

class Connections {
  public:
    explicit Connections(TcpIface& owner);
    Connections(const Connections&) = delete;
    Connections& operator=(const Connections&) = delete;
    ~Connections();

    [[nodiscard]] IfaceAddress address(std::uint16_t port) const {
        return pack(port, instance_, cookie_);
    }
    /// The connection to the interface of these addresses, made or under way.
    /// UCS_ERR_UNREACHABLE, UCS_ERR_EXCEEDS_LIMIT (no descriptor left).
    ucs_status_t connect(const DeviceAddress& device, const IfaceAddress& address,
                         Connection** connection_p);
    /// An accepted connection has greeted, or its first bytes are no greeting.
    void take_hello(ucs::PrivateFd fd, const Hello& hello, bool is_complete);

    /// Events of a connection that is not ready.
    unsigned go_on(Connection& connection, std::uint32_t events);
    /// Ends those that the peer's host, or a peer that has opened its own, does not take in time.
    /// Behind a look at all events that were there at this time.
    void expire(std::uint64_t now_ns);

    /// A peer may be connected to anew.
    void forget(Connection& connection);
    /// Without endpoints and reported: it is gone.
    void destroy(Connection& connection);
    [[nodiscard]] std::span<const std::unique_ptr<Connection>> all() const { return all_; }
    /// Endpoints that were cancelled are here until they are destroyed.
    [[nodiscard]] Connection& cancelled() { return *cancelled_; }

  private:
    Connection& add();
    ucs_status_t open_socket(Connection& connection);
    Verdict judge(const Hello& hello, Connection** connection_p);
    void reply(int fd, Verdict verdict, const Hello& hello) const;
    void greet(Connection& connection);
    void read_reply(Connection& connection);
    void hung_up(Connection& connection, int error);
    void fail_expired(Connection& connection);
    void tell_if_slow(Connection& connection, std::uint64_t now_ns);
    void set_deadline(Connection& connection, std::uint64_t after_ns);
    void wait_for_peer(Connection& connection);
    void open_again(Connection& connection);
    void stand(Connection& connection);

    TcpIface& iface_;
    std::uint64_t instance_;
    Cookie cookie_;
    ucs::ReserveVector<std::unique_ptr<Connection>> all_;
    ucs::ReserveHashMap<std::uint64_t, Connection*> known_;
    std::unique_ptr<Connection> cancelled_;
    ucs::Repeats refusals_;  // of strangers
    ucs::Repeats slow_;
};

}  // namespace tagwire::tcp
