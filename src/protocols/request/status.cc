// SPDX-License-Identifier: BSD-3-Clause
#include <tagwire_status.h>

#include <ucs/type/status.h>

static_assert(int{TW_OK} == int{UCS_OK});
static_assert(int{TW_INPROGRESS} == int{UCS_INPROGRESS});
static_assert(int{TW_ERR_NO_MESSAGE} == int{UCS_ERR_NO_MESSAGE});
static_assert(int{TW_ERR_NO_RESOURCE} == int{UCS_ERR_NO_RESOURCE});
static_assert(int{TW_ERR_IO_ERROR} == int{UCS_ERR_IO_ERROR});
static_assert(int{TW_ERR_NO_MEMORY} == int{UCS_ERR_NO_MEMORY});
static_assert(int{TW_ERR_INVALID_PARAM} == int{UCS_ERR_INVALID_PARAM});
static_assert(int{TW_ERR_UNREACHABLE} == int{UCS_ERR_UNREACHABLE});
static_assert(int{TW_ERR_INVALID_ADDR} == int{UCS_ERR_INVALID_ADDR});
static_assert(int{TW_ERR_NOT_IMPLEMENTED} == int{UCS_ERR_NOT_IMPLEMENTED});
static_assert(int{TW_ERR_MESSAGE_TRUNCATED} == int{UCS_ERR_MESSAGE_TRUNCATED});
static_assert(int{TW_ERR_NO_PROGRESS} == int{UCS_ERR_NO_PROGRESS});
static_assert(int{TW_ERR_BUFFER_TOO_SMALL} == int{UCS_ERR_BUFFER_TOO_SMALL});
static_assert(int{TW_ERR_NO_ELEM} == int{UCS_ERR_NO_ELEM});
static_assert(int{TW_ERR_SOME_CONNECTS_FAILED} == int{UCS_ERR_SOME_CONNECTS_FAILED});
static_assert(int{TW_ERR_NO_DEVICE} == int{UCS_ERR_NO_DEVICE});
static_assert(int{TW_ERR_BUSY} == int{UCS_ERR_BUSY});
static_assert(int{TW_ERR_CANCELED} == int{UCS_ERR_CANCELED});
static_assert(int{TW_ERR_SHMEM_SEGMENT} == int{UCS_ERR_SHMEM_SEGMENT});
static_assert(int{TW_ERR_ALREADY_EXISTS} == int{UCS_ERR_ALREADY_EXISTS});
static_assert(int{TW_ERR_OUT_OF_RANGE} == int{UCS_ERR_OUT_OF_RANGE});
static_assert(int{TW_ERR_TIMED_OUT} == int{UCS_ERR_TIMED_OUT});
static_assert(int{TW_ERR_EXCEEDS_LIMIT} == int{UCS_ERR_EXCEEDS_LIMIT});
static_assert(int{TW_ERR_UNSUPPORTED} == int{UCS_ERR_UNSUPPORTED});
static_assert(int{TW_ERR_REJECTED} == int{UCS_ERR_REJECTED});
static_assert(int{TW_ERR_NOT_CONNECTED} == int{UCS_ERR_NOT_CONNECTED});
static_assert(int{TW_ERR_CONNECTION_RESET} == int{UCS_ERR_CONNECTION_RESET});
static_assert(int{TW_ERR_ENDPOINT_TIMEOUT} == int{UCS_ERR_ENDPOINT_TIMEOUT});

extern "C" const char* tw_status_string(tw_status_t status) {
    return ucs_status_string(static_cast<ucs_status_t>(status));
}
