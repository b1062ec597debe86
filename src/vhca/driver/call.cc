// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/call.hpp"

#include <array>

namespace tagwire::vhca::driver {

int check_zeros(UserSpan span) {
    std::array<std::byte, 256> piece;
    while (span.bytes != 0) {
        const std::size_t bytes = std::min(span.bytes, piece.size());
        if (!copy_in(piece.data(), reinterpret_cast<const void*>(span.address), bytes)) {
            return EFAULT;
        }
        if (std::any_of(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(bytes),
                        [](std::byte byte) { return byte != std::byte{0}; })) {
            return EOPNOTSUPP;
        }
        span = span.from(bytes);
    }
    return 0;
}

int clear_user(UserSpan span) {
    static constexpr std::array<std::byte, 256> kZeros{};
    while (span.bytes != 0) {
        const std::size_t bytes = std::min(span.bytes, kZeros.size());
        if (!copy_out(reinterpret_cast<void*>(span.address), kZeros.data(), bytes)) {
            return EFAULT;
        }
        span = span.from(bytes);
    }
    return 0;
}

}  // namespace tagwire::vhca::driver
