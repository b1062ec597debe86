// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Contexts of the messaging layer. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H
#define TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Parameters of tw_context_create(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_context_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_context_params));  ///< sizeof(tw_context_params_t).
    /// Transports to use, as TAGWIRE_TRANSPORTS: names of transports, each with or without a
    /// device, separated by commas ("sm,rc:mlx5_0:1"). NULL: that option.
    const char* transports;
    /// Bits of a tag by which messages of different workers always differ, 0: none. With
    /// TAGWIRE_TAG_OFFLOAD a receive that asks for all of these bits can be given to a device
    /// though other peers send over other transports (ucp_params_t::tag_sender_mask).
    uint64_t tag_sender_mask;
} tw_context_params_t;

/// Opens a context: the memory domains of the transports that may be used.
///
/// `params` may be NULL.
///
/// \retval TW_OK  *context_p is the context; tw_context_destroy() closes it.
/// \retval TW_ERR_NO_DEVICE  A named transport or device is not there; the log says which, and what
///     is.
/// \retval TW_ERR_INVALID_PARAM  `params->transports` or an option has a value that is not
///     accepted.
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
