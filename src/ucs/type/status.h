// SPDX-License-Identifier: BSD-3-Clause
//
// Status values of every call. Names and numbers are those of UCX 1.13. Failures are negative and
// are grouped by the largest thing that a failure of the group makes unusable: a call, a link
// (-40..-59), an endpoint (-60..-89).
#ifndef TAGWIRE_UCS_TYPE_STATUS_H
#define TAGWIRE_UCS_TYPE_STATUS_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

/// One byte, as in UCX (the enumeration is packed).
typedef enum tagwire_ucs_status {
    UCS_OK = 0,          ///< Done.
    UCS_INPROGRESS = 1,  ///< Started, or still owned by the other side; ends later.

    UCS_ERR_NO_MESSAGE = -1,
    UCS_ERR_NO_RESOURCE =
        -2,  ///< Nothing happened; retry after progress, or use uct_ep_pending_add().
    UCS_ERR_IO_ERROR = -3,
    UCS_ERR_NO_MEMORY = -4,
    UCS_ERR_INVALID_PARAM = -5,
    UCS_ERR_UNREACHABLE = -6,
    UCS_ERR_INVALID_ADDR = -7,
    UCS_ERR_NOT_IMPLEMENTED = -8,
    UCS_ERR_MESSAGE_TRUNCATED = -9,  ///< The message is longer than the receive buffer.
    UCS_ERR_NO_PROGRESS = -10,
    UCS_ERR_BUFFER_TOO_SMALL = -11,
    UCS_ERR_NO_ELEM = -12,
    UCS_ERR_SOME_CONNECTS_FAILED = -13,
    UCS_ERR_NO_DEVICE = -14,
    UCS_ERR_BUSY = -15,
    UCS_ERR_CANCELED = -16,
    UCS_ERR_SHMEM_SEGMENT = -17,
    UCS_ERR_ALREADY_EXISTS = -18,
    UCS_ERR_OUT_OF_RANGE = -19,
    UCS_ERR_TIMED_OUT = -20,
    UCS_ERR_EXCEEDS_LIMIT =
        -21,  ///< A queue with a configured bound is full, or a length is above its maximum.
    UCS_ERR_UNSUPPORTED = -22,
    UCS_ERR_REJECTED = -23,
    UCS_ERR_NOT_CONNECTED = -24,
    UCS_ERR_CONNECTION_RESET = -25,  ///< The peer is gone.

    UCS_ERR_FIRST_LINK_FAILURE = -40,
    UCS_ERR_LAST_LINK_FAILURE = -59,
    UCS_ERR_FIRST_ENDPOINT_FAILURE = -60,
    UCS_ERR_ENDPOINT_TIMEOUT = -80,
    UCS_ERR_LAST_ENDPOINT_FAILURE = -89,

    UCS_ERR_LAST = -100
} UCS_S_PACKED ucs_status_t;

#define UCS_IS_LINK_ERROR(code) \
    (((code) <= UCS_ERR_FIRST_LINK_FAILURE) && ((code) >= UCS_ERR_LAST_LINK_FAILURE))
#define UCS_IS_ENDPOINT_ERROR(code) \
    (((code) <= UCS_ERR_FIRST_ENDPOINT_FAILURE) && ((code) >= UCS_ERR_LAST_ENDPOINT_FAILURE))

/// A handle or a status in one word: NULL is UCS_OK, the topmost addresses are error codes, the
/// rest are handles.
typedef void* ucs_status_ptr_t;

#define UCS_PTR_IS_ERR(pointer) (((uintptr_t)(pointer)) >= ((uintptr_t)UCS_ERR_LAST))
#define UCS_PTR_IS_PTR(pointer) (((uintptr_t)(pointer)-1) < ((uintptr_t)UCS_ERR_LAST - 1))
#define UCS_PTR_RAW_STATUS(pointer) ((ucs_status_t)(intptr_t)(pointer))
#define UCS_PTR_STATUS(pointer) \
    (UCS_PTR_IS_PTR(pointer) ? UCS_INPROGRESS : UCS_PTR_RAW_STATUS(pointer))
#define UCS_STATUS_PTR(status) ((void*)(intptr_t)(status))
#define UCS_STATUS_IS_ERR(status) ((status) < 0)

/// A constant English sentence for any value, "unknown status" for numbers without a name. Any
/// thread.
TAGWIRE_API const char* ucs_status_string(ucs_status_t status) TAGWIRE_SYMBOL(ucs_status_string);

END_C_DECLS

#endif
