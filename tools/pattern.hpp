// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a validated message: they depend on the sender, the sequence number and the offset,
// so that a swapped, repeated, torn or shifted message is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tagwire::tools {

/// One per message: `stream` tells directions and tests apart.
class Pattern {
  public:
    Pattern(std::uint64_t stream, std::uint64_t sequence)
        : start_(mix(stream * 0x9e3779b97f4a7c15U + sequence + 1)) {}

    void fill(void* data, std::size_t length) const {
        auto* at = static_cast<std::uint8_t*>(data);
        for (std::size_t offset = 0; offset < length; offset += 8) {
            const std::uint64_t word = word_at(offset);
            std::memcpy(at + offset, &word, length - offset < 8 ? length - offset : 8);
        }
    }

    bool matches(const void* data, std::size_t length) const {
        const auto* at = static_cast<const std::uint8_t*>(data);
        std::uint64_t difference = 0;
        for (std::size_t offset = 0; offset < length; offset += 8) {
            const std::size_t bytes = length - offset < 8 ? length - offset : 8;
            const std::uint64_t expected = word_at(offset);
            std::uint64_t found = expected;
            std::memcpy(&found, at + offset, bytes);
            difference |= found ^ expected;
        }
        return difference == 0;
    }

  private:
    static std::uint64_t mix(std::uint64_t x) {
        x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
    }

    std::uint64_t word_at(std::size_t offset) const {
        return (start_ + offset) * 0x9e3779b97f4a7c15U ^ (start_ >> 17);
    }

    std::uint64_t start_;
};

}  // namespace tagwire::tools
