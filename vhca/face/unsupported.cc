// SPDX-License-Identifier: BSD-3-Clause
// Answers that need no device: what is not implemented, and forking, which costs nothing here
// because no page is pinned.
#include <cerrno>

#include "vhca/face/api.hpp"

int tagwire_vhca_unsupported_number(void) {
    errno = EOPNOTSUPP;
    return EOPNOTSUPP;
}

void* tagwire_vhca_unsupported_pointer(void) {
    errno = EOPNOTSUPP;
    return nullptr;
}

int tagwire_vhca_ibv_fork_init(void) {
    return 0;
}

ibv_fork_status tagwire_vhca_ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}

int tagwire_vhca_ibv_dontfork_range(void*, std::size_t) {
    return 0;
}

int tagwire_vhca_ibv_dofork_range(void*, std::size_t) {
    return 0;
}
