// SPDX-License-Identifier: BSD-3-Clause
// Hosts, ports, and sockets of TCP.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>

#include "ucs/sys/fd.hpp"

namespace tagwire::ucs {

struct HostPort {
    std::string host;
    std::string port;
};

/// "HOST:PORT", "[V6]:PORT", or "PORT" for 127.0.0.1; a port from `port_min` to 65535. False: not
/// of that form.
bool parse_host_port(std::string_view where, unsigned port_min, HostPort* to);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// 0, or an error of getaddrinfo(3), whose AI_x `flags` are. May take long without AI_NUMERICHOST.
int resolve(const HostPort& at, int flags, AddressList* list_p);

/// Non-blocking, close-on-exec; none: errno says why.
UniqueFd make_tcp_socket(const addrinfo& address);

/// Where nobody listens, a port of the range for outgoing connections may connect to itself.
bool is_own_end(int fd);

/// "10.0.0.1:4711", "[::1]:4711"; of this end, or of the other one.
std::string own_text(int fd);
std::string peer_text(int fd);

}  // namespace tagwire::ucs
