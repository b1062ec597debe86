// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Memory that messages use without a copy, and that peers may use. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_MEMORY_H
#define TAGWIRE_PROTOCOLS_API_TW_MEMORY_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif
