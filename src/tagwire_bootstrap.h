// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Lets the processes of one job learn each other's addresses before they can exchange messages:
/// each has a rank, 0 to size - 1, and all of them call the same operations in the same order.
///
///     tw_bootstrap_h job;
///     tw_status_t status = tw_bootstrap_create(NULL, &job);
///     if (status == TW_OK)
///         status = tw_bootstrap_allgather(job, mine, bytes, all);
///     if (status != TW_OK)
///         fprintf(stderr, "%s\n", tw_bootstrap_last_error());
///
/// Methods: PMIx (Open MPI's mpirun, Slurm and others), files in a shared directory, and a job of
/// one process. docs/reference/bootstrap.md compares them.
///
/// Every call that blocks has a time limit (timeout_ms). A failure is final for the job: the failed
/// call says what went wrong and, where known, which ranks are missing; each later call but
/// tw_bootstrap_destroy() returns the same status.
///
/// \par Threads
/// A handle belongs to one thread at a time; different handles are independent, but all
/// ranks create handles of method PMIX in the same order. After a fork the child must not use
/// inherited handles.
///
/// This header includes nothing of ucs/ or uct/ and may be included beside UCX's headers.
#ifndef TAGWIRE_BOOTSTRAP_H
#define TAGWIRE_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "tagwire_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Limits: bytes that a rank gives to one call, ranks of a job, letters of a job's name.
#define TW_BOOTSTRAP_BYTES_MAX ((size_t)1 << 20)
#define TW_BOOTSTRAP_RANKS_MAX ((uint32_t)1 << 16)
#define TW_BOOTSTRAP_JOB_MAX ((size_t)64)

typedef struct tw_bootstrap* tw_bootstrap_h;

/// Ways in which the processes of a job meet.
typedef enum tw_bootstrap_method {
    /// The method that the option TAGWIRE_BOOTSTRAP names. If that is `auto`: PMIX for a process
    /// that a PMIx launcher started, else SINGLE.
    TW_BOOTSTRAP_AUTO = 0,
    TW_BOOTSTRAP_PMIX = 1,   ///< By the launcher.
    TW_BOOTSTRAP_DIR = 3,    ///< By files in a directory that all ranks see.
    TW_BOOTSTRAP_SINGLE = 4  ///< One process.
} tw_bootstrap_method_t;

/// Zero (NULL) in a field means its default; struct_bytes has none. Texts are copied.
typedef struct tw_bootstrap_params {
    /// sizeof(tw_bootstrap_params_t), by which a later library knows this version; C++ sets it.
    size_t struct_bytes TW_CXX_DEFAULT(sizeof(struct tw_bootstrap_params));
    tw_bootstrap_method_t method;
    /// Number of processes in the job. 0: rank and size are those of the launcher, or the options
    /// TAGWIRE_RANK and TAGWIRE_SIZE. At most TW_BOOTSTRAP_RANKS_MAX.
    uint32_t size;
    uint32_t rank;  ///< Rank of this process; ignored if size is 0.
    /// DIR: path of an existing directory that all ranks see. Other methods: NULL. NULL: what
    /// TAGWIRE_BOOTSTRAP says after the same method's name.
    const char* where;
    /// Name of the job, by which DIR tells this job from others in the same directory: letters,
    /// digits, '.', '_', '-'; at most TW_BOOTSTRAP_JOB_MAX. NULL: the option TAGWIRE_BOOTSTRAP_JOB,
    /// whose default is "default".
    const char* job;
    /// Time limit of each call, in milliseconds. 0: the option TAGWIRE_BOOTSTRAP_TIMEOUT, whose
    /// default is 60 s. A call may take a quarter longer: ranks wait for rank 0 to tell them the
    /// reason, and rank 0 for them to take the result.
    uint64_t timeout_ms;
} tw_bootstrap_params_t;

/// Joins the job. With DIR it returns when all ranks are there. `params` NULL: defaults.
///
/// TW_OK: *bs_p is the job, to be given back by tw_bootstrap_destroy().
/// TW_ERR_INVALID_PARAM: an argument, or an option's value, is wrong, or rank or size are missing.
/// TW_ERR_TIMED_OUT: not all ranks came. TW_ERR_REJECTED: rank 0 refuses this process (its rank is
/// taken, or its size differs). TW_ERR_UNREACHABLE: method PMIX without a launcher.
/// TW_ERR_UNSUPPORTED: method PMIX where this machine or this build has no PMIx.
/// TW_ERR_CONNECTION_RESET: another rank 0 took the directory over. TW_ERR_IO_ERROR: file or PMIx
/// failed. TW_ERR_NO_MEMORY.
TAGWIRE_API tw_status_t tw_bootstrap_create(const tw_bootstrap_params_t* params,
                                            tw_bootstrap_h* bs_p);

/// Leaves the job and frees the handle; does not wait for the others. Later calls of other ranks
/// fail, because this one has left. NULL is allowed.
TAGWIRE_API void tw_bootstrap_destroy(tw_bootstrap_h bs);

/// Returns the rank of this process: 0 to tw_bootstrap_size() - 1.
TAGWIRE_API uint32_t tw_bootstrap_rank(tw_bootstrap_h bs);

/// Returns the number of processes of the job: at least 1.
TAGWIRE_API uint32_t tw_bootstrap_size(tw_bootstrap_h bs);

/// Returns the method in use: "pmix", "dir" or "single"; a constant.
TAGWIRE_API const char* tw_bootstrap_method_name(tw_bootstrap_h bs);

/// Gives `bytes` bytes from each rank to each rank; `bytes` is the same on all of them, at most
/// TW_BOOTSTRAP_BYTES_MAX. `out` has room for size * bytes, in the order of ranks; `in` may be this
/// rank's own place in it, and otherwise does not overlap it. Both may be NULL where `bytes` is 0.
///
/// Like every call that waits here it progresses no worker: messages that wait for progress stay
/// where they are until the call returns. Wait for tw_worker_flush() at TW_FLUSH_SENT first, or for
/// whatever else other ranks need before they call.
///
/// TW_OK: `out` is complete here. Another rank may still fail; the next call will tell.
/// TW_ERR_INVALID_PARAM: an argument is wrong, and the job goes on; or the ranks make different
/// calls or give different lengths, and the job has failed.
/// TW_ERR_EXCEEDS_LIMIT: `bytes` is too large; the job is as it was.
/// TW_ERR_TIMED_OUT: a rank did not call. TW_ERR_CONNECTION_RESET: a rank died or left.
/// TW_ERR_IO_ERROR: file or PMIx failed. TW_ERR_NO_MEMORY.
TAGWIRE_API tw_status_t tw_bootstrap_allgather(tw_bootstrap_h bs, const void* in, size_t bytes,
                                               void* out);

/// Returns when all ranks have called it. It progresses no worker. Statuses: as
/// tw_bootstrap_allgather().
TAGWIRE_API tw_status_t tw_bootstrap_barrier(tw_bootstrap_h bs);

/// Describes the last failure of a call of this header in the calling thread.
///
/// One English sentence; "" when none failed. Valid until the next failure in this thread. The log
/// has it, too, as an error.
TAGWIRE_API const char* tw_bootstrap_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
