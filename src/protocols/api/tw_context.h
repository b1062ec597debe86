// SPDX-License-Identifier: BSD-3-Clause
//
// Contexts, workers, addresses and endpoints of the messaging layer. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H
#define TAGWIRE_PROTOCOLS_API_TW_CONTEXT_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Contexts

/// Parameters of tw_context_create(). Zeroes are the defaults.
typedef struct tw_context_params {
    /// Transports to use, as TAGWIRE_TRANSPORTS: names of transports, each with or without a
    /// device, separated by commas ("sm,rc:mlx5_0:1"). NULL: that option.
    const char* transports;
    /// Bits of a tag by which messages of different workers always differ, 0: none. With
    /// TAGWIRE_TAG_OFFLOAD a receive that asks for all of these bits can be given to a device
    /// though other peers send over other transports (ucp_params_t::tag_sender_mask).
    uint64_t tag_sender_mask;
} tw_context_params_t;

/// Opens the memory domains of the transports that may be used. `params` may be NULL.
/// TW_ERR_NO_DEVICE: a named transport or device is not there; the log says which, and what is.
TAGWIRE_API tw_status_t tw_context_create(const tw_context_params_t* params,
                                          tw_context_h* context_p);

/// Closes it. While workers or memory handles are open the call does nothing but log an error. NULL
/// is ignored.
TAGWIRE_API void tw_context_destroy(tw_context_h context);

// ---- Memory

/// Makes [address, address + length) known to every memory domain, so that messages from and to it
/// need no copy. The memory stays the program's, mapped until tw_mem_unmap(). `length` is not 0.
/// TW_ERR_IO_ERROR, TW_ERR_NO_MEMORY: a domain refused it; the log tells which.
TAGWIRE_API tw_status_t tw_mem_map(tw_context_h context, void* address, size_t length,
                                   tw_mem_h* mem_p);

/// Forgets it. No operation may be using it.
TAGWIRE_API tw_status_t tw_mem_unmap(tw_context_h context, tw_mem_h mem);

/// With TAGWIRE_REG_CACHE buffers without a handle stay registered after their message. This makes
/// the library forget what overlaps [address, address + length): no later message uses it. Call it
/// before memory that messages have used is unmapped or its pages discarded (munmap, madvise), from
/// any thread. Where the system tells (docs/reference/messaging.md) the library notices unmapped
/// memory by itself; discarded pages it never does. An operation under way keeps what it has.
/// Without a cache, or with `length` 0, it does nothing. TW_ERR_INVALID_PARAM: no such range can
/// be.
TAGWIRE_API tw_status_t tw_mem_invalidate(tw_context_h context, const void* address, size_t length);

// ---- Workers

/// Reports that an endpoint has failed: every operation on it has ended, and it refuses everything
/// but tw_ep_close(). Once per endpoint, inside progress. TW_ERR_NOT_CONNECTED: the peer has gone
/// in order, its worker was destroyed with nothing under way to this one. TW_ERR_CONNECTION_RESET:
/// it has died, or has ended the connection by force. Others: as the transport tells.
typedef void (*tw_ep_failed_cb_t)(void* arg, tw_ep_h ep, tw_status_t status);

typedef enum tw_peer_event {
    TW_PEER_UP,      ///< Connected, whoever began. Status TW_OK.
    TW_PEER_CLOSED,  ///< The connection has ended in order. Status TW_OK: neither side has an
                     ///< endpoint any more. TW_ERR_NOT_CONNECTED: the peer's worker was destroyed.
                     ///< TW_ERR_CANCELED: this side has closed its endpoint by force.
    TW_PEER_FAILED   ///< It has ended otherwise; the status says how, as for tw_ep_failed_cb_t.
} tw_peer_event_t;

/// Reports that a peer comes or goes, also one that the program has no endpoint to. Runs inside
/// progress; may call everything but progress, tw_ep_create_to() with `worker_id` among it. Each
/// connection is told of twice: TW_PEER_UP when it is there, and when it has ended one of the
/// others, after everything that was under way has ended, and after tw_ep_failed_cb_t. A connection
/// that did not come about is not told of, nor that of a worker to itself. After an end the same
/// worker may come again.
typedef void (*tw_peer_event_cb_t)(void* arg, uint64_t worker_id, tw_peer_event_t event,
                                   tw_status_t status);

/// Parameters of tw_worker_create(). Zeroes are the defaults.
typedef struct tw_worker_params {
    tw_thread_mode_t thread_mode;
    tw_ep_failed_cb_t ep_failed;  ///< NULL: nobody is told; the log has failures in any case.
    void* ep_failed_arg;
    tw_peer_event_cb_t peer_event;  ///< NULL: nobody is told.
    void* peer_event_arg;
} tw_worker_params_t;

/// Opens an interface of every transport. `params` may be NULL. TW_ERR_NO_DEVICE: no interface
/// could be opened, or none that takes first contact; the log names each with its reason.
TAGWIRE_API tw_status_t tw_worker_create(tw_context_h context, const tw_worker_params_t* params,
                                         tw_worker_h* worker_p);

/// Closes its endpoints by force and gives back everything, handles of requests included. Requests
/// of the program's own memory are its own again; no callback runs. Peers with whom nothing is
/// under way hear that it has gone in order (TW_ERR_NOT_CONNECTED). NULL is ignored.
TAGWIRE_API void tw_worker_destroy(tw_worker_h worker);

/// Properties and limits of a worker.
typedef struct tw_worker_attr {
    uint64_t id;  ///< Random; names the worker as the source of messages.
    tw_thread_mode_t thread_mode;
    size_t inject_bytes_max;      ///< Longest message of TW_OP_INJECT.
    size_t multi_recv_bytes_min;  ///< A multi-receive ends below this many free bytes.
    size_t buffered_bytes_limit;  ///< Longest message that a buffered receive has all of.
    size_t buffered_bytes_min;    ///< Least that it has of a longer message.
    size_t endpoints;             ///< Peers known, with or without an endpoint of the program.
} tw_worker_attr_t;

TAGWIRE_API tw_status_t tw_worker_query(tw_worker_h worker, tw_worker_attr_t* attr);

#define TW_WORKER_LIMIT_MAX ((size_t)1 << 30)  ///< No limit of tw_worker_limits_t is larger.

/// Limits that a program may change, as tw_worker_query() tells them. 0: as it is.
typedef struct tw_worker_limits {
    size_t multi_recv_bytes_min;
    size_t buffered_bytes_limit;
    size_t buffered_bytes_min;  ///< At most `buffered_bytes_limit`.
} tw_worker_limits_t;

/// Changes limits of this worker, from the next message on. TW_ERR_EXCEEDS_LIMIT: one is larger
/// than TW_WORKER_LIMIT_MAX, or the minimum of buffered receives above their limit; nothing is
/// changed.
TAGWIRE_API tw_status_t tw_worker_set_limits(tw_worker_h worker, const tw_worker_limits_t* limits);

/// Writes the address into `address`, which has *length_p bytes; *length_p gets those that it
/// takes. TW_ERR_BUFFER_TOO_SMALL: more are needed, *length_p says how many; TW_ADDRESS_BYTES_MAX
/// always suffices.
TAGWIRE_API tw_status_t tw_worker_address(tw_worker_h worker, void* address, size_t* length_p);

/// The id of the worker that an address leads to. TW_ERR_INVALID_ADDR: these bytes are no address.
TAGWIRE_API tw_status_t tw_address_worker_id(const void* address, size_t length, uint64_t* id_p);

/// Advances everything: sends, receives, callbacks, connections. Returns 0 when nothing happened.
/// In a callback it does nothing; the first such call is logged.
TAGWIRE_API unsigned tw_worker_progress(tw_worker_h worker);

/// Takes up to `max` completions of operations with TW_OP_COMPLETION and without a callback, oldest
/// first; returns how many. Does not progress.
TAGWIRE_API unsigned tw_worker_poll(tw_worker_h worker, tw_completion_t* completions, unsigned max);

// ---- Sleeping. A thread that has nothing to do may wait for the worker's descriptor, in poll(2)
// or in its own epoll set:
//
//     while (nothing is done) {
//         if (tw_worker_progress(worker) > 0) continue;
//         if (tw_worker_arm(worker) == TW_OK) poll(fd);
//     }

/// A descriptor that becomes readable when an armed worker has something to progress. It belongs to
/// the worker; nothing is read from it. TW_ERR_IO_ERROR: the system has no more descriptors.
TAGWIRE_API tw_status_t tw_worker_fd(tw_worker_h worker, int* fd_p);

/// Arms the descriptor. TW_OK: armed, for one wake-up. A later call of another thread on the worker
/// (progress, or a call that leaves work to it) makes the descriptor readable, too.
/// TW_ERR_BUSY: something has come already, or completions wait for tw_worker_poll(): progress or
/// poll, then arm again; also in a callback. TW_ERR_INVALID_PARAM: tw_worker_fd() was never called.
/// No callback runs.
TAGWIRE_API tw_status_t tw_worker_arm(tw_worker_h worker);

/// Ends tw_worker_wait() of every thread that waits just then, and the next one of every other
/// thread; makes the descriptor readable. From any thread whatever the thread mode, and from a
/// signal handler. TW_OK.
TAGWIRE_API tw_status_t tw_worker_signal(tw_worker_h worker);

typedef enum tw_wait_mode {
    TW_WAIT_SPIN,   ///< Progress again and again.
    TW_WAIT_YIELD,  ///< The same, giving the processor away in between.
    TW_WAIT_SLEEP   ///< Sleep on the descriptor while there is nothing to do.
} tw_wait_mode_t;

/// Progresses until there may be something new for the calling thread, or `timeout_ns` have passed
/// (UINT64_MAX: no limit). TW_OK:
///
/// - an operation has ended, a message has come, or an endpoint has failed, since this thread's
///   last tw_worker_wait() on the worker returned, whichever thread's progress saw it;
/// - completions wait for tw_worker_poll();
/// - tw_worker_signal() was called since then;
/// - TW_WAIT_SLEEP: a signal handler has run in this thread while it slept;
/// - or for none of these: so test, then wait again. No end is missed between the two:
///
///     while (tw_request_test(request, &done) == TW_INPROGRESS)
///         tw_worker_wait(worker, mode, UINT64_MAX);
///
/// With TW_THREAD_MULTI any number of threads may wait; the lock is not held while they sleep, and
/// what other threads begin is progressed. TW_ERR_TIMED_OUT. TW_ERR_INVALID_PARAM: in a callback,
/// where nothing can be waited for. TW_ERR_IO_ERROR, TW_ERR_UNSUPPORTED: as tw_worker_fd().
TAGWIRE_API tw_status_t tw_worker_wait(tw_worker_h worker, tw_wait_mode_t mode,
                                       uint64_t timeout_ns);

/// One counter of a worker. The texts are constants of the library.
typedef struct tw_counter {
    const char* name;  ///< "tx_eager"
    const char* unit;  ///< "messages", "bytes"
    const char* doc;   ///< One line.
    uint64_t value;
} tw_counter_t;

/// Reads the counters. *count_p: the room in `counters` on entry, those that exist on return;
/// TW_ERR_BUFFER_TOO_SMALL: as many as fit were written. `counters` may be NULL when *count_p is 0.
TAGWIRE_API tw_status_t tw_worker_counters(tw_worker_h worker, tw_counter_t* counters,
                                           unsigned* count_p);

/// Receives one fact: `key` in lower case with underscores, `value` as text. Both are valid during
/// the call.
typedef void (*tw_describe_cb_t)(void* arg, const char* key, const char* value);

/// Tells what a worker has open, and what of each endpoint was chosen.
TAGWIRE_API tw_status_t tw_worker_describe(tw_worker_h worker, tw_describe_cb_t cb, void* arg);

// ---- Endpoints

/// Parameters of tw_ep_create(). Zeroes are the defaults.
typedef struct tw_ep_params {
    const void* address;  ///< Address of the peer's worker; copied.
    size_t address_length;
    void* user_data;  ///< tw_ep_user_data() returns it.
} tw_ep_params_t;

/// Makes the endpoint to a worker, which may be this one. Does not wait for the peer; messages may
/// be sent at once. TW_ERR_INVALID_ADDR: these bytes are no address (the log says why).
/// TW_ERR_UNREACHABLE: no transport leads there. TW_ERR_ALREADY_EXISTS: the worker has one.
TAGWIRE_API tw_status_t tw_ep_create(tw_worker_h worker, const tw_ep_params_t* params,
                                     tw_ep_h* ep_p);

/// Makes the endpoint to a worker that this one is connected with: the sender of a message
/// (tw_completion_t.source), or one that tw_peer_event_cb_t has told of. No address is needed, so a
/// server can reply to whom it does not know. `user_data` as in tw_ep_params_t.
/// TW_ERR_NO_ELEM: no worker of this id is connected, it may have gone since.
/// TW_ERR_ALREADY_EXISTS: the program has the endpoint; tw_ep_find(), or tw_completion_t.ep.
TAGWIRE_API tw_status_t tw_ep_create_to(tw_worker_h worker, uint64_t worker_id, void* user_data,
                                        tw_ep_h* ep_p);

/// The endpoint to the worker of this id, NULL when there is none.
TAGWIRE_API tw_ep_h tw_ep_find(tw_worker_h worker, uint64_t worker_id);

TAGWIRE_API void* tw_ep_user_data(tw_ep_h ep);

/// Ends when everything sent on the endpoint before has completed and the peer's library has taken
/// it: nothing is lost if this process ends then. TW_OK: there is nothing to wait for.
/// TW_INPROGRESS: it is reported as any operation (`op` and `request_p` as for tw_tag_send()). Also
/// the status of the endpoint's failure, and TW_ERR_NO_RESOURCE.
TAGWIRE_API tw_status_t tw_ep_flush(tw_ep_h ep, const tw_op_t* op, tw_request_h* request_p);

enum tw_ep_close_flag {
    /// Ends everything at once with TW_ERR_CANCELED, and the buffers are the program's again: what
    /// the peer reads of them after the call it does not report as received. Except over dc those
    /// with a handle, until tw_mem_unmap(), and with TAGWIRE_REG_CACHE those on pages that another
    /// operation under way has, too; and an operation whose data a device moves just then ends, in
    /// progress, when the device is done with it. The peer's endpoint fails, at once if the
    /// transport has room for a message to it, else when either speaks to the other again.
    TW_EP_CLOSE_FORCE = 1 << 0
};

/// Flushes and destroys the endpoint: nothing may be called on it any more. TW_OK: it is gone.
/// TW_INPROGRESS: it will be, and that is reported as any operation. Messages from the peer are
/// still received. TW_ERR_NO_RESOURCE: nothing happened.
TAGWIRE_API tw_status_t tw_ep_close(tw_ep_h ep, unsigned flags, const tw_op_t* op,
                                    tw_request_h* request_p);

#ifdef __cplusplus
}
#endif

#endif
