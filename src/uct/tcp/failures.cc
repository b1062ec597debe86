// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/failures.hpp"

#include <algorithm>
#include <utility>

#include "ucs/log/log.hpp"
#include "uct/tcp/tcp_ep.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

void Failures::fail(Connection& connection, ucs_status_t status) {
    if (connection.failure != UCS_OK)
        return;
    connection.failure = status;
    connection.state = State::kFailed;
    if (connection.fd) {
        iface_.events.unwatch(connection.fd.get());
        connection.fd.reset();
    }
    iface_.drop_work(connection);
    iface_.connections.forget(connection);
    failed_.push_back(&connection);
    iface_.want_work();
}

void Failures::violation(Connection& connection, const char* what) {
    TW_LOG_REPEATED(ucs::LogLevel::kError, violations_.due(),
                    "tcp: the connection to %s port %u ends, because the peer sent a %s",
                    text_of(connection.address).c_str(), connection.port, what);
    iface_.count(TcpCounter::kViolations);
    fail(connection, UCS_ERR_IO_ERROR);
}

void Failures::end_operations(Connection& connection) {
    connection.tx.clear(iface_.pools);
    iface_.reader.drop(connection);
    while (Op* receive = connection.receives.front())
        iface_.rendezvous.finish_receive(*receive, connection.failure);
    iface_.ops.cancel(connection, nullptr, connection.failure);
}

unsigned Failures::bury() {
    unsigned count = 0;
    while (!failed_.empty()) {
        Connection& connection = *failed_.back();
        failed_.pop_back();
        ++count;
        end_operations(connection);
        bool was_counted = false;
        for (TcpEp* ep = connection.eps; ep != nullptr;) {
            if (std::exchange(ep->is_failure_reported, true)) {
                ep = ep->next;
                continue;
            }
            if (!std::exchange(was_counted, true))
                iface_.count(TcpCounter::kPeerFailures);
            iface_.report_failure(ep, connection.failure);
            ep = connection.eps;  // the handler may have destroyed any
        }
        buried_.push_back(&connection);
    }
    return count;
}

void Failures::detach(TcpEp& ep) {
    Connection& connection = ep.connection();
    (ep.prev != nullptr ? ep.prev->next : connection.eps) = ep.next;
    if (ep.next != nullptr)
        ep.next->prev = ep.prev;
    if (connection.eps == nullptr && connection.failure != UCS_OK)
        iface_.want_work();
}

void Failures::reap() {
    const auto is_over = [this](Connection* connection) {
        if (connection->eps != nullptr)
            return false;
        iface_.connections.destroy(*connection);
        return true;
    };
    std::erase_if(buried_, is_over);
}

}  // namespace tagwire::tcp
