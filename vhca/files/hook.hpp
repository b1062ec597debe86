// SPDX-License-Identifier: BSD-3-Clause
/** @file The functions of libc that a face stands before: hook_open.cc, hook_stat.cc,
    hook_descriptor.cc. What is not ours goes to the kernel by a direct system call, so that it does
    not matter who else stands before libc, nor how early it is; those that are more than a system
    call go to the next library's. */
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/files/files.hpp"

/// A function of its own name with libc's as its symbol: the headers' declarations promise more
/// about the arguments than a caller keeps.
#define TW_HOOK(result, name, symbol, ...)                   \
    extern "C" __attribute__((visibility("default")))        \
    result tagwire_hook_##name(__VA_ARGS__) __asm__(symbol); \
    result tagwire_hook_##name(__VA_ARGS__)

namespace tagwire::vhca::files {

template <typename... Args>
long direct(long number, Args... args) {
    return ::syscall(number, args...);
}

/// A call that may block for long: there libc lets pthread_cancel(3) end the thread.
template <typename... Args>
long direct_cancellable(long number, Args... args) {
    int before = 0;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    const long result = ::syscall(number, args...);
    const int error = errno;
    pthread_setcanceltype(before, nullptr);
    errno = error;
    return result;
}

/// The next library's function. The name is libc's.
template <typename Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

inline int fail(int error) {
    errno = error;
    return -1;
}

/// The path to ask the kernel for, where a node is none.
inline const char* path_of(const Place& place, const char* path) {
    return place.kind == Place::Kind::kTree ? place.path.c_str() : path;
}

}  // namespace tagwire::vhca::files
