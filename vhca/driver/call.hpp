// SPDX-License-Identifier: BSD-3-Clause
// One command of the uverbs interface: what came in, and where answers go. The parts of the core
// (ib_user_verbs.h) and of the driver (mlx5-abi.h) are apart, in whatever form the command came: in
// a plain one the driver's follow the core's, whose size the command knows.
//
// Rules of the kernel that live here: what a program gives less of is zero, what it gives more of
// has to be zero (EOPNOTSUPP), an answer is cut to the room that there is, and memory that is not
// there is EFAULT.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vhca/core/device.hpp"
#include "vhca/core/guarded.hpp"
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

/// EFAULT, as write(2) has it: a program is told when it names memory that is not there.
[[nodiscard]] inline int copy_from_user(void* to, std::uint64_t from, std::size_t bytes) {
    const auto copy = [&] { copy_foreign(to, reinterpret_cast<const void*>(from), bytes); };
    return bytes == 0 || guarded(copy, false) ? 0 : EFAULT;
}
[[nodiscard]] inline int copy_to_user(std::uint64_t to, const void* from, std::size_t bytes) {
    const auto copy = [&] { copy_foreign(reinterpret_cast<void*>(to), from, bytes); };
    return bytes == 0 || guarded(copy, false) ? 0 : EFAULT;
}

/// The beginning of `from`, the rest of T zero. EFAULT.
template <typename T>
[[nodiscard]] int read_user(UserSpan from, T* value_p) {
    static_assert(std::is_trivially_copyable_v<T>);
    *value_p = {};
    const std::size_t bytes = std::min(from.bytes, sizeof(T));
    return copy_from_user(value_p, from.address, bytes);
}
/// Zeros only. EFAULT, and EOPNOTSUPP if there is something else.
[[nodiscard]] int check_zeros(UserSpan span);
/// Zeros all of it. EFAULT.
[[nodiscard]] int clear_user(UserSpan span);
/// As read_user(), of a structure that may have grown: what is behind has to be zero (EOPNOTSUPP).
template <typename T>
[[nodiscard]] int read_request(UserSpan from, T* value_p) {
    const int error = check_zeros(from.from(sizeof(T)));
    return error != 0 ? error : read_user(from, value_p);
}

/// As much of it as there is room for. EFAULT.
template <typename T>
[[nodiscard]] int write_user(UserSpan to, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t bytes = std::min(to.bytes, sizeof(T));
    return copy_to_user(to.address, &value, bytes);
}

/// As write_user(), and zeros in the rest of the room. EFAULT.
template <typename T>
[[nodiscard]] int write_response(UserSpan to, const T& value) {
    const int error = write_user(to, value);
    return error != 0 ? error : clear_user(to.from(sizeof(T)));
}
/// Bytes of T that fit there.
template <typename T>
[[nodiscard]] std::uint32_t response_length(UserSpan to) {
    return static_cast<std::uint32_t>(std::min(to.bytes, sizeof(T)));
}

struct Call {
    UserSpan core_in, driver_in, core_out, driver_out;
    const DataInCqe* data_in_cqe = nullptr;  // of CREATE_QP by DEVX: in place of the flags
    bool is_of_device = false;  // by DEVX: the handles were found by numbers that the device knows
};

}  // namespace tagwire::vhca::driver
