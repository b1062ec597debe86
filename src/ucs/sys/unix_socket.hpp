// SPDX-License-Identifier: BSD-3-Clause
// Local sequenced-packet sockets that carry small messages and descriptors (unix(7), SCM_RIGHTS).
// All calls are non-blocking; descriptors are close-on-exec.
#pragma once

#include <sys/types.h>
#include <ucs/type/status.h>

#include <cstddef>
#include <span>
#include <string>

#include "ucs/sys/fd.hpp"

namespace tagwire::ucs {

/// Where a listener is: an abstract name (empty directory), or a file in a directory.
struct UnixAddress {
    std::string directory;
    std::string name;
};

struct PeerCredentials {
    pid_t pid;  // in our pid namespace; 0 when it cannot be seen from here
    uid_t uid;
};

constexpr std::size_t kFdsPerMessageMax = 4;

struct ReceivedMessage {
    std::size_t bytes = 0;
    std::size_t fd_count = 0;
    UniqueFd fds[kFdsPerMessageMax];
};

/// UCS_ERR_ALREADY_EXISTS: the name is taken. UCS_ERR_INVALID_PARAM: the path is too long for a
/// socket.
ucs_status_t unix_listen(const UnixAddress& address, UniqueFd* fd_p);

/// UCS_ERR_NO_RESOURCE: the listener's backlog is full, try later. UCS_ERR_UNREACHABLE: nobody
/// listens there.
ucs_status_t unix_connect(const UnixAddress& address, UniqueFd* fd_p);

/// UCS_ERR_NO_PROGRESS: nobody is waiting.
ucs_status_t unix_accept(int listener, UniqueFd* fd_p);

/// Sends one packet with `fd_count` <= kFdsPerMessageMax descriptors, all or nothing.
/// UCS_ERR_NO_RESOURCE: the socket's buffer is full. UCS_ERR_CONNECTION_RESET: the peer is gone.
ucs_status_t unix_send(int fd, std::span<const std::byte> message, const int* fds,
                       std::size_t fd_count);

/// Receives one packet of at most `buffer.size()` bytes; more descriptors than fit, or a cut
/// packet, is UCS_ERR_INVALID_PARAM (nothing is kept). UCS_ERR_NO_PROGRESS: nothing there.
/// UCS_ERR_CONNECTION_RESET: hung up. UCS_ERR_EXCEEDS_LIMIT: this process has no descriptors left
/// for those of the packet, which is lost; logged.
ucs_status_t unix_receive(int fd, std::span<std::byte> buffer, ReceivedMessage* message_p);

/// The other end has closed or shut down its side, or no process will ever accept the connection.
bool unix_is_hung_up(int fd);

/// Both directions end for both sides, whoever else holds the descriptor. The peer can still
/// read the data that it has not read yet.
void unix_shut_down(int fd);

ucs_status_t unix_peer_credentials(int fd, PeerCredentials* credentials_p);

/// Unlinks the dead sockets of this user in `directory` whose names begin with `prefix`, those that
/// were about to get such a name included: they refuse a connection. Sockets of the last minute are
/// not asked, so that the processes of a job that starts do not all connect to each other. Returns
/// how many were removed.
unsigned unix_sweep_directory(const std::string& directory, const std::string& prefix);

/// Makes sure `directory` exists and is a directory we can write to.
ucs_status_t unix_check_directory(const std::string& directory);

void unix_unlink(const UnixAddress& address);

}  // namespace tagwire::ucs
