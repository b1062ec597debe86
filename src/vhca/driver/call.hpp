// SPDX-License-Identifier: BSD-3-Clause
// One command of the uverbs interface: what came in, and where answers go. The parts of the core
// (ib_user_verbs.h) and of the driver (mlx5-abi.h) are apart, in whatever form the command came.
//
// Rules of the kernel that live here: what a program gives less of is zero, what it gives more of
// has to be zero (EOPNOTSUPP), an answer is cut to the room that there is, and memory that is not
// there is EFAULT.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "vhca/driver/user_memory.hpp"

namespace tagwire::vhca::driver {

/// Memory of the program.
struct UserSpan {
    std::uint64_t address = 0;
    std::size_t bytes = 0;

    [[nodiscard]] UserSpan from(std::size_t offset) const {
        const std::size_t skipped = std::min(offset, bytes);
        return {address + skipped, bytes - skipped};
    }
};

/// The beginning of `from`, the rest of T zero. EFAULT.
template <typename T>
[[nodiscard]] int read_user(UserSpan from, T* value_p) {
    static_assert(std::is_trivially_copyable_v<T>);
    *value_p = {};
    const std::size_t bytes = std::min(from.bytes, sizeof(T));
    return copy_in(value_p, reinterpret_cast<const void*>(from.address), bytes) ? 0 : EFAULT;
}
/// As much of it as there is room for. EFAULT.
template <typename T>
[[nodiscard]] int write_user(UserSpan to, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t bytes = std::min(to.bytes, sizeof(T));
    return copy_out(reinterpret_cast<void*>(to.address), &value, bytes) ? 0 : EFAULT;
}

struct Call {
    UserSpan core_in, driver_in, core_out, driver_out;
    /// A plain command: the driver's parts follow the core's, whose size the command knows. Splits
    /// them there; of an extended command they are apart already.
    bool is_adjacent = false;

    template <typename In, typename Out>
    void split() {
        split(sizeof(In), sizeof(Out));
    }
    void split(std::size_t in_bytes, std::size_t out_bytes) {
        if (is_adjacent) {
            driver_in = core_in.from(in_bytes);
            driver_out = core_out.from(out_bytes);
            core_in.bytes = std::min(core_in.bytes, in_bytes);
            core_out.bytes = std::min(core_out.bytes, out_bytes);
            is_adjacent = false;
        }
    }
};

}  // namespace tagwire::vhca::driver
