// SPDX-License-Identifier: BSD-3-Clause
#include "tools/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kHeaderBytes = 16;
constexpr std::uint8_t kMagic[4] = {'T', 'W', 'P', 'C'};
using Header = std::array<std::uint8_t, kHeaderBytes>;

void put(Header* header, std::size_t offset, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = 0; i < bytes; ++i)
        (*header)[offset + i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint32_t get(const Header& header, std::size_t offset, std::size_t bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
        value |= static_cast<std::uint32_t>(header[offset + i]) << (8 * i);
    return value;
}

std::uint32_t checksum(const Bytes& payload) {
    std::uint32_t hash = 2166136261U;
    for (const std::uint8_t byte : payload)
        hash = (hash ^ byte) * 16777619U;
    return hash;
}

MessageType check_header(const Header& header) {
    if (std::memcmp(header.data(), kMagic, sizeof(kMagic)) != 0)
        throw Failure("the other side of the control connection is not tagwire perf");
    if (get(header, 4, 2) != Channel::kVersion) {
        throw Failure(
            text("the peer speaks version %u of the control protocol, this side version %u: use "
                 "the same "
                 "tagwire on both sides",
                 get(header, 4, 2), unsigned{Channel::kVersion}));
    }
    const std::uint32_t type = get(header, 6, 2);
    if (type == 0 || type > static_cast<std::uint32_t>(MessageType::kLast) ||
        get(header, 8, 4) > Channel::kPayloadMax) {
        throw Failure("the peer sent a malformed control message");
    }
    return static_cast<MessageType>(type);
}

void wait_for(int fd, short events, int timeout_ms) {
    pollfd poll_fd{fd, events, 0};
    int ready = 0;
    do {
        ready = poll(&poll_fd, 1, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0)
        throw Failure(text("the peer did not answer within %d s", timeout_ms / 1000));
}

}  // namespace

Channel::Channel(int fd, int child) : fd_(fd), child_(child) {}

Channel::~Channel() {
    close(fd_);
    if (child_ > 0)
        waitpid(child_, nullptr, 0);
}

void Channel::send(MessageType type, const Encoder& payload) {
    const Bytes& bytes = payload.bytes();
    Header header{};
    std::memcpy(header.data(), kMagic, sizeof(kMagic));
    put(&header, 4, 2, kVersion);
    put(&header, 6, 2, static_cast<std::uint16_t>(type));
    put(&header, 8, 4, bytes.size());
    put(&header, 12, 4, checksum(bytes));
    Bytes frame(header.begin(), header.end());
    frame.insert(frame.end(), bytes.begin(), bytes.end());
    for (std::size_t sent = 0; sent < frame.size();) {
        const ssize_t n = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            throw Failure(text("the peer process ended (%s)", std::strerror(errno)));
        sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
}

void Channel::read_exactly(void* data, std::size_t length, int timeout_ms) {
    auto* at = static_cast<std::uint8_t*>(data);
    while (length > 0) {
        wait_for(fd_, POLLIN, timeout_ms);
        const ssize_t n = recv(fd_, at, length, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            throw Failure("the peer process ended unexpectedly");
        if (n > 0) {
            at += n;
            length -= static_cast<std::size_t>(n);
        }
    }
}

Message Channel::receive(int timeout_ms) {
    Header header;
    read_exactly(header.data(), header.size(), timeout_ms);
    Message message{check_header(header), Bytes(get(header, 8, 4))};
    read_exactly(message.payload.data(), message.payload.size(), timeout_ms);
    if (checksum(message.payload) != get(header, 12, 4))
        throw Failure("the peer sent a damaged control message");
    if (message.type == MessageType::kError) {
        Decoder error(std::move(message.payload));
        throw Failure("peer: " + error.string(4096));
    }
    return message;
}

Decoder Channel::expect(MessageType type, int timeout_ms) {
    Message message = receive(timeout_ms);
    if (message.type != type) {
        throw Failure(text("the peer sent control message %u where %u was due",
                           static_cast<unsigned>(message.type), static_cast<unsigned>(type)));
    }
    return Decoder(std::move(message.payload));
}

bool Channel::readable() const {
    pollfd poll_fd{fd_, POLLIN, 0};
    return poll(&poll_fd, 1, 0) > 0;
}

bool Channel::stalled() const {
    if (!readable())
        return false;
    Header header;
    const ssize_t n = recv(fd_, header.data(), header.size(), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0)
        return errno != EAGAIN && errno != EINTR;
    const bool whole = static_cast<std::size_t>(n) == header.size();
    return n == 0 ||
           (whole && get(header, 6, 2) != static_cast<std::uint32_t>(MessageType::kFinish));
}

}  // namespace tagwire::tools
