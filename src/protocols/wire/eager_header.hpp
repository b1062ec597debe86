// SPDX-License-Identifier: BSD-3-Clause
// The header of a message of the program, and the optional fields behind it. All that encodes,
// decodes or checks them is here.
//
//     +--------+-----------+-----------+-------------+-------------+------+
//     | Header | imm (u64) | ack (u64) | total (u64) | begun (u64) | data |      eager
//     +--------+-----------+-----------+-------------+-------------+------+
//     +--------+-----------+----------+------+
//     | Header | imm (u64) | Rts (24) | keys |                  rendezvous (rndv_messages.hpp)
//     +--------+-----------+----------+------+
//
// An optional field is there if its flag is set. On a lane whose device matches tags, a message
// without ack and total travels as a message of the transport: TagImm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

enum HeaderFlag : std::uint32_t {
    kTagged = 1,
    kImm = 2,
    kAckMatch = 4,     // tell the sender when it is matched
    kAckDelivery = 8,  // tell the sender when it is delivered
    kMoreParts = 16,   // parts follow, and the length of the whole is here
    kAnnounced = 32,   // its place among the sender's messages comes later, as a Placeholder
    kTimed = 64,       // the receiver may time it; when its sender began is here
    kHeaderFlags = 127,
};
inline constexpr std::uint32_t kAcks = kAckMatch | kAckDelivery;

struct Header {
    std::uint32_t sender;  // the number by which the receiver knows the sender
    std::uint32_t flags;
    std::uint64_t tag;  // 0 of an untagged message
};
static_assert(sizeof(Header) == 16 && offsetof(Header, tag) == 8);

// ---- To send

/// A header and its optional fields, in the order of the calls that add them. Its first `bytes`
/// bytes are sent.
struct Envelope {
    Header header;
    std::uint64_t fields[4];
    std::size_t bytes;

    static Envelope of(std::uint32_t sender, bool is_tagged, std::uint64_t tag) {
        Envelope envelope;  // no field is there yet
        envelope.header = {sender, is_tagged ? kTagged : 0U, tag};
        envelope.bytes = sizeof(Header);
        return envelope;
    }
    void add_imm(std::uint64_t imm) { add(kImm, imm); }
    /// `flag`: kAckMatch or kAckDelivery.
    void add_ack(HeaderFlag flag, std::uint32_t send_id) { add(flag, send_id); }
    void add_total(std::uint64_t length) { add(kMoreParts, length); }
    /// In ticks; 0: it is one of a stream (timing.hpp).
    void add_begun(std::uint64_t ticks) { add(kTimed, ticks); }

  private:
    void add(HeaderFlag flag, std::uint64_t field) {
        header.flags |= flag;
        fields[(bytes - sizeof header) / sizeof field] = field;
        bytes += sizeof field;
    }
};

/// A message of at most 8 bytes without optional fields, as two pieces: the first half of the
/// header, a number, and the rest.
struct ShortMessage {
    std::uint64_t tag;
    std::byte data[8];

    static std::uint64_t head(std::uint32_t sender, bool is_tagged) {
        return sender | (std::uint64_t{is_tagged ? kTagged : 0U} << 32);
    }
};

// ---- Received

/// The rest of an eager message behind its header. `data` lies where the transport has it.
struct EagerBody {
    std::uint64_t imm = 0;
    std::uint64_t length = 0;   // of the message; more than `data` exactly with kMoreParts
    std::uint64_t begun = 0;    // with kTimed: as Envelope::add_begun() had it
    std::uint32_t send_id = 0;  // to acknowledge; 0: none
    WireBytes data;
};

/// False: it is shorter than a header.
[[nodiscard]] inline bool decode(WireBytes bytes, Header* header) {
    if (bytes.size() < sizeof *header)
        return false;
    std::memcpy(header, bytes.data(), sizeof *header);
    return true;
}
[[nodiscard]] bool decode(const Header& header, WireBytes behind, EagerBody* body);

/// The flags are known, and a tag is only where one can be: no receive would ever match an untagged
/// message that has one.
[[nodiscard]] constexpr bool is_sound(const Header& header, std::uint32_t flags_allowed) {
    return (header.flags & ~flags_allowed) == 0 &&
           ((header.flags & kTagged) != 0 || header.tag == 0);
}

// ---- Further parts of a long eager message

struct Part {
    std::uint32_t sender;
    std::uint32_t reserved;
};
static_assert(sizeof(Part) == 8);

/// The data is what is behind it. False: there is none.
[[nodiscard]] inline bool decode(WireBytes bytes, Part* part) {
    if (bytes.size() <= sizeof *part)
        return false;
    std::memcpy(part, bytes.data(), sizeof *part);
    return true;
}

// ---- On a lane whose device matches tags

/// The transport's immediate of a message that travels with its tag alone:
///
///     63            32  31   30                 0
///     +---------------+-----+--------------------+
///     | sender        | imm | immediate          |
///     |               | set |                    |
///     +---------------+-----+--------------------+
struct TagImm {
    static constexpr std::uint64_t kIsSet = std::uint64_t{1} << 31;
    static constexpr std::uint64_t kImmMax = kIsSet - 1;

    std::uint32_t sender;
    bool has_imm;
    std::uint64_t imm;  // at most kImmMax

    static std::uint64_t encode(std::uint32_t sender, bool has_imm, std::uint64_t imm) {
        return std::uint64_t{sender} << 32 | (has_imm ? kIsSet | imm : 0);
    }
    static TagImm decode(std::uint64_t word) {
        return {static_cast<std::uint32_t>(word >> 32), (word & kIsSet) != 0, word & kImmMax};
    }
};

/// A message that does not fit TagImm goes as an active message (kAnnounced), unseen by the device.
/// A request of a software rendezvous with its tag follows, whose header is this: its place in the
/// order of matching.
struct Placeholder {
    std::uint32_t sender;
    std::uint32_t number;  // of the announced message, counted from 0
};
static_assert(sizeof(Placeholder) == 8);
[[nodiscard]] bool decode(WireBytes bytes, Placeholder* message);

}  // namespace tagwire::proto
