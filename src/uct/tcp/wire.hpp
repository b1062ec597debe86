// SPDX-License-Identifier: BSD-3-Clause
// All that goes over a connection: the handshake, then frames in both directions.
//
//   opener                                         acceptor
//   Hello: whom I want, who I am ----------------> checked; at most sizeof(Hello) bytes are read
//          <-------------------------------------- Reply: welcome, crossed or refused
//   frames <-------------------------------------> frames
//
//   frame    | FrameHead | body of its kind, fixed length | data: the rest |
//            0           8                                                 8 + FrameHead::bytes
//
// Numbers are in little-endian order. Nothing of a frame is believed before it was checked:
// check_frame() says which heads are possible, the receiver of each kind checks ids and keys.
#pragma once

#include <uct/api/uct.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "uct/tcp/address.hpp"

namespace tagwire::tcp {

static_assert(std::endian::native == std::endian::little, "structs go over the wire as they are");

// ---- Handshake

constexpr std::uint64_t kHelloMagic = 0x0a70637465726977;  // "wiretcp\n"
constexpr std::uint32_t kReplyMagic = 0x70637477;          // "wtcp"
constexpr std::uint16_t kVersionMin = 1;
constexpr std::uint16_t kVersionMax = 1;

/// The opener's only bytes before the reply.
struct Hello {
    std::uint64_t magic;
    std::uint16_t version_min;  // that the opener speaks
    std::uint16_t version_max;
    std::uint16_t port;  // where the opener listens
    std::uint16_t reserved;
    std::uint64_t instance;       // of the opener
    Cookie wanted;                // of the interface that is connected to
    Cookie own;                   // of the opener
    std::uint32_t seg_bytes_max;  // longest message that the opener takes
    std::uint32_t host;           // own_host() of the opener
};
static_assert(sizeof(Hello) == 64 && offsetof(Hello, wanted) == 24);

enum class Verdict : std::uint8_t {
    kWelcome = 1,
    kCrossed = 2,  // the connection that the acceptor opened stands
    kForeign = 3,  // no Hello of this protocol
    kVersion = 4,
    kCookie = 5,
    kLimits = 6,
    kInstance = 7,  // another peer has this instance
};

struct Reply {
    std::uint32_t magic;
    Verdict verdict;
    std::uint8_t reserved;
    std::uint16_t version;   // welcome: that both speak; else the acceptor's highest
    std::uint64_t instance;  // of the acceptor
    std::uint32_t seg_bytes_max;
    std::uint32_t host;  // own_host() of the acceptor
};
static_assert(sizeof(Reply) == 24);

/// kWelcome, or what is wrong with the bytes themselves and the cookie that they want.
Verdict check_hello(const Hello& hello, const Cookie& own);
/// One sentence for the log: what is wrong and what would be right.
const char* sentence_of(Verdict verdict);
bool is_reply(const Reply& reply, std::uint64_t instance);
std::uint16_t version_of(const Hello& hello);

// ---- Keys

struct Key {
    std::uint32_t index;
    std::uint32_t part;  // of a put in several frames: its number; else 0
    std::uint64_t generation;
};

constexpr std::uint32_t kRkeyMagic = 0x54524b31;  // "1KRT"

struct PackedRkey {
    std::uint32_t magic;
    std::uint32_t index;
    std::uint64_t generation;
    std::uint64_t address;
    std::uint64_t length;

    [[nodiscard]] Key key() const { return {index, 0, generation}; }
};
static_assert(sizeof(PackedRkey) == 32);

// ---- Frames

enum class Kind : std::uint8_t {
    kAm = 1,        // value: the id; data: the message
    kTagEager,      // data: the message
    kTagRequest,    // data: the header
    kRts,           // data: the header
    kPut,           // data: what is put
    kGetRequest,    // no data
    kGetData,       // data: what was asked for, or a part of it
    kDone,          // no data: an operation of the receiver's has ended
    kFlushRequest,  // no data; its Done is behind the replies to all frames before it
    kPing,          // no data
};
constexpr std::uint8_t kKindMax = static_cast<std::uint8_t>(Kind::kPing);

struct FrameHead {
    std::uint32_t bytes;  // behind the head
    Kind kind;
    std::uint8_t value;
    std::uint16_t reserved;
};
static_assert(sizeof(FrameHead) == 8);

struct TagEagerBody {
    std::uint64_t tag;
    std::uint64_t imm;
};

struct TagRequestBody {
    std::uint64_t tag;
};

struct RtsBody {
    std::uint64_t op;  // the sender's
    std::uint64_t tag;
    std::uint64_t address;
    std::uint64_t length;
    Key key;  // unused when the length is 0
};

struct PutBody {
    std::uint64_t op;  // the sender's, which is answered when this part is placed; 0: none
    std::uint64_t address;
    Key key;
};

struct GetRequestBody {
    std::uint64_t op;   // the reader's
    std::uint64_t rts;  // operation of the owner that must be under way; 0: none
    std::uint64_t address;
    std::uint64_t length;
    Key key;
};

struct GetDataBody {
    std::uint64_t op;
};
/// FlushRequestBody::op of a request that no operation waits for: OpTable::recall().
constexpr std::uint64_t kRecallOp = UINT64_MAX;
/// FrameHead::value of a Put that is not the last frame of its put. Key::part of all of them is the
/// number of the put: a failure of any is told with the last.
constexpr std::uint8_t kMoreFollows = 1;
/// FrameHead::value of a GetData whose get ends with a Done: until then the owner may cancel it, or
/// its key may end.
constexpr std::uint8_t kDoneFollows = 1;

struct DoneBody {
    std::uint64_t op;  // 0: a put that nobody waits for has failed
    std::int32_t status;
    std::uint32_t reserved;
};

struct FlushRequestBody {
    std::uint64_t op;
};

constexpr std::size_t kBodyBytesMax = sizeof(RtsBody);
/// A message of any peer is at most this long, whatever the options of either side: 64 KiB and a
/// header of the layer above.
constexpr std::size_t kSegBytesMax = 65536 + 64;
/// Data of one frame of a put or a get.
constexpr std::size_t kFrameDataMax = 1024 * 1024;

/// Bytes of the body of a kind.
std::size_t body_bytes(Kind kind);
/// The kind is known and the length is one that it may have.
bool is_possible(const FrameHead& head);

}  // namespace tagwire::tcp
