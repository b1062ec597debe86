// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Messages that are here before a receive of their own: looking for them, taking them out of the
/// matching, and receiving or dropping what was taken. Included by tagwire.h.
///
///     tw_tag_probe(), tw_msg_probe() ------------.
///     tw_tag_recv_buffered() and its relatives --+--> tw_message_h --+--> tw_message_recv()
///     tw_am_keep(), or a handler with TW_AM_RNDV '                   '--> tw_message_drop()
///
/// A message that has been taken is for its receive alone. It counts among the unexpected messages
/// (TAGWIRE_UNEXPECTED_BYTES, TAGWIRE_UNEXPECTED_MAX) until it is received or dropped, so a program
/// that keeps many pauses their senders. tw_worker_destroy() drops it. Messages that are taken out
/// are those of MPI_Mprobe() and ucp_tag_probe_nb().
///
/// \par Threads
/// As tw_data.h says, as of statuses and lifetime.
#ifndef TAGWIRE_PROTOCOLS_API_TW_MESSAGE_H
#define TAGWIRE_PROTOCOLS_API_TW_MESSAGE_H

#include <protocols/api/tw_def.h>
#include <protocols/api/tw_worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Looks for a tagged message that no receive has matched.
///
/// It is the earliest message that tw_tag_recv() with this tag, mask and source would take.
/// `source` NULL: from anybody. Either of `info` and `message_p` may be NULL. The call does not
/// progress: a loop of probes calls tw_worker_progress().
///
/// \retval TW_OK  There is one; `info` tells about it. With `message_p` NULL it stays where it is.
///     Else no receive takes it any more, and *message_p names it for tw_message_recv() or
///     tw_message_drop().
/// \retval TW_ERR_NO_MESSAGE  There is none.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL, `source` is an endpoint of another worker, or
///     `info->struct_bytes` is not a size of this struct.
/// \retval TW_ERR_NO_MEMORY  Out of memory; the message stays where it is.
TAGWIRE_API tw_status_t tw_tag_probe(tw_worker_h worker, uint64_t tag, uint64_t ignore,
                                     tw_ep_h source, tw_message_info_t* info,
                                     tw_message_h* message_p);

/// Looks for a message without a tag that no receive has matched.
///
/// As tw_tag_probe(), of messages of tw_msg_send().
TAGWIRE_API tw_status_t tw_msg_probe(tw_worker_h worker, tw_ep_h source, tw_message_info_t* info,
                                     tw_message_h* message_p);

/// Receives a message that was taken: by a probe, by a buffered receive, or an active one.
///
/// Once. An active message is received in its handler, or later if the handler has kept it; header
/// and data that were kept are there no more afterwards, unless the handler still runs. `op` may
/// have the flags TW_OP_COMPLETION, MORE, QUEUE and TRANSMIT_COMPLETE; its source is ignored. The
/// completion is that of a receive of this message; that of an active one has its id as `tag`, and
/// TW_DONE_AM.
///
/// \retval TW_OK  The data is in the buffer; `op->info` tells about the message.
/// \retval TW_INPROGRESS  Started; the completion follows. Its status is TW_OK,
///     TW_ERR_MESSAGE_TRUNCATED, TW_ERR_CANCELED (the sender has taken its data back, by a close by
///     force) or the endpoint's failure.
/// \retval TW_ERR_MESSAGE_TRUNCATED  The message was longer than the buffer: its start is in the
///     buffer, the rest is lost.
/// \retval TW_ERR_CANCELED  The sender has cancelled the message. It is the library's.
/// \retval TW_ERR_CONNECTION_RESET  The sender has gone, and the data with it. Likewise.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call (later, or in a
///     handler that keeps the message). With TW_OP_QUEUE the library keeps the operation, up to
///     TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_PARAM  Nothing happened. `message` is not a message of this worker that
///     the program has, or an argument is refused as by tw_tag_recv().
/// \retval TW_ERR_NO_MEMORY  Nothing happened; the process is out of memory.
TAGWIRE_API tw_status_t tw_message_recv(tw_worker_h worker, tw_message_h message, void* buffer,
                                        size_t length, const tw_op_t* op, tw_request_h* request_p);

/// Receives a message that was taken into a list.
///
/// As tw_message_recv(), scattered over up to TW_IOV_MAX elements in their order. `iov` is copied.
///
/// \retval TW_ERR_INVALID_PARAM  Also: more elements than TW_IOV_MAX, or their total length
///     overflows size_t.
TAGWIRE_API tw_status_t tw_message_recvv(tw_worker_h worker, tw_message_h message,
                                         const tw_iov_t* iov, size_t iovcnt, const tw_op_t* op,
                                         tw_request_h* request_p);

/// Drops a message that was taken.
///
/// The send completes as if the message had been received. Header and data of an active message
/// that was kept are there no more, unless the handler still runs; data that is still with the
/// sender is not moved.
///
/// \retval TW_OK  Dropped.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL, or `message` is not a message of this worker
///     that the program has.
/// \retval TW_ERR_NO_MEMORY  Out of memory; the message stays.
TAGWIRE_API tw_status_t tw_message_drop(tw_worker_h worker, tw_message_h message);

// ---- Buffered receives: the library provides the buffer

/// Receives a tagged message in a buffer of the library.
///
/// Matches as tw_tag_recv(). It completes when a message has matched and enough of it has arrived:
/// the completion has TW_DONE_BUFFERED, and its `buffer` and `length` give the data. This is the
/// whole message up to tw_worker_attr_t.buffered_bytes_limit, and at least buffered_bytes_min bytes
/// of a longer one (TW_DONE_MORE). `message` of the completion names the message, which the program
/// receives or drops soon; `buffer` is valid until then. fi_msg(3) and fi_tagged(3) call this
/// buffered receives and variable-length messages.
///
/// \retval TW_INPROGRESS  Posted, or begun; the completion follows, also if enough is here.
/// \retval TW_ERR_INVALID_PARAM  Also: `op` and `request_p` ask for no report of the message.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint `op->source` has failed; other statuses as for
///     tw_tag_send().
TAGWIRE_API tw_status_t tw_tag_recv_buffered(tw_worker_h worker, uint64_t tag, uint64_t ignore,
                                             const tw_op_t* op, tw_request_h* request_p);

/// Receives a message without a tag in a buffer of the library.
///
/// As tw_tag_recv_buffered(), of messages of tw_msg_send().
TAGWIRE_API tw_status_t tw_msg_recv_buffered(tw_worker_h worker, const tw_op_t* op,
                                             tw_request_h* request_p);

/// Receives messages without a tag in buffers of the library, until it is cancelled.
///
/// As tw_msg_recv_buffered(); the receive stays posted, and completes once for each message. Its
/// last completion, of no message, has TW_DONE_MULTI_RECV.
///
/// \retval TW_ERR_INVALID_PARAM  Also: `op` has neither a callback, a queue nor TW_OP_COMPLETION.
TAGWIRE_API tw_status_t tw_msg_recv_buffered_multi(tw_worker_h worker, const tw_op_t* op,
                                                   tw_request_h* request_p);

#ifdef __cplusplus
}
#endif

#endif
