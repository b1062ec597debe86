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

/// Completes when everything sent on an endpoint before has reached the peer's library, and every
/// operation before has completed.
///
/// After the completion nothing is lost if this process ends. So it waits
/// - for eager messages until they are in the peer's library, matched there or not; those with
///   TW_OP_MATCH_COMPLETE or TW_OP_DELIVERY_COMPLETE until a receive of the peer has matched them;
/// - for rendezvous, whose data stays here until then, until a receive has taken them;
/// - for puts and atomics until they have taken effect at the peer;
/// - for gets until the data is here.
///
/// A flush of messages that the peer never receives does not complete before the endpoint fails, or
/// is closed by force. The peer has to progress in any case.
///
/// \retval TW_OK  There is nothing to wait for.
/// \retval TW_INPROGRESS  Started; the completion follows.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint has failed; or another status of
///     tw_ep_failed_cb_t.
TAGWIRE_API tw_status_t tw_ep_flush(tw_ep_h ep, const tw_op_t* op, tw_request_h* request_p);

/// Flags of tw_ep_close().
enum tw_ep_close_flag {
    /// Ends all operations at once with TW_ERR_CANCELED and gives the buffers back to the program:
    /// the peer may still read them, but does not report what it reads after the call as received.
    ///
    /// Exceptions: over dc the peer may report data that it reads later from a buffer with a
    /// handle, until tw_mem_unmap(), and with TAGWIRE_REG_CACHE from a buffer that shares pages
    /// with another operation under way. An operation whose data a device is moving completes, in
    /// progress, when the device is done.
    ///
    /// The peer's endpoint fails: at once if the transport has room for a message to the peer, else
    /// when one side next sends to the other. Messages that the peer sends before it knows may end
    /// with TW_OK there, and are not received.
    TW_EP_CLOSE_FORCE = 1 << 0
};

/// Flushes an endpoint, as tw_ep_flush() does, and destroys it.
///
/// `flags` is 0 or TW_EP_CLOSE_FORCE. The endpoint is destroyed whatever the status, unless the
/// call returns TW_ERR_NO_RESOURCE, TW_ERR_NO_MEMORY or TW_ERR_INVALID_PARAM: nothing may be called
/// on it any more. Messages from the peer are still received.
///
/// Without force the status, of the call or of the completion, is that of the flush. With any other
/// status than TW_OK messages that the program has sent on the endpoint may be lost, those included
/// whose sends have ended with TW_OK. The status is TW_OK if nothing was sent. With force nothing
/// is flushed, and the status is TW_OK. Without a request, a callback and TW_OP_COMPLETION the
/// status of a completion is told to nobody, other than that of a send.
///
/// \retval TW_OK  It is closed.
/// \retval TW_INPROGRESS  It is being flushed; the completion follows, and then it is closed.
/// \retval TW_ERR_CONNECTION_RESET  It is closed; it had failed, with this status or another one of
///     tw_ep_failed_cb_t. There is no completion.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call.
/// \retval TW_ERR_INVALID_PARAM  Also: unknown flags, or the endpoint is being closed already.
/// \retval TW_ERR_NO_MEMORY  Nothing happened; out of memory.
TAGWIRE_API tw_status_t tw_ep_close(tw_ep_h ep, unsigned flags, const tw_op_t* op,
                                    tw_request_h* request_p);

#ifdef __cplusplus
}
#endif

#endif
