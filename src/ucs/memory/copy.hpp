// SPDX-License-Identifier: BSD-3-Clause
// Copies of long data between memory of the program and memory that another processor reads or has
// written. The kinds differ in which caches have the data afterwards; which is fastest depends on
// the machine (docs/internals/adr/0021-kinds-of-copies.md). Any thread.
//
// 1. Each kind copies any length at any alignment, and touches no byte beside those.
// 2. A copy is complete for whoever sees a release store that the same thread makes behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tagwire::ucs {

enum class CopyKind : std::uint8_t {
    kLibc,         // memcpy(3)
    kVector,       // x86-64 with AVX: loads and stores of 32 bytes
    kNonTemporal,  // x86-64: stores that leave no cache line behind
};
inline constexpr std::size_t kCopyKinds = 3;

/// "libc", "vector" or "nontemporal".
const char* name_of(CopyKind kind);
/// False: no kind is called so.
bool copy_kind_named(std::string_view name, CopyKind* kind_p);

/// The kinds of this architecture; kLibc is always the first.
std::span<const CopyKind> copy_kinds_here();
bool has_copy_kind(CopyKind kind);

/// Shorter ones take no longer by memcpy(3) anywhere.
inline constexpr std::size_t kPlainCopyFrom = 2048;

/// The kind for copies from kPlainCopyFrom on that shall leave their data in the caches. On AMD's
/// processors kVector: memcpy(3) is `rep movsb` there from 2 or 4 KiB on, and reads no more than
/// half as fast what is not in the nearest cache.
CopyKind plain_copy_kind();

/// Copies between ranges that do not overlap. `kind` is one of copy_kinds_here().
void copy_by(CopyKind kind, void* to, const void* from, std::size_t bytes);

/// As copy_by(), with a copy by memcpy(3) in line.
[[gnu::always_inline]] inline void copy(CopyKind kind, void* to, const void* from,
                                        std::size_t bytes) {
    if (kind == CopyKind::kLibc) [[likely]]
        std::memcpy(to, from, bytes);
    else
        copy_by(kind, to, from, bytes);
}

/// plain_copy_kind(), and kLibc below kPlainCopyFrom.
inline CopyKind plain_kind_for(std::size_t bytes) {
    return bytes < kPlainCopyFrom ? CopyKind::kLibc : plain_copy_kind();
}
[[gnu::always_inline]] inline void copy_plain(void* to, const void* from, std::size_t bytes) {
    copy(plain_kind_for(bytes), to, from, bytes);
}

}  // namespace tagwire::ucs
