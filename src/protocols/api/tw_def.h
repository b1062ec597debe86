// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Handles, flags and records of the messaging layer. Included by tagwire.h.
///
/// \par Versions
/// Programs and library may be built with different versions of these headers (TW_VERSION). A
/// struct that a program allocates therefore begins with struct_bytes, its size in the program's
/// header, which TW_INIT() sets in C and `T object{}` in C++: the library treats fields that this
/// header lacks as 0 and does not write them. It refuses a size of 0, or one above its own, with
/// TW_ERR_INVALID_PARAM and logs it. Elements of arrays have none: tw_iov_t is struct iovec;
/// tw_piece_t, tw_stride_t and tw_option_t stay what they are; tw_completion_t,
/// tw_worker_counter_t, tw_cost_sample_t and tw_protocol_cost_t have `reserved` room at their end,
/// which the library does not write in a completion, whose `flags` tell which fields have a value.
#ifndef TAGWIRE_PROTOCOLS_API_TW_DEF_H
#define TAGWIRE_PROTOCOLS_API_TW_DEF_H

#include <stddef.h>
#include <stdint.h>
#include <tagwire_status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_ADDRESS_BYTES_MAX 256  ///< No address of a worker is longer.
#define TW_IOV_MAX 16             ///< Elements of a gather or scatter list.
#define TW_REQUEST_BYTES 640      ///< Memory of tw_op_t.request, aligned to 16; of the ABI.

typedef struct tw_context* tw_context_h;
typedef struct tw_worker* tw_worker_h;
typedef struct tw_ep* tw_ep_h;
typedef struct tw_mem* tw_mem_h;          ///< A registration with every domain; see tw_mem_map().
typedef struct tw_key* tw_key_h;          ///< The key to memory of a peer; see tw_key_unpack().
typedef struct tw_request* tw_request_h;  ///< An operation that has not ended.
typedef struct tw_message*
    tw_message_h;               ///< A message that a probe has taken, or tw_am_keep() kept.
typedef struct tw_cq* tw_cq_h;  ///< A completion queue for any thread; tw_cq_create().
typedef struct tw_counter* tw_counter_h;  ///< A count of operations; tw_counter_create().

/// Threads that may use a worker.
typedef enum tw_thread_mode {
    TW_THREAD_SINGLE,      ///< The worker is used by the thread that made it.
    TW_THREAD_SERIALIZED,  ///< By one thread at a time.
    TW_THREAD_MULTI        ///< By any thread at any time.
} tw_thread_mode_t;

/// Behaviour of progress while a peer that the worker waits for has no processor.
typedef enum tw_progress_mode {
    TW_PROGRESS_DEFAULT,  ///< As TAGWIRE_PROGRESS says: polite, unless it is set.
    /// After calls that have found nothing it yields the processor, or, while programs of others
    /// keep it for long, sleeps until a message comes, 100 us at most.
    TW_PROGRESS_POLITE,
    TW_PROGRESS_SPIN  ///< It returns at once.
} tw_progress_mode_t;

/// Levels of tw_ep_flush(), tw_worker_flush() and tw_ep_close(), the strongest first.
typedef enum tw_flush_level {
    /// The library of the peer has everything, and every operation has completed. So it waits
    /// - for eager messages until they are in the peer's library, matched there or not; those with
    ///   TW_OP_MATCH_COMPLETE or TW_OP_DELIVERY_COMPLETE until a receive of the peer has matched
    ///   them;
    /// - for rendezvous, whose data stays here until then, until a receive has taken them;
    /// - for puts and atomics until they have taken effect at the peer;
    /// - for gets until the data is here.
    ///
    /// The peer has to progress in any case.
    TW_FLUSH_DELIVERED,
    /// This process is needed no longer: nothing is lost if it closes its endpoints, destroys its
    /// worker and ends. Complete at once if nothing is under way, and without the peer's progress
    /// for all that the transport has taken. The transport has taken a message when
    /// - `sm`: it is in the peer's ring, which the peer reads also after the end of this process;
    /// - `rc`, `dc`: the peer's device has acknowledged it;
    /// - `ud`: the peer has acknowledged it, which it does in its progress;
    /// - `tcp`: it is in the socket, which tw_worker_destroy() shuts down in order.
    ///
    /// Under way is what this side still has: messages that wait for the connection, for room in
    /// the ring or socket, or because the peer has paused them; rendezvous, whose data is here
    /// until a receive has taken it; data of puts that is not with the transport; gets and fetching
    /// atomics, which bring their results here; and whatever is behind a fence. Acknowledgements
    /// (TW_OP_MATCH_COMPLETE, TW_OP_DELIVERY_COMPLETE) are not waited for, nor is the effect of
    /// puts that the owner's progress carries out.
    TW_FLUSH_SENT,
    /// tw_ep_close() alone: ends all operations at once with TW_ERR_CANCELED and gives the buffers
    /// back to the program: the peer may still read them, but does not report what it reads after
    /// the call as received.
    ///
    /// Exceptions: over dc the peer may report data that it reads later from a buffer with a
    /// handle, until tw_mem_unmap(), and with TAGWIRE_REG_CACHE from a buffer that shares pages
    /// with another operation under way. An operation whose data a device is moving completes, in
    /// progress, when the device is done.
    ///
    /// The peer's endpoint fails: at once if the transport has room for a message to the peer, else
    /// when one side next sends to the other. Messages that the peer sends before it knows may end
    /// with TW_OK there, and are not received.
    TW_CLOSE_FORCE
} tw_flush_level_t;

/// Flags of an operation (tw_op_t.flags). In parentheses: the calls that accept the flag; others
/// refuse it. Meanings are those of the flags of the same names in fi_tagged(3) and fi_msg(3).
enum tw_op_flag {
    /// (all) The completion is always reported, even if the operation completes within the call:
    /// to tw_op_t.complete, or, without one, to tw_op_t.cq or the worker's completion queue. The
    /// call returns TW_INPROGRESS in any case.
    TW_OP_COMPLETION = 1 << 0,
    /// (all) More calls follow at once: messages over a transport that gathers them (tcp) may wait
    /// for those, and leave with them. The last call of a burst has no such flag.
    TW_OP_MORE = 1 << 1,
    /// (send, put, atomic) The buffer may be reused as soon as the call returns. At most
    /// tw_worker_attr_t.inject_bytes_max; TW_ERR_NO_RESOURCE while the library's copies are used
    /// up, unless TW_OP_QUEUE is set, too.
    TW_OP_INJECT = 1 << 2,
    /// (send) tw_op_t.imm travels with the message: 64 bits for the receiver's completion. (put,
    /// put list) The target is told that the data is there: tw_rma_event_cb_t.
    TW_OP_IMM = 1 << 3,
    /// (send, put, put list, atomic) Complete when nothing of the message needs to be kept by the
    /// sender: it has reached the peer's memory. (recv) No effect: data is visible to every thread
    /// when it completes.
    TW_OP_TRANSMIT_COMPLETE = 1 << 4,
    /// (send, put, put list, atomic) Complete when the message is in the receiver's buffer, or was
    /// discarded; or when the memory of the target has changed.
    TW_OP_DELIVERY_COMPLETE = 1 << 5,
    /// (send, put, put list, atomic) Complete when the message was matched by a receive, or was
    /// discarded; a one-sided operation as with TW_OP_DELIVERY_COMPLETE.
    TW_OP_MATCH_COMPLETE = 1 << 6,
    /// (send, put, get, lists, atomic) Begin this operation, and all later ones to the same peer,
    /// only after everything sent to that peer before has completed; with several transmit
    /// contexts, operations of the calling thread. (flush, close) No effect: they are behind
    /// everything before them.
    TW_OP_FENCE = 1 << 7,
    /// (tw_am_send) The message is sent although the peer has paused messages (TW_ERR_NO_RESOURCE
    /// of tw_data.h), and comes with its data in any case, never with TW_AM_RNDV. It passes
    /// messages that wait at this side; urgent messages among themselves keep their order. Header
    /// and data together at most TW_AM_URGENT_MAX bytes, and no level of completion. For
    /// protocols whose peer waits for a reply while it receives nothing.
    TW_OP_URGENT = 1 << 8,
    /// (send, put, put list, atomic without a result) Complete when this process is needed no
    /// longer for the operation: TW_FLUSH_SENT says what that is for each transport. A send does
    /// not complete while its message waits here for the connection or for room. Weaker than
    /// TW_OP_TRANSMIT_COMPLETE: no progress of the peer is waited for once the transport has the
    /// message. Not with TW_OP_URGENT.
    TW_OP_SENT_COMPLETE = 1 << 9,
    /// (all) Where the call would answer TW_ERR_NO_RESOURCE ("Statuses" in tw_data.h), the library
    /// keeps the operation and the call returns TW_INPROGRESS: a receive is posted, and any other
    /// operation waits in its order, as behind a full transport. It completes, fails and is
    /// cancelled as any other; with TW_OP_INJECT the library copies the buffer in any case. The
    /// worker's counter ops_kept counts such operations. A worker, and each of its transmit
    /// contexts, keeps TAGWIRE_QUEUED_MAX of them at a time; beyond those the call answers
    /// TW_ERR_NO_RESOURCE.
    TW_OP_QUEUE = 1 << 10
};

/// Flags of a completion.
enum tw_done_flag {
    TW_DONE_SEND = 1 << 0,
    TW_DONE_RECV = 1 << 1,
    TW_DONE_TAGGED = 1 << 2,
    TW_DONE_IMM = 1 << 3,         ///< The message has an immediate.
    TW_DONE_MULTI_RECV = 1 << 4,  ///< The buffer of a multi-receive is the program's again.
    TW_DONE_FLUSH = 1 << 5,       ///< A flush or close.
    TW_DONE_BUFFERED = 1 << 6,    ///< A buffered receive.
    TW_DONE_MORE = 1 << 7,        ///< With TW_DONE_BUFFERED: the message is longer than `buffer`.
    TW_DONE_AM = 1 << 8,          ///< An active message; `tag` is the id of its handler.
    TW_DONE_PUT = 1 << 9,
    TW_DONE_GET = 1 << 10,
    TW_DONE_ATOMIC = 1 << 11,
    TW_DONE_REMOTE = 1 << 12  ///< With one of the three: a peer's operation on memory of this side.
};

/// The completion of an operation.
typedef struct tw_completion {
    void* context;  ///< tw_op_t.context of the operation.
    /// The operation; of the library again, unless the program allocated it.
    tw_request_h request;
    tw_status_t status;
    uint32_t flags;         ///< TW_DONE_x.
    size_t length;          ///< Bytes sent, or bytes in the receiver's buffer.
    size_t message_length;  ///< Bytes of the message: more than `length` when it was truncated.
    void* buffer;           ///< Where the data is: multi-receives, buffered ones; else NULL.
    uint64_t tag;           ///< Tag of the message; 0 when untagged.
    uint64_t imm;           ///< Immediate of the message; 0 without TW_DONE_IMM.
    uint64_t source;        ///< Receives: the sender's worker, as tw_address_worker_id() tells it.
    tw_ep_h ep;  ///< Receives: the program's endpoint to the sender, or NULL. Sends: where it went.
    tw_message_h message;  ///< Buffered receives: the message, for tw_message_recv().
    uint64_t reserved[5];  ///< Room for later versions; not written.
} tw_completion_t;

/// A message that is here, or whose request of a rendezvous is. The program sets struct_bytes.
typedef struct tw_message_info {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_message_info));  ///< sizeof(tw_message_info_t).
    uint32_t flags;   ///< TW_DONE_RECV, TW_DONE_TAGGED, TW_DONE_AM and TW_DONE_IMM.
    uint64_t tag;     ///< 0 when untagged; the id of the handler of an active message.
    size_t length;    ///< Bytes of the message.
    uint64_t imm;     ///< 0 without TW_DONE_IMM.
    uint64_t source;  ///< The sender's worker, as tw_address_worker_id() tells it.
    tw_ep_h ep;       ///< The program's endpoint to the sender, or NULL.
} tw_message_info_t;

/// Reports a completion. Runs inside progress; may call everything but progress. `done` is valid
/// during the call.
typedef void (*tw_complete_cb_t)(const tw_completion_t* done);

/// Parameters of an operation besides buffer, tag and peer. Zeroes are the defaults of all but
/// struct_bytes.
typedef struct tw_op {
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_op));  ///< sizeof(tw_op_t).
    uint32_t flags;                                            ///< TW_OP_x.
    void* context;
    /// Runs inside progress when the operation completes after the call; with TW_OP_COMPLETION also
    /// when it completes within the call. NULL: see "Statuses" in tw_data.h.
    tw_complete_cb_t complete;
    /// Memory of the program for the operation while it lasts: TW_REQUEST_BYTES bytes, aligned to
    /// 16; needs `complete`, `cq` or TW_OP_COMPLETION. NULL: the worker's pool.
    void* request;
    uint64_t imm;
    /// Handle that covers the whole buffer, or every element of the list. Calls without a buffer of
    /// the program do not look at it.
    tw_mem_h mem;
    tw_ep_h source;  ///< Receives: only from this peer; NULL: from anybody.
    /// Receives: filled when the call returns TW_OK or TW_ERR_MESSAGE_TRUNCATED, where the message
    /// is in the buffer, as much of it as fits, and when it returns the end of a message whose data
    /// is lost with its sender. NULL: nothing is told of it.
    tw_message_info_t* info;
    /// A queue of the worker's context, which the completion goes to when the operation completes
    /// after the call; with TW_OP_COMPLETION also when it completes within the call. Not with
    /// `complete`. NULL: see "Statuses" in tw_data.h.
    tw_cq_h cq;
    /// Counts the operation when it has ended, however its end is reported: behind the callback, or
    /// when the completion is in its queue. NULL: nothing is counted.
    tw_counter_h counter;
} tw_op_t;

/// An element of a list, laid out as struct iovec.
typedef struct tw_iov {
    void* base;
    size_t length;
} tw_iov_t;

#ifdef __cplusplus
}
#endif

#endif
