// SPDX-License-Identifier: BSD-3-Clause
// The congestion control of a socket (tcp(7), TCP_CONGESTION).
//
//   every socket          reno, before it connects or listens; accepted ones have their listener's
//   the peer's greeting   names another host: the system's
//
// In this order because the pacing of bbr stays when another algorithm follows it.
#pragma once

#include <ucs/type/status.h>

#include <string>

namespace tagwire::tcp {

/// `name` is that of TAGWIRE_TCP_CONGESTION. UCS_ERR_INVALID_PARAM: the kernel refuses it (logged).
ucs_status_t set_congestion_control(int fd, const char* name);
/// The peer is on another host.
void leave_host(int fd, const char* name);
/// Empty: unknown.
std::string congestion_control_of(int fd);

}  // namespace tagwire::tcp
