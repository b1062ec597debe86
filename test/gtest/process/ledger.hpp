// SPDX-License-Identifier: BSD-3-Clause
// Messages that name their stream and their place in it, and what a receiver makes of them: of each
// stream all arrive, once, in order, with every byte.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <span>

#include "buffer.hpp"

namespace tagwire::test {

struct StreamPlace {
    std::uint32_t stream;
    std::uint32_t number;

    [[nodiscard]] std::uint64_t seed() const { return std::uint64_t{stream} << 32 | number; }
};

/// Between 8 bytes and some hundred.
inline Bytes message_at(StreamPlace place) {
    Bytes message(sizeof place + place.number * 37 % 500);
    std::memcpy(message.data(), &place, sizeof place);
    fill_pattern(std::span(message).subspan(sizeof place), place.seed());
    return message;
}

class Ledger {
  public:
    void take(std::span<const std::byte> message) {
        StreamPlace place{};
        ASSERT_LE(sizeof place, message.size());
        std::memcpy(&place, message.data(), sizeof place);
        EXPECT_EQ(taken_[place.stream]++, place.number) << "stream " << place.stream;
        EXPECT_EQ(message_at(place).size(), message.size());
        EXPECT_TRUE(has_pattern(message.subspan(sizeof place), place.seed()))
            << "message " << place.number << " of stream " << place.stream;
        ++total_;
    }
    [[nodiscard]] std::uint64_t total() const { return total_; }

  private:
    std::map<std::uint32_t, std::uint32_t> taken_;
    std::uint64_t total_ = 0;
};

}  // namespace tagwire::test
