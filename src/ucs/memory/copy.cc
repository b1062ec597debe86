// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/copy.hpp"

#include <algorithm>
#include <iterator>

#include "ucs/sys/processor.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tagwire::ucs {

namespace {

constexpr const char* kCopyNames[] = {"libc", "vector", "nontemporal"};
static_assert(std::size(kCopyNames) == kCopyKinds);

#if defined(__x86_64__)

constexpr CopyKind kKinds[] = {CopyKind::kLibc, CopyKind::kNonTemporal, CopyKind::kVector};
constexpr std::size_t kLineBytes = 64;

bool has_vectors() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx") != 0;
}

struct Vectors {
    static constexpr std::size_t kOne = sizeof(__m256i);
    static constexpr std::size_t kBytes = 4 * kOne;

    [[gnu::target("avx")]] static void copy(std::byte* to, const std::byte* from) {
        const auto* source = reinterpret_cast<const __m256i*>(from);
        auto* target = reinterpret_cast<__m256i*>(to);
        const __m256i first = _mm256_loadu_si256(source);
        const __m256i second = _mm256_loadu_si256(source + 1);
        const __m256i third = _mm256_loadu_si256(source + 2);
        const __m256i fourth = _mm256_loadu_si256(source + 3);
        _mm256_storeu_si256(target, first);
        _mm256_storeu_si256(target + 1, second);
        _mm256_storeu_si256(target + 2, third);
        _mm256_storeu_si256(target + 3, fourth);
    }
};

/// Four vectors at a time, to places at multiples of a vector's length but for the first four and
/// the last, which overlap with their neighbours.
[[gnu::target("avx")]] void copy_vector(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes < Vectors::kBytes)
        return static_cast<void>(std::memcpy(to, from, bytes));
    const std::size_t last = bytes - Vectors::kBytes;
    Vectors::copy(to, from);
    for (std::size_t at = Vectors::kBytes - reinterpret_cast<std::uintptr_t>(to) % Vectors::kOne;
         at < last; at += Vectors::kBytes)
        Vectors::copy(to + at, from + at);
    Vectors::copy(to + last, from + last);
}

/// A whole line at a time, so that it leaves the processor in one piece. The partial lines at both
/// ends are stored as usual.
void copy_nontemporal(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::size_t before =
        std::min(bytes, (kLineBytes - reinterpret_cast<std::uintptr_t>(to)) % kLineBytes);
    std::memcpy(to, from, before);
    to += before;
    from += before;
    bytes -= before;
    for (; bytes >= kLineBytes; bytes -= kLineBytes, to += kLineBytes, from += kLineBytes) {
        __m128i piece[kLineBytes / sizeof(__m128i)];
        std::memcpy(piece, from, sizeof piece);
        auto* line = reinterpret_cast<__m128i*>(to);
        for (std::size_t i = 0; i < std::size(piece); ++i)
            _mm_stream_si128(line + i, piece[i]);
    }
    std::memcpy(to, from, bytes);
    // SYNC sm_slot: a release store of this architecture is an ordinary store, which waits for
    // earlier ordinary stores but not for non-temporal ones. This fence makes it wait for them.
    _mm_sfence();
}

#else

constexpr CopyKind kKinds[] = {CopyKind::kLibc};

#endif

}  // namespace

const char* name_of(CopyKind kind) {
    return kCopyNames[static_cast<std::size_t>(kind)];
}

bool copy_kind_named(std::string_view name, CopyKind* kind_p) {
    const auto* found = std::ranges::find(kCopyNames, name);
    if (found == std::end(kCopyNames))
        return false;
    *kind_p = static_cast<CopyKind>(found - std::begin(kCopyNames));
    return true;
}

std::span<const CopyKind> copy_kinds_here() {
#if defined(__x86_64__)
    if (!has_vectors())
        return std::span(kKinds).first(2);
#endif
    return kKinds;
}

bool has_copy_kind(CopyKind kind) {
    return std::ranges::find(copy_kinds_here(), kind) != copy_kinds_here().end();
}

CopyKind plain_copy_kind() {
    static const CopyKind kind = is_processor_of_amd() && has_copy_kind(CopyKind::kVector)
                                     ? CopyKind::kVector
                                     : CopyKind::kLibc;
    return kind;
}

void copy_by(CopyKind kind, void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
    auto* const to_bytes = static_cast<std::byte*>(to);
    const auto* const from_bytes = static_cast<const std::byte*>(from);
    if (kind == CopyKind::kVector)
        return copy_vector(to_bytes, from_bytes, bytes);
    if (kind == CopyKind::kNonTemporal)
        return copy_nontemporal(to_bytes, from_bytes, bytes);
#else
    static_cast<void>(kind);  // kLibc
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace tagwire::ucs
