// SPDX-License-Identifier: BSD-3-Clause
// A library for LD_PRELOAD by which allocations of the library under test fail: drawn by a seed, or
// one that the program names by its number (tagwire_nomem_name()).
//
// An allocation is the library's when the innermost caller that is neither of the C library, of
// the C++ library nor of this one lies in it. So neither GoogleTest, nor the tests' callbacks, nor
// the virtual HCA ever see one fail.
//
// TAGWIRE_TEST_NOMEM_LIBRARY=<name>: how the name of the library under test begins; libtagwire.so
// without it; empty: the program itself, which has the library's object files. One that is loaded
// later is found when the program names or arms.
// TAGWIRE_TEST_NOMEM_RATE=<n>: one of n allocations fails; 0, the default: none.
// TAGWIRE_TEST_NOMEM_SEED=<n>: which ones; 1 without it.
// TAGWIRE_TEST_NOMEM_BYTES_MIN=<n>: only those of at least so many bytes.
// TAGWIRE_TEST_NOMEM_TRACE=1: writes the calls of each allocation that fails to stderr; 2: of each
// that was drawn, and lets none fail.
//
// TAGWIRE_TEST_NOMEM_ALWAYS=1: from the start of the program to its end; else when the program
// says so (common/nomem.hpp).
//
// It works under AddressSanitizer (with verify_asan_link_order=0) and under valgrind (with
// --soname-synonyms=somalloc=nouserintercepts), because every call goes on to the next library.
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr int kFramesMax = 64;
constexpr std::size_t kEarlyBytes = 16384;
constexpr std::size_t kLibrariesMax = 16;

struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool has(const void* address) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return at >= begin && at < end;
    }
};

struct Libraries {
    Range tested;
    Range neutral[kLibrariesMax];
    std::size_t count = 0;
};

std::atomic<std::uint64_t> drawn{0}, failed{0};
/// Allocations of the library until the one that fails, itself included; 0: none is named.
std::atomic<std::uint64_t> until_failure{0};
/// Where the library's allocations fail.
enum class Where { kNowhere, kAnywhere, kOutside };
std::atomic<Where> armed{Where::kNowhere};
std::uint64_t seed = 1, rate = 0, bytes_min = 0;
std::uint64_t traces = 0;
Libraries libraries;
// This thread is in this library, and allocates as it likes. A sanitizer's __tls_get_addr() is not
// ready when the first allocation comes, so it must not be needed.
[[gnu::tls_model("initial-exec")]] thread_local bool is_inside = false;

struct Inside {
    Inside() { is_inside = true; }
    ~Inside() { is_inside = false; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
};

std::uint64_t number(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

const char* tested_name = "libtagwire.so";

int add_library(dl_phdr_info* info, std::size_t, void*) {
    Range range{UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD)
            continue;
        const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        range.begin = begin < range.begin ? begin : range.begin;
        range.end = begin + part.p_memsz > range.end ? begin + part.p_memsz : range.end;
    }
    const char* slash = std::strrchr(info->dlpi_name, '/');
    const char* name = slash == nullptr ? info->dlpi_name : slash + 1;
    const bool is_tested = *tested_name == '\0'
                               ? *name == '\0'
                               : std::strncmp(name, tested_name, std::strlen(tested_name)) == 0;
    if (is_tested)
        libraries.tested = range;
    // A sanitizer's backtrace() has a frame of its runtime.
    constexpr const char* kNeutral[] = {"libc.so",     "libstdc++.so", "libgcc_s.so", "libasan.so",
                                        "libubsan.so", "libclang_rt.", "libnomem.so"};
    for (const char* neutral : kNeutral)
        if (std::strncmp(name, neutral, std::strlen(neutral)) == 0 &&
            libraries.count < kLibrariesMax)
            libraries.neutral[libraries.count++] = range;
    return 0;
}

void write_trace(void* const* frames, int count) {
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
    constexpr char kEnd[] = "---- nomem: the allocation above fails\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kEnd, sizeof kEnd - 1);
}

bool is_neutral(const void* frame) {
    for (std::size_t i = 0; i < libraries.count; ++i)
        if (libraries.neutral[i].has(frame))
            return true;
    return false;
}

/// kOutside: nor is it one of a call that a callback of the program makes.
bool is_of_tested(void* const* frames, int count, Where where) {
    int at = 0;
    while (at < count && is_neutral(frames[at]))
        ++at;
    if (at == count || !libraries.tested.has(frames[at]))
        return false;
    while (at < count && (libraries.tested.has(frames[at]) || is_neutral(frames[at])))
        ++at;
    for (; at < count && where == Where::kOutside; ++at)
        if (libraries.tested.has(frames[at]))
            return false;
    return true;
}

/// splitmix64 of the seed and the number of the allocation.
bool is_drawn(std::uint64_t which) {
    std::uint64_t x = seed * 0x9e3779b97f4a7c15 + which * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % rate == 0;
}

/// It is the one that the program has named.
bool is_named() {
    std::uint64_t left = until_failure.load(std::memory_order_relaxed);
    while (left > 0 &&
           !until_failure.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
    }
    return left == 1;
}

/// Whether an allocation of so many bytes is to fail.
bool fails(std::size_t bytes) {
    const Where where = armed.load(std::memory_order_relaxed);
    const bool counts = until_failure.load(std::memory_order_relaxed) > 0;
    if (is_inside || (where == Where::kNowhere && !counts) || bytes < bytes_min)
        return false;
    const bool is_armed = where != Where::kNowhere && rate != 0;
    const bool draws = is_armed && is_drawn(drawn.fetch_add(1, std::memory_order_relaxed));
    if (!draws && !counts)
        return false;
    const Inside inside;
    void* frames[kFramesMax];
    const int count = backtrace(frames, kFramesMax);
    if (!is_of_tested(frames, count, where) || (!is_named() && !draws))
        return false;
    failed.fetch_add(1, std::memory_order_relaxed);
    if (traces != 0)
        write_trace(frames, count);
    return traces < 2;
}

// dlsym() may allocate and free, in the search for malloc() and free() themselves.
alignas(std::max_align_t) char early[kEarlyBytes];
std::size_t early_used = 0;
bool is_searching = false;

bool is_early(const void* memory) {
    return memory >= early && memory < early + sizeof early;
}

void* early_memory(std::size_t bytes) {
    const std::size_t at = (early_used + 15) & ~std::size_t{15};
    if (at + bytes > sizeof early)
        return nullptr;
    early_used = at + bytes;
    return early + at;
}

/// The function of the next library. Not a static with an initializer, which must not be entered
/// once more from within.
template <class F>
F next(F* known, const char* name) {
    if (*known == nullptr) {
        const bool was_searching = is_searching;
        is_searching = true;
        *known = reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
        is_searching = was_searching;
    }
    return *known;
}

void* no_memory() {
    errno = ENOMEM;
    return nullptr;
}

/// The next library's operator new calls malloc(), which is asked no second time.
template <class Make>
void* made(std::size_t bytes, Make make) {
    if (fails(bytes))
        throw std::bad_alloc();
    if (is_inside)
        return make();
    const Inside inside;
    return make();
}

template <class Make>
void* made_if(std::size_t bytes, Make make) {
    if (fails(bytes))
        return nullptr;
    if (is_inside)
        return make();
    const Inside inside;
    return make();
}

/// The library under test may have been loaded later.
void find_libraries() {
    if (libraries.tested.end != 0)
        return;
    const Inside inside;
    libraries.count = 0;
    dl_iterate_phdr(add_library, nullptr);
}

[[gnu::constructor]] void start() {
    const Inside inside;
    seed = number("TAGWIRE_TEST_NOMEM_SEED", 1);
    rate = number("TAGWIRE_TEST_NOMEM_RATE", 0);
    bytes_min = number("TAGWIRE_TEST_NOMEM_BYTES_MIN", 0);
    if (const char* name = std::getenv("TAGWIRE_TEST_NOMEM_LIBRARY"))
        tested_name = name;
    traces = number("TAGWIRE_TEST_NOMEM_TRACE", 0);
    void* frames[1];
    backtrace(frames, 1);  // loads what it needs
    find_libraries();
    armed = number("TAGWIRE_TEST_NOMEM_ALWAYS", 0) != 0 ? Where::kAnywhere : Where::kNowhere;
}

[[gnu::destructor]] void finish() {
    if (failed != 0) {
        std::fprintf(stderr, "nomem: seed %lu: %lu of the library's allocations failed\n", seed,
                     failed.load());
    }
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void tagwire_nomem_arm(int where) {
    find_libraries();
    armed = static_cast<Where>(where);
}

/// The allocation of that number fails, counted from 1 and from now; 0: none does. Answers whether
/// the one that was named before has failed.
[[gnu::visibility("default")]] int tagwire_nomem_name(unsigned long which) {
    find_libraries();
    return until_failure.exchange(which) == 0 ? 1 : 0;
}

/// Until it is called with 0, no allocation of this thread fails or is counted.
[[gnu::visibility("default")]] void tagwire_nomem_spare(int is_spared) {
    is_inside = is_spared != 0;
}

/// LeakSanitizer knows what the dynamic linker allocates by who calls malloc(), which is we.
[[gnu::visibility("default")]] const char* __lsan_default_suppressions() {
    return "leak:_dl_map_object_deps\nleak:dl_open_worker\n";
}

[[gnu::visibility("default")]] void* malloc(std::size_t bytes) {
    if (is_searching)
        return early_memory(bytes);
    static void* (*real)(std::size_t) = nullptr;
    next(&real, "malloc");
    return fails(bytes) ? no_memory() : real(bytes);
}

[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t bytes) {
    if (is_searching)
        return early_memory(count * bytes);
    static void* (*real)(std::size_t, std::size_t) = nullptr;
    next(&real, "calloc");
    return fails(count * bytes) ? no_memory() : real(count, bytes);
}

[[gnu::visibility("default")]] void* realloc(void* memory, std::size_t bytes) {
    if (is_early(memory)) {
        void* const moved = std::malloc(bytes);
        const auto rest =
            static_cast<std::size_t>(early + kEarlyBytes - static_cast<char*>(memory));
        return moved == nullptr ? nullptr : std::memcpy(moved, memory, std::min(bytes, rest));
    }
    static void* (*real)(void*, std::size_t) = nullptr;
    next(&real, "realloc");
    return fails(bytes) ? no_memory() : real(memory, bytes);
}

[[gnu::visibility("default")]] void free(void* memory) {
    static void (*real)(void*) = nullptr;
    if (is_early(memory) || (is_searching && real == nullptr))
        return;
    next(&real, "free");
    real(memory);
}

[[gnu::visibility("default")]] int posix_memalign(void** memory_p, std::size_t alignment,
                                                  std::size_t bytes) {
    static int (*real)(void**, std::size_t, std::size_t) = nullptr;
    next(&real, "posix_memalign");
    return fails(bytes) ? ENOMEM : real(memory_p, alignment, bytes);
}

[[gnu::visibility("default")]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    static void* (*real)(std::size_t, std::size_t) = nullptr;
    next(&real, "aligned_alloc");
    return fails(bytes) ? no_memory() : real(alignment, bytes);
}

}  // extern "C"

[[gnu::visibility("default")]] void* operator new(std::size_t bytes) {
    static void* (*real)(std::size_t) = nullptr;
    next(&real, "_Znwm");
    return made(bytes, [&] { return real(bytes); });
}

[[gnu::visibility("default")]] void* operator new[](std::size_t bytes) {
    static void* (*real)(std::size_t) = nullptr;
    next(&real, "_Znam");
    return made(bytes, [&] { return real(bytes); });
}

[[gnu::visibility("default")]] void* operator new(std::size_t bytes,
                                                  const std::nothrow_t& tag) noexcept {
    static void* (*real)(std::size_t, const std::nothrow_t&) = nullptr;
    next(&real, "_ZnwmRKSt9nothrow_t");
    return made_if(bytes, [&] { return real(bytes, tag); });
}

[[gnu::visibility("default")]] void* operator new[](std::size_t bytes,
                                                    const std::nothrow_t& tag) noexcept {
    static void* (*real)(std::size_t, const std::nothrow_t&) = nullptr;
    next(&real, "_ZnamRKSt9nothrow_t");
    return made_if(bytes, [&] { return real(bytes, tag); });
}

[[gnu::visibility("default")]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
    static void* (*real)(std::size_t, std::align_val_t) = nullptr;
    next(&real, "_ZnwmSt11align_val_t");
    return made(bytes, [&] { return real(bytes, alignment); });
}
