// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Remote calls: requests and replies over active messages. Included by tagwire.h.
///
///     caller: tw_call(ep, method, request, ...) ---------> server: tw_call_cb_t of the method
///     caller: tw_call_done_cb_t  <------------------------ server: tw_reply(worker, id, reply)
///
/// The library gives each call an id, finds the call of a reply, ends calls whose time is up, and
/// those of a peer that dies or leaves. Each call ends exactly once. Any number may be under way at
/// a time, and replies may come in any order. A server replies in the handler, or later, from any
/// thread that may use the worker; it needs no endpoint to the caller.
///
/// Requests and replies of any length are sent as active messages are: long ones by rendezvous. A
/// reply goes straight into the caller's buffer; a request is given to its handler as a whole.
///
/// \par Trust
/// A reply counts only if it comes from the worker that was called. Replies with a foreign or an
/// unknown id, and messages that are malformed, are dropped and counted (call_refused, call_late).
/// TAGWIRE_CALL_REQUESTS_MAX and TAGWIRE_CALL_BYTES limit what peers can make a server keep.
///
/// \par Order
/// Handlers of requests run in the order of active messages (tw_am.h), but requests that go by
/// rendezvous when their data is here. A reply of at most TW_AM_URGENT_MAX bytes may pass other
/// messages of the server (TW_OP_URGENT), and reaches a caller that has paused its peers.
///
/// \par Threads
/// As tw_am.h says. Handlers and completions run inside progress, and may call everything but
/// progress and the calls that wait.
#ifndef TAGWIRE_PROTOCOLS_API_TW_CALL_H
#define TAGWIRE_PROTOCOLS_API_TW_CALL_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Caller

/// The end of a call, as its callback sees it; valid during the callback.
typedef struct tw_call_done {
    void* context;  ///< tw_call_params_t.context.
    uint64_t id;    ///< As tw_call() has told it.
    /// TW_OK: the server has replied. TW_ERR_MESSAGE_TRUNCATED: likewise, with more data than the
    /// buffer has room for; its start is there. TW_ERR_TIMED_OUT: no reply in time; the request may
    /// be carried out yet. TW_ERR_CANCELED: tw_call_cancel(), or the endpoint was closed by force.
    /// TW_ERR_NO_ELEM: the server has no such method. TW_ERR_NO_RESOURCE: the server has too many
    /// requests (TAGWIRE_CALL_REQUESTS_MAX, TAGWIRE_CALL_BYTES), or this side lacks a request to
    /// receive the reply. TW_ERR_EXCEEDS_LIMIT: the request is longer than the server's
    /// TAGWIRE_CALL_BYTES. TW_ERR_NO_MEMORY: of the server. TW_ERR_CONNECTION_RESET,
    /// TW_ERR_NOT_CONNECTED: the peer has died, or has left; or another status of
    /// tw_ep_failed_cb_t.
    tw_status_t status;
    int32_t reply_status;   ///< The server's number (tw_reply()); 0 where it has not replied.
    void* reply;            ///< tw_call_params_t.reply.
    size_t length;          ///< Bytes of the reply that are in the buffer.
    size_t message_length;  ///< Bytes of the reply: more than `length` when it was truncated.
    tw_ep_h ep;             ///< The endpoint of the call; the program may have closed it since.
} tw_call_done_t;

/// Reports the end of a call, once. Runs inside progress; may call everything but progress.
typedef void (*tw_call_done_cb_t)(const tw_call_done_t* done);

/// Parameters of tw_call(). Zeroes are the defaults of all but struct_bytes and `done`.
typedef struct tw_call_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_call_params));  ///< sizeof(tw_call_params_t).
    tw_call_done_cb_t done TW_CXX_DEFAULT(nullptr);     ///< Not NULL.
    void* context TW_CXX_DEFAULT(nullptr);
    /// Nanoseconds within which the reply must have come; 0: as long as the peer lives. The request
    /// tells it to the server. The end comes with progress, which a sleeping worker is woken for.
    uint64_t timeout_ns TW_CXX_DEFAULT(0);
    void* reply
        TW_CXX_DEFAULT(nullptr);  ///< Receives the reply's data; the library's until the end.
    size_t reply_bytes TW_CXX_DEFAULT(0);
    tw_mem_h mem TW_CXX_DEFAULT(nullptr);        ///< Handle that covers the request, or NULL.
    tw_mem_h reply_mem TW_CXX_DEFAULT(nullptr);  ///< Handle that covers `reply`, or NULL.
} tw_call_params_t;

/// Sends a request, and waits for its reply.
///
/// `data` belongs to the library until the call ends, as `params->reply` does; `params` is read
/// during the call. A call whose time is up ends at once: a long request with a deadline is sent
/// from a copy (within TAGWIRE_CALL_BYTES). One whose reply is moving at this moment ends when that
/// is done, and so does a call that is cancelled while its request goes by rendezvous without a
/// copy: then the peer is asked, which needs its progress. `id_p` may be NULL.
///
/// \retval TW_OK  Sent: `params->done` is called once. *id_p names the call for tw_call_cancel();
///     no other call of the worker has the id.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint has failed; or another status of
///     tw_ep_failed_cb_t. Nothing follows, here as below.
/// \retval TW_ERR_IO_ERROR  The system has no descriptor for the worker's timer of calls.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, struct_bytes is not a size of this struct,
///     `params->done` is NULL, `params->reply` is NULL with `reply_bytes`, or a handle does not
///     cover its memory, is of another context, or is not writable; the log says which.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_call(tw_ep_h ep, uint32_t method, const void* data, size_t length,
                                const tw_call_params_t* params, uint64_t* id_p);

/// Cancels a call.
///
/// It ends with TW_ERR_CANCELED, in progress, unless its reply has begun to come. The server is not
/// told: its reply is dropped and counted (call_late).
///
/// \retval TW_OK  Cancelled: the end follows.
/// \retval TW_ERR_NO_ELEM  No call of this id is under way, or its reply is coming.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL.
TAGWIRE_API tw_status_t tw_call_cancel(tw_worker_h worker, uint64_t id);

// ---- Server

/// A request that has come, as the handler of its method sees it. The library makes it; it is valid
/// during the call of the handler.
typedef struct tw_call_request {
    tw_worker_h worker;
    uint64_t id;       ///< Names the request for tw_reply(), once.
    const void* data;  ///< `length` bytes, not aligned; gone when the handler returns, unless kept.
    size_t length;
    uint64_t source;      ///< The caller's worker, as tw_address_worker_id() tells it.
    tw_ep_h ep;           ///< The program's endpoint to the caller, or NULL; tw_reply() needs none.
    uint64_t timeout_ns;  ///< tw_call_params_t.timeout_ns of the caller; 0: none.
    uint32_t method;
} tw_call_request_t;

/// Handles a request. Runs inside progress; may call everything but progress. `arg` is that of
/// tw_call_register(). Each request is replied to by tw_reply(), here or later: until then the
/// library remembers it, though its caller may have gone.
typedef void (*tw_call_cb_t)(void* arg, tw_call_request_t* request);

/// Registers the handler of a method.
///
/// It takes the place of one that the method has. `callback` NULL: the method has none from now on,
/// and calls of it end with TW_ERR_NO_ELEM. A worker that has never called this ignores requests
/// (am_dropped); so it registers its methods before it tells its address.
///
/// \retval TW_OK  Registered.
/// \retval TW_ERR_IO_ERROR  The system has no descriptor for the worker's timer of calls.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL.
/// \retval TW_ERR_NO_MEMORY  Out of memory; nothing has changed.
TAGWIRE_API tw_status_t tw_call_register(tw_worker_h worker, uint32_t method, tw_call_cb_t callback,
                                         void* arg);

/// Keeps the data of a request beyond its handler, until tw_reply().
///
/// For the handler of `request`. `request->data` points to where the data stays from now on. Data
/// that came by rendezvous is in memory of its own already, and is not copied.
///
/// \retval TW_OK  Kept. Again: nothing happens.
/// \retval TW_ERR_EXCEEDS_LIMIT  As tw_am_keep(): the data is gone when the handler returns; so
///     with TW_ERR_NO_MEMORY and the status of an endpoint that has failed.
/// \retval TW_ERR_INVALID_PARAM  `request` is NULL, or was replied to.
TAGWIRE_API tw_status_t tw_call_keep(tw_call_request_t* request);

/// Replies to a request, once. The data that was kept of it is there no more.
///
/// `status` is a number of the program's own for the caller. `data` belongs to the library until
/// the completion of the reply, which is that of a send: `op` and `request_p` are as for
/// tw_am_send(), and its statuses hold; TW_OK and TW_INPROGRESS say that the reply is on its way.
/// From any thread that may use the worker, in the handler of the request or later.
///
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. Likewise
///     TW_ERR_INVALID_PARAM, TW_ERR_EXCEEDS_LIMIT and TW_ERR_NO_MEMORY. With TW_OP_QUEUE the
///     library keeps the reply, up to TAGWIRE_QUEUED_MAX operations.
/// \retval TW_ERR_NO_ELEM  No request of this id waits for a reply.
/// \retval TW_ERR_NOT_CONNECTED  The caller has gone: the request is forgotten, as with any other
///     failure of the connection.
TAGWIRE_API tw_status_t tw_reply(tw_worker_h worker, uint64_t request, int32_t status,
                                 const void* data, size_t length, const tw_op_t* op,
                                 tw_request_h* request_p);

#ifdef __cplusplus
}
#endif

#endif
