// SPDX-License-Identifier: BSD-3-Clause
// Packets as they travel: InfiniBand transport headers (IBTA 1.4, chapter 9), as RoCEv2 carries
// them behind UDP. The invariant CRC is not here: a fabric that needs one appends it.
//
//   0        1        2        3
//   +--------+--------+--------+--------+
//   | opcode |S|M|Pad|TVer|   P_Key     |  BTH; S solicited, Pad bytes of zeros behind the payload
//   | rsvd   |   destination QPN        |
//   |A| reads|   PSN                    |  A: acknowledge, please; reads: see Packet::outstanding
//   +--------+--------+--------+--------+
//   then, as the opcode says and in this order: DETH 8 | RETH 16 | AtomicETH 28 | AETH 4 |
//   AtomicAckETH 8 | ImmDt 4 | IETH 4, then the payload, padded to a multiple of four bytes.
//
// DC. The encoding of cards is not public; this one is the library's own. Opcodes 0xc0 to 0xdf,
// which InfiniBand leaves to manufacturers, are RC's plus 0xc0, and four more. Every packet has a
// header of the DETH's size behind the BTH, and a connect packet one more behind that:
//   +--------+--------+--------+--------+
//   |             session               |  counted by the initiator's device; answers repeat it
//   | stream |      source number       |  of the DCI, or of the DCT that answers
//   +--------+--------+--------+--------+
//   |                                   |
//   |            access key             |
//   |  MTU   | reads  |    reserved     |  as ibv_mtu; reads and atomics outstanding at most
//   +--------+--------+--------+--------+
//   connect      0xd8  PSN is that of the first request of the session
//   disconnect   0xd9  the session ended: nothing of it will be sent again
//   refuse       0xda  AETH says why: RNR: no room for a session; NAK sequence: there is no such
//                      session, connect again; other NAK: the session is not possible
//   inquire      0xdb  of a target that needs room: answered by disconnect, or connect (in use)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

enum class Opcode : std::uint8_t {
    kRcSendFirst = 0x00,
    kRcSendMiddle,
    kRcSendLast,
    kRcSendLastImm,
    kRcSendOnly,
    kRcSendOnlyImm,
    kRcWriteFirst,
    kRcWriteMiddle,
    kRcWriteLast,
    kRcWriteLastImm,
    kRcWriteOnly,
    kRcWriteOnlyImm,
    kRcReadRequest,
    kRcReadFirst,
    kRcReadMiddle,
    kRcReadLast,
    kRcReadOnly,
    kRcAck,
    kRcAtomicAck,
    kRcCompareSwap,
    kRcFetchAdd,
    kRcSendLastInv = 0x16,
    kRcSendOnlyInv,
    kUcSendFirst = 0x20,
    kUcWriteOnlyImm = 0x2b,
    kUdSendOnly = 0x64,
    kUdSendOnlyImm,
    kDcConnect = 0xd8,
    kDcDisconnect,
    kDcRefuse,
    kDcInquire,
};
inline constexpr unsigned kTransportMask = 0xe0;
inline constexpr unsigned kTransportRc = 0x00, kTransportUc = 0x20, kTransportUd = 0x60;
inline constexpr unsigned kTransportDc = 0xc0;

// Kind of an opcode, and the headers that follow it. 0: not an opcode of this device.
enum OpcodeTrait : std::uint16_t {
    kIsKnown = 1 << 0,
    kIsStart = 1 << 1,     // first packet of its message
    kIsEnd = 1 << 2,       // last packet of its message
    kIsSend = 1 << 3,      // consumes a receive
    kIsWrite = 1 << 4,     // goes to the address of the RETH
    kIsResponse = 1 << 5,  // to the requester
    kHasPayload = 1 << 6,
    kHasDeth = 1 << 7,
    kHasReth = 1 << 8,
    kHasAtomicEth = 1 << 9,
    kHasAeth = 1 << 10,
    kHasAtomicAck = 1 << 11,
    kHasImm = 1 << 12,
    kHasIeth = 1 << 13,
    kHasDcKey = 1 << 14,
};

struct OpcodeInfo {
    std::uint16_t traits = 0;
    std::uint8_t header_bytes = 0;  // BTH included
};
extern const std::array<OpcodeInfo, 256> kOpcodes;

inline constexpr std::size_t kBthBytes = 12, kDethBytes = 8, kRethBytes = 16;
inline constexpr std::size_t kAtomicEthBytes = 28, kAethBytes = 4, kAtomicAckBytes = 8;
inline constexpr std::size_t kImmBytes = 4, kIethBytes = 4, kDcKeyBytes = 12;
static_assert(kBthBytes + kDethBytes + kRethBytes + kAtomicEthBytes + kAethBytes <=
              kHeaderBytesMax);

inline constexpr std::uint32_t kPsnMask = 0xffffff;
inline constexpr std::uint32_t kOutstandingMax = 0x7f;
inline constexpr std::uint32_t kQpnMask = 0xffffff;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

// Syndromes of the AETH.
inline constexpr std::uint8_t kAckSyndrome = 0x1f;  // acknowledged; no end-to-end credits
inline constexpr std::uint8_t kRnrSyndrome = 0x20;  // | timer code
inline constexpr std::uint8_t kNakSyndrome = 0x60;  // | code
inline constexpr std::uint8_t kSyndromeKindMask = 0xe0;
enum NakCode : std::uint8_t {
    kNakSequence = 0,
    kNakInvalidRequest = 1,
    kNakRemoteAccess = 2,
    kNakRemoteOperation = 3,
};

/// A packet taken apart, or one to be put together. All in host order except `imm`.
struct Packet {
    Opcode opcode = Opcode::kRcAck;
    bool solicited = false;
    bool wants_ack = false;
    std::uint16_t pkey = kDefaultPkey;
    std::uint16_t traits = 0;  // filled by parse()
    std::uint32_t qpn = 0;
    std::uint32_t psn = 0;
    std::uint32_t rkey = 0;     // RETH, AtomicETH
    std::uint64_t address = 0;  // connect: the access key
    std::uint32_t length = 0;   // RETH; connect: see connect_word()
    std::uint64_t swap_add = 0, compare = 0;
    std::uint32_t qkey = 0, source_qpn = 0;  // DETH; DC: the session and who sent this
    std::uint8_t syndrome = 0;               // AETH
    std::uint8_t stream = 0;                 // DC
    /// Read or atomic: how many of them the requester waits for, this one included, up to 127. On
    /// the wire they are bits that InfiniBand reserves; a responder that answers at once could not
    /// tell otherwise that a peer has more outstanding than it may have.
    std::uint8_t outstanding = 0;
    std::uint32_t msn = 0;
    std::uint64_t original = 0;  // AtomicAckETH
    std::uint32_t imm = 0;       // network order; IETH: host order key
    std::span<const std::byte> payload;

    [[nodiscard]] bool has(unsigned trait) const { return (traits & trait) != 0; }
    [[nodiscard]] unsigned transport() const {
        return static_cast<unsigned>(opcode) & kTransportMask;
    }
};

/// The last word of a connect packet.
[[nodiscard]] constexpr std::uint32_t connect_word(unsigned mtu, unsigned reads_max) {
    return mtu << 24 | reads_max << 16;
}

/// True for a UD packet; `bytes` is its beginning, at least one byte.
[[nodiscard]] inline bool is_datagram(std::span<const std::byte> bytes) {
    return (std::to_integer<unsigned>(bytes[0]) & kTransportMask) == kTransportUd;
}

/// False: not a packet (too short, opcode unknown, padding wrong, payload where none may be or
/// longer than kMtuMax). Reads nothing beyond `bytes`; `packet->payload` points into it.
bool parse(std::span<const std::byte> bytes, Packet* packet);

/// Writes the headers of `packet` for a payload of `payload_bytes` and returns where that goes;
/// put_padding() ends the packet. packet.payload and packet.traits are not looked at.
std::byte* put_headers(std::byte* to, const Packet& packet, std::size_t payload_bytes);

/// Zeros behind the payload that ends at `end`; returns the end of the packet.
std::byte* put_padding(std::byte* end, std::size_t payload_bytes);

[[nodiscard]] inline std::size_t packet_bytes(Opcode opcode, std::size_t payload_bytes) {
    return kOpcodes[static_cast<std::uint8_t>(opcode)].header_bytes +
           ((payload_bytes + 3) & ~std::size_t{3});
}

}  // namespace tagwire::vhca
