// SPDX-License-Identifier: BSD-3-Clause
//
// Small types that UCX 1.13 keeps in its configuration header and that transport programs reach
// through uct.h.
#ifndef TAGWIRE_UCS_CONFIG_TYPES_H
#define TAGWIRE_UCS_CONFIG_TYPES_H

#include <sys/socket.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum tagwire_ucs_log_level {
    UCS_LOG_LEVEL_FATAL,
    UCS_LOG_LEVEL_ERROR,
    UCS_LOG_LEVEL_WARN,
    UCS_LOG_LEVEL_DIAG,
    UCS_LOG_LEVEL_INFO,
    UCS_LOG_LEVEL_DEBUG,
    UCS_LOG_LEVEL_TRACE,
    UCS_LOG_LEVEL_TRACE_REQ,
    UCS_LOG_LEVEL_TRACE_DATA,
    UCS_LOG_LEVEL_TRACE_ASYNC,
    UCS_LOG_LEVEL_TRACE_FUNC,
    UCS_LOG_LEVEL_TRACE_POLL,
    UCS_LOG_LEVEL_LAST,
    UCS_LOG_LEVEL_PRINT
} ucs_log_level_t;

/// Event source of an asynchronous context. tagwire accepts every mode and starts no
/// thread for any of them.
typedef enum tagwire_ucs_async_mode {
    UCS_ASYNC_MODE_SIGNAL,
    UCS_ASYNC_MODE_THREAD,
    UCS_ASYNC_MODE_THREAD_SPINLOCK = UCS_ASYNC_MODE_THREAD,
    UCS_ASYNC_MODE_THREAD_MUTEX,
    UCS_ASYNC_MODE_POLL,
    UCS_ASYNC_MODE_LAST
} ucs_async_mode_t;

/// Names, indexed by mode (UCS_ASYNC_MODE_LAST excluded).
TAGWIRE_API extern const char* ucs_async_mode_names[] TAGWIRE_SYMBOL(ucs_async_mode_names);

typedef enum tagwire_ucs_ternary_auto_value {
    UCS_NO = 0,
    UCS_YES = 1,
    UCS_TRY = 2,
    UCS_AUTO = 3,
    UCS_TERNARY_LAST
} ucs_ternary_auto_value_t;

typedef enum tagwire_ucs_on_off_auto_value {
    UCS_CONFIG_OFF = 0,
    UCS_CONFIG_ON = 1,
    UCS_CONFIG_AUTO = 2,
    UCS_CONFIG_ON_OFF_LAST
} ucs_on_off_auto_value_t;

typedef enum tagwire_ucs_config_print_flags {
    UCS_CONFIG_PRINT_CONFIG = UCS_BIT(0),
    UCS_CONFIG_PRINT_HEADER = UCS_BIT(1),
    UCS_CONFIG_PRINT_DOC = UCS_BIT(2),
    UCS_CONFIG_PRINT_HIDDEN = UCS_BIT(3),
    UCS_CONFIG_PRINT_COMMENT_DEFAULT = UCS_BIT(4)
} ucs_config_print_flags_t;

/// A socket address and its length in bytes. The address belongs to the caller.
typedef struct tagwire_ucs_sock_addr {
    const struct sockaddr* addr;
    socklen_t addrlen;
} ucs_sock_addr_t;

END_C_DECLS

#endif
