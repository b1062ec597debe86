// SPDX-License-Identifier: BSD-3-Clause
// Encoding of frames into memory. On the wire each frame is padded to kFrameUnit bytes, so that the
// bytes of each message are aligned where they are received.
#pragma once

#include <cstring>

#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

constexpr std::size_t kFrameUnit = 8;

/// Bytes behind the head, with the padding.
constexpr std::size_t padded(std::size_t bytes) {
    return (bytes + kFrameUnit - 1) / kFrameUnit * kFrameUnit;
}

struct NoBody {};

template <class Body>
constexpr std::size_t size_of_body = std::is_empty_v<Body> ? 0 : sizeof(Body);

/// Bytes of a whole frame.
template <class Body>
constexpr std::size_t frame_bytes(std::size_t data) {
    return sizeof(FrameHead) + padded(size_of_body<Body> + data);
}

/// Where the data of a frame goes that is encoded at `to`.
template <class Body>
std::byte* data_of(std::byte* to) {
    return to + sizeof(FrameHead) + size_of_body<Body>;
}

/// Head, body and padding around `data` bytes; returns the length of the frame.
template <class Body>
std::size_t put_frame(std::byte* to, Kind kind, std::uint8_t value, const Body& body,
                      std::size_t data) {
    const std::size_t bytes = size_of_body<Body> + data;
    const FrameHead head{static_cast<std::uint32_t>(bytes), kind, value, 0};
    std::memcpy(to, &head, sizeof head);
    if constexpr (!std::is_empty_v<Body>)
        std::memcpy(to + sizeof head, &body, sizeof body);
    std::memset(to + sizeof head + bytes, 0, padded(bytes) - bytes);
    return sizeof head + padded(bytes);
}

}  // namespace tagwire::tcp
