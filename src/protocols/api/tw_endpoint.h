// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Endpoints. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_ENDPOINT_H
#define TAGWIRE_PROTOCOLS_API_TW_ENDPOINT_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Flags of tw_ep_params_t.
enum tw_ep_flag {
    /// Messages of all threads to the peer stay in the order in which their sends were called. They
    /// leave by the worker itself, not by its transmit contexts (tw_worker_params_t.tx_contexts).
    TW_EP_ORDERED = 1 << 0
};

/// Parameters of tw_ep_create(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_ep_params {
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_ep_params));  ///< sizeof(tw_ep_params_t).
    const void* address;  ///< Address of the peer's worker; copied.
    size_t address_length;
    void* user_data;                   ///< tw_ep_user_data() returns it.
    uint32_t flags TW_CXX_DEFAULT(0);  ///< TW_EP_ORDERED, or 0.
} tw_ep_params_t;

/// Makes the endpoint to a worker, which may be the same worker.
///
/// Does not wait for the peer; messages may be sent at once. The address is copied.
///
/// \retval TW_OK  *ep_p is the endpoint; tw_ep_close() closes it.
/// \retval TW_ERR_INVALID_ADDR  These bytes are not an address; the log says why.
/// \retval TW_ERR_UNREACHABLE  No transport leads there; the log says why.
/// \retval TW_ERR_ALREADY_EXISTS  The program has an endpoint to this worker. tw_ep_find() returns
///     it, or NULL while it is being closed: then the call succeeds behind the close's completion.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or `flags` has an unknown bit.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_ep_create(tw_worker_h worker, const tw_ep_params_t* params,
                                     tw_ep_h* ep_p);

/// Makes the endpoint to a worker that is connected with this one.
///
/// For the sender of a message (tw_completion_t.source) or a worker that tw_peer_event_cb_t has
/// reported. No address is needed, so a server can reply to clients that it does not know.
/// `user_data` as in tw_ep_params_t.
///
/// \retval TW_OK  *ep_p is the endpoint; tw_ep_close() closes it.
/// \retval TW_ERR_NO_ELEM  No worker of this id is connected; it may have left since.
/// \retval TW_ERR_ALREADY_EXISTS  The program has the endpoint: tw_ep_find(), or
///     tw_completion_t.ep; both are NULL while it is being closed.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_ep_create_to(tw_worker_h worker, uint64_t worker_id, void* user_data,
                                        tw_ep_h* ep_p);

/// Finds the endpoint to the worker of an id.
///
/// \return The program's endpoint; NULL when it has none, is closing it, or `worker` is NULL.
TAGWIRE_API tw_ep_h tw_ep_find(tw_worker_h worker, uint64_t worker_id);

/// Reads the pointer that the program gave to an endpoint.
///
/// \return tw_ep_params_t.user_data; NULL for an endpoint that is NULL.
TAGWIRE_API void* tw_ep_user_data(tw_ep_h ep);

/// Flushes an endpoint: completes when everything sent on it before has reached `level`.
///
/// tw_flush_level_t says what each level waits for. Operations that are called later are not waited
/// for. TW_OP_FENCE has no effect: a flush is behind everything before it in any case.
///
/// A flush of messages that the peer has no room for, or of rendezvous that it never receives, does
/// not complete before the endpoint fails, or is closed by force. With several transmit contexts
/// (tw_worker_params_t) those of all threads are flushed.
///
/// \retval TW_OK  There is nothing to wait for; at TW_FLUSH_SENT also while the endpoint connects.
/// \retval TW_INPROGRESS  Started; the completion follows.
/// \retval TW_ERR_NO_RESOURCE  Nothing is left of the call: progress, then repeat it. Flushes of
///     some transmit contexts may have begun, and end by themselves. With TW_OP_QUEUE the library
///     keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_PARAM  Also: `level` is not one of a flush.
/// \retval TW_ERR_NO_MEMORY  As TW_ERR_NO_RESOURCE; out of memory.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint has failed; or another status of
///     tw_ep_failed_cb_t.
TAGWIRE_API tw_status_t tw_ep_flush(tw_ep_h ep, tw_flush_level_t level, const tw_op_t* op,
                                    tw_request_h* request_p);

/// Flushes all endpoints of a worker.
///
/// As tw_ep_flush() on each endpoint that the program has, with one completion, behind the last of
/// them. Endpoints that have failed, or are being closed, are passed over. Its `ep` is NULL.
///
/// \retval TW_OK  There is nothing to wait for.
/// \retval TW_INPROGRESS  Started; the completion follows. Its status is that of the first endpoint
///     that fails meanwhile; the others are flushed all the same.
/// \retval TW_ERR_NO_RESOURCE  Nothing is left of the call: progress, then repeat it. Flushes of
///     some transmit contexts may have begun, and end by themselves. With TW_OP_QUEUE the library
///     keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_PARAM  Also: `level` is not one of a flush.
/// \retval TW_ERR_NO_MEMORY  As TW_ERR_NO_RESOURCE; out of memory.
TAGWIRE_API tw_status_t tw_worker_flush(tw_worker_h worker, tw_flush_level_t level,
                                        const tw_op_t* op, tw_request_h* request_p);

/// Flushes an endpoint, as tw_ep_flush() does, and destroys it.
///
/// The endpoint is destroyed whatever the status, unless the call returns TW_ERR_NO_RESOURCE,
/// TW_ERR_NO_MEMORY or TW_ERR_INVALID_PARAM: nothing may be called on it any more. Messages from
/// the peer are still received. TW_OP_FENCE has no effect.
///
/// At TW_FLUSH_SENT the notice of the close has left behind the messages when the close completes:
/// the process may destroy its worker and end, and the peer's program hears TW_PEER_LEFT behind all
/// messages. Destroying the worker shuts sockets of `tcp` down in order.
///
/// Without force the status, of the call or of the completion, is that of the flush. With any other
/// status than TW_OK messages that the program has sent on the endpoint may be lost, those included
/// whose sends have ended with TW_OK. The status is TW_OK if nothing was sent. With TW_CLOSE_FORCE
/// nothing is flushed, and the status is TW_OK. Without a request, a callback, a queue and
/// TW_OP_COMPLETION the status of a completion is told to nobody, other than that of a send.
///
/// \retval TW_OK  It is closed.
/// \retval TW_INPROGRESS  It is being flushed; the completion follows, and then it is closed.
/// \retval TW_ERR_CONNECTION_RESET  It is closed; it had failed, with this status or another one of
///     tw_ep_failed_cb_t. There is no completion.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_PARAM  Also: `level` is unknown, or the endpoint is being closed already.
/// \retval TW_ERR_NO_MEMORY  Nothing happened; out of memory.
TAGWIRE_API tw_status_t tw_ep_close(tw_ep_h ep, tw_flush_level_t level, const tw_op_t* op,
                                    tw_request_h* request_p);

#ifdef __cplusplus
}
#endif

#endif
