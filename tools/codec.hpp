// SPDX-License-Identifier: BSD-3-Clause
// Bytes of the control channel's messages: little-endian numbers, length-prefixed byte strings. A
// Decoder reads what another process sent, so every read is checked; anything odd is a Failure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"

namespace tagwire::tools {

using Bytes = std::vector<std::uint8_t>;

class Encoder {
  public:
    Encoder& number(std::uint64_t value) {
        for (unsigned shift = 0; shift < 64; shift += 8)
            bytes_.push_back(static_cast<std::uint8_t>(value >> shift));
        return *this;
    }

    Encoder& blob(const void* data, std::size_t length) {
        number(length);
        const auto* begin = static_cast<const std::uint8_t*>(data);
        bytes_.insert(bytes_.end(), begin, begin + length);
        return *this;
    }

    Encoder& string(std::string_view value) { return blob(value.data(), value.size()); }
    const Bytes& bytes() const { return bytes_; }

  private:
    Bytes bytes_;
};

class Decoder {
  public:
    explicit Decoder(Bytes bytes) : bytes_(std::move(bytes)) {}

    std::uint64_t number() {
        need(8);
        std::uint64_t value = 0;
        for (unsigned i = 0; i < 8; ++i)
            value |= std::uint64_t{bytes_[position_ + i]} << (8 * i);
        position_ += 8;
        return value;
    }

    /// A number that must be at most `max`.
    std::uint64_t number_up_to(std::uint64_t max) {
        const std::uint64_t value = number();
        if (value > max)
            malformed();
        return value;
    }

    Bytes blob(std::size_t max) {
        const std::size_t length = number_up_to(max);
        need(length);
        const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(position_);
        position_ += length;
        return Bytes(begin, begin + static_cast<std::ptrdiff_t>(length));
    }

    /// Printable ASCII only: it may be shown on a terminal.
    std::string string(std::size_t max) {
        const Bytes raw = blob(max);
        for (const std::uint8_t c : raw)
            if (c < 0x20 || c > 0x7e)
                malformed();
        return std::string(raw.begin(), raw.end());
    }

    void end() const {
        if (position_ != bytes_.size())
            malformed();
    }

  private:
    [[noreturn]] static void malformed() {
        throw Failure("the peer sent a malformed control message");
    }

    void need(std::size_t length) const {
        if (bytes_.size() - position_ < length)
            malformed();
    }

    Bytes bytes_;
    std::size_t position_ = 0;
};

}  // namespace tagwire::tools
