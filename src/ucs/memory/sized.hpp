// SPDX-License-Identifier: BSD-3-Clause
// Structs of the API that begin with their size, struct_bytes: a program may have been built with
// an older header, whose struct has fewer fields. An older struct is a prefix of each newer one.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tagwire::ucs {

template <typename T>
concept Sized = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
    std::is_same_v<decltype(T::struct_bytes), std::size_t>;

/// Whether a program's struct may be read and written: a `T`, or an older one.
template <Sized T>
bool has_size(const T& given) {
    static_assert(offsetof(T, struct_bytes) == 0);
    return given.struct_bytes > sizeof(std::size_t) && given.struct_bytes <= sizeof(T) &&
           given.struct_bytes % alignof(T) == 0;
}

/// A program's struct, with zeroes for the fields that it lacks. It has_size().
template <Sized T>
T read_sized(const T& given) {
    T full{};
    std::memcpy(&full, &given, given.struct_bytes);
    full.struct_bytes = sizeof full;
    return full;
}

/// Fills the fields that a program's struct has. It has_size().
template <Sized T>
void write_sized(const T& full, T* out) {
    const std::size_t bytes = out->struct_bytes;
    std::memcpy(out, &full, bytes);
    out->struct_bytes = bytes;
}

}  // namespace tagwire::ucs
