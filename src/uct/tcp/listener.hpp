// SPDX-License-Identifier: BSD-3-Clause
// The listening socket of an interface, and accepted connections whose peer has not proved itself.
//
// Owner thread only. Invariants
//  (1) Of a connection that is half open at most sizeof(Hello) bytes are read, and nothing is
//      allocated for it but its place here.
//  (2) The kernel keeps a connection until its first bytes have come (TCP_DEFER_ACCEPT), so silent
//      strangers cost neither a place nor a wake-up; while it is flooded it hands them over.
//  (3) At most TAGWIRE_TCP_HALF_OPEN are here, each for TAGWIRE_TCP_HELLO_TIMEOUT. One more ends
//      another: of two at random that whose host has more places, so a flood of one
//      host keeps no other host out, and no honest peer is ended for being far away.
//  (4) Without descriptors nothing is accepted for kPauseNs: who sleeps is not woken meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/private_fd.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

class TcpIface;

class Listener {
  public:
    explicit Listener(TcpIface& owner);
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    /// Listens on the device's address, on a port of TAGWIRE_TCP_PORTS.
    ucs_status_t open();
    [[nodiscard]] std::uint16_t port() const { return port_; }

    /// Accepts those that wait; how many.
    unsigned accept();
    /// Bytes have come for a half-open connection; `token` as it was given to the event set.
    unsigned read(std::uint64_t token);
    /// Ends those that have said nothing for too long, and a pause.
    void expire(std::uint64_t now_ns);
    [[nodiscard]] std::size_t half_open() const { return half_open_; }

  private:
    struct HalfOpen {
        ucs::PrivateFd fd;  // none: free
        std::uint32_t serial = 0;
        std::uint32_t have = 0;
        std::uint64_t deadline = 0;  // ns
        std::uint64_t host = 0;      // whom it comes from: an IPv4 address, or an IPv6 network
        Hello hello{};
    };

    ucs_status_t bind(std::uint16_t port);
    void admit(ucs::PrivateFd fd, std::uint64_t host);
    HalfOpen& free_place();
    HalfOpen& crowded_place();
    void pause(int error);
    void close(HalfOpen& half);
    void answer(HalfOpen& half);

    TcpIface& iface_;
    ucs::PrivateFd socket_;
    std::uint16_t port_ = 0;
    std::size_t half_open_ = 0;
    std::uint64_t paused_until_ = 0;  // ns; 0: it accepts
    ucs::Repeats pauses_;
    std::uint64_t random_;
    ucs::ReserveVector<HalfOpen> places_;
};

}  // namespace tagwire::tcp
