// SPDX-License-Identifier: BSD-3-Clause
// Hosts, ports, and sockets of TCP.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstddef>
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

/// A socket address of AF_INET or AF_INET6 in numbers, with a port from `port_min` on. False: none
/// such, or `bytes` is not the length of one.
bool read_socket_address(const sockaddr* address, std::size_t bytes, unsigned port_min,
                         HostPort* to);
/// "10.0.0.1:4711", "[::1]:4711".
std::string text_of(const HostPort& at);

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
/// Zeroes: there is none.
sockaddr_storage own_address(int fd);
sockaddr_storage peer_address(int fd);

}  // namespace tagwire::ucs
