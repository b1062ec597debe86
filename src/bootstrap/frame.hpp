// SPDX-License-Identifier: BSD-3-Clause
// Frames that the processes of a job exchange: a header of 24 bytes and a payload. The format is
// the same in files of a shared directory and in PMIx values.
//
//      0      4         5      6           7        8        12     16     20     24
//      +------+---------+------+-----------+--------+--------+------+------+------+---------
//      | TWBS | version | kind | operation | status | number | rank | size | bytes| payload
//      +------+---------+------+-----------+--------+--------+------+------+------+---------
//
// Numbers are little endian. Frames come from other processes: decode() accepts headers that are
// valid by themselves; the reader checks whether one is valid in its state.
#pragma once

#include <ucs/type/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tagwire::bootstrap {

enum class FrameKind : std::uint8_t {
    kHello = 1,    // to rank 0: I am `rank` of `size`
    kWelcome = 2,  // from rank 0: all are there; payload: the nonces of the others
    kShare = 4,    // to rank 0: what this rank gives to call `number`
    kResult = 5,   // from rank 0: what all gave; the payload has size * bytes bytes
    kFailure = 6,  // the job is over; payload says why
    kLeave = 7,    // this rank leaves
};

enum class Operation : std::uint8_t { kNone, kBarrier, kAllgather, kLast = kAllgather };

struct Frame {
    FrameKind kind = FrameKind::kHello;
    Operation operation = Operation::kNone;  // of kShare and kResult
    ucs_status_t status = UCS_OK;            // of kFailure
    std::uint32_t number = 0;                // of the call, from 0
    std::uint32_t rank = 0;                  // the sender
    std::uint32_t size = 0;                  // of the job, 1 to kRanksMax
    std::uint32_t bytes = 0;                 // of the payload; kResult: of each rank

    std::uint64_t payload_bytes() const {
        return kind == FrameKind::kResult ? std::uint64_t{bytes} * size : bytes;
    }
};

inline constexpr std::size_t kFrameBytes = 24;
inline constexpr std::uint32_t kRanksMax = 1u << 16;
inline constexpr std::uint32_t kShareBytesMax = 1u << 20;
inline constexpr std::size_t kTextBytesMax = 1024;

using FrameHead = std::array<std::byte, kFrameBytes>;

FrameHead encode(const Frame& frame);

/// Nothing: not a head of this format and version.
std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> head);

/// A head with the payload behind it, as in a file.
std::vector<std::byte> with_payload(const Frame& frame, std::span<const std::byte> payload);

/// The opposite: the payload's length must be what the head says.
std::optional<Frame> decode_whole(std::span<const std::byte> bytes);

/// A payload as text for people: control characters become '?', what is too long is cut.
std::string text_of(std::span<const std::byte> payload);
/// The reason that a kFailure gives, or a sentence that there is none: never empty.
std::string reason_of(std::span<const std::byte> payload);
std::span<const std::byte> bytes_of(const std::string& text);
std::span<const std::byte> bytes_of(std::string&& text) = delete;

/// A kFailure of a job of `size` ranks; its payload is `why`.
Frame failure_frame(ucs_status_t status, std::uint32_t size, const std::string& why);

/// "allgather of 8 bytes", "barrier"
std::string operation_text(const Frame& frame);

}  // namespace tagwire::bootstrap
