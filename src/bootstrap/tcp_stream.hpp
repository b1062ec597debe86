// SPDX-License-Identifier: BSD-3-Clause
// Frames over one connection, without blocking.
//
// 1. A header is checked before memory is allocated for its payload, which is never more than the
//    reader's limit.
// 2. Bytes that do not fit the socket's buffer wait here until flush().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bootstrap/frame.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::bootstrap {

enum class Arrival {
    kNothing,   // not a whole frame yet
    kFrame,     // frame() and payload() hold until the next receive()
    kTooLong,   // frame() announces more than the limit; the connection is of no more use
    kNonsense,  // not our format; the same
    kClosed,    // by the other side, or broken
};

class Stream {
  public:
    explicit Stream(ucs::UniqueFd fd) : fd_(std::move(fd)) {}

    int fd() const { return fd_.get(); }
    /// For poll(2).
    short wanted_events() const;

    Arrival receive(std::uint64_t payload_bytes_max);
    const Frame& frame() const { return frame_; }
    std::span<const std::byte> payload() const { return payload_; }

    /// Appends a frame, whose payload is copied, and sends what goes.
    void send(const Frame& frame, std::span<const std::byte> payload);
    /// The payload is not copied: it stays where it is, and nothing else is sent, until
    /// has_output() is false.
    void send_borrowed(const Frame& frame, std::span<const std::byte> payload);
    void flush();
    bool has_output() const { return !is_broken_ && out_sent_ < out_.size() + borrowed_.size(); }
    /// Sending failed. Data that the peer sent before can still be received.
    bool is_broken() const { return is_broken_; }

  private:
    Arrival fill(std::byte* to, std::size_t bytes, std::size_t* got);
    std::span<const std::byte> unsent() const;

    ucs::UniqueFd fd_;
    FrameHead head_{};
    std::size_t head_got_ = 0;
    Frame frame_;
    std::vector<std::byte> payload_;
    std::size_t payload_got_ = 0;
    std::vector<std::byte> out_;
    std::span<const std::byte> borrowed_;  // follows out_
    std::size_t out_sent_ = 0;
    bool is_broken_ = false;
};

}  // namespace tagwire::bootstrap
