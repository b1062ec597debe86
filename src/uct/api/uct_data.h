// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// The data path of the transport API.
///
/// Included by uct.h. Each call is one indirect call through the operations table of its interface.
/// `tagwire_uct_ep_put_short()` and so on are the same calls as library symbols, for bindings of
/// other languages (<uct/api/tagwire_ffi.h>).
///
/// \par Statuses
/// Besides the statuses named above, a call on an endpoint or an interface returns:
/// - UCS_ERR_NO_RESOURCE: nothing was done. Call uct_worker_progress() and retry, or queue the
///   operation by uct_ep_pending_add().
/// - UCS_ERR_UNSUPPORTED: the interface lacks the operation; its bit in cap.flags is clear.
/// - UCS_ERR_INVALID_PARAM: nothing was done. A length is outside the limits of uct_iface_query().
/// - UCS_ERR_INVALID_ADDR (put, get and atomics, where cap.flags has ERRHANDLE_REMOTE_MEM): the
///   peer did not grant this address or key.
/// - UCS_ERR_CONNECTION_RESET: nothing was done. The endpoint has failed: its peer is gone.
/// - UCS_ERR_ENDPOINT_TIMEOUT: nothing was done. The endpoint has failed: its peer did not answer.
///
/// \par Completions
/// UCS_INPROGRESS means that `comp` is counted down when the operation ends; with any other status
/// it is not touched. `comp` may be NULL where the program needs no notice; a flush then tells when
/// buffers are free.
///
/// \par Threads
/// The thread that owns the worker (uct_worker_create() tells which). No call blocks.
#ifndef TAGWIRE_UCT_API_UCT_DATA_H
#define TAGWIRE_UCT_API_UCT_DATA_H

#include <uct/api/tl.h>
#include <uct/api/uct_attr.h>
#include <uct/api/uct_def.h>

BEGIN_C_DECLS

// ---- Progress

/// Advances everything opened on the worker: sends, receives, callbacks, error detection. Returns 0
/// when nothing happened. Not to be called from inside a callback: the interface that runs it is
/// not advanced then.
UCT_INLINE_API unsigned uct_worker_progress(uct_worker_h worker) {
    return ucs_callbackq_dispatch(&worker->progress_q);
}

/// Lets uct_worker_progress() advance this interface; `flags` are UCT_PROGRESS_x. A new interface
/// is not progressed. UCT_PROGRESS_THREAD_SAFE: another thread may be progressing the worker now.
UCT_INLINE_API void uct_iface_progress_enable(uct_iface_h iface, unsigned flags) {
    iface->ops.iface_progress_enable(iface, flags);
}

/// Ends what uct_iface_progress_enable() began.
UCT_INLINE_API void uct_iface_progress_disable(uct_iface_h iface, unsigned flags) {
    iface->ops.iface_progress_disable(iface, flags);
}

/// Advances this interface alone, enabled or not. Returns 0 when nothing happened.
UCT_INLINE_API unsigned uct_iface_progress(uct_iface_h iface) {
    return iface->ops.iface_progress(iface);
}

// ---- Completion of what was started

/// Completes when everything that endpoints of an interface have sent is done locally.
///
/// Buffers may then be reused. With TAGWIRE_UCT_FLUSH_FLAG_REMOTE the memory of the targets has
/// been written, too.
///
/// \retval UCS_OK  Nothing is outstanding.
/// \retval UCS_INPROGRESS  Ask again after progress; `comp`, if given, fires.
/// \retval UCS_ERR_UNSUPPORTED  The interface takes no completion here (shared memory, as in UCX):
///     pass NULL.
UCT_INLINE_API ucs_status_t uct_iface_flush(uct_iface_h iface, unsigned flags,
                                            uct_completion_t* comp) {
    return iface->ops.iface_flush(iface, flags, comp);
}

/// Orders what is posted later on the endpoints of an interface behind what was posted before.
///
/// `flags` is 0.
///
/// \retval UCS_OK  Ordered.
UCT_INLINE_API ucs_status_t uct_iface_fence(uct_iface_h iface, unsigned flags) {
    return iface->ops.iface_fence(iface, flags);
}

/// Completes when everything that an endpoint has sent is done locally.
///
/// With UCT_FLUSH_FLAG_CANCEL operations that have not been carried out end with UCS_ERR_CANCELED
/// instead, and so do flushes that wait, but for the one that cancels; the endpoint can only be
/// destroyed afterwards. Pending requests are not covered: purge them.
/// TAGWIRE_UCT_FLUSH_FLAG_REMOTE also waits until the target's memory has been written.
///
/// \retval UCS_OK  Nothing is outstanding.
/// \retval UCS_INPROGRESS  Ask again after progress; `comp`, if given, fires.
UCT_INLINE_API ucs_status_t uct_ep_flush(uct_ep_h ep, unsigned flags, uct_completion_t* comp) {
    return ep->iface->ops.ep_flush(ep, flags, comp);
}

/// Orders what is posted later on an endpoint behind what was posted before.
///
/// `flags` is 0.
///
/// \retval UCS_OK  Ordered.
UCT_INLINE_API ucs_status_t uct_ep_fence(uct_ep_h ep, unsigned flags) {
    return ep->iface->ops.ep_fence(ep, flags);
}

/// Queues `req` until the endpoint may have resources again; then req->func runs inside progress
/// and retries. UCS_OK: queued, req belongs to the transport. UCS_ERR_BUSY: not queued, resources
/// are there already: retry now. While requests are queued, other sends of the endpoint answer
/// UCS_ERR_NO_RESOURCE, so that order is kept. `flags` is 0.
UCT_INLINE_API ucs_status_t uct_ep_pending_add(uct_ep_h ep, uct_pending_req_t* req,
                                               unsigned flags) {
    return ep->iface->ops.ep_pending_add(ep, req, flags);
}

/// Empties the queue of pending requests of an endpoint.
///
/// Hands each request to `cb`, in order. Needed before uct_ep_destroy() when any is left.
UCT_INLINE_API void uct_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb, void* arg) {
    ep->iface->ops.ep_pending_purge(ep, cb, arg);
}

// ---- Active messages. `id` is below UCT_AM_ID_MAX; the receiver's handler for it gets the
// message.

/// Sends header and payload, which are copied before the call returns. The handler sees the 8 bytes
/// of `header` followed by the payload. `length` + 8 is at most cap.am.max_short; 0 is allowed.
/// UCS_OK.
UCT_INLINE_API ucs_status_t uct_ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header,
                                            const void* payload, unsigned length) {
    return ep->iface->ops.ep_am_short(ep, id, header, payload, length);
}

/// Sends the elements of `iov` one behind the other, without a header. Together at most
/// cap.am.max_short. UCS_OK.
UCT_INLINE_API ucs_status_t uct_ep_am_short_iov(uct_ep_h ep, uint8_t id, const uct_iov_t* iov,
                                                size_t iovcnt) {
    return ep->iface->ops.ep_am_short_iov(ep, id, iov, iovcnt);
}

/// Sends what `pack_cb` writes (at most cap.am.max_bcopy) and returns its length, or a negative
/// status; then pack_cb was not called. `flags` are UCT_SEND_FLAG_x.
UCT_INLINE_API ssize_t uct_ep_am_bcopy(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack_cb,
                                       void* arg, unsigned flags) {
    return ep->iface->ops.ep_am_bcopy(ep, id, pack_cb, arg, flags);
}

/// Sends a header (copied at once, at most cap.am.max_hdr) and the elements of `iov` (at most
/// cap.am.max_iov of them and cap.am.max_zcopy bytes with the header). UCS_OK: the buffers are
/// free. UCS_INPROGRESS: when `comp` fires.
UCT_INLINE_API ucs_status_t uct_ep_am_zcopy(uct_ep_h ep, uint8_t id, const void* header,
                                            unsigned header_length, const uct_iov_t* iov,
                                            size_t iovcnt, unsigned flags, uct_completion_t* comp) {
    return ep->iface->ops.ep_am_zcopy(ep, id, header, header_length, iov, iovcnt, flags, comp);
}

// ---- Put and get. `remote_addr` is the address in the peer's memory that `rkey` was made for. An
// address or key that the peer did not grant is UCS_ERR_INVALID_ADDR where cap.flags has
// ERRHANDLE_REMOTE_MEM.

/// Writes `length` bytes (at most cap.put.max_short), copied before the call returns. UCS_OK.
UCT_INLINE_API ucs_status_t uct_ep_put_short(uct_ep_h ep, const void* buffer, unsigned length,
                                             uint64_t remote_addr, uct_rkey_t rkey) {
    return ep->iface->ops.ep_put_short(ep, buffer, length, remote_addr, rkey);
}

/// Writes what `pack_cb` produces (at most cap.put.max_bcopy). Returns its length or a negative
/// status.
UCT_INLINE_API ssize_t uct_ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb, void* arg,
                                        uint64_t remote_addr, uct_rkey_t rkey) {
    return ep->iface->ops.ep_put_bcopy(ep, pack_cb, arg, remote_addr, rkey);
}

/// Writes the elements of `iov` one behind the other. UCS_OK or UCS_INPROGRESS.
UCT_INLINE_API ucs_status_t uct_ep_put_zcopy(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                             uint64_t remote_addr, uct_rkey_t rkey,
                                             uct_completion_t* comp) {
    return ep->iface->ops.ep_put_zcopy(ep, iov, iovcnt, remote_addr, rkey, comp);
}

/// Reads `length` bytes (at most cap.get.max_short) into `buffer`, which is filled when the call
/// returns UCS_OK. UCS_INPROGRESS: the peer must send the bytes; they are there when a flush of the
/// endpoint completes.
UCT_INLINE_API ucs_status_t uct_ep_get_short(uct_ep_h ep, void* buffer, unsigned length,
                                             uint64_t remote_addr, uct_rkey_t rkey) {
    return ep->iface->ops.ep_get_short(ep, buffer, length, remote_addr, rkey);
}

/// Reads `length` bytes (at most cap.get.max_bcopy) and hands them to `unpack_cb`: before the call
/// returns UCS_OK, or before `comp` fires.
UCT_INLINE_API ucs_status_t uct_ep_get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack_cb,
                                             void* arg, size_t length, uint64_t remote_addr,
                                             uct_rkey_t rkey, uct_completion_t* comp) {
    return ep->iface->ops.ep_get_bcopy(ep, unpack_cb, arg, length, remote_addr, rkey, comp);
}

/// Reads into the elements of `iov`, one behind the other. UCS_OK or UCS_INPROGRESS.
UCT_INLINE_API ucs_status_t uct_ep_get_zcopy(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                             uint64_t remote_addr, uct_rkey_t rkey,
                                             uct_completion_t* comp) {
    return ep->iface->ops.ep_get_zcopy(ep, iov, iovcnt, remote_addr, rkey, comp);
}

// ---- Atomics. `remote_addr` is aligned to the operand's size, else UCS_ERR_INVALID_PARAM.
// cap.flags says with what the operations are atomic (ATOMIC_CPU, ATOMIC_DEVICE), cap.atomic32 and
// cap.atomic64 which `opcode` each call takes. Fetching calls write the old value to `*result`:
// before UCS_OK, or before `comp` fires.

/// Compares 64 bits of the peer's memory with a value and replaces them if they are equal.
///
/// Writes `swap` where the memory holds `compare`; `*result` gets the old value, which equals
/// `compare` if the swap took place.
///
/// \retval UCS_OK  Done: *result has the old value.
/// \retval UCS_INPROGRESS  Started: *result has the old value when `comp` fires.
/// \retval UCS_ERR_INVALID_PARAM  `remote_addr` is not aligned to the operand.
UCT_INLINE_API ucs_status_t uct_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap,
                                                  uint64_t remote_addr, uct_rkey_t rkey,
                                                  uint64_t* result, uct_completion_t* comp) {
    return ep->iface->ops.ep_atomic_cswap64(ep, compare, swap, remote_addr, rkey, result, comp);
}

/// Compares 32 bits of the peer's memory with a value and replaces them if they are equal.
///
/// Writes `swap` where the memory holds `compare`; `*result` gets the old value, which equals
/// `compare` if the swap took place.
///
/// \retval UCS_OK  Done: *result has the old value.
/// \retval UCS_INPROGRESS  Started: *result has the old value when `comp` fires.
/// \retval UCS_ERR_INVALID_PARAM  `remote_addr` is not aligned to the operand.
UCT_INLINE_API ucs_status_t uct_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap,
                                                  uint64_t remote_addr, uct_rkey_t rkey,
                                                  uint32_t* result, uct_completion_t* comp) {
    return ep->iface->ops.ep_atomic_cswap32(ep, compare, swap, remote_addr, rkey, result, comp);
}

/// Changes 32 bits of the peer's memory atomically, without a result.
///
/// `opcode` is one that cap.atomic32.op_flags of uct_iface_query() has.
///
/// \retval UCS_OK  Posted; a flush of the endpoint tells when it is done.
/// \retval UCS_INPROGRESS  Likewise.
/// \retval UCS_ERR_INVALID_PARAM  `remote_addr` is not aligned to the operand.
UCT_INLINE_API ucs_status_t uct_ep_atomic32_post(uct_ep_h ep, uct_atomic_op_t opcode,
                                                 uint32_t value, uint64_t remote_addr,
                                                 uct_rkey_t rkey) {
    return ep->iface->ops.ep_atomic32_post(ep, (unsigned)opcode, value, remote_addr, rkey);
}

/// Changes 64 bits of the peer's memory atomically, without a result.
///
/// `opcode` is one that cap.atomic64.op_flags of uct_iface_query() has.
///
/// \retval UCS_OK  Posted; a flush of the endpoint tells when it is done.
/// \retval UCS_INPROGRESS  Likewise.
/// \retval UCS_ERR_INVALID_PARAM  `remote_addr` is not aligned to the operand.
UCT_INLINE_API ucs_status_t uct_ep_atomic64_post(uct_ep_h ep, uct_atomic_op_t opcode,
                                                 uint64_t value, uint64_t remote_addr,
                                                 uct_rkey_t rkey) {
    return ep->iface->ops.ep_atomic64_post(ep, (unsigned)opcode, value, remote_addr, rkey);
}

/// Changes 32 bits of the peer's memory atomically and fetches the old value.
///
/// `opcode` is one that cap.atomic32.fop_flags of uct_iface_query() has.
///
/// \retval UCS_OK  Done: *result has the old value.
/// \retval UCS_INPROGRESS  Started: *result has the old value when `comp` fires.
/// \retval UCS_ERR_INVALID_PARAM  `remote_addr` is not aligned to the operand.
UCT_INLINE_API ucs_status_t uct_ep_atomic32_fetch(uct_ep_h ep, uct_atomic_op_t opcode,
                                                  uint32_t value, uint32_t* result,
                                                  uint64_t remote_addr, uct_rkey_t rkey,
                                                  uct_completion_t* comp) {
    return ep->iface->ops.ep_atomic32_fetch(ep, (unsigned)opcode, value, result, remote_addr, rkey,
                                            comp);
}

/// Changes 64 bits of the peer's memory atomically and fetches the old value.
///
/// `opcode` is one that cap.atomic64.fop_flags of uct_iface_query() has.
///
/// \retval UCS_OK  Done: *result has the old value.
/// \retval UCS_INPROGRESS  Started: *result has the old value when `comp` fires.
/// \retval UCS_ERR_INVALID_PARAM  `remote_addr` is not aligned to the operand.
UCT_INLINE_API ucs_status_t uct_ep_atomic64_fetch(uct_ep_h ep, uct_atomic_op_t opcode,
                                                  uint64_t value, uint64_t* result,
                                                  uint64_t remote_addr, uct_rkey_t rkey,
                                                  uct_completion_t* comp) {
    return ep->iface->ops.ep_atomic64_fetch(ep, (unsigned)opcode, value, result, remote_addr, rkey,
                                            comp);
}

// ---- Tagged messages: sends name an endpoint, receives are posted on the interface. (UCX's
// UCT_TAG pages.)

/// Sends a message whose data is copied before the call returns; at most cap.tag.eager.max_short
/// bytes, 0 is allowed. The receiver's immediate is 0. UCS_OK.
UCT_INLINE_API ucs_status_t uct_ep_tag_eager_short(uct_ep_h ep, uct_tag_t tag, const void* data,
                                                   size_t length) {
    return ep->iface->ops.ep_tag_eager_short(ep, tag, data, length);
}

/// Sends what `pack_cb` writes (at most cap.tag.eager.max_bcopy) and returns its length, or a
/// negative status; then pack_cb was not called. `flags` are UCT_SEND_FLAG_x.
UCT_INLINE_API ssize_t uct_ep_tag_eager_bcopy(uct_ep_h ep, uct_tag_t tag, uint64_t imm,
                                              uct_pack_callback_t pack_cb, void* arg,
                                              unsigned flags) {
    return ep->iface->ops.ep_tag_eager_bcopy(ep, tag, imm, pack_cb, arg, flags);
}

/// Sends the elements of `iov` (at most cap.tag.eager.max_iov and max_zcopy bytes; none is an empty
/// message). UCS_OK: the buffers are free. UCS_INPROGRESS: when `comp` fires.
UCT_INLINE_API ucs_status_t uct_ep_tag_eager_zcopy(uct_ep_h ep, uct_tag_t tag, uint64_t imm,
                                                   const uct_iov_t* iov, size_t iovcnt,
                                                   unsigned flags, uct_completion_t* comp) {
    return ep->iface->ops.ep_tag_eager_zcopy(ep, tag, imm, iov, iovcnt, flags, comp);
}

/// Announces the buffers; the receiver moves the data when a receive matches. `header` (at most
/// cap.tag.rndv.max_hdr bytes, copied) reaches the receiver only when nothing was posted. Returns a
/// handle for uct_ep_tag_rndv_cancel(), or a status (UCS_PTR_IS_ERR). `comp` fires when the
/// receiver has the data; it must not be NULL.
UCT_INLINE_API ucs_status_ptr_t uct_ep_tag_rndv_zcopy(uct_ep_h ep, uct_tag_t tag,
                                                      const void* header, unsigned header_length,
                                                      const uct_iov_t* iov, size_t iovcnt,
                                                      unsigned flags, uct_completion_t* comp) {
    return ep->iface->ops.ep_tag_rndv_zcopy(ep, tag, header, header_length, iov, iovcnt, flags,
                                            comp);
}

/// Cancels a rendezvous that has not completed, on this side only. The handle is void afterwards,
/// the completion never fires, and the buffer may be reused at once. UCS_OK.
UCT_INLINE_API ucs_status_t uct_ep_tag_rndv_cancel(uct_ep_h ep, void* op) {
    return ep->iface->ops.ep_tag_rndv_cancel(ep, op);
}

/// Sends a rendezvous request without a buffer: the header (at most cap.tag.rndv.max_hdr bytes,
/// copied) takes part in matching, the layer above moves the data. UCS_OK.
UCT_INLINE_API ucs_status_t uct_ep_tag_rndv_request(uct_ep_h ep, uct_tag_t tag, const void* header,
                                                    unsigned header_length, unsigned flags) {
    return ep->iface->ops.ep_tag_rndv_request(ep, tag, header, header_length, flags);
}

/// Posts a receive: the first arriving message with (its tag & tag_mask) == (tag & tag_mask) that
/// no earlier posted receive matches goes into the elements of `iov` (cap.tag.recv.max_iov, between
/// min_recv and max_zcopy bytes). Buffers and `ctx` stay with the transport until completed_cb or
/// rndv_cb ran. Messages that were reported as unexpected are not looked at again. Where a device
/// matches (rc, dc), a message may be reported as unexpected after the receive for it was posted,
/// because a message that is on its way from the device to the callback matches no receive posted
/// meanwhile. Such a callback must search the program's posted receives, too. UCS_OK: posted.
/// UCS_ERR_EXCEEDS_LIMIT: cap.tag.recv.max_outstanding receives are posted. UCS_ERR_ALREADY_EXISTS:
/// another receive, whatever its tag, has its first byte at the same address and has not ended: a
/// buffer belongs to one receive at a time, on every transport, until completed_cb or rndv_cb runs
/// or uct_iface_tag_recv_cancel() with `force` answers UCS_OK. Receives of 0 bytes are exempt.
UCT_INLINE_API ucs_status_t uct_iface_tag_recv_zcopy(uct_iface_h iface, uct_tag_t tag,
                                                     uct_tag_t tag_mask, const uct_iov_t* iov,
                                                     size_t iovcnt, uct_tag_context_t* ctx) {
    return iface->ops.iface_tag_recv_zcopy(iface, tag, tag_mask, iov, iovcnt, ctx);
}

/// Cancels a posted receive. `force` 0: completed_cb runs in progress, with UCS_ERR_CANCELED (and
/// the tag and the length that were posted) or with the message that came first. `force` not 0: no
/// callback runs any more, nothing is written to the buffer any more, and `ctx` is free. UCS_OK.
/// UCS_ERR_BUSY, with `force`: a message is being written to the buffer, by a device or by a sender
/// that is stopped in the middle; completed_cb follows.
UCT_INLINE_API ucs_status_t uct_iface_tag_recv_cancel(uct_iface_h iface, uct_tag_context_t* ctx,
                                                      int force) {
    return iface->ops.iface_tag_recv_cancel(iface, ctx, force);
}

// ---- Descriptors and completions

/// Gives back a descriptor that a receive callback kept by returning UCS_INPROGRESS. `desc` is the
/// `data` (or `header`) that the callback got, less the rx_headroom of uct_iface_params_t.
TAGWIRE_API void uct_iface_release_desc(void* desc) TAGWIRE_SYMBOL(uct_iface_release_desc);

/// Notes a failure in a completion; the first one stays.
UCT_INLINE_API void uct_completion_update_status(uct_completion_t* comp, ucs_status_t status) {
    if (ucs_unlikely(status != UCS_OK) && comp->status == UCS_OK)
        comp->status = status;
}

END_C_DECLS

#endif
