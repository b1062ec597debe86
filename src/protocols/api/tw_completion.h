// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Completion queues and counters: ends of operations, and arrivals of puts and messages, for any
/// thread. Included by tagwire.h.
///
/// \par Threads
/// Any thread may call everything here at any time, whatever the thread mode of the workers. No
/// call takes a worker's lock, and none progresses: some thread must progress the workers, or
/// nothing ends. All of this may be called from a callback; one that waits there holds up its
/// worker.
#ifndef TAGWIRE_PROTOCOLS_API_TW_COMPLETION_H
#define TAGWIRE_PROTOCOLS_API_TW_COMPLETION_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Completion queues

#define TW_CQ_CAPACITY_MAX ((size_t)1 << 24)  ///< No queue is larger.

/// Parameters of tw_cq_create(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_cq_params {
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_cq_params));  ///< sizeof(tw_cq_params_t).
    /// Completions that the queue has room for: a power of two from 2 on, at most
    /// TW_CQ_CAPACITY_MAX; 0: 1024. Each takes 128 bytes. Those beyond are not lost: they stay in
    /// their requests, and cost their workers requests and the threads that poll a lock.
    size_t capacity;
} tw_cq_params_t;

/// Makes a completion queue.
///
/// It serves operations of all workers of its context: those that name it (tw_op_t.cq) end there.
/// `params` may be NULL. Completions of one worker are taken in the order in which its operations
/// have ended; those of different workers in any order.
///
/// \retval TW_OK  *cq_p is the queue; tw_cq_destroy() closes it.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, struct_bytes is not a size of this struct, or
///     `params->capacity` is not a power of two from 2 to TW_CQ_CAPACITY_MAX.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_cq_create(tw_context_h context, const tw_cq_params_t* params,
                                     tw_cq_h* cq_p);

/// Closes a completion queue.
///
/// While operations that have not ended name it, or threads wait for it, the call does nothing but
/// log an error. Completions that nobody has taken are dropped. No other call on the queue may be
/// under way. NULL is ignored.
TAGWIRE_API void tw_cq_destroy(tw_cq_h cq);

/// Takes completions from a queue, the oldest first.
///
/// Takes no lock while the queue has never more completions than its capacity.
///
/// \return The number of completions written, at most `max`. 0: there are none; or, `cq` or
///     `completions` being NULL, that is logged.
TAGWIRE_API unsigned tw_cq_poll(tw_cq_h cq, tw_completion_t* completions, unsigned max);

/// Takes completions from a queue, and sleeps until there is one.
///
/// Each completion wakes one of the threads that sleep. The call does not progress. `max` is 1 or
/// more. UINT64_MAX: no limit of time; 0: does not sleep.
///
/// \retval TW_OK  *count_p completions were written, 1 or more.
/// \retval TW_ERR_TIMED_OUT  `timeout_ns` have passed, and there is none; *count_p is 0.
/// \retval TW_ERR_CANCELED  There is none, and tw_cq_signal() was called; *count_p is 0.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or `max` is 0.
TAGWIRE_API tw_status_t tw_cq_wait(tw_cq_h cq, tw_completion_t* completions, unsigned max,
                                   uint64_t timeout_ns, unsigned* count_p);

/// Wakes all threads that wait for a queue, for good.
///
/// For shutting down: from now on tw_cq_wait() takes what is there, and never sleeps. Also in a
/// signal handler.
///
/// \retval TW_OK  Signalled.
/// \retval TW_ERR_INVALID_PARAM  `cq` is NULL.
TAGWIRE_API tw_status_t tw_cq_signal(tw_cq_h cq);

// ---- Completion counters

/// Makes a completion counter. It may serve any operations, workers and contexts at the same time.
///
/// It counts
/// - operations that name it (tw_op_t.counter). An operation whose call has returned TW_OK or
///   TW_INPROGRESS counts once, when it has ended and was reported; one whose call has returned an
///   error does not count;
/// - messages that arrive, by their receives. Each completion of a multi-receive counts. A handler
///   of active messages calls tw_counter_add();
/// - puts with TW_OP_IMM that arrive in memory that names it (tw_mem_params_t.counter);
/// - whatever the program adds itself (tw_counter_add()).
///
/// \retval TW_OK  *counter_p is the counter; tw_counter_destroy() closes it.
/// \retval TW_ERR_INVALID_PARAM  `counter_p` is NULL.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_counter_create(tw_counter_h* counter_p);

/// Closes a completion counter.
///
/// While operations that have not ended or memory name it, or threads wait for it, the call does
/// nothing but log an error. No other call on the counter may be under way but tw_counter_add().
/// NULL is ignored.
TAGWIRE_API void tw_counter_destroy(tw_counter_h counter);

/// Reads a completion counter.
///
/// The data of counted receives and puts is visible to the calling thread. The numbers grow; they
/// are read one after the other. Each of the two pointers may be NULL.
///
/// \retval TW_OK  Read: operations that have ended with TW_OK and puts that have arrived; and
///     operations that have ended otherwise.
/// \retval TW_ERR_INVALID_PARAM  `counter` is NULL.
TAGWIRE_API tw_status_t tw_counter_read(tw_counter_h counter, uint64_t* successes_p,
                                        uint64_t* failures_p);

/// Adds to a completion counter, as so many operations would.
///
/// \retval TW_OK  Added.
/// \retval TW_ERR_INVALID_PARAM  `counter` is NULL.
TAGWIRE_API tw_status_t tw_counter_add(tw_counter_h counter, uint64_t successes, uint64_t failures);

/// Sleeps until a completion counter has reached a number, successes and failures together.
///
/// The thread is woken when the number is reached, not before. The data of counted receives and
/// puts is visible to it. The call does not progress. UINT64_MAX: no limit of time; 0: does not
/// sleep.
///
/// \retval TW_OK  Reached; tw_counter_read() tells how many have failed.
/// \retval TW_ERR_TIMED_OUT  `timeout_ns` have passed.
/// \retval TW_ERR_INVALID_PARAM  `counter` is NULL.
TAGWIRE_API tw_status_t tw_counter_wait(tw_counter_h counter, uint64_t number, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
