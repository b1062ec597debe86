// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Status values of the messaging layer, and the two macros that all of its headers use. The names
/// are its own, so that a program may include this beside UCX's headers; the numbers are those of
/// ucs_status_t.
#ifndef TAGWIRE_STATUS_H
#define TAGWIRE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TAGWIRE_API
#define TAGWIRE_API __attribute__((visibility("default")))
#endif

// Initial value of a member in C++, so that `T params{}` has its size in struct_bytes.
#if defined(__cplusplus) && __cplusplus >= 201402L
#define TW_CXX_DEFAULT(...) = __VA_ARGS__
#else
#define TW_CXX_DEFAULT(...)
#endif

/// The first initializer of a struct with struct_bytes in C, which sets that; other fields follow,
/// and those that are not named are 0: `tw_op_t op = {TW_INIT(tw_op_t), .context = me}`.
#define TW_INIT(type) .struct_bytes = sizeof(type)

/// Status of a call or an operation: 0 or more is no error, less is one.
typedef enum tw_status {
    TW_OK = 0,          ///< Done.
    TW_INPROGRESS = 1,  ///< Started; a completion follows, or the call is to be repeated.

    TW_ERR_NO_MESSAGE = -1,   ///< A peek found no message.
    TW_ERR_NO_RESOURCE = -2,  ///< Again: nothing happened; progress, then repeat the call.
    TW_ERR_IO_ERROR = -3,
    TW_ERR_NO_MEMORY = -4,
    TW_ERR_INVALID_PARAM = -5,
    TW_ERR_UNREACHABLE = -6,  ///< No transport leads to that address.
    TW_ERR_INVALID_ADDR = -7,
    TW_ERR_NOT_IMPLEMENTED = -8,
    TW_ERR_MESSAGE_TRUNCATED = -9,  ///< The message was longer than the buffer.
    TW_ERR_NO_PROGRESS = -10,
    TW_ERR_BUFFER_TOO_SMALL = -11,
    TW_ERR_NO_ELEM = -12,
    TW_ERR_SOME_CONNECTS_FAILED = -13,
    TW_ERR_NO_DEVICE = -14,
    TW_ERR_BUSY = -15,
    TW_ERR_CANCELED = -16,  ///< Cancelled, or its endpoint was closed by force.
    TW_ERR_SHMEM_SEGMENT = -17,
    TW_ERR_ALREADY_EXISTS = -18,
    TW_ERR_OUT_OF_RANGE = -19,
    TW_ERR_TIMED_OUT = -20,
    TW_ERR_EXCEEDS_LIMIT = -21,
    TW_ERR_UNSUPPORTED = -22,
    TW_ERR_REJECTED = -23,
    TW_ERR_NOT_CONNECTED = -24,     ///< The peer has gone in order; there is no connection.
    TW_ERR_CONNECTION_RESET = -25,  ///< The peer has died, or closed by force.
    TW_ERR_ENDPOINT_TIMEOUT = -80   ///< The peer does not answer.
} tw_status_t;

/// Describes a status in English. Any thread.
///
/// \return A constant text; "unknown status" for a number without a name.
TAGWIRE_API const char* tw_status_string(tw_status_t status);

#ifdef __cplusplus
}
#endif

#endif
