// SPDX-License-Identifier: BSD-3-Clause
// Finds hosts that have vanished. Where nothing is under way the kernel probes (SO_KEEPALIVE);
// where data is, each interval asks the kernel when the peer's host last acknowledged anything.
// TCP_USER_TIMEOUT is not used: it would end a live peer that does not read. Owner thread only.
#pragma once

#include <cstdint>

namespace tagwire::tcp {

class Connection;
class TcpIface;

class Keepalive {
  public:
    explicit Keepalive(TcpIface& owner) : iface_(owner) {}
    Keepalive(const Keepalive&) = delete;
    Keepalive& operator=(const Keepalive&) = delete;

    /// `timeout_ns` 0: nobody is asked.
    void open(std::uint64_t timeout_ns);
    void set_socket_options(int fd) const;
    /// Looks at all connections when an interval has passed.
    void look(std::uint64_t now_ns);

  private:
    [[nodiscard]] bool is_silent(Connection& connection) const;

    TcpIface& iface_;
    std::uint64_t timeout_ns_ = 0;
    std::uint64_t next_ = 0;  // ns
};

}  // namespace tagwire::tcp
