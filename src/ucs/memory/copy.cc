// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/copy.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tagwire::ucs {

namespace {

constexpr const char* kCopyNames[] = {"libc", "rep", "nontemporal", "demote"};
static_assert(std::size(kCopyNames) == kCopyKinds);

struct KindsHere {
    std::array<CopyKind, kCopyKinds> kinds{CopyKind::kLibc};
    std::size_t count = 1;

    void add(CopyKind kind) { kinds[count++] = kind; }
};

#if defined(__x86_64__)

constexpr std::size_t kLineBytes = 64;
constexpr unsigned kLeafFeatures = 7;
constexpr unsigned kEbxErms = 1U << 9;  // `rep movsb` is fast
constexpr unsigned kEcxCldemote = 1U << 25;

KindsHere find_kinds() {
    KindsHere found;
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    __get_cpuid_count(kLeafFeatures, 0, &eax, &ebx, &ecx, &edx);  // 0 where there is no such leaf
    if ((ebx & kEbxErms) != 0)
        found.add(CopyKind::kRep);
    found.add(CopyKind::kNonTemporal);
    if ((ecx & kEcxCldemote) != 0)
        found.add(CopyKind::kDemote);
    return found;
}

/// Its stores may pass each other, but not the stores behind it (Intel's manual, volume 3, "Fast-
/// String Operation and Out-of-Order Stores"): a release store publishes them as it does others.
void copy_rep(void* to, const void* from, std::size_t bytes) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
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

[[gnu::target("cldemote")]] void demote(std::byte* at, std::size_t bytes) {
    const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % kLineBytes;
    for (std::size_t i = 0; i < before + bytes; i += kLineBytes)
        _cldemote(at - before + i);
}

#else

KindsHere find_kinds() {
    return {};
}

#endif

const KindsHere& kinds_here() {
    static const KindsHere found = find_kinds();
    return found;
}

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
    return {kinds_here().kinds.data(), kinds_here().count};
}

bool has_copy_kind(CopyKind kind) {
    return std::ranges::find(copy_kinds_here(), kind) != copy_kinds_here().end();
}

void copy_by(CopyKind kind, void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
    switch (kind) {
        case CopyKind::kRep:
            return copy_rep(to, from, bytes);
        case CopyKind::kNonTemporal:
            return copy_nontemporal(static_cast<std::byte*>(to),
                                    static_cast<const std::byte*>(from), bytes);
        case CopyKind::kDemote:
            std::memcpy(to, from, bytes);
            return demote(static_cast<std::byte*>(to), bytes);
        case CopyKind::kLibc:
            break;
    }
#else
    static_cast<void>(kind);  // kLibc
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace tagwire::ucs
