// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/closing.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr int kPauseMaxMs = 16;
/// A peer that sends without end does not keep this side from its deadline.
constexpr int kReadsPerLook = 64;

}  // namespace

void Closing::run() {
    if (::getpid() != pid_)
        return;
    std::vector<Connection*> all;
    for (const auto& connection : iface_.connections.all())
        if (connection->is_ready())
            all.push_back(connection.get());
    const std::uint64_t deadline = ucs::clock_now_ns() + kTimeoutNs;
    for (int pause_ms = 0;; pause_ms = std::min(2 * pause_ms + 1, kPauseMaxMs)) {
        std::erase_if(all, [this](Connection* each) { return is_done(*each); });
        if (all.empty())
            return;
        if (ucs::clock_now_ns() >= deadline)
            break;
        wait(all, pause_ms);
    }
    TW_LOG_WARN("tcp interface closed while %zu peers had not taken all that was sent to them",
                all.size());
}

bool Closing::is_done(Connection& connection) {
    const int fd = connection.fd.get();
    if (!drop_input(connection))
        return true;
    const ucs_status_t status = connection.tx.write(fd, iface_.pools, iface_.registrations());
    if (status != UCS_OK)
        return status != UCS_ERR_NO_RESOURCE;
    int unacknowledged = 0;
    return ::ioctl(fd, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

bool Closing::drop_input(const Connection& connection) {
    std::array<std::byte, 16 * 1024> dropped;
    for (int i = 0; i < kReadsPerLook; ++i) {
        const ssize_t got =
            ::recv(connection.fd.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EINTR))
            return got < 0 && errno == EAGAIN;
    }
    return true;
}

/// For bytes of a peer, for room in a socket, and for a while: nothing tells of acknowledgements.
void Closing::wait(const std::vector<Connection*>& all, int pause_ms) {
    std::vector<pollfd> sockets;
    sockets.reserve(all.size());
    for (const Connection* each : all) {
        const int wanted = each->tx.empty() ? POLLIN : POLLIN | POLLOUT;
        sockets.push_back({each->fd.get(), static_cast<short>(wanted), 0});
    }
    ::poll(sockets.data(), sockets.size(), pause_ms);
}

}  // namespace tagwire::tcp
