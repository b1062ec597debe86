// SPDX-License-Identifier: BSD-3-Clause
// The orderly end of an interface's connections: messages that were sent before it closes arrive.
//
//   queue --- the kernel has taken all ---> socket --- the peer's kernel has all ---> closed
//
// A socket that is closed while bytes of the peer lie unread in it is reset, and the kernel throws
// away what it has not sent (tcp(7)). So the peer's bytes are read and dropped meanwhile. At the
// deadline the socket is closed all the same, and the kernel goes on sending while the peer sends
// nothing. Owner thread only.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace tagwire::tcp {

class Connection;
class TcpIface;

class Closing {
  public:
    explicit Closing(TcpIface& owner) : iface_(owner), pid_(::getpid()) {}
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;

    /// Waits for all connections together, kTimeoutNs at most. Runs no callback. In a forked child
    /// it does nothing: the connections are its parent's.
    void run();

  private:
    static constexpr std::uint64_t kTimeoutNs = 1'000'000'000;

    bool is_done(Connection& connection);
    /// False: the peer has closed, or the connection is broken.
    static bool drop_input(const Connection& connection);
    static void wait(const std::vector<Connection*>& all, int pause_ms);

    TcpIface& iface_;
    const pid_t pid_;
};

}  // namespace tagwire::tcp
