// SPDX-License-Identifier: BSD-3-Clause
// Messages of workers to each other. docs/internals/formats/messaging.md has the tables. Little
// endian.
//
// Everything travels as active messages. A message of the program starts with a Header; what it
// holds behind it follows from its flags, in this order:
//
//     +--------+-----------+------------+-------------+------+
//     | Header | imm (u64) | Ack (u64)  | Parts (u64) | data |      eager
//     +--------+-----------+------------+-------------+------+
//     +--------+-----------+------------+-------------+
//     | Header | imm (u64) | Rndv (24)  | keys        |             request of a rendezvous
//     +--------+-----------+------------+-------------+
//
// A peer may change the memory that a message lies in while it is read. So each message has one
// decode function, below, which copies everything but the program's data and checks the copy; only
// the copy is used. It answers false for what no peer of good will sends. Whether names, requests
// and rails are there, and in a state that the message fits, is looked at by its receiver, once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "protocols/reserve_bytes.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

static_assert(std::endian::native == std::endian::little);

/// Identifiers of active messages.
enum class AmId : std::uint8_t {
    kEager = 1,    // Header ...
    kPart = 2,     // Part, data: what follows the first part of an eager message
    kRndv = 3,     // Header ...
    kData = 4,     // Data, data: of a rendezvous that is copied
    kControl = 5,  // Control
    kWireup = 6,   // Wireup ...
    kPut = 7,      // PutOffer, key: the data of a rendezvous can be written
};

enum HeaderFlag : std::uint32_t {
    kTagged = 1,
    kImm = 2,
    kAckMatch = 4,     // tell the sender when it is matched
    kAckDelivery = 8,  // tell the sender when it is delivered
    kMoreParts = 16,   // parts follow
    kAnnounced = 32,   // its place among the sender's messages comes later, as a Placeholder
    kHeaderFlags = 63,
};
inline constexpr std::uint32_t kAcks = kAckMatch | kAckDelivery;

struct Header {
    std::uint32_t sender;  // how the receiver knows the sender
    std::uint32_t flags;
    std::uint64_t tag;  // 0 of an untagged message
};
static_assert(sizeof(Header) == 16);

// On a lane whose device matches tags a tagged message of at most one buffer travels as one of the
// transport's, with its tag; sender and immediate are in the immediate of the transport:
//
//     63            32  31   30                 0
//     +---------------+-----+--------------------+
//     | sender        | set | immediate          |
//     +---------------+-----+--------------------+
//
// A message that needs more goes as an active message (kAnnounced), unseen by the device, followed
// by a request of a software rendezvous with the tag, whose header is a Placeholder.
inline constexpr std::uint64_t kTagImmIsSet = std::uint64_t{1} << 31;
inline constexpr std::uint64_t kTagImmMax = kTagImmIsSet - 1;

struct Placeholder {
    std::uint32_t sender;
    std::uint32_t number;  // of the announced message, counted from 0
};
static_assert(sizeof(Placeholder) == 8);

/// The first part of a long eager message says how long it is.
struct Part {
    std::uint32_t sender;
    std::uint32_t reserved;
};
static_assert(sizeof(Part) == 8);

struct Rndv {
    std::uint64_t length;
    std::uint64_t address;
    std::uint32_t send_id;  // of the sender's request
    std::uint8_t key_count;
    std::uint8_t flags;  // RndvFlag
    std::uint8_t reserved[2];
};
static_assert(sizeof(Rndv) == 24);

enum RndvFlag : std::uint8_t {
    kRndvCanPut = 1,  // the sender can write from its buffer
};

inline constexpr std::uint8_t kRndvFlags = kRndvCanPut;

/// Before each key.
struct KeyHead {
    std::uint8_t domain;  // of the sender, as its hello numbers them
    std::uint8_t bytes;   // of the key behind it
};
/// The most that keys take behind a Rndv, or behind the first key of a PutOffer, heads included.
inline constexpr std::size_t kKeysBytesMax = 512;

struct Data {
    std::uint64_t offset;
    std::uint32_t receive_id;
    std::uint32_t sender;
};
static_assert(sizeof(Data) == 16);

/// Where the sender of a rendezvous may write. Then the packed remote key, and those of others of
/// the receiver's domains.
struct PutOffer {
    std::uint32_t sender;
    std::uint32_t send_id;
    std::uint32_t receive_id;
    std::uint8_t domain;  // of the receiver, as its hello numbers them
    std::uint8_t key_bytes;
    std::uint8_t key_count;  // of others behind it, each with its KeyHead
    std::uint8_t flags;      // PutFlag
    std::uint64_t length;
    std::uint64_t address;
};
static_assert(sizeof(PutOffer) == 32);

enum PutFlag : std::uint8_t {
    kPutByConnection = 1,  // other rails only where they are connections of the endpoint's own
};
inline constexpr std::uint8_t kPutFlags = kPutByConnection;

enum class ControlOp : std::uint32_t {
    kAck = 1,        // a: send id. It was matched or delivered, as it asked.
    kAts = 2,        // a: send id, b: status. The receiver is done with the rendezvous.
    kCts = 3,        // a: send id, b: receive id, c: bytes wanted. Send the data.
    kDataEnd = 4,    // a: receive id, b: status. No data follows; 0: it was written.
    kCancel = 5,     // a: send id. Drop it unless it is matched.
    kCanceled = 6,   // a: send id. It was dropped.
    kFlush = 7,      // a: flush id. Answer when everything before has been taken. b: 1 of a close.
    kFlushed = 8,    // a: flush id.
    kHoldData = 9,   // No more data before a rendezvous.
    kSendData = 10,  // Data again.
    kHold = 11,      // No more messages.
    kResume = 12,    // Messages again.
    kBye = 13,       // The program has closed its endpoint.
    kBack = 14,      // It has one again.
    kLeave = 15,     // Neither program has one: the connection can go.
    kLeft = 16,      // a: 1 it is gone at the side of the sender, 0 it stays.
    kLane = 17,      // a: rail of the receiver to which tagged messages go from now on.
    kReset = 18,     // c: number of the sender's connection. It has been closed by force (b: 0), or
                     // the worker has gone in order (b: 1).
    kDown = 19,      // a: rail of the receiver, b: of the sender. They carry no data again.
};

struct Control {
    std::uint32_t op;
    std::uint32_t sender;
    std::uint32_t a;
    std::int32_t b;
    std::uint64_t c;
};
static_assert(sizeof(Control) == 24);

enum class WireupOp : std::uint32_t {
    kHello = 1,   // Hello, rails
    kOffer = 2,   // Offer, address of an endpoint
    kReady = 3,   // Offer without address: what was offered can be used
    kRefuse = 4,  // Offer without address: it cannot
    // The same for rails that carry data beside the lane.
    kStripeOffer = 5,
    kStripeReady = 6,
    kStripeRefuse = 7,
};

/// First message of either side.
struct Wireup {
    std::uint32_t op;
    std::uint32_t version;
    std::uint64_t from;  // worker ids
    std::uint64_t to;
};
inline constexpr std::uint32_t kWireVersion = 1;

struct Hello {
    std::uint32_t id;  // how the receiver shall name itself in messages to the sender
    std::uint32_t rails;
    std::uint32_t known;   // the same of the receiver's hello; 0: it has not come
    std::uint32_t number;  // of the sender's connections; a later one has a higher number
    // An id as `known` that an earlier connection of the sender has used, or 0: messages of that
    // one may still be on their way, so the receiver must not go by it any more.
    std::uint32_t worn;
};

/// Then, for each rail, its device address and its interface address.
struct RailHead {
    char transport[10];
    std::uint8_t domain;
    std::uint8_t device_bytes;
    std::uint8_t iface_bytes;
    std::uint8_t flags;  // RailFlag
};
static_assert(sizeof(RailHead) == 14);

enum RailFlag : std::uint8_t {
    kRailMatchesTags = 1,  // its device matches tagged messages
};

struct Offer {
    std::uint32_t id;        // of the receiver's endpoint, as its hello said
    std::uint8_t rail;       // of the sender, as its hello numbers them
    std::uint8_t peer_rail;  // of the receiver
    std::uint8_t is_connected;
    std::uint8_t address_bytes;
};
static_assert(sizeof(Offer) == 8);

// ---- Decoded messages (wire.cc)

using WireBytes = std::span<const std::byte>;

/// Keys, each with its KeyHead.
struct KeyList {
    std::size_t used = 0;
    std::byte bytes[sizeof(KeyHead) + UINT8_MAX + kKeysBytesMax];

    WireBytes all() const { return {bytes, used}; }
};

/// The rest of an eager message behind its Header. `data` lies where the transport has it.
struct EagerBody {
    std::uint64_t imm = 0;
    std::uint64_t length = 0;   // of the message; more than `data` exactly with kMoreParts
    std::uint32_t send_id = 0;  // to acknowledge; 0: none
    WireBytes data;
};
[[nodiscard]] bool decode(const Header& header, WireBytes behind, EagerBody* body);

/// ... of a request of a rendezvous.
struct RndvBody {
    std::uint64_t imm = 0;
    Rndv rndv{};
    KeyList keys;
};
[[nodiscard]] bool decode(const Header& header, WireBytes behind, RndvBody* body);

struct PartMessage {
    Part part;
    WireBytes data;  // not empty; where the transport has it
};
[[nodiscard]] bool decode(WireBytes bytes, PartMessage* message);

struct DataMessage {
    Data head;
    WireBytes data;  // not empty; where the transport has it
};
[[nodiscard]] bool decode(WireBytes bytes, DataMessage* message);

/// The keys begin with that of `offer.domain`, which has a KeyHead here, too.
struct PutMessage {
    PutOffer offer;
    KeyList keys;
};
[[nodiscard]] bool decode(WireBytes bytes, PutMessage* message);

/// `op` is one of ControlOp.
[[nodiscard]] bool decode(WireBytes bytes, Control* message);

[[nodiscard]] bool decode(WireBytes bytes, Placeholder* message);

/// `op` is one of WireupOp; `behind` is what follows, for one of the next two.
[[nodiscard]] bool decode(WireBytes bytes, Wireup* message, WireBytes* behind);

/// A rail of the peer.
struct PeerRail {
    std::string transport;
    std::uint8_t domain = 0;
    std::uint8_t flags = 0;  // RailFlag
    ReserveBytes device;
    ReserveBytes iface;
};

struct HelloMessage {
    Hello hello;
    ucs::ReserveVector<PeerRail> rails;  // at least one
};
[[nodiscard]] bool decode(WireBytes bytes, HelloMessage* message);

struct OfferMessage {
    Offer offer;
    ReserveBytes address;
};
[[nodiscard]] bool decode(WireBytes bytes, OfferMessage* message);

}  // namespace tagwire::proto
