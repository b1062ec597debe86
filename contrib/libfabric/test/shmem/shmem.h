/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A part of OpenSHMEM 1.5's interface over one-sided and atomic operations of libfabric only.
 * The names mean what the specification says; one thread per PE. A failure ends the PE.
 *
 * PEs are processes of one host: shmemx_run() forks them.
 *
 * Environment: SHMEM_PROVIDER, a provider of libfabric (default tagwire); SHMEM_SYMMETRIC_SIZE, the
 * bytes of the symmetric heap (default 64 MiB); SHMEM_PROGRESS=auto asks for automatic progress.
 */
#ifndef TAGWIRE_TEST_SHMEM_H
#define TAGWIRE_TEST_SHMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The only team. */
typedef struct shmem_team* shmem_team_t;
#define SHMEM_TEAM_WORLD ((shmem_team_t)0)

enum { SHMEM_CMP_EQ, SHMEM_CMP_NE, SHMEM_CMP_GT, SHMEM_CMP_GE, SHMEM_CMP_LT, SHMEM_CMP_LE };
enum { SHMEM_SIGNAL_SET, SHMEM_SIGNAL_ADD };

/* Forks `pes` processes that run `program` with shmem_init() done and shmem_finalize() to come. 0
 * when all return 0; the first that does not takes the others with it. */
int shmemx_run(int pes, int (*program)(void));

void shmem_init(void);
void shmem_finalize(void);
int shmem_my_pe(void);
int shmem_n_pes(void);

/* Collective. NULL when the heap is full, at every PE. */
void* shmem_malloc(size_t size);
void shmem_free(void* ptr);

void shmem_putmem(void* dest, const void* source, size_t nelems, int pe);
void shmem_getmem(void* dest, const void* source, size_t nelems, int pe);
void shmem_putmem_nbi(void* dest, const void* source, size_t nelems, int pe);
void shmem_getmem_nbi(void* dest, const void* source, size_t nelems, int pe);
void shmem_putmem_signal(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,
                         uint64_t signal, int sig_op, int pe);
uint64_t shmem_signal_wait_until(uint64_t* sig_addr, int cmp, uint64_t cmp_value);

void shmem_fence(void);
void shmem_quiet(void);
void shmem_barrier_all(void);

int shmem_broadcastmem(shmem_team_t team, void* dest, const void* source, size_t nelems,
                       int PE_root);
int shmem_int64_sum_reduce(shmem_team_t team, int64_t* dest, const int64_t* source, size_t nreduce);

#define SHMEM_TYPED(T, NAME)                                                \
    void shmem_##NAME##_p(T* dest, T value, int pe);                        \
    T shmem_##NAME##_g(const T* source, int pe);                            \
    T shmem_##NAME##_atomic_fetch(const T* source, int pe);                 \
    void shmem_##NAME##_atomic_set(T* dest, T value, int pe);               \
    void shmem_##NAME##_atomic_add(T* dest, T value, int pe);               \
    void shmem_##NAME##_atomic_inc(T* dest, int pe);                        \
    T shmem_##NAME##_atomic_fetch_add(T* dest, T value, int pe);            \
    T shmem_##NAME##_atomic_fetch_inc(T* dest, int pe);                     \
    T shmem_##NAME##_atomic_swap(T* dest, T value, int pe);                 \
    T shmem_##NAME##_atomic_compare_swap(T* dest, T cond, T value, int pe); \
    void shmem_##NAME##_wait_until(T* ivar, int cmp, T cmp_value);          \
    int shmem_##NAME##_test(T* ivar, int cmp, T cmp_value);
SHMEM_TYPED(int32_t, int32)
SHMEM_TYPED(int64_t, int64)
#undef SHMEM_TYPED

#ifdef __cplusplus
}
#endif

#endif
