// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// One-sided operations: put, get and atomics on memory of a peer. Included by tagwire.h.
///
/// \par Memory
/// The owner makes memory known (tw_mem_map(), tw_mem_alloc()), packs its key (tw_mem_pack()) and
/// sends the key to its peers in any way. A peer unpacks it for a worker (tw_key_unpack()), uses it
/// with any endpoint of that worker to a worker of the owner's context, and names memory by the
/// owner's addresses.
///
/// \par How
/// Where the transport of the endpoint reaches the memory, the operation needs no progress of the
/// peer: over shared memory, memory of tw_mem_alloc() is read and written by plain loads and
/// stores; over RDMA devices all memory is reached by put and get, and by atomics of 64 bits where
/// every rail of the owner's context is of one device that has them (dc alone). Elsewhere (`ud`,
/// `tcp`, other atomics) the peer's progress carries the operation out. The calls are the same. A
/// packed key of a context with many devices has no room for all of their keys: the library asks
/// the owner for one that an endpoint lacks, and its progress carries operations out until it has
/// told that. On memory of its own context a worker needs no transport: operations on its endpoint
/// to itself have ended when the call returns, but those with TW_OP_FENCE or TW_OP_IMM, those
/// behind operations that wait, and atomics of 64 bits where a device carries them out.
/// tw_key_explain() says which way an operation goes.
///
/// \par Order
/// Operations are not ordered among each other, nor with messages, and do not wait for messages
/// that were sent before, except by
/// - TW_OP_FENCE: the operation, or message, and all later ones to the same peer take effect after
///   everything before it. A message behind a fence is matched after the data of earlier puts is
///   visible to its receiver;
/// - tw_ep_flush() at TW_FLUSH_DELIVERED: when it has completed, all earlier operations have taken
///   effect;
/// - the notice of a put (TW_OP_IMM): it is given when the data of this put is visible. A counter
///   of the memory (tw_mem_params_t) counts the put then.
///
/// \par Statuses
/// As for sends ("Statuses" in tw_data.h), and
/// - TW_ERR_INVALID_ADDR: the range is not inside the memory of the key, the key does not give this
///   right, or the memory is not known any more. Found by this side: nothing happened. Found by the
///   peer: the completion has it; of an operation that had completed before, tw_ep_flush() has it.
///   A device that finds it fails the endpoint, as fi_rma(3) allows.
/// - TW_ERR_INVALID_PARAM: also, the key is NULL, was unpacked for a worker that is not the
///   endpoint's, or is to memory of a context that the endpoint's peer is not of. A packed key has
///   24 random bits of its owner's.
///
/// Sources of the semantics: fi_rma(3), fi_atomic(3), ucp_put_nbx(), ucp_atomic_op_nbx().
#ifndef TAGWIRE_PROTOCOLS_API_TW_RMA_H
#define TAGWIRE_PROTOCOLS_API_TW_RMA_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Keys

#define TW_KEY_BYTES_MAX 64  ///< No packed key is longer.

/// Packs the key of memory that peers may use.
///
/// `key` has *length_p bytes. The key is plain bytes and may be sent to any process. It is valid
/// until tw_mem_unmap(), and gives the rights of tw_mem_params_t.access. Any thread.
///
/// \retval TW_OK  Written; *length_p is its length.
/// \retval TW_ERR_BUFFER_TOO_SMALL  Nothing is written but *length_p, which says how many bytes are
///     needed; TW_KEY_BYTES_MAX always suffice.
/// \retval TW_ERR_EXCEEDS_LIMIT  The context has packed keys of too much memory: 1 048 576.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or the memory gives no rights
///     (TW_ACCESS_NONE).
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_mem_pack(tw_mem_h mem, void* key, size_t* length_p);

/// Unpacks the key of memory of peers, for a worker.
///
/// The key is used with any endpoint of the worker that leads to the owner's process: to a worker
/// of the context that the memory belongs to. It may be unpacked before there is such an endpoint,
/// outlives endpoints, and takes no memory for any. tw_key_free() releases it. Any thread.
///
/// Source of the semantic: fi_rma(3), whose keys are of a peer's domain (ucp_ep_rkey_unpack()
/// binds a key to one endpoint).
///
/// \retval TW_OK  *key_p is the key.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or these bytes are not a packed key; the log
///     says why.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_key_unpack(tw_worker_h worker, const void* packed, size_t length,
                                      tw_key_h* key_p);

/// Releases a key.
///
/// Operations under way with it go on. May be called after endpoints were closed, but before the
/// worker is destroyed. NULL is ignored. Any thread.
TAGWIRE_API void tw_key_free(tw_key_h key);

/// Properties of a key. The program sets struct_bytes.
typedef struct tw_key_attr {
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_key_attr));  ///< sizeof(tw_key_attr_t).
    uint64_t address;  ///< Where the memory begins, by the owner's addresses.
    uint64_t length;
    uint32_t access;  ///< TW_ACCESS_x.
} tw_key_attr_t;

/// Reads the properties of a key.
///
/// \retval TW_OK  *attr is filled, as much of it as its struct_bytes says.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or struct_bytes is not a size of this struct.
TAGWIRE_API tw_status_t tw_key_query(tw_key_h key, tw_key_attr_t* attr);

/// Answers where memory of the peer can be reached by loads and stores.
///
/// For memory of tw_mem_alloc() of a peer on this host that is reached over shared memory, and
/// memory of the worker's own context by its endpoint to itself. The pointer is valid until the
/// endpoint is closed or has failed; what it points to is the peer's memory until the peer unmaps
/// it, and undefined after that. Thread: as the endpoint's worker.
///
/// \retval TW_OK  *pointer_p is the local address of `address`.
/// \retval TW_ERR_UNREACHABLE  This memory cannot be reached directly.
/// \retval TW_ERR_NO_RESOURCE  The endpoint is not connected yet, or the owner was asked for a key
///     that the packed one has no room for: progress, then repeat the call.
/// \retval TW_ERR_INVALID_ADDR  `address` is not inside the memory.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or the key is not to be used with the
///     endpoint ("Statuses").
TAGWIRE_API tw_status_t tw_key_pointer(tw_ep_h ep, tw_key_h key, uint64_t address,
                                       void** pointer_p);

// ---- Put and get

/// Writes to memory of the peer.
///
/// `address` by the owner's addresses; any length, any alignment. With TW_OP_IMM the target is told
/// (tw_rma_event_cb_t, tw_mem_params_t.counter) when the data is visible there. A put that the peer
/// refuses is not told. Completion levels: by default when the
/// buffer may be reused; TW_OP_SENT_COMPLETE when this process is needed no longer
/// (TW_FLUSH_SENT); TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE and
/// TW_OP_MATCH_COMPLETE when the data is visible to the target's threads.
///
/// \retval TW_OK  Complete.
/// \retval TW_INPROGRESS  Started; the completion follows.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With TW_OP_IMM
///     also while the peer has paused this side: its program has too many notices and messages to
///     take. With TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_EXCEEDS_LIMIT  TW_OP_INJECT with more than tw_worker_attr_t.inject_bytes_max.
/// \retval TW_ERR_INVALID_ADDR  See "Statuses".
TAGWIRE_API tw_status_t tw_put(tw_ep_h ep, const void* buffer, size_t length, uint64_t address,
                               tw_key_h key, const tw_op_t* op, tw_request_h* request_p);

/// Writes to memory of the peer what is gathered from a list.
///
/// As tw_put(), from up to TW_IOV_MAX elements. `iov` is copied; the memory that it names belongs
/// to the library until the completion.
TAGWIRE_API tw_status_t tw_putv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t address,
                                tw_key_h key, const tw_op_t* op, tw_request_h* request_p);

/// Reads memory of the peer.
///
/// Completes when the data is in the buffer. Flags: those of all calls, and TW_OP_FENCE.
///
/// \retval TW_OK  The data is in the buffer.
/// \retval TW_INPROGRESS  Started; the completion follows.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_ADDR  See "Statuses".
TAGWIRE_API tw_status_t tw_get(tw_ep_h ep, void* buffer, size_t length, uint64_t address,
                               tw_key_h key, const tw_op_t* op, tw_request_h* request_p);

/// Reads memory of the peer, scattered over a list.
///
/// As tw_get(), over up to TW_IOV_MAX elements in their order.
TAGWIRE_API tw_status_t tw_getv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t address,
                                tw_key_h key, const tw_op_t* op, tw_request_h* request_p);

// ---- Atomics

/// Operations on one number in memory of the peer.
typedef enum tw_atomic_op {
    TW_ATOMIC_ADD,
    TW_ATOMIC_AND,
    TW_ATOMIC_OR,
    TW_ATOMIC_XOR,
    TW_ATOMIC_SWAP,
    TW_ATOMIC_MIN,
    TW_ATOMIC_MAX,
    TW_ATOMIC_CSWAP  ///< tw_atomic_cswap() only.
} tw_atomic_op_t;

/// Types of the numbers. Signed and unsigned differ in TW_ATOMIC_MIN and TW_ATOMIC_MAX.
typedef enum tw_atomic_type { TW_UINT32, TW_INT32, TW_UINT64, TW_INT64 } tw_atomic_type_t;

/// Combines a number into memory of the peer: *address = *address OP *operand.
///
/// `address` is a multiple of the type's size, and `operand` points to a number of the type, which
/// is read during the call. Atomic with all other operations of these calls on the same number and
/// of the same size, whatever endpoints, workers and transports of the owner's context they come
/// by. Flags and completion as for tw_put(), without TW_OP_IMM; any operation counts as injected.
///
/// \retval TW_OK  Complete.
/// \retval TW_INPROGRESS  Started; the completion follows.
/// \retval TW_ERR_NO_RESOURCE  Nothing happened; progress, then repeat the call. With
///     TW_OP_QUEUE the library keeps the operation, up to TAGWIRE_QUEUED_MAX of them.
/// \retval TW_ERR_INVALID_ADDR  See "Statuses"; also if `address` is not aligned.
/// \retval TW_ERR_INVALID_PARAM  Also: `operation` or `type` is unknown, or TW_ATOMIC_CSWAP.
TAGWIRE_API tw_status_t tw_atomic(tw_ep_h ep, tw_atomic_op_t operation, tw_atomic_type_t type,
                                  const void* operand, uint64_t address, tw_key_h key,
                                  const tw_op_t* op, tw_request_h* request_p);

/// As tw_atomic(), and writes the number that was there before to `result`.
///
/// `result` belongs to the library until the completion. Flags as for tw_get().
TAGWIRE_API tw_status_t tw_atomic_fetch(tw_ep_h ep, tw_atomic_op_t operation, tw_atomic_type_t type,
                                        const void* operand, void* result, uint64_t address,
                                        tw_key_h key, const tw_op_t* op, tw_request_h* request_p);

/// Replaces a number in memory of the peer by *swap if it equals *compare.
///
/// Writes the number that was there before to `result`: it was replaced if that equals *compare.
/// Otherwise as tw_atomic_fetch().
TAGWIRE_API tw_status_t tw_atomic_cswap(tw_ep_h ep, tw_atomic_type_t type, const void* compare,
                                        const void* swap, void* result, uint64_t address,
                                        tw_key_h key, const tw_op_t* op, tw_request_h* request_p);

// ---- Explanations

/// Kinds of operations.
typedef enum tw_rma_kind { TW_RMA_PUT, TW_RMA_GET, TW_RMA_ATOMIC } tw_rma_kind_t;

/// The way of an operation, and the reason. The program sets struct_bytes. Texts are constants of
/// the library.
typedef struct tw_rma_explanation {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_rma_explanation));  ///< sizeof(tw_rma_explanation_t).
    char transport[16];
    char device[32];
    /// - "stores": by loads and stores of the calling thread;
    /// - "short": the transport takes the data in the call;
    /// - "bcopy": it is copied, in pieces if it is long;
    /// - "zcopy": the transport moves it from memory to memory;
    /// - "striped": so do several transports or devices, each a part;
    /// - "atomic": by the transport's atomic operation;
    /// - "compare_and_swap": by its compare-and-swap, until that hits;
    /// - "messages": by messages, and the peer's progress carries it out;
    /// - "nothing": there are no bytes.
    const char* way;
    const char* reason;   ///< A sentence.
    int needs_peer;       ///< 1: nothing happens before the peer progresses.
    size_t striped_from;  ///< Shortest put or get that is divided; SIZE_MAX: none, or an atomic.
    uint64_t reserved[3] TW_CXX_DEFAULT({});  ///< Room for later versions; 0.
} tw_rma_explanation_t;

/// Explains how an operation by an endpoint with a key would go now.
///
/// `length` in bytes, of an atomic 4 or 8; `operation` counts for atomics only. `is_mapped` is not
/// 0 if the local buffer has a handle (tw_op_t.mem). It is the way of most: TW_OP_INJECT copies
/// what would be moved where it is. Thread: as the endpoint's worker.
///
/// \retval TW_OK  *explanation is filled, as much of it as its struct_bytes says.
/// \retval TW_ERR_NOT_CONNECTED  The endpoint has no transport yet, or has failed.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, the key is not to be used with the endpoint,
///     `kind` or `operation` is unknown, an atomic is not of 4 or 8 bytes, or struct_bytes is not a
///     size of this struct.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_key_explain(tw_ep_h ep, tw_key_h key, tw_rma_kind_t kind,
                                       tw_atomic_op_t operation, size_t length, int is_mapped,
                                       tw_rma_explanation_t* explanation);

#ifdef __cplusplus
}
#endif

#endif
