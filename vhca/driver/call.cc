// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/call.hpp"

#include <array>

namespace tagwire::vhca::driver {

int check_zeros(UserSpan span) {
    std::array<std::byte, 256> piece;
    while (span.bytes != 0) {
        const std::size_t bytes = std::min(span.bytes, piece.size());
        if (const int error = copy_from_user(piece.data(), span.address, bytes))
            return error;
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
        if (const int error = copy_to_user(span.address, kZeros.data(), bytes))
            return error;
        span = span.from(bytes);
    }
    return 0;
}

}  // namespace tagwire::vhca::driver
