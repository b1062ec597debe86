// SPDX-License-Identifier: BSD-3-Clause
// A fuzz input read as a sequence of values. Past its end everything is zero, so every input means
// something.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tagwire::fuzz {

class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size)
        : bytes_(reinterpret_cast<const std::byte*>(data), size) {}

    bool at_end() const { return bytes_.empty(); }

    template <class T>
    T take() {
        T value{};
        take_into(std::as_writable_bytes(std::span<T, 1>(&value, 1)));
        return value;
    }

    void take_into(std::span<std::byte> out) {
        const std::size_t count = std::min(out.size(), bytes_.size());
        if (count > 0)
            std::memcpy(out.data(), bytes_.data(), count);
        bytes_ = bytes_.subspan(count);
    }

    std::uint32_t below(std::uint32_t limit) { return take<std::uint32_t>() % limit; }

    std::span<const std::byte> rest() const { return bytes_; }
    std::string_view rest_as_text() const {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    }

  private:
    std::span<const std::byte> bytes_;
};

/// Ends the process: a finding, like a crash.
inline void require(bool condition) {
    if (!condition)
        __builtin_trap();
}

}  // namespace tagwire::fuzz
