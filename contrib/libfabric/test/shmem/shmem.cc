// SPDX-License-Identifier: BSD-3-Clause
#include "shmem.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "job.hpp"
#include "net.hpp"

namespace shmem {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kBarrierRounds = 16;  // 2^16 PEs

/// State of a PE between shmem_init() and shmem_finalize().
struct Pe {
    char* heap = nullptr;
    std::size_t bytes = 0;
    std::map<std::size_t, std::size_t> taken;  // offset to length
    std::unique_ptr<Net> net;
    std::int64_t* rounds = nullptr;  // of the barrier: who comes adds one
    std::int64_t barriers = 0;
};

Pe& pe_of_process() {
    static Pe pe;
    return pe;
}

Net& net() {
    if (pe_of_process().net == nullptr)
        fail("shmem_init() comes first");
    return *pe_of_process().net;
}

/// First fit. All PEs make the same calls, so that they get the same offsets.
char* allocate(Pe& pe, std::size_t size) {
    const std::size_t wanted = (std::max<std::size_t>(size, 1) + kAlignment - 1) & -kAlignment;
    std::size_t from = 0;
    for (const auto& [offset, length] : pe.taken) {
        if (offset - from >= wanted)
            break;
        from = offset + length;
    }
    if (wanted < size || pe.bytes - from < wanted)
        return nullptr;
    pe.taken[from] = wanted;
    return pe.heap + from;
}

std::size_t heap_bytes() {
    const char* value = std::getenv("SHMEM_SYMMETRIC_SIZE");
    return value != nullptr ? std::strtoull(value, nullptr, 10) : std::size_t{64} << 20;
}

template <class T>
constexpr fi_datatype kTypeOf = sizeof(T) == 4 ? FI_INT32 : FI_INT64;

/// The bytes of a number, first in a word, as an operand is read.
template <class T>
std::uint64_t word_of(T value) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
}

template <class T>
T value_of(std::uint64_t word) {
    T value{};
    std::memcpy(&value, &word, sizeof value);
    return value;
}

template <class T>
T fetch(const T* dest, T value, fi_op op, int pe, const T* cond_p = nullptr) {
    const std::uint64_t compare = cond_p != nullptr ? word_of(*cond_p) : 0;
    return value_of<T>(net().fetch(dest, word_of(value), cond_p != nullptr ? &compare : nullptr,
                                   kTypeOf<T>, op, pe));
}

template <class T>
void atomic(T* dest, T value, fi_op op, int pe) {
    net().atomic(dest, word_of(value), kTypeOf<T>, op, pe, false);
}

template <class T>
bool holds(T value, int cmp, T other) {
    switch (cmp) {
        case SHMEM_CMP_EQ:
            return value == other;
        case SHMEM_CMP_NE:
            return value != other;
        case SHMEM_CMP_GT:
            return value > other;
        case SHMEM_CMP_GE:
            return value >= other;
        case SHMEM_CMP_LT:
            return value < other;
        case SHMEM_CMP_LE:
            return value <= other;
        default:
            fail("no such comparison");
    }
}

template <class T>
bool test(T* ivar, int cmp, T cmp_value) {
    net().progress();
    // Acquire: data that a peer has put before this value is read after it. The stores are the
    // provider's.
    return holds(__atomic_load_n(ivar, __ATOMIC_ACQUIRE), cmp, cmp_value);
}

template <class T>
void wait_until(T* ivar, int cmp, T cmp_value) {
    while (!test(ivar, cmp, cmp_value)) {
    }
}

}  // namespace
}  // namespace shmem

using namespace shmem;

void shmem_init() {
    Pe& pe = pe_of_process();
    pe.bytes = heap_bytes();
    void* const heap =
        mmap(nullptr, pe.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap == MAP_FAILED)
        fail("no memory for the symmetric heap");
    pe.heap = static_cast<char*>(heap);
    char* const rounds = allocate(pe, kBarrierRounds * sizeof(std::int64_t));
    if (rounds == nullptr)
        fail("the symmetric heap is too short");
    pe.rounds = reinterpret_cast<std::int64_t*>(rounds);
    pe.net = std::make_unique<Net>(pe.heap, pe.bytes);
    shmem_barrier_all();
}

void shmem_finalize() {
    shmem_barrier_all();
    Pe& pe = pe_of_process();
    pe.net.reset();
    munmap(pe.heap, pe.bytes);
    pe = {};
}

int shmem_my_pe() {
    return job().pe;
}
int shmem_n_pes() {
    return job().pes;
}

void* shmem_malloc(size_t size) {
    void* const memory = allocate(pe_of_process(), size);
    shmem_barrier_all();
    return memory;
}

void shmem_free(void* ptr) {
    shmem_barrier_all();
    Pe& pe = pe_of_process();
    if (ptr != nullptr &&
        pe.taken.erase(static_cast<std::size_t>(static_cast<char*>(ptr) - pe.heap)) == 0)
        fail("shmem_free() of what is not allocated");
}

void shmem_putmem(void* dest, const void* source, size_t nelems, int pe) {
    net().put(dest, source, nelems, pe);
}

void shmem_getmem(void* dest, const void* source, size_t nelems, int pe) {
    net().get_nbi(dest, source, nelems, pe);
    net().wait_for_reads();
}

void shmem_putmem_nbi(void* dest, const void* source, size_t nelems, int pe) {
    net().put_nbi(dest, source, nelems, pe);
}

void shmem_getmem_nbi(void* dest, const void* source, size_t nelems, int pe) {
    net().get_nbi(dest, source, nelems, pe);
}

void shmem_putmem_signal(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,
                         uint64_t signal, int sig_op, int pe) {
    net().put_nbi(dest, source, nelems, pe);
    const fi_op op = sig_op == SHMEM_SIGNAL_ADD ? FI_SUM : FI_ATOMIC_WRITE;
    net().atomic(sig_addr, signal, FI_UINT64, op, pe, true);
    net().wait_for_writes();  // the source may be used again
}

uint64_t shmem_signal_wait_until(uint64_t* sig_addr, int cmp, uint64_t cmp_value) {
    wait_until(sig_addr, cmp, cmp_value);
    return *sig_addr;
}

/// Writes have no order of their own.
void shmem_fence() {
    net().wait_for_writes();
}

void shmem_quiet() {
    net().wait_for_writes();
    net().wait_for_reads();
}

/// Dissemination: in round r a PE tells the one 2^r further on, and hears of the one 2^r before.
void shmem_barrier_all() {
    shmem_quiet();
    Pe& pe = pe_of_process();
    ++pe.barriers;
    for (std::size_t round = 0; (1 << round) < job().pes; ++round) {
        atomic<std::int64_t>(&pe.rounds[round], 1, FI_SUM, (job().pe + (1 << round)) % job().pes);
        wait_until(&pe.rounds[round], SHMEM_CMP_GE, pe.barriers);
    }
    shmem_quiet();
}

int shmem_broadcastmem(shmem_team_t, void* dest, const void* source, size_t nelems, int PE_root) {
    shmem_barrier_all();
    if (job().pe == PE_root)
        for (int pe = 0; pe < job().pes; ++pe)
            shmem_putmem_nbi(dest, source, nelems, pe);
    shmem_barrier_all();
    return 0;
}

int shmem_int64_sum_reduce(shmem_team_t, int64_t* dest, const int64_t* source, size_t nreduce) {
    shmem_barrier_all();
    std::vector<int64_t> sums(nreduce), of_one(nreduce);
    for (int pe = 0; pe < job().pes; ++pe) {
        shmem_getmem(of_one.data(), source, nreduce * sizeof(int64_t), pe);
        for (std::size_t i = 0; i < nreduce; ++i)
            sums[i] += of_one[i];
    }
    shmem_barrier_all();
    std::copy(sums.begin(), sums.end(), dest);
    return 0;
}

#define SHMEM_TYPED(T, NAME)                                                 \
    void shmem_##NAME##_p(T* dest, T value, int pe) {                        \
        net().put(dest, &value, sizeof value, pe);                           \
    }                                                                        \
    T shmem_##NAME##_g(const T* source, int pe) {                            \
        T value{};                                                           \
        shmem_getmem(&value, source, sizeof value, pe);                      \
        return value;                                                        \
    }                                                                        \
    T shmem_##NAME##_atomic_fetch(const T* source, int pe) {                 \
        return fetch<T>(source, 0, FI_ATOMIC_READ, pe);                      \
    }                                                                        \
    void shmem_##NAME##_atomic_set(T* dest, T value, int pe) {               \
        atomic<T>(dest, value, FI_ATOMIC_WRITE, pe);                         \
    }                                                                        \
    void shmem_##NAME##_atomic_add(T* dest, T value, int pe) {               \
        atomic<T>(dest, value, FI_SUM, pe);                                  \
    }                                                                        \
    void shmem_##NAME##_atomic_inc(T* dest, int pe) {                        \
        atomic<T>(dest, 1, FI_SUM, pe);                                      \
    }                                                                        \
    T shmem_##NAME##_atomic_fetch_add(T* dest, T value, int pe) {            \
        return fetch<T>(dest, value, FI_SUM, pe);                            \
    }                                                                        \
    T shmem_##NAME##_atomic_fetch_inc(T* dest, int pe) {                     \
        return fetch<T>(dest, 1, FI_SUM, pe);                                \
    }                                                                        \
    T shmem_##NAME##_atomic_swap(T* dest, T value, int pe) {                 \
        return fetch<T>(dest, value, FI_ATOMIC_WRITE, pe);                   \
    }                                                                        \
    T shmem_##NAME##_atomic_compare_swap(T* dest, T cond, T value, int pe) { \
        return fetch<T>(dest, value, FI_CSWAP, pe, &cond);                   \
    }                                                                        \
    void shmem_##NAME##_wait_until(T* ivar, int cmp, T cmp_value) {          \
        wait_until(ivar, cmp, cmp_value);                                    \
    }                                                                        \
    int shmem_##NAME##_test(T* ivar, int cmp, T cmp_value) {                 \
        return test(ivar, cmp, cmp_value) ? 1 : 0;                           \
    }
SHMEM_TYPED(int32_t, int32)
SHMEM_TYPED(int64_t, int64)
#undef SHMEM_TYPED
