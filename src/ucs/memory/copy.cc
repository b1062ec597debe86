// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/copy.hpp"

#include <algorithm>
#include <iterator>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tagwire::ucs {

namespace {

constexpr const char* kCopyNames[] = {"libc", "nontemporal"};
static_assert(std::size(kCopyNames) == kCopyKinds);

#if defined(__x86_64__)

constexpr CopyKind kKindsHere[] = {CopyKind::kLibc, CopyKind::kNonTemporal};
constexpr std::size_t kLineBytes = 64;

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

constexpr CopyKind kKindsHere[] = {CopyKind::kLibc};

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
    return kKindsHere;
}

bool has_copy_kind(CopyKind kind) {
    return std::ranges::find(copy_kinds_here(), kind) != copy_kinds_here().end();
}

void copy_by(CopyKind kind, void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
    if (kind == CopyKind::kNonTemporal)
        return copy_nontemporal(static_cast<std::byte*>(to), static_cast<const std::byte*>(from),
                                bytes);
#else
    static_cast<void>(kind);  // kLibc
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace tagwire::ucs
