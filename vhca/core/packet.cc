// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/packet.hpp"

#include <bit>
#include <cstring>

namespace tagwire::vhca {

namespace {

constexpr std::uint8_t header_bytes_of(unsigned traits) {
    std::size_t bytes = kBthBytes;
    bytes += (traits & kHasDeth) != 0 ? kDethBytes : 0;
    bytes += (traits & kHasReth) != 0 ? kRethBytes : 0;
    bytes += (traits & kHasAtomicEth) != 0 ? kAtomicEthBytes : 0;
    bytes += (traits & kHasAeth) != 0 ? kAethBytes : 0;
    bytes += (traits & kHasAtomicAck) != 0 ? kAtomicAckBytes : 0;
    bytes += (traits & kHasImm) != 0 ? kImmBytes : 0;
    bytes += (traits & kHasIeth) != 0 ? kIethBytes : 0;
    bytes += (traits & kHasDcKey) != 0 ? kDcKeyBytes : 0;
    return static_cast<std::uint8_t>(bytes);
}

struct Row {
    Opcode opcode;
    unsigned traits;
};

constexpr unsigned kOnly = kIsStart | kIsEnd;
constexpr std::array kRows = {
    Row{Opcode::kRcSendFirst, kIsSend | kIsStart | kHasPayload},
    Row{Opcode::kRcSendMiddle, kIsSend | kHasPayload},
    Row{Opcode::kRcSendLast, kIsSend | kIsEnd | kHasPayload},
    Row{Opcode::kRcSendLastImm, kIsSend | kIsEnd | kHasPayload | kHasImm},
    Row{Opcode::kRcSendOnly, kIsSend | kOnly | kHasPayload},
    Row{Opcode::kRcSendOnlyImm, kIsSend | kOnly | kHasPayload | kHasImm},
    Row{Opcode::kRcWriteFirst, kIsWrite | kIsStart | kHasPayload | kHasReth},
    Row{Opcode::kRcWriteMiddle, kIsWrite | kHasPayload},
    Row{Opcode::kRcWriteLast, kIsWrite | kIsEnd | kHasPayload},
    Row{Opcode::kRcWriteLastImm, kIsWrite | kIsEnd | kHasPayload | kHasImm},
    Row{Opcode::kRcWriteOnly, kIsWrite | kOnly | kHasPayload | kHasReth},
    Row{Opcode::kRcWriteOnlyImm, kIsWrite | kOnly | kHasPayload | kHasReth | kHasImm},
    Row{Opcode::kRcReadRequest, kOnly | kHasReth},
    Row{Opcode::kRcReadFirst, kIsResponse | kIsStart | kHasPayload | kHasAeth},
    Row{Opcode::kRcReadMiddle, kIsResponse | kHasPayload},
    Row{Opcode::kRcReadLast, kIsResponse | kIsEnd | kHasPayload | kHasAeth},
    Row{Opcode::kRcReadOnly, kIsResponse | kOnly | kHasPayload | kHasAeth},
    Row{Opcode::kRcAck, kIsResponse | kOnly | kHasAeth},
    Row{Opcode::kRcAtomicAck, kIsResponse | kOnly | kHasAeth | kHasAtomicAck},
    Row{Opcode::kRcCompareSwap, kOnly | kHasAtomicEth},
    Row{Opcode::kRcFetchAdd, kOnly | kHasAtomicEth},
    Row{Opcode::kRcSendLastInv, kIsSend | kIsEnd | kHasPayload | kHasIeth},
    Row{Opcode::kRcSendOnlyInv, kIsSend | kOnly | kHasPayload | kHasIeth},
    Row{Opcode::kUdSendOnly, kIsSend | kOnly | kHasPayload | kHasDeth},
    Row{Opcode::kUdSendOnlyImm, kIsSend | kOnly | kHasPayload | kHasDeth | kHasImm},
    Row{Opcode::kDcConnect, kOnly | kHasDeth | kHasDcKey},
    Row{Opcode::kDcDisconnect, kOnly | kHasDeth},
    Row{Opcode::kDcRefuse, kIsResponse | kOnly | kHasDeth | kHasAeth},
    Row{Opcode::kDcInquire, kIsResponse | kOnly | kHasDeth},
};

constexpr std::array<OpcodeInfo, 256> make_opcodes() {
    std::array<OpcodeInfo, 256> table{};
    for (const Row& row : kRows) {
        const OpcodeInfo info{static_cast<std::uint16_t>(row.traits | kIsKnown),
                              header_bytes_of(row.traits)};
        const auto code = static_cast<std::uint8_t>(row.opcode);
        table[code] = info;
        if (code <= static_cast<std::uint8_t>(Opcode::kRcWriteOnlyImm))
            table[code | kTransportUc] = info;  // UC has RC's sends and writes
        if (code <= static_cast<std::uint8_t>(Opcode::kRcFetchAdd)) {
            const unsigned traits = row.traits | kHasDeth;
            table[code | kTransportDc] = {static_cast<std::uint16_t>(traits | kIsKnown),
                                          header_bytes_of(traits)};
        }
    }
    return table;
}

template <typename T>
T byte_swapped(T value) {
    if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1)
        return value;
    else if constexpr (sizeof(T) == 2)
        return __builtin_bswap16(value);
    else if constexpr (sizeof(T) == 4)
        return __builtin_bswap32(value);
    else
        return __builtin_bswap64(value);
}

/// Reads or writes big-endian fields one after the other.
template <typename T>
T take(const std::byte*& at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return byte_swapped(value);
}

template <typename T>
void put(std::byte*& at, T value) {
    value = byte_swapped(value);
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
}

constexpr unsigned kSolicitedBit = 0x80, kMigratedBit = 0x40, kPadShift = 4, kVersionMask = 0x0f;
constexpr std::uint32_t kAckBit = 0x80000000;
constexpr unsigned kStreamShift = 24, kOutstandingShift = 24;

void take_extended(const std::byte* at, Packet* packet) {
    if (packet->has(kHasDeth)) {
        packet->qkey = take<std::uint32_t>(at);
        const auto word = take<std::uint32_t>(at);
        packet->source_qpn = word & kQpnMask;
        packet->stream = static_cast<std::uint8_t>(word >> kStreamShift);
        if (packet->has(kHasDcKey)) {
            packet->address = take<std::uint64_t>(at);
            packet->length = take<std::uint32_t>(at);
        }
    }
    if (packet->has(kHasReth | kHasAtomicEth)) {
        packet->address = take<std::uint64_t>(at);
        packet->rkey = take<std::uint32_t>(at);
    }
    if (packet->has(kHasReth))
        packet->length = take<std::uint32_t>(at);
    if (packet->has(kHasAtomicEth)) {
        packet->swap_add = take<std::uint64_t>(at);
        packet->compare = take<std::uint64_t>(at);
    }
    if (packet->has(kHasAeth)) {
        const auto word = take<std::uint32_t>(at);
        packet->syndrome = static_cast<std::uint8_t>(word >> 24);
        packet->msn = word & kPsnMask;
    }
    if (packet->has(kHasAtomicAck))
        packet->original = take<std::uint64_t>(at);
    if (packet->has(kHasImm)) {
        std::memcpy(&packet->imm, at, sizeof packet->imm);
        at += sizeof packet->imm;
    }
    if (packet->has(kHasIeth))
        packet->imm = take<std::uint32_t>(at);
}

void put_extended(std::byte*& at, unsigned traits, const Packet& packet) {
    if ((traits & kHasDeth) != 0) {
        put(at, packet.qkey);
        put(at, std::uint32_t{packet.stream} << kStreamShift | (packet.source_qpn & kQpnMask));
        if ((traits & kHasDcKey) != 0) {
            put(at, packet.address);
            put(at, packet.length);
        }
    }
    if ((traits & (kHasReth | kHasAtomicEth)) != 0) {
        put(at, packet.address);
        put(at, packet.rkey);
    }
    if ((traits & kHasReth) != 0)
        put(at, packet.length);
    if ((traits & kHasAtomicEth) != 0) {
        put(at, packet.swap_add);
        put(at, packet.compare);
    }
    if ((traits & kHasAeth) != 0)
        put(at, (std::uint32_t{packet.syndrome} << 24) | (packet.msn & kPsnMask));
    if ((traits & kHasAtomicAck) != 0)
        put(at, packet.original);
    if ((traits & kHasImm) != 0) {
        std::memcpy(at, &packet.imm, sizeof packet.imm);
        at += sizeof packet.imm;
    }
    if ((traits & kHasIeth) != 0)
        put(at, packet.imm);
}

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodes = make_opcodes();

static_assert(make_opcodes()[0x00].header_bytes == 12 && make_opcodes()[0x0b].header_bytes == 32);
static_assert(make_opcodes()[0x0c].header_bytes == 28 && make_opcodes()[0x11].header_bytes == 16);
static_assert(make_opcodes()[0x12].header_bytes == 24 && make_opcodes()[0x13].header_bytes == 40);
static_assert(make_opcodes()[0x2b].traits == make_opcodes()[0x0b].traits);
static_assert(make_opcodes()[0x65].header_bytes == 24 && make_opcodes()[0x2c].traits == 0);
static_assert(make_opcodes()[0xd3].header_bytes == 48 && make_opcodes()[0xd8].header_bytes == 32);
static_assert(make_opcodes()[0xd6].traits == 0 && make_opcodes()[0xd5].traits == 0);

bool parse(std::span<const std::byte> bytes, Packet* packet) {
    if (bytes.size() < kBthBytes)
        return false;
    const std::byte* at = bytes.data();
    const auto code = take<std::uint8_t>(at);
    const OpcodeInfo info = kOpcodes[code];
    const auto flags = take<std::uint8_t>(at);
    if (info.traits == 0 || (flags & kVersionMask) != 0 || bytes.size() < info.header_bytes)
        return false;
    packet->opcode = static_cast<Opcode>(code);
    packet->traits = info.traits;
    packet->solicited = (flags & kSolicitedBit) != 0;
    packet->pkey = take<std::uint16_t>(at);
    packet->qpn = take<std::uint32_t>(at) & kQpnMask;
    const auto psn_word = take<std::uint32_t>(at);
    packet->psn = psn_word & kPsnMask;
    packet->wants_ack = (psn_word & kAckBit) != 0;
    packet->outstanding = psn_word >> kOutstandingShift & kOutstandingMax;

    const std::size_t pad = (flags >> kPadShift) & 3;
    const std::size_t rest = bytes.size() - info.header_bytes;
    if (rest % 4 != 0 || pad > rest || rest > kMtuMax ||
        (rest != 0 && (info.traits & kHasPayload) == 0)) {
        return false;
    }
    packet->payload = bytes.subspan(info.header_bytes, rest - pad);
    take_extended(at, packet);
    return true;
}

std::byte* put_headers(std::byte* to, const Packet& packet, std::size_t payload_bytes) {
    const unsigned pad = static_cast<unsigned>(-payload_bytes & 3);
    put(to, static_cast<std::uint8_t>(packet.opcode));
    put(to, static_cast<std::uint8_t>((packet.solicited ? kSolicitedBit : 0) | kMigratedBit |
                                      (pad << kPadShift)));
    put(to, packet.pkey);
    put(to, packet.qpn & kQpnMask);
    put(to, (packet.psn & kPsnMask) | (packet.wants_ack ? kAckBit : 0) |
                std::uint32_t{packet.outstanding} << kOutstandingShift);
    put_extended(to, kOpcodes[static_cast<std::uint8_t>(packet.opcode)].traits, packet);
    return to;
}

std::byte* put_padding(std::byte* end, std::size_t payload_bytes) {
    for (std::size_t pad = -payload_bytes & 3; pad != 0; --pad)
        *end++ = std::byte{0};
    return end;
}

}  // namespace tagwire::vhca
