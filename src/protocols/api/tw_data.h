// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Sending and receiving. Included by tagwire.h.
///
/// \par Matching
/// Tagged and untagged messages never match each other. Within one kind, a receive takes the
/// earliest message that it matches, and a message takes the earliest posted receive. Messages of
/// one sender to one receiver are matched in the order of their calls, whatever their lengths.
/// Where the sender has several transmit contexts (tw_worker_params_t), those of each thread are,
/// or all with TW_EP_ORDERED.
///
/// \par Statuses
/// Sends, receives, tw_ep_flush(), tw_worker_flush() and tw_ep_close() return one of:
/// - TW_OK: complete; nothing follows. (With TW_OP_COMPLETION the call returns TW_INPROGRESS
///   instead, and the completion follows.)
/// - TW_INPROGRESS: started. Its completion is reported once, inside progress: to `op->complete`;
///   else to the queue `op->cq` (tw_cq_poll()); else, with TW_OP_COMPLETION, to the worker's
///   completion queue (tw_worker_poll()); else to tw_request_test() and tw_request_wait() if
///   `request_p` was given. With none of these only a failure is reported, to the worker's
///   completion queue.
/// - TW_ERR_NO_RESOURCE: nothing happened. Call tw_worker_progress(), then repeat the call. The
///   requests (TAGWIRE_REQUESTS_MAX) or the copies for TW_OP_INJECT are used up, or the receiver
///   has paused this sender because its memory for unexpected messages is used up. With TW_OP_QUEUE
///   the library keeps the operation instead, up to TAGWIRE_QUEUED_MAX of them.
/// - TW_ERR_INVALID_PARAM: nothing happened. An argument is NULL, a flag is not for this call,
///   flags contradict each other, `op->struct_bytes` is not a size of this struct, `op->request`
///   has neither callback nor queue nor TW_OP_COMPLETION, or is not aligned to 16, the buffer is
///   not inside `op->mem`, or `op->cq` is of another context or has a callback beside it; the log
///   says which.
/// - TW_ERR_NO_MEMORY: nothing happened; the process is out of memory.
///
/// \par Lifetime
/// `op` may be NULL; it and what it points to are read during the call only, except the memory
/// `op->request`, which belongs to the library until the completion. `request_p` may be NULL; it is
/// written only with TW_INPROGRESS. A handle with a callback is valid until that is called, and
/// with TW_THREAD_MULTI until it has returned; one with a queue or TW_OP_COMPLETION until its
/// completion has been reported (another thread may take it from a queue before the call returns);
/// any other until tw_request_free(). A buffer belongs to the library from the call until the
/// completion: that of a send must not change, that of a receive must not be touched. Lists of
/// elements are copied by the call.
///
/// \par Threads
/// As for the worker: one thread at a time, or any thread with TW_THREAD_MULTI. Every call may be
/// made from a callback, except those that wait. No call blocks, except those that wait. With
/// TW_THREAD_MULTI a call may have to wait for another thread's call to end. A plain one does not
/// (no flag but TW_OP_MORE, TW_OP_INJECT, TW_OP_QUEUE and, of a receive, TW_OP_COMPLETION and
/// TW_OP_TRANSMIT_COMPLETE; no memory, source, queue, counter or handle) of a message that is short
/// enough for the transport's short sends: after the first such wait it is left to that thread, and
/// takes its place in the order of the calling thread's operations. A receive that was left is
/// reported as one that has to wait for its message, also if that was there.
#ifndef TAGWIRE_PROTOCOLS_API_TW_DATA_H
#define TAGWIRE_PROTOCOLS_API_TW_DATA_H

#include <protocols/api/tw_def.h>
#include <protocols/api/tw_worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Sends a tagged message.
///
/// `length` may be any number, 0 included. With TW_OP_INJECT the buffer may be reused as soon as
/// the call returns. fi_tsend(3), fi_tinject(3) and fi_tsenddata(3) are this call with flags.
///
/// \retval TW_OK  Sent: the buffer may be reused, and the completion level asked for by flags is
///     reached. **Without such a flag the message need not have left this process: one that waits
///     for room leaves by progress, or by tw_ep_flush(); with TW_OP_SENT_COMPLETE it has left.**
/// \retval TW_INPROGRESS  Started; the completion follows. Its status is TW_OK, TW_ERR_CANCELED
///     (tw_request_cancel(), or the endpoint was closed by force), or the endpoint's failure.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_EXCEEDS_LIMIT  TW_OP_INJECT with more than tw_worker_attr_t.inject_bytes_max.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint has failed; so are TW_ERR_NOT_CONNECTED,
///     TW_ERR_ENDPOINT_TIMEOUT and every other status that tw_ep_failed_cb_t was given.
TAGWIRE_API tw_status_t tw_tag_send(tw_ep_h ep, const void* buffer, size_t length, uint64_t tag,
                                    const tw_op_t* op, tw_request_h* request_p);

/// Sends a tagged message gathered from a list.
///
/// As tw_tag_send(), from up to TW_IOV_MAX elements. `iov` is copied; the memory that it names
/// belongs to the library until the completion.
///
/// \retval TW_ERR_INVALID_PARAM  Also: more elements than TW_IOV_MAX, or their total length
///     overflows size_t.
TAGWIRE_API tw_status_t tw_tag_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t tag,
                                     const tw_op_t* op, tw_request_h* request_p);

/// Receives a tagged message.
///
/// Matches a message whose tag t fulfills (t & ~ignore) == (tag & ~ignore), from any sender or only
/// from `op->source`. The receive is posted unless a message is there already. tw_message.h has
/// calls that look whether one is.
///
/// \retval TW_OK  A message was there and is in the buffer; `op->info` has its length, tag and
///     source.
/// \retval TW_INPROGRESS  Posted; the completion follows. Its status is TW_OK,
///     TW_ERR_MESSAGE_TRUNCATED, TW_ERR_CANCELED (tw_request_cancel(), or the sender has taken back
///     the data that was still with it, by a close by force), or, if its data was on the way or it
///     names a source, the failure of that endpoint.
/// \retval TW_ERR_MESSAGE_TRUNCATED  A longer message was there: `length` bytes of it are in the
///     buffer, the rest is lost. `op->info` has the message's length.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_CONNECTION_RESET  The endpoint `op->source` has failed; other statuses as for
///     tw_tag_send().
/// \retval TW_ERR_INVALID_PARAM  Also: `op->source` is an endpoint of another worker.
TAGWIRE_API tw_status_t tw_tag_recv(tw_worker_h worker, void* buffer, size_t length, uint64_t tag,
                                    uint64_t ignore, const tw_op_t* op, tw_request_h* request_p);

/// Receives a tagged message into a list.
///
/// As tw_tag_recv(), scattered over up to TW_IOV_MAX elements in their order. `iov` is copied; the
/// memory that it names belongs to the library until the completion.
///
/// \retval TW_ERR_INVALID_PARAM  Also: more elements than TW_IOV_MAX, or their total length
///     overflows size_t.
TAGWIRE_API tw_status_t tw_tag_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt,
                                     uint64_t tag, uint64_t ignore, const tw_op_t* op,
                                     tw_request_h* request_p);

/// Sends a message without a tag.
///
/// As tw_tag_send(), to a receive of tw_msg_recv() or tw_msg_recvv(). fi_send(3), fi_inject(3) and
/// fi_senddata(3) are this call with flags.
TAGWIRE_API tw_status_t tw_msg_send(tw_ep_h ep, const void* buffer, size_t length,
                                    const tw_op_t* op, tw_request_h* request_p);

/// Sends a message without a tag, gathered from a list.
///
/// As tw_tag_sendv(), to a receive of tw_msg_recv() or tw_msg_recvv().
TAGWIRE_API tw_status_t tw_msg_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt,
                                     const tw_op_t* op, tw_request_h* request_p);

/// Receives a message without a tag.
///
/// As tw_tag_recv(): takes the earliest message of tw_msg_send() from any sender, or only from
/// `op->source`.
TAGWIRE_API tw_status_t tw_msg_recv(tw_worker_h worker, void* buffer, size_t length,
                                    const tw_op_t* op, tw_request_h* request_p);

/// Receives a message without a tag into a list.
///
/// As tw_tag_recvv(), of messages of tw_msg_send().
TAGWIRE_API tw_status_t tw_msg_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt,
                                     const tw_op_t* op, tw_request_h* request_p);

/// Receives many messages without a tag in one buffer.
///
/// The buffer receives messages, one behind the other, until fewer than
/// tw_worker_attr_t.multi_recv_bytes_min bytes are left, or the receive is cancelled. Each message
/// is reported with a completion whose `buffer` points to it; one that is longer than the room that
/// is left has TW_ERR_MESSAGE_TRUNCATED. A last completion, of no message, has TW_DONE_MULTI_RECV:
/// all messages are complete, and the buffer is the program's again. `op` has a callback, a queue
/// or TW_OP_COMPLETION.
///
/// \retval TW_INPROGRESS  Posted, also if messages were there.
/// \retval TW_ERR_INVALID_PARAM  Also: `op` is NULL, or nobody would be told of the messages.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
TAGWIRE_API tw_status_t tw_msg_recv_multi(tw_worker_h worker, void* buffer, size_t length,
                                          const tw_op_t* op, tw_request_h* request_p);

/// Asks an operation to end early.
///
/// The operation completes once, as it would have, with TW_ERR_CANCELED or with what came first. A
/// receive that no message has matched completes at once. A send asks its peer: it completes when
/// the peer has replied, and with TW_ERR_CANCELED only if nothing had matched it there. Flushes,
/// and sends that can no longer be recalled, complete by themselves.
///
/// \retval TW_OK  Asked; or the operation has completed already.
/// \retval TW_ERR_INVALID_PARAM  `request` is NULL.
/// \retval TW_ERR_NO_MEMORY  Nothing happened.
TAGWIRE_API tw_status_t tw_request_cancel(tw_request_h request);

/// Tests whether an operation has completed.
///
/// For operations without a callback, a queue and TW_OP_COMPLETION. The call does not progress. The
/// handle stays valid until tw_request_free(); `done` may be NULL.
///
/// \retval TW_INPROGRESS  It has not completed; `done` is not written.
/// \retval TW_OK  It has completed with success, and `done` is filled.
/// \retval TW_ERR_MESSAGE_TRUNCATED  Or another error: it has completed with this status, and
///     `done` is filled.
TAGWIRE_API tw_status_t tw_request_test(tw_request_h request, tw_completion_t* done);

/// Progresses until an operation has completed.
///
/// For operations without a callback, a queue and TW_OP_COMPLETION. `timeout_ns` UINT64_MAX: no
/// limit. Neither tw_worker_signal() nor a signal handler ends this wait. The handle stays valid
/// until tw_request_free(). With TW_THREAD_MULTI several threads may wait, each for operations of
/// its own; the worker's lock is not held while they sleep.
///
/// \retval TW_OK  Or an error: the operation has completed with this status, and `done`, which may
///     be NULL, is filled.
/// \retval TW_INPROGRESS  `timeout_ns` have passed, and it has not completed.
/// \retval TW_ERR_INVALID_PARAM  Called from a callback, or the completion is reported elsewhere (a
///     callback, a queue), or `mode` is unknown.
/// \retval TW_ERR_IO_ERROR  TW_WAIT_SLEEP: as tw_worker_fd(). TW_ERR_UNSUPPORTED likewise.
/// \retval TW_ERR_NO_MEMORY  Out of memory; the operation goes on.
TAGWIRE_API tw_status_t tw_request_wait(tw_request_h request, tw_wait_mode_t mode,
                                        uint64_t timeout_ns, tw_completion_t* done);

/// Progresses until one of several operations has completed.
///
/// As tw_request_wait(), for `count` operations of one worker. NULLs among them, of calls that
/// completed at once, are passed over.
///
/// \retval TW_OK  *index_p is the first that has completed; tw_request_test() tells how.
/// \retval TW_INPROGRESS  `timeout_ns` have passed, and none has completed.
/// \retval TW_ERR_NO_ELEM  All are NULL.
/// \retval TW_ERR_INVALID_PARAM  Also: operations of several workers.
TAGWIRE_API tw_status_t tw_wait_any(const tw_request_h* requests, size_t count, tw_wait_mode_t mode,
                                    uint64_t timeout_ns, size_t* index_p);

/// Progresses until all of several operations have completed.
///
/// As tw_wait_any(). tw_request_test() tells of each operation how it completed.
///
/// \retval TW_OK  All have completed, or all are NULL.
/// \retval TW_INPROGRESS  `timeout_ns` have passed, and at least one has not completed.
/// \retval TW_ERR_INVALID_PARAM  Also: operations of several workers.
TAGWIRE_API tw_status_t tw_wait_all(const tw_request_h* requests, size_t count, tw_wait_mode_t mode,
                                    uint64_t timeout_ns);

/// Releases the handle of an operation.
///
/// For operations without a callback, a queue and TW_OP_COMPLETION. An operation that has not
/// completed goes on, its buffer stays the library's, and nobody is told of its completion. NULL is
/// ignored.
TAGWIRE_API void tw_request_free(tw_request_h request);

#ifdef __cplusplus
}
#endif

#endif
