// SPDX-License-Identifier: BSD-3-Clause
// The end of connections: what was under way ends with the status, then each endpoint is reported
// once, inside progress. Owner thread only.
#pragma once

#include <ucs/type/status.h>

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::tcp {

class Connection;
class TcpEp;
class TcpIface;

class Failures {
  public:
    explicit Failures(TcpIface& owner) : iface_(owner) {}
    Failures(const Failures&) = delete;
    Failures& operator=(const Failures&) = delete;

    /// Runs no callback; bury() follows in progress.
    void fail(Connection& connection, ucs_status_t status);
    /// The peer broke the rules (logged).
    void violation(Connection& connection, const char* what);
    [[nodiscard]] bool has_failed() const { return !failed_.empty(); }
    /// Reports those that have failed; how many.
    unsigned bury();
    /// The endpoint leaves its connection.
    void detach(TcpEp& ep);
    /// Destroys connections that are over and have no endpoint, unless somebody may still look at
    /// them.
    void reap();

  private:
    void end_operations(Connection& connection);

    TcpIface& iface_;
    ucs::ReserveVector<Connection*> failed_;
    ucs::ReserveVector<Connection*> buried_;
    ucs::Repeats violations_;
};

}  // namespace tagwire::tcp
