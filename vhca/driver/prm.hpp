// SPDX-License-Identifier: BSD-3-Clause
// Commands of the device itself (DEVX): big-endian structures whose fields are counted in bits, as
// the programmer's reference manual of these cards has them. Here are the fields that are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tagwire::vhca::driver::prm {

struct Field {
    unsigned bit;    // of its structure, whose first byte's highest bit is 0
    unsigned width;  // up to 64
    /// The field of a structure that begins at bit `base` of another.
    [[nodiscard]] constexpr Field in(unsigned base) const { return {base + bit, width}; }
};

/// Bits beyond the end read as zero.
[[nodiscard]] inline std::uint64_t get(std::span<const std::byte> from, Field field) {
    std::uint64_t value = 0;
    for (unsigned bit = field.bit; bit < field.bit + field.width; ++bit) {
        const bool is_set = bit / 8 < from.size() &&
                            (std::to_integer<unsigned>(from[bit / 8]) >> (7 - bit % 8) & 1) != 0;
        value = value << 1 | (is_set ? 1U : 0U);
    }
    return value;
}
/// Bits beyond the end are dropped.
inline void set(std::span<std::byte> to, Field field, std::uint64_t value) {
    for (unsigned i = 0; i < field.width; ++i) {
        const unsigned bit = field.bit + field.width - 1 - i;
        if (bit / 8 < to.size()) {
            const auto mask = std::byte{static_cast<unsigned char>(0x80U >> bit % 8)};
            to[bit / 8] = (value >> i & 1) != 0 ? to[bit / 8] | mask : to[bit / 8] & ~mask;
        }
    }
}

enum Opcode : std::uint16_t {
    kQueryHcaCap = 0x100,
    kCreateMkey = 0x200,
    kCreateCq = 0x400,
    kCreateQp = 0x500,
    kRst2Init = 0x502,
    kInit2Rtr = 0x503,
    kRtr2Rts = 0x504,
    kRts2Rts = 0x505,
    kTo2Err = 0x507,
    kTo2Rst = 0x50a,
    kQueryQp = 0x50b,
    kCreateDct = 0x710,
    kDrainDct = 0x712,
    kCreateXrq = 0x717,
    kSetXrqDcParams = 0x726,
    kQueryHcaVportContext = 0x762,
    kQueryLag = 0x842,
    kCreateRmp = 0x90c,
};
enum Status : std::uint8_t {
    kOk = 0,
    kBadParameter = 0x3,
    kBadResource = 0x5,
    kLimit = 0x8,
    kBadInputLength = 0x50,
};
enum CapabilityKind : std::uint16_t { kGeneral = 0, kOdp = 2, kAtomic = 3, kGeneral2 = 0x20 };

// ---- Every command and reply
inline constexpr Field kOpcode{0, 16}, kOpMod{0x30, 16}, kStatus{0, 8}, kSyndrome{0x20, 32};
inline constexpr Field kNumber{0x48, 24};  // of what is made, changed or asked for
inline constexpr std::size_t kCommandBytesMin = 16;

// ---- Structures in commands: where they begin
inline constexpr unsigned kCapability = 0x80, kCqOfCreate = 0x80, kQpContext = 0xc0, kPath = 0xc0,
                          kDctOfCreate = 0x80, kXrqOfCreate = 0x80, kWqOfXrq = 0x400,
                          kRmpOfCreate = 0x100, kWqOfRmp = 0x180, kLag = 0x40, kVport = 0x80,
                          kMkeyOfCreate = 0x80;

namespace cap {
inline constexpr Field kLogSrqEntries{0x80, 8}, kLogQpEntries{0x88, 8}, kLogQps{0x9b, 5},
    kLogSrqs{0xab, 5}, kLogCqEntries{0xc8, 8}, kLogCqs{0xdb, 5}, kLogMkeys{0xea, 6},
    kFixedBuffers{0x108, 1}, kLogKeyList{0x11a, 6}, kQpExtension{0x122, 1}, kLogReadsOfDc{0x12a, 6},
    kLogReadsServedDc{0x13a, 6}, kLogReads{0x14a, 6}, kLogReadsServed{0x15a, 6}, kGids{0x170, 16},
    kPortType{0x1b6, 2}, kPorts{0x1b8, 8}, kLogMessageBytes{0x1c3, 5}, kCqeVersion{0x1fc, 4},
    kCompactAddress{0x200, 1}, kUmrEntitySizeDisabled{0x207, 1}, kUmrAtomicDisabled{0x208, 1},
    kUmrIndirectDisabled{0x209, 1}, kDct{0x21a, 1}, kRoce{0x21d, 1}, kAtomic{0x21e, 1},
    kCqIgnoresOverrun{0x220, 1}, kUd{0x23d, 1}, kUc{0x23e, 1}, kRc{0x23f, 1}, kUar4k{0x240, 1},
    kBlueFlame{0x260, 1}, kLogBlueFlameBytes{0x26b, 5}, kSendEntryBytes{0x290, 16},
    kReceiveEntryBytes{0x2b0, 16}, kSendEntryBytesDc{0x2d0, 16}, kLogPds{0x32b, 5},
    kLogRmps{0x383, 5}, kLogDciStreams{0x58b, 5}, kLogDciErrored{0x593, 5}, kTagMatching{0x5f0, 1},
    kRendezvousRc{0x5f1, 1}, kRendezvousDc{0x5f2, 1}, kLogTags{0x5f3, 5}, kLogXrqs{0x5fb, 5},
    kNativePort{0x608, 8};
inline constexpr Field kAtomicEndianness{0x40, 2}, kAtomicOperations{0x90, 16},
    kAtomicBytesQp{0xb0, 16}, kAtomicBytesDc{0xd0, 16};
}  // namespace cap

namespace cq {
inline constexpr Field kEntryBytes{0x8, 3}, kIgnoresOverrun{0xe, 1}, kCompresses{0x11, 1},
    kRecordUmem{0x20, 32}, kLogEntries{0x63, 5}, kUarPage{0x68, 24}, kRecordOffset{0x1c0, 64};
inline constexpr Field kUmemOffset{0x280, 64}, kUmem{0x2c0, 32};  // of the command
}  // namespace cq

namespace qp {
inline constexpr Field kState{0, 4}, kService{0x8, 8}, kPd{0x28, 24}, kMtu{0x40, 3},
    kLogReceives{0x49, 4}, kHasNoSends{0x50, 1}, kLogSends{0x51, 4}, kUarPage{0x68, 24},
    kRecordMode{0x80, 2}, kUserIndex{0x88, 24}, kRemoteQpn{0xa8, 24}, kLogReadsOut{0x388, 3},
    kRetries{0x38d, 3}, kRnrRetries{0x390, 3}, kSendPsn{0x3c8, 24}, kLogStreams{0x3e4, 4},
    kSendCq{0x3e8, 24}, kLogErrored{0x404, 4}, kLogReadsIn{0x488, 3}, kMayRead{0x490, 1},
    kMayWrite{0x491, 1}, kMayAtomic{0x492, 1}, kRnrTimer{0x4a3, 5}, kReceivePsn{0x4a8, 24},
    kReceiveCq{0x4e8, 24}, kRecordOffset{0x500, 64}, kReceiveKind{0x565, 3}, kSrq{0x568, 24},
    kRecordUmem{0x720, 32}, kLogReceiveSegments{0x4d, 3}, kReadInCqe{0x630, 8},
    kReceivedInCqe{0x638, 8};
inline constexpr Field kOptional{0x80, 32}, kUmemOffset{0x800, 64}, kUmem{0x840, 32};  // command's
inline constexpr Field kIsExtended{0x40, 1}, kOptionalMore{0x840, 64}, kStream{0x890, 16};
enum Service : std::uint8_t { kServiceRc = 0, kServiceDci = 5 };
enum ReceiveKind : std::uint8_t { kReceivesOwn = 0, kReceivesSrq = 1, kReceivesNone = 3 };
enum OptionalMore : std::uint64_t { kResetsStream = 1 };
enum Optional : std::uint32_t { kSetsRead = 1 << 1, kSetsAtomic = 1 << 2, kSetsWrite = 1 << 3 };
}  // namespace qp

namespace path {
inline constexpr Field kPkey{0x10, 16}, kGrh{0x28, 1}, kPathBits{0x29, 7}, kLid{0x30, 16},
    kAckTimeout{0x40, 5}, kGidIndex{0x48, 8}, kHops{0x58, 8}, kClass{0x64, 8}, kFlow{0x6c, 20},
    kGidHigh{0x80, 64}, kGidLow{0xc0, 64}, kPriority{0x121, 3}, kLevel{0x124, 4}, kPort{0x128, 8};
}  // namespace path

namespace dct {
inline constexpr Field kUserIndex{0x28, 24}, kCq{0x48, 24}, kMayRead{0x6c, 1}, kMayWrite{0x6d, 1},
    kMayAtomic{0x6e, 1}, kRnrTimer{0x93, 5}, kSrq{0xa8, 24}, kPd{0xc8, 24}, kClass{0xe0, 8},
    kFlow{0xec, 20}, kKey{0x100, 64}, kMtu{0x145, 3}, kPort{0x148, 8}, kPkey{0x150, 16},
    kGidIndex{0x168, 8}, kHops{0x178, 8}, kReceivedInCqe{0x88, 8};
}  // namespace dct

namespace wq {
inline constexpr Field kKind{0, 4}, kPd{0x48, 24}, kRecordOffset{0x80, 64},
    kLogEntryBytes{0x10c, 4}, kLogEntries{0x11b, 5}, kRecordUmem{0x140, 32}, kUmem{0x160, 32};
enum Kind : std::uint8_t { kLinkedList = 0, kCyclic = 1 };
}  // namespace wq

namespace xrq {
inline constexpr Field kTopology{0x14, 4}, kUserIndex{0x28, 24}, kCq{0x48, 24}, kLogTags{0x100, 4};
enum Topology : std::uint8_t { kTagMatching = 1 };
}  // namespace xrq

namespace mkey {
inline constexpr Field kIsFree{0x1, 1}, kModeHigh{0x3, 3}, kMayAtomic{0x11, 1}, kMayWrite{0x12, 1},
    kMayRead{0x13, 1}, kMayWriteHere{0x14, 1}, kMayReadHere{0x15, 1}, kModeLow{0x16, 2},
    kQpn{0x20, 24}, kVariant{0x38, 8}, kHasNoLength{0x60, 1}, kSigns{0x61, 1}, kPd{0x68, 24},
    kStart{0x80, 64}, kBytes{0xc0, 64}, kUnits{0x1a0, 32}, kLogPieceBytes{0x1db, 5};
// Fields of the command, whose list is behind the rest.
inline constexpr Field kIndex{0x48, 24}, kUnitsGiven{0x300, 32}, kUmem{0x320, 32},
    kUmemOffset{0x340, 64};
inline constexpr unsigned kList = 0x880, kPiece = 0x80;  // bits: where it begins, and of each
inline constexpr Field kPieceBytes{0, 32}, kPieceKey{0x20, 32}, kPieceAddress{0x40, 64};
enum Mode : std::uint8_t { kPages = 1, kPieces = 2, kEqualPieces = 3 };
inline constexpr std::uint32_t kAnyQpn = 0xffffff;
}  // namespace mkey

namespace vport {
inline constexpr Field kGrhRequired{0x103, 1}, kPhysicalState{0x110, 4}, kPortState{0x118, 4},
    kState{0x11c, 4}, kSystemGuid{0x140, 64}, kPortGuid{0x180, 64}, kNodeGuid{0x1c0, 64},
    kLid{0x300, 16};
}  // namespace vport

}  // namespace tagwire::vhca::driver::prm
