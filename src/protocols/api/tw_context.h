// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Contexts, workers, addresses and endpoints of the messaging layer. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H
#define TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Contexts

/// Parameters of tw_context_create(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_context_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_context_params));  ///< sizeof(tw_context_params_t).
    /// Transports to use, as TAGWIRE_TRANSPORTS: names of transports, each with or without a
    /// device, separated by commas ("sm,rc:mlx5_0:1"). NULL: that option.
    const char* transports;
    /// Bits of a tag by which messages of different workers always differ, 0: none. With
    /// TAGWIRE_TAG_OFFLOAD a receive that asks for all of these bits can be given to a device
    /// though other peers send over other transports (ucp_params_t::tag_sender_mask).
    uint64_t tag_sender_mask;
} tw_context_params_t;

/// Opens a context: the memory domains of the transports that may be used.
///
/// `params` may be NULL.
///
/// \retval TW_OK  *context_p is the context; tw_context_destroy() closes it.
/// \retval TW_ERR_NO_DEVICE  A named transport or device is not there; the log says which, and what
///     is.
/// \retval TW_ERR_INVALID_PARAM  `params->transports` or an option has a value that is not
///     accepted.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_context_create(const tw_context_params_t* params,
                                          tw_context_h* context_p);

/// Closes a context.
///
/// While workers, memory handles or completion queues are open the call does nothing but log an
/// error. NULL is ignored.
TAGWIRE_API void tw_context_destroy(tw_context_h context);

// ---- Memory

/// Rights that the key of memory gives to peers.
enum tw_access {
    TW_ACCESS_READ = 1 << 0,    ///< tw_get().
    TW_ACCESS_WRITE = 1 << 1,   ///< tw_put().
    TW_ACCESS_ATOMIC = 1 << 2,  ///< tw_atomic(), tw_atomic_fetch(), tw_atomic_cswap().
    TW_ACCESS_ALL = TW_ACCESS_READ | TW_ACCESS_WRITE | TW_ACCESS_ATOMIC,
    /// Alone: memory for messages only, which has no key. Receivers of a long message may read the
    /// memory; nobody may write to it.
    TW_ACCESS_NONE = 1 << 3
};

/// Kinds of memory. Later versions add memory of devices.
typedef enum tw_memory_type {
    TW_MEMORY_HOST  ///< Memory of the processors.
} tw_memory_type_t;

/// Parameters of tw_mem_map() and tw_mem_alloc(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_mem_params {
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_mem_params));  ///< sizeof(tw_mem_params_t).
    /// TW_ACCESS_x; 0: TW_ACCESS_ALL. Messages from and to the memory need none: a long one whose
    /// peer lacks the right to move the data by itself is copied. Memory that the program may only
    /// read has TW_ACCESS_READ or TW_ACCESS_NONE, and nothing is received into it.
    uint32_t access;
    tw_memory_type_t type;
    uint64_t device;  ///< Number of the device that has the memory; 0 for TW_MEMORY_HOST.
    /// Counts the puts with TW_OP_IMM that peers carry out in this memory: each one once, when its
    /// data is visible to a thread that reads or waits for the counter. Puts without TW_OP_IMM are
    /// not counted, because a peer may carry them out without the owner's processors. A counted put
    /// is told to tw_rma_event_cb_t first, where the worker has one, and is not put into the
    /// worker's completion queue. Needs TW_ACCESS_WRITE; not destroyed before tw_mem_unmap(). NULL:
    /// nothing is counted.
    tw_counter_h counter TW_CXX_DEFAULT(nullptr);
} tw_mem_params_t;

/// Makes memory known to every memory domain, so that messages from and to it need no copy, and
/// peers may use it by its key (tw_mem_pack()).
///
/// The memory stays the program's, and stays mapped until tw_mem_unmap(). `length` is not 0. One of
/// 2^57 bytes or more stands for all memory of the process from `address` on, now and later, with
/// shared memory and tcp alone; devices refuse it. `params` may be NULL. Any thread.
///
/// \retval TW_OK  *mem_p is the handle, for tw_op_t.mem.
/// \retval TW_ERR_INVALID_ADDR  A part of it is not mapped in this process, or goes beyond the end
///     of the address space. With a device also: the program cannot read it, or it is read-only and
///     the rights let peers write to it. Without one an operation of a peer fails with this status.
/// \retval TW_ERR_IO_ERROR  A domain refused it; the log says which, and why.
/// \retval TW_ERR_NO_MEMORY  Out of memory, or above the limit of locked memory.
/// \retval TW_ERR_UNSUPPORTED  `params->type` is not TW_MEMORY_HOST.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, `length` is 0, or `params` has a value that
///     is not accepted; the log says which.
TAGWIRE_API tw_status_t tw_mem_map(tw_context_h context, void* address, size_t length,
                                   const tw_mem_params_t* params, tw_mem_h* mem_p);

/// Allocates memory that peers of this host can reach by loads and stores, and makes it known as
/// tw_mem_map() does.
///
/// The memory is aligned to a page, and its contents are zeroes. tw_mem_unmap() frees it. Its
/// size is limited by TAGWIRE_SM_ARENA_BYTES where the context has shared memory; without that it
/// is memory of the process. `params` may be NULL. Any thread.
///
/// \retval TW_OK  *address_p is the memory, of at least `length` bytes, *mem_p its handle.
/// \retval TW_ERR_NO_MEMORY  Out of memory, or the arena has no room; the log says which.
/// \retval TW_ERR_IO_ERROR  As tw_mem_map(). TW_ERR_UNSUPPORTED and TW_ERR_INVALID_PARAM likewise.
TAGWIRE_API tw_status_t tw_mem_alloc(tw_context_h context, size_t length,
                                     const tw_mem_params_t* params, void** address_p,
                                     tw_mem_h* mem_p);

/// Releases a memory handle.
///
/// No operation of this process may be using it. Its key ends: operations of peers that begin later
/// fail, and those that are writing to the memory at this moment are waited for, so nothing is
/// written to it behind this call. A process of this host that is stopped in the middle of a write
/// is waited for 2 seconds; the log names it. No notice of a put into the memory is given any more,
/// and its counter does not count any more. Memory of tw_mem_map() is not touched, that of
/// tw_mem_alloc() is freed. Any thread.
///
/// \retval TW_OK  Released.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or the handle is of another context.
TAGWIRE_API tw_status_t tw_mem_unmap(tw_context_h context, tw_mem_h mem);

/// Removes memory from the registration cache.
///
/// With TAGWIRE_REG_CACHE buffers without a handle stay registered after their message. After this
/// call no later message uses a registration that overlaps [address, address + length). Call it
/// before memory that messages have used is unmapped or its pages are discarded (munmap(2),
/// madvise(2)). Where the system tells (docs/reference/messaging.md) the library notices unmapped
/// memory by itself; discarded pages it never notices. An operation under way keeps what it has.
/// Without a cache, or with `length` 0, the call does nothing. Any thread.
///
/// \retval TW_OK  Removed, or there was nothing to remove.
/// \retval TW_ERR_INVALID_PARAM  The range goes beyond the end of the address space.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_mem_invalidate(tw_context_h context, const void* address, size_t length);

// ---- Workers

/// Reports that an endpoint has failed: every operation on it has ended, and it refuses everything
/// but tw_ep_close(). Once per endpoint, inside progress. TW_ERR_NOT_CONNECTED: the peer has gone
/// in order: its worker was destroyed with nothing under way to this one. TW_ERR_CONNECTION_RESET:
/// the peer has died, or has closed the connection by force. Other statuses are the transport's.
typedef void (*tw_ep_failed_cb_t)(void* arg, tw_ep_h ep, tw_status_t status);

/// Events of a peer.
typedef enum tw_peer_event {
    TW_PEER_UP,      ///< Connected, whoever began. Status TW_OK.
    TW_PEER_CLOSED,  ///< The connection has ended in order. Status TW_OK: neither side has an
                     ///< endpoint any more. TW_ERR_NOT_CONNECTED: the peer's worker was destroyed,
                     ///< or its program, which had closed its endpoint, has connected anew.
                     ///< TW_ERR_CANCELED: this side has closed its endpoint by force.
    TW_PEER_FAILED,  ///< The connection has failed with this status, one of tw_ep_failed_cb_t.
    TW_PEER_LEFT,    ///< The peer's program has closed its endpoint to this worker, or has closed
                     ///< none, and this program still has its own. Status TW_OK. The connection
                     ///< stays: the peer's worker takes messages until both sides have closed.
    TW_PEER_BACK     ///< Behind TW_PEER_LEFT: the peer's program has an endpoint again. Status
                     ///< TW_OK.
} tw_peer_event_t;

/// Reports that a peer connects or disconnects, even if the program has no endpoint to it. Runs
/// inside progress; may call everything but progress, for example tw_ep_create_to() with
/// `worker_id`. Each connection is reported twice: TW_PEER_UP when it is established, and
/// TW_PEER_CLOSED or TW_PEER_FAILED when it has ended; in between come TW_PEER_LEFT and
/// TW_PEER_BACK, if the program has an endpoint. A server closes that endpoint at TW_PEER_LEFT, or
/// keeps it for clients that come back. The report of the end follows the completions of all
/// operations under way, and tw_ep_failed_cb_t. A connection that was never established is not
/// reported, nor is that of a worker to itself. The same worker may connect again later.
typedef void (*tw_peer_event_cb_t)(void* arg, uint64_t worker_id, tw_peer_event_t event,
                                   tw_status_t status);

/// Reports an operation of a peer on memory of this side. Runs inside progress, when the data is
/// visible; may call everything but progress. `done`, valid during the call, has TW_DONE_REMOTE and
/// TW_DONE_PUT, the immediate, the length, the address (`buffer`), the source's worker and endpoint
/// as a receive has them.
typedef void (*tw_rma_event_cb_t)(void* arg, const tw_completion_t* done);

/// The ways in which progress gives the processor away.
typedef enum tw_away {
    TW_AWAY_YIELD,  ///< To whoever is ready to run: sched_yield(2).
    TW_AWAY_NAP     ///< For at most TW_NAP_NS, or until the worker has something to progress.
} tw_away_t;

#define TW_NAP_NS 100000  ///< Nanoseconds, without the slack of timers.

/// Tells what progress would do now to give the processor away, instead of doing it. Runs inside
/// progress, in any thread that progresses the worker. Makes no call on the worker.
typedef void (*tw_away_cb_t)(void* arg, tw_away_t how);

#define TW_TX_CONTEXTS_MAX 64  ///< Most that tw_worker_params_t.tx_contexts may be.

/// Parameters of tw_worker_create(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_worker_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_worker_params));  ///< sizeof(tw_worker_params_t).
    tw_thread_mode_t thread_mode;
    tw_ep_failed_cb_t ep_failed;  ///< NULL: nobody is told; the log has failures in any case.
    void* ep_failed_arg;
    tw_peer_event_cb_t peer_event;  ///< NULL: nobody is told.
    void* peer_event_arg;
    /// Transmit contexts, with TW_THREAD_MULTI: how many connections to each peer carry messages
    /// of its threads, each with a lock of its own. 0: as TAGWIRE_TX_CONTEXTS says, 1 by default.
    unsigned tx_contexts TW_CXX_DEFAULT(0);
    /// Told of puts with TW_OP_IMM. NULL: the worker's completion queue has them, with `context`
    /// NULL, unless the memory has a counter (tw_mem_params_t). Until they are polled they count
    /// among the unexpected messages (TAGWIRE_UNEXPECTED_BYTES), so a program that does not poll
    /// pauses its peers.
    tw_rma_event_cb_t rma_event TW_CXX_DEFAULT(nullptr);
    void* rma_event_arg TW_CXX_DEFAULT(nullptr);
    /// Whether calls that progress the worker may give the processor of their thread away. A
    /// program that polls something else in the same loop takes TW_PROGRESS_SPIN.
    tw_progress_mode_t progress TW_CXX_DEFAULT(TW_PROGRESS_DEFAULT);
    /// For a program that progresses the worker with a lock of its own held: it gives the processor
    /// away behind the lock, then calls tw_worker_was_away(). For a nap it calls tw_worker_arm()
    /// with the lock, and if that succeeds polls tw_worker_fd() without it. NULL: progress does it.
    tw_away_cb_t away TW_CXX_DEFAULT(nullptr);
    void* away_arg TW_CXX_DEFAULT(nullptr);
} tw_worker_params_t;

/// Opens a worker: an interface of every transport.
///
/// `params` may be NULL.
///
/// \retval TW_OK  *worker_p is the worker; tw_worker_destroy() closes it.
/// \retval TW_ERR_NO_DEVICE  No interface could be opened, or none that takes first contact; the
///     log names each with its reason.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, `thread_mode` or `progress` is unknown, or
///     `tx_contexts` exceeds TW_TX_CONTEXTS_MAX, or 1 in another mode than TW_THREAD_MULTI; or an
///     option of a transport in use has a value that is not accepted, which the log names.
/// \retval TW_ERR_UNSUPPORTED  More transmit contexts than one with TAGWIRE_TAG_OFFLOAD=y.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_worker_create(tw_context_h context, const tw_worker_params_t* params,
                                         tw_worker_h* worker_p);

/// Closes a worker.
///
/// Closes its endpoints by force and releases everything, handles of requests included. Requests in
/// the program's own memory are the program's again; no callback runs. Peers with whom nothing is
/// under way learn that it has closed in order (TW_ERR_NOT_CONNECTED); for the others it has died
/// (TW_ERR_CONNECTION_RESET). Their transports are given up to 20 ms to take that. A peer that has
/// taken no messages until there was no room for another one is given up to 100 ms; if it takes
/// none then its transport tells it (over dc TW_ERR_ENDPOINT_TIMEOUT). Completions in a queue of
/// tw_cq_create() stay there, except those beyond its capacity. NULL is ignored.
TAGWIRE_API void tw_worker_destroy(tw_worker_h worker);

/// Properties and limits of a worker. The program sets struct_bytes.
typedef struct tw_worker_attr {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_worker_attr));  ///< sizeof(tw_worker_attr_t).
    uint64_t id;  ///< Random; names the worker as the source of messages.
    tw_thread_mode_t thread_mode;
    size_t inject_bytes_max;      ///< Longest message of TW_OP_INJECT.
    size_t multi_recv_bytes_min;  ///< A multi-receive ends below this many free bytes.
    size_t buffered_bytes_limit;  ///< Longest message that a buffered receive delivers whole.
    size_t buffered_bytes_min;    ///< Least that it delivers of a longer message.
    /// Peers known, with or without an endpoint of the program; their transmit contexts count.
    size_t endpoints;
    unsigned tx_contexts;         ///< As tw_worker_params_t or the option says.
    tw_progress_mode_t progress;  ///< Likewise: TW_PROGRESS_POLITE or TW_PROGRESS_SPIN.
} tw_worker_attr_t;

/// Reads the properties and limits of a worker.
///
/// \retval TW_OK  *attr is filled, as much of it as its struct_bytes says.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or struct_bytes is not a size of this struct.
TAGWIRE_API tw_status_t tw_worker_query(tw_worker_h worker, tw_worker_attr_t* attr);

#define TW_WORKER_LIMIT_MAX ((size_t)1 << 30)  ///< No limit of tw_worker_limits_t is larger.

/// Limits that a program may change; tw_worker_query() reads them. 0 leaves a limit as it is.
typedef struct tw_worker_limits {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_worker_limits));  ///< sizeof(tw_worker_limits_t).
    size_t multi_recv_bytes_min;
    size_t buffered_bytes_limit;
    size_t buffered_bytes_min;  ///< At most `buffered_bytes_limit`.
} tw_worker_limits_t;

/// Changes limits of a worker, from the next message on.
///
/// \retval TW_OK  Changed.
/// \retval TW_ERR_EXCEEDS_LIMIT  One is larger than TW_WORKER_LIMIT_MAX, or the minimum of buffered
///     receives is above their limit; nothing is changed.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API tw_status_t tw_worker_set_limits(tw_worker_h worker, const tw_worker_limits_t* limits);

/// Writes the address of a worker.
///
/// `address` has *length_p bytes. The address stays valid until tw_worker_destroy(); it is plain
/// bytes without pointers and may be sent to any process. It names up to four interfaces that take
/// first contact, the nearest first. Where `address` has no room for all, those that reach farthest
/// are named; 63 bytes hold any one.
///
/// \retval TW_OK  Written; *length_p is its length.
/// \retval TW_ERR_BUFFER_TOO_SMALL  There is no room for one. Nothing is written but *length_p, the
///     length of the address with all of them; TW_ADDRESS_BYTES_MAX always suffice.
/// \retval TW_ERR_NO_MEMORY  There is no memory.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API tw_status_t tw_worker_address(tw_worker_h worker, void* address, size_t* length_p);

/// Reads the id of the worker that an address leads to.
///
/// \retval TW_OK  *id_p is the id, as tw_completion_t.source has it.
/// \retval TW_ERR_INVALID_ADDR  These bytes are not an address; the log says why.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API tw_status_t tw_address_worker_id(const void* address, size_t length, uint64_t* id_p);

/// tw_worker_progress(): another thread progresses the worker.
#define TW_PROGRESS_BUSY 0x100000U

/// Advances everything of a worker: sends, receives, callbacks, connections.
///
/// Callbacks run inside this call. Called from a callback it does nothing; the first such call is
/// logged. With TW_THREAD_MULTI one thread progresses at a time, and does not keep others waiting:
/// their calls return at once. While it runs a callback every other call on the worker is possible.
/// A thread that is told TW_PROGRESS_BUSY again and again should poll less often: each poll slows
/// the other thread down. Some of these calls yield the processor.
///
/// With polite progress (tw_worker_params_t.progress) a call may yield the processor or sleep 100
/// us when it and those before have found nothing and a peer on this host makes none meanwhile:
/// behind its work, with TW_THREAD_MULTI without the lock.
///
/// \return 0 when nothing happened, else a number below TW_PROGRESS_BUSY.
/// \return TW_PROGRESS_BUSY: another thread is in this call, or in another one that takes the
///     worker for longer, to connect, say.
TAGWIRE_API unsigned tw_worker_progress(tw_worker_h worker);

/// Notes that the program has given the processor away, as tw_worker_params_t.away has told it,
/// from `begin_ns` to `end_ns` (CLOCK_MONOTONIC, nanoseconds). The length of a yield tells whether
/// other programs compete for the processor.
///
/// \retval TW_OK  Noted.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL, `how` is not a tw_away_t, or `end_ns` is before
///     `begin_ns`, or in the future.
TAGWIRE_API tw_status_t tw_worker_was_away(tw_worker_h worker, tw_away_t how, uint64_t begin_ns,
                                           uint64_t end_ns);

/// Takes completions from the completion queue of a worker.
///
/// The queue has completions of operations with TW_OP_COMPLETION and without a callback, and
/// failures of operations whose completion nobody asked for; the oldest comes first. The call does
/// not progress.
///
/// \return The number of completions written, at most `max`.
TAGWIRE_API unsigned tw_worker_poll(tw_worker_h worker, tw_completion_t* completions, unsigned max);

// ---- Sleeping and waiting

/// Reads the descriptor that tells when a worker has something to progress.
///
/// It becomes readable when an armed worker (tw_worker_arm()) has something to progress. It belongs
/// to the worker, which closes it; nothing is read from it. Fit for poll(2) and for an epoll set of
/// the program:
///
///     while (!is_done) {
///         if (tw_worker_progress(worker) > 0)
///             continue;
///         if (tw_worker_arm(worker) == TW_OK)
///             poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
///     }
///
/// \retval TW_OK  *fd_p is the descriptor.
/// \retval TW_ERR_IO_ERROR  The system has no more descriptors.
/// \retval TW_ERR_UNSUPPORTED  A transport of the worker cannot wake a sleeping thread.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_worker_fd(tw_worker_h worker, int* fd_p);

/// Arms the descriptor of a worker for one wake-up.
///
/// No callback runs. A later call of another thread on the worker (progress, or a call that leaves
/// work to progress) makes the descriptor readable, too.
///
/// \retval TW_OK  Armed: the thread may sleep on the descriptor.
/// \retval TW_ERR_BUSY  Something has come already, or completions wait for tw_worker_poll():
///     progress or poll, then arm again. Also in a callback.
/// \retval TW_ERR_INVALID_PARAM  tw_worker_fd() was never called, or an argument is NULL.
/// \retval TW_ERR_IO_ERROR  The system refused; the log says what.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_worker_arm(tw_worker_h worker);

/// Wakes the threads that wait for a worker.
///
/// Ends tw_worker_wait() in every thread that is waiting, ends the next tw_worker_wait() of every
/// other thread, and makes the descriptor readable. It does not end tw_request_wait(),
/// tw_wait_any() and tw_wait_all(). From any thread whatever the thread mode, and from a signal
/// handler.
///
/// \retval TW_OK  Signalled.
/// \retval TW_ERR_INVALID_PARAM  `worker` is NULL.
TAGWIRE_API tw_status_t tw_worker_signal(tw_worker_h worker);

/// Ways to wait. A wait that spins or yields may return behind its limit of time, by TW_NAP_NS and
/// the slack of timers (50 us), or by a slice of the scheduler: it may be away then.
typedef enum tw_wait_mode {
    /// Progress again and again. With polite progress (tw_worker_params_t.progress) the processor
    /// is given away while a peer that is waited for has none.
    TW_WAIT_SPIN,
    /// Progress again and again, and yield the processor in between, whatever peers do, and with
    /// TW_PROGRESS_SPIN, too: for events that another thread brings about. While programs of others
    /// keep the processor for long, sleep instead until a message comes, 100 us at most.
    TW_WAIT_YIELD,
    TW_WAIT_SLEEP  ///< Sleep on the descriptor while there is nothing to do.
} tw_wait_mode_t;

/// Gives the processor of the calling thread away for a moment: for a loop of the program that
/// waits for another thread or process, instead of sched_yield(2).
///
/// It yields. When a yield of this thread has taken as long as a slice of the scheduler, programs
/// of others compete for the processor: then it sleeps for some 70 us instead, 2 000 times, since
/// the scheduler favours a thread that wakes from sleep. A loop that calls tw_worker_progress()
/// with polite progress needs it only for what other threads of the process do. Any thread.
TAGWIRE_API void tw_yield(void);

/// Progresses until there may be something new for the calling thread.
///
/// Returns TW_OK when, since the last tw_worker_wait() of this thread on the worker returned,
///
/// - an operation has completed, a message has come, or an endpoint has failed, whichever thread's
///   progress saw it;
/// - completions wait for tw_worker_poll();
/// - tw_worker_signal() was called;
/// - with TW_WAIT_SLEEP, a signal handler has run in this thread while it slept;
/// - or for none of these reasons: so test, then wait again. No completion is missed between the
///   two:
///
///       while (tw_request_test(request, &done) == TW_INPROGRESS)
///           tw_worker_wait(worker, mode, UINT64_MAX);
///
/// With TW_THREAD_MULTI any number of threads may wait; the lock is not held while they sleep, and
/// what other threads start is progressed.
///
/// \retval TW_OK  There may be something new.
/// \retval TW_ERR_TIMED_OUT  `timeout_ns` have passed; UINT64_MAX is no limit.
/// \retval TW_ERR_INVALID_PARAM  Called from a callback, or `mode` is unknown, or `worker` is NULL.
/// \retval TW_ERR_IO_ERROR  TW_WAIT_SLEEP: as tw_worker_fd(). TW_ERR_UNSUPPORTED likewise.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_worker_wait(tw_worker_h worker, tw_wait_mode_t mode,
                                       uint64_t timeout_ns);

/// One counter of a worker. The texts are constants of the library.
typedef struct tw_worker_counter {
    const char* name;  ///< "tx_eager"
    const char* unit;  ///< "messages", "bytes"
    const char* doc;   ///< One line.
    uint64_t value;
    uint64_t reserved[2] TW_CXX_DEFAULT({});  ///< Room for later versions; 0.
} tw_worker_counter_t;

/// Reads the counters of a worker.
///
/// *count_p is the room in `counters` on entry, and the number of counters that exist on return.
/// `counters` may be NULL when *count_p is 0.
///
/// \retval TW_OK  All were written.
/// \retval TW_ERR_BUFFER_TOO_SMALL  As many as fit were written.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API tw_status_t tw_worker_counters(tw_worker_h worker, tw_worker_counter_t* counters,
                                           unsigned* count_p);

/// Receives one fact: `key` in lower case with underscores, `value` as text. Both are valid during
/// the call.
typedef void (*tw_describe_cb_t)(void* arg, const char* key, const char* value);

/// Describes a worker: what it has open, and what each endpoint has chosen. The facts of the
/// interface of `rail_N` (tagwire_uct_iface_describe()) are told as `iface_N_KEY`.
///
/// `cb` is called once for each fact, inside this call.
///
/// \retval TW_OK  Described.
/// \retval TW_ERR_INVALID_PARAM  `worker` or `cb` is NULL.
/// \retval TW_ERR_NO_MEMORY  Out of memory; some facts may have been told.
TAGWIRE_API tw_status_t tw_worker_describe(tw_worker_h worker, tw_describe_cb_t cb, void* arg);

// ---- Endpoints

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
