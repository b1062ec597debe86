// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Active messages: the receiver's program names what is to be done with a message before it comes.
/// Included by tagwire.h.
///
/// Each worker has 65536 handlers, which its program registers by their ids. A sender names an id,
/// and sends a short header and data; the receiver's progress calls the handler with both.
///
///     tw_am_send(ep, id, header, data) ----> handler(am): header, data    the data is there
///                                       '--> handler(am): header          TW_AM_RNDV: the data is
///                                                                         still with the sender
///
///     in the handler:  use the data; it is gone when the handler returns
///                      tw_am_keep()       the message stays until it is received or dropped
///                      tw_message_recv()  the data goes into a buffer of the program
///
/// A message that its handler neither keeps nor receives ends when the handler returns. Messages
/// that are longer than the transport's costs suggest (tw_ep_explain()) come with TW_AM_RNDV, as do
/// shorter ones while the receiver keeps much (TAGWIRE_UNEXPECTED_BYTES): a handler is prepared for
/// both, whatever the length.
///
/// \par Order
/// Handlers run in the order in which their messages were sent, for each sender and receiver; also
/// among messages of tw_msg_send(), which are matched in the same order, and of tw_tag_send() where
/// no device matches tags. A message with TW_AM_RNDV has its place, whenever its data is received.
/// Where the sender has several transmit contexts, this holds for each thread, or for all with
/// TW_EP_ORDERED. A message with TW_OP_URGENT may pass those before it that are not urgent, as long
/// as they wait at their sender.
///
/// \par Reply
/// tw_am_t.ep is the program's endpoint to the sender. A program that has none makes it in the
/// handler, without an address: `tw_ep_create_to(am->worker, am->source, NULL, &ep)`.
///
/// \par Threads
/// As tw_data.h says, as of statuses and lifetime. Handlers run inside progress, and may call
/// everything but progress and the calls that wait. With TW_THREAD_MULTI other threads may call
/// meanwhile.
#ifndef TAGWIRE_PROTOCOLS_API_TW_AM_H
#define TAGWIRE_PROTOCOLS_API_TW_AM_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_AM_ID_MAX 65535    ///< The highest id of a handler; the lowest is 0.
#define TW_AM_HEADER_MAX 256  ///< No header is longer, in bytes.
/// Header and data together of a message with TW_OP_URGENT, in bytes.
#define TW_AM_URGENT_MAX 16384

/// Flags of an active message that has come.
enum tw_am_flag {
    /// The data is still with the sender: `data` is NULL, and `length` tells how much there is.
    /// tw_message_recv() brings it.
    TW_AM_RNDV = 1 << 0
};

/// An active message that has come, as its handler sees it. The library makes it; it is valid
/// during the call of the handler.
typedef struct tw_am {
    tw_worker_h worker;    ///< The receiver.
    const void* header;    ///< `header_length` bytes, not aligned.
    size_t header_length;  ///< At most TW_AM_HEADER_MAX.
    const void* data;      ///< `length` bytes, not aligned; NULL with TW_AM_RNDV.
    size_t length;         ///< Bytes of data.
    uint64_t source;       ///< The sender's worker, as tw_address_worker_id() tells it.
    tw_ep_h ep;            ///< The program's endpoint to the sender, or NULL.
    /// The name for tw_message_recv(). NULL: the data is here, and tw_am_keep() gives the name.
    tw_message_h message;
    uint32_t id;     ///< The handler's.
    uint32_t flags;  ///< TW_AM_x.
} tw_am_t;

/// Handles an active message. Runs inside progress; may call everything but progress. `arg` is that
/// of tw_am_register().
typedef void (*tw_am_cb_t)(void* arg, tw_am_t* am);

/// Registers the handler of an id.
///
/// It takes the place of one that the id has. `callback` NULL: the id has none from now on; a
/// handler that is running meanwhile in another thread goes on. A message to an id without a
/// handler is dropped, counted (am_dropped) and logged once for each worker: if its data is still
/// with the sender, the send completes with TW_ERR_NO_ELEM, else as if it had been handled. So a
/// worker registers its handlers before it tells its address.
///
/// \retval TW_OK  Registered.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL, or `id` exceeds TW_AM_ID_MAX.
/// \retval TW_ERR_NO_MEMORY  Out of memory; nothing has changed.
TAGWIRE_API tw_status_t tw_am_register(tw_worker_h worker, unsigned id, tw_am_cb_t callback,
                                       void* arg);

/// Sends an active message.
///
/// The header is copied by the call, whatever it returns. `length` may be any number, 0 included;
/// the data belongs to the library until the completion. TW_OP_DELIVERY_COMPLETE and
/// TW_OP_MATCH_COMPLETE complete when the handler has returned; if the data was still here then
/// (TW_AM_RNDV), and without these flags, when it has been received, or the message was dropped.
/// `tag` of the completion is the id, and its flags have TW_DONE_AM.
///
/// A header and data of together at most 104 bytes are sent in as few steps as a tagged message of
/// their length.
///
/// \retval TW_OK  Sent: the buffer may be reused, and the completion level asked for by flags is
///     reached.
/// \retval TW_INPROGRESS  Started; the completion follows. Its status is TW_OK, TW_ERR_CANCELED
///     (tw_request_cancel(), or the endpoint was closed by force), TW_ERR_NO_ELEM (the receiver has
///     no such handler), or the endpoint's failure. A message whose data is here can be cancelled
///     until the receiver asks for that; one that has left as a whole cannot.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_EXCEEDS_LIMIT  `header_length` exceeds TW_AM_HEADER_MAX; or TW_OP_INJECT with
///     header and data of together more than tw_worker_attr_t.inject_bytes_max, or TW_OP_URGENT
///     with more than TW_AM_URGENT_MAX.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, `id` exceeds TW_AM_ID_MAX, or `op` has
///     TW_OP_IMM (the header takes its place), another flag that is not for sends, or TW_OP_URGENT
///     with a level of completion.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint has failed; other statuses as for tw_tag_send().
TAGWIRE_API tw_status_t tw_am_send(tw_ep_h ep, unsigned id, const void* header,
                                   size_t header_length, const void* buffer, size_t length,
                                   const tw_op_t* op, tw_request_h* request_p);

/// Sends an active message whose data is gathered from a list.
///
/// As tw_am_send(), from up to TW_IOV_MAX elements. `iov` is copied; the memory that it names
/// belongs to the library until the completion.
///
/// \retval TW_ERR_INVALID_PARAM  Also: more elements than TW_IOV_MAX, or their total length
///     overflows size_t.
TAGWIRE_API tw_status_t tw_am_sendv(tw_ep_h ep, unsigned id, const void* header,
                                    size_t header_length, const tw_iov_t* iov, size_t iovcnt,
                                    const tw_op_t* op, tw_request_h* request_p);

/// Keeps a message beyond its handler.
///
/// For the handler of `am`, once. `am->header` and `am->data` point to where they stay from now on:
/// until tw_message_drop() or tw_message_recv() is called, and until the handler returns. Data that
/// the transport has is copied for this; that of a message of several parts is in memory of its own
/// already. A message that is kept counts among the unexpected ones (TAGWIRE_UNEXPECTED_BYTES,
/// TAGWIRE_UNEXPECTED_MAX), so a program that keeps many pauses their senders. No pause stops a
/// message with TW_OP_URGENT: a program that keeps those as well gets to a limit.
///
/// \retval TW_OK  *message_p is the message, which the program receives or drops.
/// \retval TW_ERR_EXCEEDS_LIMIT  The unexpected messages have used up one of these limits, and so
///     have 8 MiB of messages that the sender has sent since it was paused: the message ends with
///     its handler.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or the message was kept or received already.
/// \retval TW_ERR_NO_MEMORY  Out of memory: the message ends with its handler.
/// \retval TW_ERR_CANCELED  Or another status: the endpoint has failed meanwhile; likewise.
TAGWIRE_API tw_status_t tw_am_keep(tw_am_t* am, tw_message_h* message_p);

#ifdef __cplusplus
}
#endif

#endif
