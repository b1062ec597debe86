// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/limits.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"

namespace tagwire::ucs {

ucs_status_t fd_error(const char* call, int error) {
    if (error == EMFILE) {
        struct rlimit limit {};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        TW_LOG_ERROR(
            "%s failed: this process is at its limit of %llu open file descriptors (ulimit -n; "
            "hard limit %llu)",
            call, static_cast<unsigned long long>(limit.rlim_cur),
            static_cast<unsigned long long>(limit.rlim_max));
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    if (error == ENFILE) {
        TW_LOG_ERROR("%s failed: the system is at its limit of open files (sysctl fs.file-max)",
                     call);
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    TW_LOG_ERROR("%s failed: %s", call, std::strerror(error));
    if (error == ENOMEM)
        return UCS_ERR_NO_MEMORY;
    if (error == EACCES || error == EPERM)
        return UCS_ERR_REJECTED;
    return UCS_ERR_IO_ERROR;
}

std::string error_text(int error) {
    return std::string(std::strerror(error)) + (error == EMFILE ? " (see ulimit -n)" : "");
}

}  // namespace tagwire::ucs
