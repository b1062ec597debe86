// SPDX-License-Identifier: BSD-3-Clause
// ThreadSanitizer sees no order between sender and receiver of a message in shared memory where a
// process has the memory mapped twice, so that the two use different addresses: it is told here.
// Other builds have nothing of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tagwire::ucs {

#if defined(__SANITIZE_THREAD__)
/// Stands for the message at a position of any ring: order that is claimed between messages of two
/// rings hides a race now and then, order that is not seen reports ones that do not exist.
inline std::byte* stand_in(std::uint64_t position) {
    constexpr std::size_t kCount = 4096;
    static std::array<std::byte, kCount> of;
    return &of[position % kCount];
}
#endif

/// All that this thread has done comes before the message at `position`, which it publishes next.
inline void order_before_message([[maybe_unused]] std::uint64_t position) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(stand_in(position));
#endif
}

/// All that this thread does comes after the message at `position`, which it has seen.
inline void order_after_message([[maybe_unused]] std::uint64_t position) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(stand_in(position));
#endif
}

}  // namespace tagwire::ucs
