// SPDX-License-Identifier: BSD-3-Clause
// Network namespaces of test processes. They have no names: each is gone with the process that made
// it.
#pragma once

#include <sys/types.h>

#include <string>

namespace tagwire::test {

/// This process has a network namespace of its own from now on, where every abstract socket is
/// ours. False where that is not permitted.
bool enter_private_network();

/// ... and its loopback is up. Needs nsenter(1) and ip(8).
bool enter_network_with_loopback();

/// A shell runs it in the network namespace of a process; false if a command failed.
bool run_in_network_of(pid_t process, const std::string& commands);

}  // namespace tagwire::test
