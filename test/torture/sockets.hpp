// SPDX-License-Identifier: BSD-3-Clause
// Sockets that another process listens on, as /proc lists them, and connections to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tagwire::torture {

/// A descriptor that is closed with its owner.
class Fd {
  public:
    explicit Fd(int fd = -1) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Fd();

    int get() const { return fd_; }

  private:
    int fd_;
};

struct UdpPlace {
    std::uint32_t address;  // network byte order
    std::uint16_t port;     // host byte order
};

/// Names of the abstract unix sockets that a process listens on, without the leading zero byte.
std::vector<std::string> listening_names(int pid);
/// Where it has UDP sockets.
std::vector<UdpPlace> udp_places(int pid);

/// Connection to an abstract socket of sequenced packets that never waits; fd -1 where that fails.
Fd connect_to(const std::string& name);
/// False when the packet was not taken.
bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors);
/// A network namespace of our own, with a loopback. False where that is not permitted.
bool enter_private_network();

}  // namespace tagwire::torture
