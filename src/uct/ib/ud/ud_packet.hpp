// SPDX-License-Identifier: BSD-3-Clause
// Datagrams of the ud transport, and the address of its interfaces. The tables are in
// docs/internals/formats/verbs.md. Integers are big endian on the wire.
//
//   0       1         2      3       4           8       12        16
//   | magic | version | kind | value | to_cookie | to_id | from_id |
//   16    20       24        28      29  32
//   | psn | ack_id | ack_psn | flags | 0 |
//   behind it: of CONNECT, PROBE and CLOSE a ReturnAddress; of DATA the message, to the end
//
// A connection has one direction. The opener sends CONNECT (again and again) until ACCEPT tells
// the other side's number for it, then DATA; the other side answers by ACK, or within any packet
// to the same interface: ack_id is the number of the connection there, ack_psn the first number
// that has not arrived in order.
//
//   kind      from        to_id               from_id           psn
//   CONNECT   opener      0                   opener's number   first number of DATA
//   ACCEPT    acceptor    opener's number     acceptor's        packets that it keeps ahead
//   DATA      opener      acceptor's          opener's          number
//   ACK       acceptor    opener's            acceptor's        with kAnswersProbe: that of PROBE
//   PROBE     opener      acceptor's          opener's          number of the question
//   CLOSE     opener      acceptor's or 0     opener's          0
//   RESET     acceptor    opener's            acceptor's or 0   0: there is no such connection
//
// Threads: none; plain data and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "uct/ib/address.hpp"

namespace tagwire::ud {

inline constexpr std::uint8_t kMagic = 0xd7;
inline constexpr std::uint8_t kVersion = 2;
inline constexpr std::uint8_t kAmIdEnd = 32;

enum class Kind : std::uint8_t { kConnect = 1, kAccept, kData, kAck, kProbe, kClose, kReset };

// Flags
inline constexpr std::uint8_t kWantsAck = 1;      // DATA: an acknowledgement at once, please
inline constexpr std::uint8_t kHasGap = 2;        // of ack_psn: later packets have arrived
inline constexpr std::uint8_t kAnswersProbe = 4;  // ACK
inline constexpr std::uint8_t kHasMore = 8;       // DATA: the next one continues its message
inline constexpr std::uint8_t kFlagsAll = 15;

struct [[gnu::packed]] Header {
    std::uint8_t magic = kMagic;
    std::uint8_t version = kVersion;
    Kind kind = Kind::kData;
    std::uint8_t value = 0;       // DATA: AM id
    std::uint32_t to_cookie = 0;  // of the interface that it is for: a random number
    std::uint32_t to_id = 0;
    std::uint32_t from_id = 0;
    std::uint32_t psn = 0;
    std::uint32_t ack_id = 0;  // 0: acknowledges nothing
    std::uint32_t ack_psn = 0;
    std::uint8_t flags = 0;
    std::uint8_t reserved[3] = {};
};
static_assert(sizeof(Header) == 32);

/// The interface address: what CONNECT needs besides the device address.
struct [[gnu::packed]] InterfaceAddress {
    std::uint8_t version = kVersion;
    std::uint8_t check = 0;            // makes the sum of all bytes 0
    std::uint16_t datagram_bytes = 0;  // the longest that it takes, header included
    std::uint32_t qp_num = 0;
    std::uint32_t cookie = 0;
    std::uint64_t host =
        0;  // machine and network namespace, for LifeSign; 0: not to be asked there
};
static_assert(sizeof(InterfaceAddress) == 20);

/// Where the sender of a packet is reached.
struct [[gnu::packed]] ReturnAddress {
    ib::PortAddress port;
    InterfaceAddress interface;
};
static_assert(sizeof(ReturnAddress) == 44);

inline constexpr std::size_t kHeaderBytes = sizeof(Header);
inline constexpr std::size_t kJoinedBytesMax = 4096;  // of a message in several packets
inline constexpr std::size_t kControlBytesMax = sizeof(Header) + sizeof(ReturnAddress);

/// From the order of the machine to that of the wire.
Header pack(Header header);
InterfaceAddress pack(InterfaceAddress address);

/// A datagram as it came, without what the network puts in front. nullopt: it is none of ours, or
/// not whole.
std::optional<Header> parse_header(std::span<const std::byte> datagram);
/// nullopt when the bytes are no such address; `*reason_p` says what is wrong.
std::optional<InterfaceAddress> parse_interface(std::span<const std::byte> bytes,
                                                std::string* reason_p);

/// Packets of the longest message from `own` to `peer`, which is divided where the peer's are
/// shorter.
std::uint32_t packets_between(const InterfaceAddress& own, const InterfaceAddress& peer);
/// Whether messages can go from `own` to `peer`, with so many packets unacknowledged; when not,
/// `*reason_p` gets one sentence.
bool agrees(const InterfaceAddress& own, const InterfaceAddress& peer, std::uint64_t window,
            std::string* reason_p);

/// Whether a packet of that kind tells where its sender is.
constexpr bool has_return_address(Kind kind) {
    return kind == Kind::kConnect || kind == Kind::kProbe || kind == Kind::kClose;
}

}  // namespace tagwire::ud
