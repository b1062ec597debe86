// SPDX-License-Identifier: BSD-3-Clause
//
// Sending and receiving. Included by tagwire.h.
//
// Tagged and untagged messages live in name spaces of their own. Within one, a receive takes the
// earliest message that it matches, and a message the earliest posted receive; messages of one
// sender to one receiver are matched in the order in which they were sent, whatever their lengths.
//
// Every call answers one of
//   TW_OK               done within the call; nothing follows (see TW_OP_COMPLETION)
//   TW_INPROGRESS       goes on; its end is reported to op->complete, to the completion queue
//                       (TW_OP_COMPLETION), to tw_request_test(), or, with none of these, to nobody
//                       unless it fails: then to the completion queue
//   TW_ERR_NO_RESOURCE  again: nothing happened
//   another error       nothing happened, or (receives that ended in the call, with op->done) how
//                       it ended
//
// `op` may be NULL. `request_p` may be NULL; where it is not it gets the operation with
// TW_INPROGRESS. With a callback or TW_OP_COMPLETION the handle is valid until the end was
// reported; without, until tw_request_free().
#ifndef TAGWIRE_PROTOCOLS_API_TW_DATA_H
#define TAGWIRE_PROTOCOLS_API_TW_DATA_H

#include <protocols/api/tw_context.h>
#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Sends `length` bytes (any number, 0 included) with a tag. The buffer must not change until the
/// end, unless TW_OP_INJECT. fi_tsend(), fi_tinject(), fi_tsenddata() are this call with flags.
/// Besides: the status of the endpoint's failure, TW_ERR_EXCEEDS_LIMIT (INJECT: too long).
TAGWIRE_API tw_status_t tw_tag_send(tw_ep_h ep, const void* buffer, size_t length, uint64_t tag,
                                    const tw_op_t* op, tw_request_h* request_p);

/// The same, gathered from up to TW_IOV_MAX elements; the list is copied.
TAGWIRE_API tw_status_t tw_tag_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t tag,
                                     const tw_op_t* op, tw_request_h* request_p);

/// Receives a message t with (t & ~ignore) == (tag & ~ignore), from anybody or from op->source. The
/// buffer belongs to the library until the end. TW_ERR_MESSAGE_TRUNCATED: `length` bytes of a
/// longer message are in the buffer.
TAGWIRE_API tw_status_t tw_tag_recv(tw_worker_h worker, void* buffer, size_t length, uint64_t tag,
                                    uint64_t ignore, const tw_op_t* op, tw_request_h* request_p);

TAGWIRE_API tw_status_t tw_tag_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt,
                                     uint64_t tag, uint64_t ignore, const tw_op_t* op,
                                     tw_request_h* request_p);

/// As the tagged calls, for messages without a tag. fi_send(3) and its kin.
TAGWIRE_API tw_status_t tw_msg_send(tw_ep_h ep, const void* buffer, size_t length,
                                    const tw_op_t* op, tw_request_h* request_p);
TAGWIRE_API tw_status_t tw_msg_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt,
                                     const tw_op_t* op, tw_request_h* request_p);
TAGWIRE_API tw_status_t tw_msg_recv(tw_worker_h worker, void* buffer, size_t length,
                                    const tw_op_t* op, tw_request_h* request_p);
TAGWIRE_API tw_status_t tw_msg_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt,
                                     const tw_op_t* op, tw_request_h* request_p);

/// Asks that an operation end early. It ends once, as it would have, with TW_ERR_CANCELED or with
/// what came first. A receive that no message has matched ends at once; a send ends when the peer
/// has answered, and with TW_ERR_CANCELED only if nothing had matched it. Flushes, and what cannot
/// be recalled, end by themselves. TW_OK.
TAGWIRE_API tw_status_t tw_request_cancel(tw_request_h request);

/// Whether an operation without callback and TW_OP_COMPLETION has ended: TW_INPROGRESS, or the
/// status of its end, with `done` (which may be NULL) filled.
TAGWIRE_API tw_status_t tw_request_test(tw_request_h request, tw_completion_t* done);

/// Progresses until such an operation has ended: what tw_request_test() answers then.
/// TW_INPROGRESS: `timeout_ns` have passed (UINT64_MAX: no limit), and it goes on. Neither
/// tw_worker_signal() nor a signal handler ends this wait. TW_ERR_INVALID_PARAM: in a callback,
/// where nothing can be waited for, or the end is told elsewhere (a callback, TW_OP_COMPLETION).
/// TW_ERR_IO_ERROR, TW_ERR_UNSUPPORTED: as tw_worker_fd(), with TW_WAIT_SLEEP.
TAGWIRE_API tw_status_t tw_request_wait(tw_request_h request, tw_wait_mode_t mode,
                                        uint64_t timeout_ns, tw_completion_t* done);

/// The same until one of `count` operations of one worker has ended. NULLs among them, of calls
/// that ended at once, are passed over. TW_OK: *index_p is the first that has; tw_request_test()
/// tells how. TW_ERR_NO_ELEM: all are NULL.
TAGWIRE_API tw_status_t tw_wait_any(const tw_request_h* requests, size_t count, tw_wait_mode_t mode,
                                    uint64_t timeout_ns, size_t* index_p);

/// The same until all of them have ended. TW_OK: they have (or all are NULL); tw_request_test()
/// tells of each how.
TAGWIRE_API tw_status_t tw_wait_all(const tw_request_h* requests, size_t count, tw_wait_mode_t mode,
                                    uint64_t timeout_ns);

/// Gives up such a handle; an operation that has not ended goes on, and nobody is told of its end.
TAGWIRE_API void tw_request_free(tw_request_h request);

/// Bytes of tw_op_t.request.
TAGWIRE_API size_t tw_request_bytes(void);

#ifdef __cplusplus
}
#endif

#endif
