// SPDX-License-Identifier: BSD-3-Clause
// The congestion control of a socket (tcp(7), TCP_CONGESTION).
#pragma once

#include <ucs/type/status.h>

#include <string>

namespace tagwire::tcp {

/// Before the socket connects or listens; accepted ones have that of their listener. `name` is that
/// of TAGWIRE_TCP_CONGESTION. UCS_ERR_INVALID_PARAM: the kernel refuses it (logged).
ucs_status_t set_congestion_control(int fd, const char* name, bool is_loopback);
/// Empty: unknown.
std::string congestion_control_of(int fd);

}  // namespace tagwire::tcp
