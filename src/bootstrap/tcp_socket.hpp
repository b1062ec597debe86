// SPDX-License-Identifier: BSD-3-Clause
// Sockets of method TCP: from "HOST:PORT" to a listener or a connection. Non-blocking,
// close-on-exec.
#pragma once

#include <string>

#include "bootstrap/result.hpp"
#include "ucs/sys/inet.hpp"

namespace tagwire::bootstrap {

/// "HOST:PORT", "[V6]:PORT", or "PORT" for 127.0.0.1. UCS_ERR_INVALID_PARAM: not of that form.
/// UCS_ERR_UNREACHABLE: no such host.
Result resolve(const std::string& where, ucs::AddressList* list_p);

/// Listens at the first address of the list that this machine has, and nowhere else.
Result tcp_listen(const std::string& where, const addrinfo* list, ucs::UniqueFd* fd_p);

/// Tries the addresses in turn, each until the deadline. UCS_ERR_UNREACHABLE: `why` is the last
/// error.
Result tcp_connect(const addrinfo* list, const Deadline& deadline, ucs::UniqueFd* fd_p);

/// Whether only processes of this machine reach a bound socket.
bool is_loopback(int fd);

}  // namespace tagwire::bootstrap
