// SPDX-License-Identifier: BSD-3-Clause
// Messages of a rendezvous. The sender requests it (Rts); the receiver reads the data by the keys
// that came with the request, or offers its buffer (Rtr) for the sender to write, or asks for the
// data in messages (Cts). Cts, Ats and DataEnd are control messages.
//
//     sender                                receiver
//       |  Rts, keys                           |
//       |------------------------------------->|  matched
//       |                   get: reads the data; Ats
//       |<-------------------------------------|
//       |                        put: Rtr, keys
//       |<-------------------------------------|
//       |  writes the data; DataEnd            |
//       |------------------------------------->|  Ats
//       |                             copy: Cts
//       |<-------------------------------------|
//       |  RndvData, data ...                  |
//       |------------------------------------->|  Ats
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

/// Request to send, behind header and immediate. Then keys, each with its KeyHead.
struct Rts {
    std::uint64_t length;
    std::uint64_t address;
    std::uint32_t send_id;  // of the sender's request
    std::uint8_t key_count;
    std::uint8_t flags;  // RtsFlag
    std::uint8_t reserved[2];
};
static_assert(sizeof(Rts) == 24);

enum RtsFlag : std::uint8_t {
    kRtsCanPut = 1,    // the sender can write from its buffer
    kRtsOfStream = 2,  // it is one of a stream (timing.hpp)
};
inline constexpr std::uint8_t kRtsFlags = kRtsCanPut | kRtsOfStream;

/// Before each key.
struct KeyHead {
    std::uint8_t domain;  // of the sender, as its hello numbers them
    std::uint8_t bytes;   // of the key behind it
};
/// Among the keys of an Rts in the place of a domain: a Loan, with which the receiver may read the
/// buffer itself. Rts::address is then the buffer's place, which has a meaning for the transport.
inline constexpr std::uint8_t kLoanDomain = 0xff;

/// As tagwire_uct_loan_t, without the place.
struct Loan {
    std::uint32_t key;
    std::uint32_t generation[2];  // the lower half first
};
static_assert(sizeof(Loan) == 12);

/// A request with a loan alone, behind header and immediate: with the header and the transport's
/// word it fits a cache line.
struct LentRts {
    Rts rts;
    KeyHead head;
    Loan loan;

    static constexpr std::size_t kBytes = sizeof(Rts) + sizeof(KeyHead) + sizeof(Loan);

    static LentRts of(const Rts& request, const Loan& given) {
        LentRts message{request, {kLoanDomain, sizeof(Loan)}, given};
        message.rts.key_count = 1;
        return message;
    }
    void write(std::byte* to) const {
        std::memcpy(to, &rts, sizeof rts);
        std::memcpy(to + sizeof rts, &head, sizeof head);
        std::memcpy(to + sizeof rts + sizeof head, &loan, sizeof loan);
    }
};
/// False: it is no such request, or none that a well-behaved peer sends.
[[nodiscard]] inline bool decode(WireBytes bytes, LentRts* message) {
    return bytes.size() == LentRts::kBytes && take(&bytes, &message->rts) &&
           take(&bytes, &message->head) && take(&bytes, &message->loan) &&
           message->head.domain == kLoanDomain && message->head.bytes == sizeof(Loan) &&
           message->rts.key_count == 1 && message->rts.send_id != 0 &&
           (message->rts.flags & ~unsigned{kRtsFlags}) == 0;
}

/// The most that keys take behind an Rts, or behind the first key of an Rtr, heads included.
inline constexpr std::size_t kKeysBytesMax = 512;

/// Keys, each with its KeyHead.
struct KeyList {
    std::size_t used = 0;
    std::byte bytes[sizeof(KeyHead) + UINT8_MAX + kKeysBytesMax];

    WireBytes all() const { return {bytes, used}; }
};

struct RtsBody {
    std::uint64_t imm = 0;
    Rts rts{};
    KeyList keys;
};
/// `behind`: what is behind the header.
[[nodiscard]] bool decode(const Header& header, WireBytes behind, RtsBody* body);

/// Ready to receive: where the sender may write. Then the packed remote key, and those of others of
/// the receiver's domains.
struct Rtr {
    std::uint32_t sender;
    std::uint32_t send_id;
    std::uint32_t receive_id;
    std::uint8_t domain;  // of the receiver, as its hello numbers them
    std::uint8_t key_bytes;
    std::uint8_t key_count;  // of others behind it, each with its KeyHead
    std::uint8_t flags;      // RtrFlag
    std::uint64_t length;
    std::uint64_t address;
};
static_assert(sizeof(Rtr) == 32);

enum RtrFlag : std::uint8_t {
    kRtrByConnection = 1,  // other rails only where they are connections of the endpoint's own
};
inline constexpr std::uint8_t kRtrFlags = kRtrByConnection;

/// The keys begin with that of `rtr.domain`, which has a KeyHead here, too.
struct RtrMessage {
    Rtr rtr;
    KeyList keys;
};
[[nodiscard]] bool decode(WireBytes bytes, RtrMessage* message);

/// Before data that the receiver asked for.
struct RndvData {
    std::uint64_t offset;
    std::uint32_t receive_id;
    std::uint32_t sender;
};
static_assert(sizeof(RndvData) == 16);

struct DataMessage {
    RndvData head;
    WireBytes data;  // not empty; where the transport has it
};
[[nodiscard]] bool decode(WireBytes bytes, DataMessage* message);

}  // namespace tagwire::proto
