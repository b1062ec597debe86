// SPDX-License-Identifier: BSD-3-Clause
// Ties a child process to its parent, between fork(2) and exec(3). Every command that starts
// processes uses it.
#pragma once

#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>

namespace tagwire::tools {

/// In the child: it dies with `parent`, which may have died before this call.
inline void die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

}  // namespace tagwire::tools
