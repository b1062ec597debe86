// SPDX-License-Identifier: BSD-3-Clause
// A library for LD_PRELOAD that counts a process's calls of send() and sendmsg() on stream sockets,
// as the transport tcp writes, and those of sched_yield() and nanosleep().
//
// Test programs read the numbers by tagwire_writes() and tagwire_yields(), and have sched_yield()
// call a function first by tagwire_on_yield(). TAGWIRE_TEST_WRITES=<file>: at its end each process
// that has written adds a line with the number of its writes.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

std::atomic<unsigned long> count{0};
std::atomic<unsigned long> yields{0};
std::atomic<void (*)()> on_yield{nullptr};

void add(int fd) {
    int type = 0;
    socklen_t length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM)
        count.fetch_add(1, std::memory_order_relaxed);
}

template <class Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

[[gnu::destructor]] void finish() {
    const char* const path = std::getenv("TAGWIRE_TEST_WRITES");
    if (path == nullptr || count == 0)
        return;
    if (std::FILE* const file = std::fopen(path, "a")) {
        std::fprintf(file, "%lu\n", count.load());
        std::fclose(file);
    }
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] unsigned long tagwire_writes() {
    return count.load(std::memory_order_relaxed);
}

[[gnu::visibility("default")]] unsigned long tagwire_yields() {
    return yields.load(std::memory_order_relaxed);
}

/// nullptr: nothing is called.
[[gnu::visibility("default")]] void tagwire_on_yield(void (*called)()) {
    on_yield.store(called);
}

[[gnu::visibility("default")]] int sched_yield() {
    static auto* const real = next<int (*)()>("sched_yield");
    yields.fetch_add(1, std::memory_order_relaxed);
    if (auto* const called = on_yield.load())
        called();
    return real();
}

[[gnu::visibility("default")]] int nanosleep(const timespec* time, timespec* left) {
    static auto* const real = next<int (*)(const timespec*, timespec*)>("nanosleep");
    yields.fetch_add(1, std::memory_order_relaxed);
    return real(time, left);
}

[[gnu::visibility("default")]] ssize_t send(int fd, const void* data, std::size_t length,
                                            int flags) {
    static auto* const real = next<ssize_t (*)(int, const void*, std::size_t, int)>("send");
    add(fd);
    return real(fd, data, length, flags);
}

[[gnu::visibility("default")]] ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    static auto* const real = next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
    add(fd);
    return real(fd, message, flags);
}

}  // extern "C"
