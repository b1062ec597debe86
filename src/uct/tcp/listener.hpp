// SPDX-License-Identifier: BSD-3-Clause
// The listening socket of an interface, and accepted connections whose peer has not proved itself.
//
// Owner thread only. Invariants
//  (1) Of a connection that is half open at most sizeof(Hello) bytes are read, and nothing is
//      allocated for it but its place here.
//  (2) At most TAGWIRE_TCP_HALF_OPEN are here, each for TAGWIRE_TCP_HELLO_TIMEOUT. One more ends
//      the oldest: an honest peer greets at once, so a flood of silent ones does not keep it out.
#pragma once

#include <cstdint>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/fd.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

class TcpIface;

class Listener {
  public:
    explicit Listener(TcpIface& owner) : iface_(owner) {}
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    /// Listens on the device's address, on a port of TAGWIRE_TCP_PORTS.
    ucs_status_t open();
    [[nodiscard]] std::uint16_t port() const { return port_; }

    /// Accepts those that wait; how many.
    unsigned accept();
    /// Bytes have come for a half-open connection; `token` as it was given to the event set.
    unsigned read(std::uint64_t token);
    /// Ends those that have said nothing for too long.
    void expire(std::uint64_t now_ns);
    [[nodiscard]] std::size_t half_open() const { return half_open_; }

  private:
    struct HalfOpen {
        ucs::UniqueFd fd;  // none: free
        std::uint32_t serial = 0;
        std::uint32_t have = 0;
        std::uint64_t deadline = 0;  // ns
        Hello hello{};
    };

    ucs_status_t bind(std::uint16_t port);
    void admit(ucs::UniqueFd fd);
    HalfOpen& free_place();
    void close(HalfOpen& half);
    void answer(HalfOpen& half);

    TcpIface& iface_;
    ucs::UniqueFd socket_;
    std::uint16_t port_ = 0;
    std::size_t half_open_ = 0;
    bool is_out_of_fds_ = false;  // logged
    ucs::ReserveVector<HalfOpen> places_;
};

}  // namespace tagwire::tcp
