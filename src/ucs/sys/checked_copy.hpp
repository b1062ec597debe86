// SPDX-License-Identifier: BSD-3-Clause
// Copies to and from memory that may have been unmapped, or whose protection may forbid the access:
// they fail where memcpy(3) would end the process by a signal. For memory that another process asks
// for. Threads: any.
//
// process_vm_readv(2) and process_vm_writev(2) on the own process; where a filter of system calls
// forbids them, a pipe. The unknown memory is the side that the kernel reads or writes in place, so
// memory of devices does, too.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>

namespace tagwire::ucs {

/// `from` is unknown. UCS_ERR_INVALID_ADDR: not all of it can be read; UCS_ERR_NO_RESOURCE: no
/// descriptors for a pipe. The contents of `to` are undefined then.
ucs_status_t read_checked(void* to, const void* from, std::size_t bytes);
/// `to` is unknown. UCS_ERR_INVALID_ADDR: not all of it can be written, some of it may have been.
ucs_status_t write_checked(void* to, const void* from, std::size_t bytes);

/// The aligned word of 4 bytes at `at` can be written; its value stays. False also where it could
/// not even be read.
bool is_writable_word(void* at);

namespace detail {

ucs_status_t read_by_pipe(void* to, const void* from, std::size_t bytes);
ucs_status_t write_by_pipe(void* to, const void* from, std::size_t bytes);

}  // namespace detail

}  // namespace tagwire::ucs
