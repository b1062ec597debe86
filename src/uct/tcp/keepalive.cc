// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/keepalive.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kNsPerS = 1'000'000'000;
/// Looks within the timeout. Silence is found by the look before its end, so that it is told in
/// time.
constexpr std::uint64_t kLooks = 4;
/// The kernel's, within the second half of the timeout.
constexpr int kProbes = 2;
/// A host that has not replied after this time, or twice the round trip, ignores what it was sent.
constexpr std::uint32_t kReplyMs = 200;
constexpr std::uint32_t kUsPerMs = 1000;
/// Probes of a closed window, and retransmissions, within the timeout.
constexpr std::uint64_t kAsks = 6;
constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS of linux/tcp.h, from 6.15 on
constexpr std::uint64_t kRtoMsLeast = 1000, kRtoMsMost = 120'000;  // what it takes

}  // namespace

void Keepalive::open(std::uint64_t timeout_ns) {
    timeout_ns_ = timeout_ns;
    if (timeout_ns_ == 0)
        return;
    next_ = ucs::clock_now_ns() + timeout_ns_ / kLooks;
    iface_.note_deadline(next_);
}

void Keepalive::set_socket_options(int fd) const {
    if (timeout_ns_ == 0)
        return;
    const int one = 1;
    const int timeout_s = static_cast<int>(timeout_ns_ / kNsPerS);
    const int idle_s = std::max(timeout_s / 2, 1);
    const int interval_s = std::max((timeout_s - idle_s) / kProbes, 1);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
    // Intervals grow up to this. Older kernels refuse it, and have two minutes.
    const auto rto_ms =
        static_cast<int>(std::clamp(timeout_ns_ / kNsPerMs / kAsks, kRtoMsLeast, kRtoMsMost));
    ::setsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &rto_ms, sizeof rto_ms);
}

/// Asked, and nothing came back for most of the timeout. A live host that takes no data
/// acknowledges each retransmission, which come at growing intervals, and resets the number of
/// probes of its closed window.
bool Keepalive::is_silent(Connection& connection) const {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(connection.fd.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return false;
    const std::uint32_t reply_ms = std::max(kReplyMs, 2 * info.tcpi_rtt / kUsPerMs);
    const bool is_ignored = info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 &&
                            info.tcpi_last_ack_recv > info.tcpi_last_data_sent &&
                            info.tcpi_last_data_sent >= reply_ms;
    const std::uint64_t silence_ns = info.tcpi_last_ack_recv * kNsPerMs;
    return (is_ignored || info.tcpi_probes >= kProbes) &&
           silence_ns >= timeout_ns_ / kLooks * (kLooks - 1);
}

void Keepalive::look(std::uint64_t now_ns) {
    if (timeout_ns_ == 0)
        return;
    if (now_ns >= next_) {
        next_ = now_ns + timeout_ns_ / kLooks;
        for (const auto& connection : iface_.connections.all()) {
            const bool is_taken = connection->is_ready() || connection->state == State::kGreeted;
            if (!is_taken || !is_silent(*connection))
                continue;
            TW_LOG_WARN("tcp: %s port %u acknowledged nothing for TAGWIRE_TCP_PEER_TIMEOUT",
                        text_of(connection->address).c_str(), connection->port);
            iface_.failures.fail(*connection, UCS_ERR_ENDPOINT_TIMEOUT);
        }
    }
    iface_.note_deadline(next_);
}

}  // namespace tagwire::tcp
