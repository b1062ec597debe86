// SPDX-License-Identifier: BSD-3-Clause
// The control channel between the two processes of a measurement: a socket pair or a TCP connection
// that carries small framed messages. Nothing of a measurement itself goes over it. One thread
// reads and writes; stalled() may be called by any thread.
//
//     offset  field
//     0       "TWPC"
//     4       u16 protocol version
//     6       u16 message type
//     8       u32 payload length, at most kPayloadMax
//     12      u32 FNV-1a of the payload
//     16      payload
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tools/codec.hpp"

namespace tagwire::tools {

enum class MessageType : std::uint16_t {
    kHello = 1,
    kSetup,
    kAddress,
    kJob,
    kRegion,
    kReady,
    kFinish,
    kDone,
    kError,
    kBye,
    kLast = kBye,
};

struct Message {
    MessageType type;
    Bytes payload;
};

/// A loop that waits for the peer asks stalled() once in so many turns, each a spin or a yield.
inline constexpr std::uint32_t kSpinsBetweenChecks = 1U << 20;
inline constexpr std::uint32_t kYieldsBetweenChecks = 1U << 12;

class Channel {
  public:
    static constexpr std::uint16_t kVersion = 3;
    static constexpr std::size_t kPayloadMax = 1 << 20;
    static constexpr int kTimeoutMs = 30000;

    /// Takes over `fd`, a connected stream socket. `child`: the process at the other end, awaited
    /// after closing.
    explicit Channel(int fd, int child = -1);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    void send(MessageType type, const Encoder& payload = Encoder());

    /// The next message of any type. An error message of the peer, the end of the peer, bad bytes
    /// and the timeout are Failures.
    Message receive(int timeout_ms = kTimeoutMs);

    /// The next message, which must be of this type.
    Decoder expect(MessageType type, int timeout_ms = kTimeoutMs);

    /// Something can be received, or the peer is gone.
    bool readable() const;

    /// The peer is gone or has sent something else than the kFinish that ends every job: it is
    /// pointless to go on waiting for it.
    bool stalled() const;

  private:
    void read_exactly(void* data, std::size_t length, int timeout_ms);

    int fd_;
    int child_;
};

/// A connection to a tagwire server. Retries while nothing listens there yet, for a few seconds.
/// Throws Failure.
int connect_to(const std::string& host, std::uint16_t port);

/// A secret that a client shows first, where a listener wants one.
using Token = std::array<std::uint8_t, 16>;

/// Throws Failure.
Token make_token();
void show_token(int fd, const Token& token);

class Listener {
  public:
    /// The addresses that it listens on.
    enum class Reach { kAllAddresses, kThisHost };

    /// 0: any free port. Throws Failure.
    explicit Listener(std::uint16_t port, Reach reach = Reach::kAllAddresses);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    std::uint16_t port() const;
    /// Waits for one client. Throws Failure.
    int accept_one() const;
    /// Waits for a client that shows the token, and sends all others away. Throws Failure.
    int accept_one(const Token& token) const;

  private:
    int fd_;
};

/// Waits for one client on `port` (0: any free one). Prints the port on standard output first.
int accept_one(std::uint16_t port);

}  // namespace tagwire::tools
