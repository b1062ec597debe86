// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Workers, their addresses and their progress; sleeping and waiting. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_WORKER_H
#define TAGWIRE_PROTOCOLS_API_TW_WORKER_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

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

// ---- Counters and facts

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
/// \retval TW_ERR_BUSY  Something has come already, completions wait for tw_worker_poll(), or the
///     descriptor is readable: progress or poll, then arm again. Also in a callback.
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

#ifdef __cplusplus
}
#endif

#endif
