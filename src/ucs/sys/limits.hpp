// SPDX-License-Identifier: BSD-3-Clause
// Turns "no more descriptors" into an error that names the limit.
#pragma once

#include <ucs/type/status.h>

#include <string>

namespace tagwire::ucs {

/// Logs that `call` failed with `error` (an errno) and returns the status for it: EMFILE and ENFILE
/// give UCS_ERR_EXCEEDS_LIMIT and name the limit (`ulimit -n`, fs.file-max), ENOMEM
/// UCS_ERR_NO_MEMORY, EACCES and EPERM UCS_ERR_REJECTED, all else UCS_ERR_IO_ERROR.
ucs_status_t fd_error(const char* call, int error);

/// The text of strerror(3) for `error`; for EMFILE also the limit to raise.
std::string error_text(int error);

}  // namespace tagwire::ucs
