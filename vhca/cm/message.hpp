// SPDX-License-Identifier: BSD-3-Clause
// Messages of the communication manager as they travel: management datagrams (MADs) of 256 bytes
// from QP1 to QP1, encoded as InfiniBand says (IBTA 1.4, chapter 12).
//
//   +--------------------------------------+
//   | base 1 | class 7 | version 2 | Send  |  24 bytes; all numbers big endian
//   |        transaction, attribute        |
//   +--------------------------------------+
//   |  fields of the message, then private |  232 bytes
//   |  data to the end                     |
//   +--------------------------------------+
//
// The length of private data is not told: a receiver sees as much as the kind of message carries.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tagwire::vhca::cm {

inline constexpr std::size_t kMadBytes = 256;
using Mad = std::array<std::byte, kMadBytes>;
inline constexpr std::uint32_t kGsiQpn = 1;
inline constexpr std::uint32_t kGsiQkey = 0x80010000;

enum class Kind : std::uint16_t {
    kReq = 0x10,  // connect, please
    kMra,         // it came, be patient
    kRej,
    kRep,  // accepted
    kRtu,  // ready to use
    kDreq,
    kDrep,
    kSidrReq,  // to which queue pair do datagrams of this service go?
    kSidrRep,
};

/// Why a REJ; what a program sees as the status of its event.
enum Reason : std::uint16_t {
    kRejTimeout = 4,
    kRejInvalidServiceId = 8,
    kRejConsumerDefined = 28,
    kRejVendorOption = 35,
};
/// Status of a SIDR_REP.
enum SidrStatus : std::uint8_t { kSidrSuccess = 0, kSidrUnsupported = 1, kSidrReject = 2 };

/// Private data of a message: bytes that there is room for.
[[nodiscard]] std::size_t private_bytes_max(Kind kind);

/// A message taken apart. Which fields count follows from its kind. Host order.
struct Message {
    static constexpr std::size_t kPrivateBytesMax = 224;
    Kind kind = Kind::kReq;
    std::uint64_t transaction = 0;
    std::uint32_t local_id = 0, remote_id = 0;  // of the sender; SIDR: local_id is the request's
    std::uint64_t service_id = 0, guid = 0;
    std::uint32_t qkey = 0, qpn = 0;
    std::uint32_t psn = 0;  // that the receiver of the message begins to send with
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t transport = 0;  // 0 RC, 1 UC
    std::uint8_t retry_count = 0, rnr_retry_count = 0;
    bool has_flow_control = false, has_srq = false;
    std::uint8_t mtu = 0;  // ibv_mtu
    std::uint16_t pkey = 0xffff;
    std::uint16_t local_lid = 0, remote_lid = 0;
    ibv_gid local_gid{}, remote_gid{};
    std::uint8_t traffic_class = 0, hop_limit = 0, ack_timeout = 0;
    std::uint8_t rejected = 0;  // 0 REQ, 1 REP, 2 other; MRA: what it answers
    std::uint16_t reason = 0;   // REJ; SIDR_REP: SidrStatus
    std::array<std::byte, kPrivateBytesMax> private_data{};
};

[[nodiscard]] Mad format(const Message& message);
/// False: not a message of the communication manager.
[[nodiscard]] bool parse(std::span<const std::byte> mad, Message* message_p);

}  // namespace tagwire::vhca::cm
