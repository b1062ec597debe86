// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Contexts of the messaging layer. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H
#define TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Standing of an option's value that the program gives, beside those of the environment.
typedef enum tw_option_rank {
    TW_OPTION_OVERRIDE,  ///< The value wins over the environment and configuration files.
    /// The value replaces the library's default: the environment and configuration files win.
    TW_OPTION_DEFAULT
} tw_option_rank_t;

/// One option of the library with its value, both texts (docs/reference/configuration.md).
typedef struct tw_option {
    const char* name;   ///< "RNDV_THRESHOLD" or "TAGWIRE_RNDV_THRESHOLD".
    const char* value;  ///< As the environment would have it: "64k".
    tw_option_rank_t rank TW_CXX_DEFAULT(TW_OPTION_OVERRIDE);
} tw_option_t;

/// Severities of log lines.
typedef enum tw_log_level {
    TW_LOG_ERROR = 1,  ///< A failure of the environment, of a peer, or of the caller.
    TW_LOG_WARN,       ///< The library works on, in a worse way than asked for.
    TW_LOG_INFO,
    TW_LOG_DEBUG,
    TW_LOG_TRACE
} tw_log_level_t;

/// Receives one line of a context's log. `file` and `line` are where the library logs it; `text`
/// has no newline at its end. The texts are valid during the call.
///
/// Runs in the thread whose call, or whose progress, has caused the line: at the end of that call,
/// where the thread has no lock of the library. May call everything, tw_context_destroy() of its
/// own context included; lines that the thread logs meanwhile go to the log of the process.
typedef void (*tw_log_cb_t)(void* arg, tw_log_level_t level, const char* file, int line,
                            const char* text);

/// Parameters of tw_context_create(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_context_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_context_params));  ///< sizeof(tw_context_params_t).
    /// Transports to use, as TAGWIRE_TRANSPORTS: names of transports, each with or without a
    /// device, separated by commas ("sm,rc:mlx5_0:1"); "auto", "all", and what is left out behind
    /// a ^, as docs/reference/configuration.md says. tw_worker_describe() tells what the list
    /// stands for on this machine. NULL: that option.
    const char* transports;
    /// Bits of a tag by which messages of different workers always differ, 0: none. With
    /// TAGWIRE_TAG_OFFLOAD a receive that asks for all of these bits can be given to a device
    /// though other peers send over other transports (ucp_params_t::tag_sender_mask).
    uint64_t tag_sender_mask;
    /// Options of the context and its workers; read during the call. Each is checked, whether this
    /// context needs it or not. One that belongs to the process (the log, the bootstrap, which
    /// devices there are) is refused. A bad value in the environment is refused even where the
    /// program's wins. NULL: none.
    const tw_option_t* options TW_CXX_DEFAULT(nullptr);
    size_t option_count TW_CXX_DEFAULT(0);  ///< Elements of `options`.
    /// Takes the log lines of the context, of its workers, endpoints and memory, as severe as
    /// TAGWIRE_LOG_LEVEL asks for, from the beginning of tw_context_create() until
    /// tw_context_destroy() has returned. Calls that a callback of the program makes on another
    /// context count as this context's. Lines that name no context (an argument that is NULL, the
    /// threads that look up host names) are this context's while it is the only one of the process.
    /// NULL: the log of the process, TAGWIRE_LOG_FILE or standard error, has them. Progress of a
    /// worker whose context has a callback takes some 20 ns longer.
    tw_log_cb_t log TW_CXX_DEFAULT(nullptr);
    void* log_arg TW_CXX_DEFAULT(nullptr);
} tw_context_params_t;

/// Opens a context: the memory domains of the transports that may be used.
///
/// `params` may be NULL.
///
/// \retval TW_OK  *context_p is the context; tw_context_destroy() closes it.
/// \retval TW_ERR_NO_DEVICE  A named transport or device is not there; the log says which, and what
///     is.
/// \retval TW_ERR_INVALID_PARAM  `params->transports` or an option has a value that is not
///     accepted; or an element of `params->options` has no name or value, names no option or one of
///     the process, is there twice, or is TRANSPORTS beside `params->transports`. The log says
///     which, and what is accepted.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_context_create(const tw_context_params_t* params,
                                          tw_context_h* context_p);

/// Closes a context.
///
/// While workers, memory handles or completion queues are open the call does nothing but log an
/// error. NULL is ignored.
TAGWIRE_API void tw_context_destroy(tw_context_h context);

#ifdef __cplusplus
}
#endif

#endif
