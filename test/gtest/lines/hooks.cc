// SPDX-License-Identifier: BSD-3-Clause
// The functions that code compiled for ThreadSanitizer calls, of GCC and of Clang. They tell the
// recorder, and do what is left to them: atomic accesses and copies.
#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "lines/recorder.hpp"

// NOLINTBEGIN: names and types are the compilers', and __wrap_x is the linker's
#define TW_HERE __builtin_return_address(0)

namespace {

void note_read(const volatile void* address, std::size_t bytes, const void* code) {
    tagwire::test::LineRecorder::note(address, bytes, false, code);
}

void note_write(const volatile void* address, std::size_t bytes, const void* code) {
    tagwire::test::LineRecorder::note(address, bytes, true, code);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define TW_PLAIN(name, bytes)                     \
    void __tsan_read##name(void* at) {            \
        note_read(at, bytes, TW_HERE);            \
    }                                             \
    void __tsan_write##name(void* at) {           \
        note_write(at, bytes, TW_HERE);           \
    }                                             \
    void __tsan_volatile_read##name(void* at) {   \
        note_read(at, bytes, TW_HERE);            \
    }                                             \
    void __tsan_volatile_write##name(void* at) {  \
        note_write(at, bytes, TW_HERE);           \
    }                                             \
    void __tsan_unaligned_read##name(void* at) {  \
        note_read(at, bytes, TW_HERE);            \
    }                                             \
    void __tsan_unaligned_write##name(void* at) { \
        note_write(at, bytes, TW_HERE);           \
    }
TW_PLAIN(1, 1)
TW_PLAIN(2, 2)
TW_PLAIN(4, 4)
TW_PLAIN(8, 8)
TW_PLAIN(16, 16)

void __tsan_read_range(void* at, std::size_t bytes) {
    note_read(at, bytes, TW_HERE);
}
void __tsan_write_range(void* at, std::size_t bytes) {
    note_write(at, bytes, TW_HERE);
}
void __tsan_vptr_update(void** at, void*) {
    note_write(at, sizeof *at, TW_HERE);
}
void __tsan_vptr_read(void** at) {
    note_read(at, sizeof *at, TW_HERE);
}

// The strongest order serves every one that was asked for. A failed compare-and-swap takes the line
// for itself as one that succeeds does.
#define TW_READ_WRITE(bits, type, name, builtin)                            \
    type __tsan_atomic##bits##_##name(volatile type* at, type value, int) { \
        note_write(at, sizeof value, TW_HERE);                              \
        return builtin(at, value, __ATOMIC_SEQ_CST);                        \
    }
#define TW_COMPARE(bits, type, name)                                                             \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type* at, type* seen, type value, \
                                                      int, int) {                                \
        note_write(at, sizeof value, TW_HERE);                                                   \
        return __atomic_compare_exchange_n(at, seen, value, false, __ATOMIC_SEQ_CST,             \
                                           __ATOMIC_SEQ_CST);                                    \
    }
#define TW_ATOMIC(bits, type)                                                                      \
    type __tsan_atomic##bits##_load(const volatile type* at, int) {                                \
        note_read(at, sizeof *at, TW_HERE);                                                        \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile type* at, type value, int) {                         \
        note_write(at, sizeof value, TW_HERE);                                                     \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                              \
    TW_READ_WRITE(bits, type, exchange, __atomic_exchange_n)                                       \
    TW_READ_WRITE(bits, type, fetch_add, __atomic_fetch_add)                                       \
    TW_READ_WRITE(bits, type, fetch_sub, __atomic_fetch_sub)                                       \
    TW_READ_WRITE(bits, type, fetch_and, __atomic_fetch_and)                                       \
    TW_READ_WRITE(bits, type, fetch_or, __atomic_fetch_or)                                         \
    TW_READ_WRITE(bits, type, fetch_xor, __atomic_fetch_xor)                                       \
    TW_COMPARE(bits, type, strong)                                                                 \
    TW_COMPARE(bits, type, weak)                                                                   \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type* at, type seen, type value, int, \
                                                    int) {                                         \
        note_write(at, sizeof value, TW_HERE);                                                     \
        __atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
        return seen;                                                                               \
    }
TW_ATOMIC(8, std::uint8_t)
TW_ATOMIC(16, std::uint16_t)
TW_ATOMIC(32, std::uint32_t)
TW_ATOMIC(64, std::uint64_t)

void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// Clang names copies so; GCC leaves them to the linker's option --wrap.
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);

#define TW_COPY(name, real)                                     \
    void* name(void* to, const void* from, std::size_t bytes) { \
        note_read(from, bytes, TW_HERE);                        \
        note_write(to, bytes, TW_HERE);                         \
        return real(to, from, bytes);                           \
    }
#define TW_SET(name)                                     \
    void* name(void* to, int value, std::size_t bytes) { \
        note_write(to, bytes, TW_HERE);                  \
        return __real_memset(to, value, bytes);          \
    }
TW_COPY(__wrap_memcpy, __real_memcpy)
TW_COPY(__tsan_memcpy, __real_memcpy)
TW_COPY(__wrap_memmove, __real_memmove)
TW_COPY(__tsan_memmove, __real_memmove)
TW_SET(__wrap_memset)
TW_SET(__tsan_memset)

#define TW_LOCK(name)                                         \
    int __real_pthread_mutex_##name(pthread_mutex_t* mutex);  \
    int __wrap_pthread_mutex_##name(pthread_mutex_t* mutex) { \
        note_write(mutex, sizeof *mutex, TW_HERE);            \
        return __real_pthread_mutex_##name(mutex);            \
    }
TW_LOCK(lock)
TW_LOCK(trylock)
TW_LOCK(unlock)

}  // extern "C"
// NOLINTEND
