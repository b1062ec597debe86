// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/tcp_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "ucs/debug/check.hpp"

namespace tagwire::bootstrap {

short Stream::wanted_events() const {
    return static_cast<short>(has_output() ? POLLIN | POLLOUT : POLLIN);
}

/// kFrame: `bytes` are there.
Arrival Stream::fill(std::byte* to, std::size_t bytes, std::size_t* got) {
    while (*got < bytes) {
        const ssize_t count = ::recv(fd_.get(), to + *got, bytes - *got, 0);
        if (count > 0) {
            *got += static_cast<std::size_t>(count);
            continue;
        }
        if (count < 0 && errno == EINTR)
            continue;
        const bool is_open = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        return is_open ? Arrival::kNothing : Arrival::kClosed;
    }
    return Arrival::kFrame;
}

Arrival Stream::receive(std::uint64_t payload_bytes_max) {
    if (head_got_ < kFrameBytes) {
        const Arrival head = fill(head_.data(), kFrameBytes, &head_got_);
        if (head != Arrival::kFrame)
            return head;
        const auto frame = decode(head_);
        if (!frame)
            return Arrival::kNonsense;
        frame_ = *frame;
        if (frame_.payload_bytes() > payload_bytes_max)
            return Arrival::kTooLong;
        payload_.resize(frame_.payload_bytes());
        payload_got_ = 0;
    }
    const Arrival payload = fill(payload_.data(), payload_.size(), &payload_got_);
    if (payload == Arrival::kFrame)
        head_got_ = 0;
    return payload;
}

void Stream::send(const Frame& frame, std::span<const std::byte> payload) {
    TW_CHECK(borrowed_.empty());
    const auto bytes = with_payload(frame, payload);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    flush();
}

void Stream::send_borrowed(const Frame& frame, std::span<const std::byte> payload) {
    TW_CHECK(borrowed_.empty());
    const FrameHead head = encode(frame);
    out_.insert(out_.end(), head.begin(), head.end());
    borrowed_ = payload;
    flush();
}

std::span<const std::byte> Stream::unsent() const {
    if (out_sent_ < out_.size())
        return std::span(out_).subspan(out_sent_);
    return borrowed_.subspan(out_sent_ - out_.size());
}

void Stream::flush() {
    while (has_output()) {
        const auto bytes = unsent();
        const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count >= 0)
            out_sent_ += static_cast<std::size_t>(count);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            is_broken_ = true;
    }
    out_.clear();
    borrowed_ = {};
    out_sent_ = 0;
}

}  // namespace tagwire::bootstrap
