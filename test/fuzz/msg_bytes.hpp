// SPDX-License-Identifier: BSD-3-Clause
// Messages of a scripted peer as bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "input.hpp"

namespace tagwire::fuzz {

template <class T>
void append(std::vector<std::byte>* bytes, const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes->insert(bytes->end(), from, from + sizeof value);
}

inline void append_bytes(std::vector<std::byte>* bytes, std::span<const std::byte> more) {
    bytes->insert(bytes->end(), more.begin(), more.end());
}

/// Data of the program, as long as the input says.
inline void append_data(std::vector<std::byte>* bytes, Input& input) {
    constexpr std::size_t kDataBytes[] = {0, 1, 8, 100, 500, 1000, 1900, 16};
    bytes->resize(bytes->size() + kDataBytes[input.take<std::uint8_t>() % std::size(kDataBytes)],
                  std::byte{0x5a});
}

/// For calls that copy what they send.
inline std::size_t pack_bytes(void* to, void* arg) {
    const auto& bytes = *static_cast<const std::vector<std::byte>*>(arg);
    if (!bytes.empty())
        std::memcpy(to, bytes.data(), bytes.size());
    return bytes.size();
}

}  // namespace tagwire::fuzz
