// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Lists: puts and gets of any number of pieces as one operation. Included by tagwire.h.
///
/// \par Pieces
/// A piece is `length` bytes of local memory and as many of the peer's memory. A stride is `count`
/// pieces of one length at equal distances. A list has any number of both, over any number of
/// registered memories and keys, all of one owner. Pieces are moved in any order, also those that
/// overlap. Pieces of no bytes, strides of no pieces and lists of nothing are allowed.
///
/// \par One operation
/// A list has one completion, of the bytes of all pieces (tw_completion_t.length), one status, that
/// of the first failure that was found, and one cancel. Where it fails, pieces may have moved. With
/// TW_OP_IMM the target of a put is told once, when the data of all pieces is visible, over
/// whatever transports they went: the notice has the address of the first piece, and the counter of
/// its memory counts it.
///
/// \par Memory
/// The struct tw_list_t is read in the call. The arrays that it names, the memory of the pieces,
/// and the keys belong to the library until the completion: nothing of them is copied. A prepared
/// list (tw_prepare()) is a copy that was checked, to be used again and again.
///
/// \par How
/// As single operations (tw_rma.h), many at a time. Over shared memory, memory of tw_mem_alloc() is
/// read and written by plain copies, other memory by a system call for up to 256 pieces. RDMA
/// devices get chains of requests, up to 64 at a time, where each piece has a handle (`mem`);
/// else all pieces are copied by the library, as the device reaches registered memory only. Long
/// lists are divided over several rails as long puts are. Elsewhere the peer's progress carries
/// them out: puts in parts of one put, gets one by one, several at a time.
///
/// Sources of the semantics: fi_rma(3) (fi_writemsg() with rma_iov), shmem_iput(3), MPI_Put() with
/// derived datatypes.
#ifndef TAGWIRE_PROTOCOLS_API_TW_LIST_H
#define TAGWIRE_PROTOCOLS_API_TW_LIST_H

#include <protocols/api/tw_def.h>
#include <protocols/api/tw_rma.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A piece.
typedef struct tw_piece {
    void* local;      ///< Read by a put, written by a get.
    uint64_t remote;  ///< By the owner's addresses.
    size_t length;    ///< In bytes.
    tw_key_h key;     ///< The key of the memory at `remote`.
    tw_mem_h mem;     ///< The handle of the memory at `local`; NULL: it has none.
} tw_piece_t;

/// Pieces at equal distances.
typedef struct tw_stride {
    void* local;      ///< The first piece's.
    uint64_t remote;  ///< The first piece's.
    size_t length;    ///< The length of each piece, in bytes.
    size_t count;
    ptrdiff_t local_distance;   ///< From the start of one piece to that of the next, in bytes.
    ptrdiff_t remote_distance;  ///< As local_distance.
    tw_key_h key;
    tw_mem_h mem;
} tw_stride_t;

/// A list. The program sets struct_bytes.
typedef struct tw_list {
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_list));  ///< sizeof(tw_list_t).
    const tw_piece_t* pieces;
    size_t piece_count;
    const tw_stride_t* strides;
    size_t stride_count;
} tw_list_t;

/// Writes the pieces of a list to memory of the peer.
///
/// Completion levels and flags as for tw_put(), without TW_OP_INJECT; `op->mem` is NULL, as
/// each piece names its own.
///
/// tw_request_cancel() ends a list whose pieces have not all begun: those under way go on, no other
/// begins, and the completion says TW_ERR_CANCELED. One that goes by messages to the target
/// (tw_key_explain()) cannot be cancelled once it has begun.
///
/// \retval TW_OK  Complete.
/// \retval TW_INPROGRESS  Started; the completion follows.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With TW_OP_IMM
///     also while the peer has paused this side. With TW_OP_QUEUE the library keeps the operation,
///     up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_ADDR  A piece is not inside the memory of its key, or the key does not
///     give the right. Nothing happened; the log names the piece. Found later: the completion's.
/// \retval TW_ERR_INVALID_PARAM  An argument or an array is NULL; struct_bytes is not a size of
///     this struct; a piece has bytes and no `local`, no key, a key that is not to be used with the
///     endpoint, or memory that is not inside that of `mem` or is of another context; op->mem is
///     not NULL; the bytes of all pieces overflow size_t; TW_OP_IMM with a list of no pieces, which
///     names no memory. Nothing happened; the log names the piece.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
/// \retval any other error  As for tw_put().
TAGWIRE_API tw_status_t tw_put_list(tw_ep_h ep, const tw_list_t* list, const tw_op_t* op,
                                    tw_request_h* request_p);

/// Reads memory of the peer into the pieces of a list.
///
/// As tw_put_list(); flags as for tw_get().
///
/// \retval TW_ERR_INVALID_PARAM  Also: memory of `mem` was mapped read-only.
TAGWIRE_API tw_status_t tw_get_list(tw_ep_h ep, const tw_list_t* list, const tw_op_t* op,
                                    tw_request_h* request_p);

typedef struct tw_prepared* tw_prepared_h;  ///< A list to be used again; see tw_prepare().

/// Checks a list, and keeps a copy of it.
///
/// `kind` is TW_RMA_PUT or TW_RMA_GET. The list is for any endpoint of the worker to the owner of
/// its keys. The copy holds the keys: tw_key_free() is allowed before. Memory handles stay mapped
/// until tw_prepared_free(). Any thread.
///
/// \retval TW_OK  *prepared_p is the prepared list; tw_prepared_free() releases it.
/// \retval TW_ERR_INVALID_ADDR  As for tw_put_list().
/// \retval TW_ERR_INVALID_PARAM  As for tw_put_list(); or `kind` is another one, or keys are of
///     several owners.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_prepare(tw_worker_h worker, tw_rma_kind_t kind, const tw_list_t* list,
                                   tw_prepared_h* prepared_p);

/// Puts or gets a prepared list. Several operations with it may be under way at a time.
///
/// As tw_put_list() or tw_get_list(), without a look at each piece.
///
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or the list is not to be used with the
///     endpoint: it is of another worker, or of memory of another owner.
TAGWIRE_API tw_status_t tw_run_prepared(tw_ep_h ep, tw_prepared_h prepared, const tw_op_t* op,
                                        tw_request_h* request_p);

/// Releases a prepared list. Operations under way with it go on. NULL is ignored. Any thread.
TAGWIRE_API void tw_prepared_free(tw_prepared_h prepared);

#ifdef __cplusplus
}
#endif

#endif
