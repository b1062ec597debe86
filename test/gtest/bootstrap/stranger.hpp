// SPDX-License-Identifier: BSD-3-Clause
// Others at rank 0's port: who is not of the job, and who listens where rank 0 should.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "job.hpp"

namespace tagwire::test {

inline sockaddr_in loopback(std::uint16_t port, std::uint32_t host = INADDR_LOOPBACK) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(host);
    return address;
}

/// A connection of somebody who is not of the job.
class Stranger {
  public:
    explicit Stranger(std::uint16_t port, std::uint32_t host = INADDR_LOOPBACK)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        // From an address of its own: where nobody listens it must not connect to itself.
        const sockaddr_in own = loopback(0, INADDR_LOOPBACK + 2);
        EXPECT_EQ(0, ::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own));
        const int small = 4096;
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        const sockaddr_in address = loopback(port, host);
        is_connected_ =
            ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;
    ~Stranger() { ::close(fd_); }

    bool is_connected() const { return is_connected_; }
    void say(const std::string& bytes) const {
        static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
    /// Frames of rank 0 until all ranks are there.
    void await_welcome() const {
        constexpr char kWelcome = 2;
        std::string frame(24, '\0');
        while (::recv(fd_, frame.data(), frame.size(), MSG_WAITALL) == 24 && frame[5] != kWelcome) {
            std::string text(static_cast<unsigned char>(frame[20]), '\0');  // it is short
            ::recv(fd_, text.data(), text.size(), MSG_WAITALL);
        }
        EXPECT_EQ(kWelcome, frame[5]);
    }
    /// Everything until the other side closes.
    std::string hear() const {
        std::string text;
        char buffer[4096];
        pollfd entry{fd_, POLLIN, 0};
        while (::poll(&entry, 1, static_cast<int>(kPatienceMs)) == 1) {
            const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
            if (count <= 0)
                return text;
            text.append(buffer, static_cast<std::size_t>(count));
        }
        ADD_FAILURE() << "the connection stays open";
        return text;
    }

  private:
    int fd_;
    bool is_connected_;
};

/// Somebody who listens where rank 0 should be.
class WrongServer {
  public:
    explicit WrongServer(std::uint16_t port)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const int on = 1;
        ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        const sockaddr_in address = loopback(port);
        EXPECT_EQ(0, ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address));
        EXPECT_EQ(0, ::listen(fd_, 16));
    }
    WrongServer(const WrongServer&) = delete;
    WrongServer& operator=(const WrongServer&) = delete;
    ~WrongServer() { ::close(fd_); }

    void answer_one(const std::string& text) const {
        const int fd = ::accept(fd_, nullptr, nullptr);
        char hello[64];
        EXPECT_GT(::recv(fd, hello, sizeof hello, 0), 0);
        static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL));
        ::close(fd);
    }

  private:
    int fd_;
};

inline std::string little_endian(std::uint32_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i)
        bytes += static_cast<char>(value >> (8 * i));
    return bytes;
}

/// A head as in frame.hpp.
inline std::string head(char version, char kind, std::uint32_t rank, std::uint32_t size,
                        std::uint32_t bytes) {
    return std::string("TWBS") + version + kind + '\0' + '\0' + little_endian(0) +
           little_endian(rank) + little_endian(size) + little_endian(bytes);
}

}  // namespace tagwire::test
