// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/frame.hpp"

#include <algorithm>
#include <cstring>

namespace tagwire::bootstrap {
namespace {

constexpr std::uint32_t kMagic = 0x53425754;  // "TWBS"
constexpr std::uint8_t kVersion = 1;

void put_u32(std::byte* at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i)
        at[i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t get_u32(const std::byte* at) {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i)
        value |= std::to_integer<std::uint32_t>(at[i]) << (8 * i);
    return value;
}

bool is_kind(FrameKind kind) {
    switch (kind) {
        case FrameKind::kHello:
        case FrameKind::kWelcome:
        case FrameKind::kShare:
        case FrameKind::kResult:
        case FrameKind::kFailure:
        case FrameKind::kLeave:
            return true;
    }
    return false;
}

bool makes_sense(const Frame& frame) {
    const bool is_share = frame.kind == FrameKind::kShare || frame.kind == FrameKind::kResult;
    return is_kind(frame.kind) && frame.operation <= Operation::kLast &&
           is_share == (frame.operation != Operation::kNone) && frame.size >= 1 &&
           frame.size <= kRanksMax && frame.bytes <= kShareBytesMax &&
           (frame.kind == FrameKind::kFailure) == (frame.status < UCS_OK) &&
           frame.status <= UCS_OK && frame.status > UCS_ERR_LAST;
}

}  // namespace

FrameHead encode(const Frame& frame) {
    FrameHead head{};
    put_u32(&head[0], kMagic);
    head[4] = std::byte{kVersion};
    head[5] = static_cast<std::byte>(frame.kind);
    head[6] = static_cast<std::byte>(frame.operation);
    head[7] = static_cast<std::byte>(frame.status);
    put_u32(&head[8], frame.number);
    put_u32(&head[12], frame.rank);
    put_u32(&head[16], frame.size);
    put_u32(&head[20], frame.bytes);
    return head;
}

std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> head) {
    if (get_u32(&head[0]) != kMagic || head[4] != std::byte{kVersion})
        return std::nullopt;
    Frame frame;
    frame.kind = static_cast<FrameKind>(head[5]);
    frame.operation = static_cast<Operation>(head[6]);
    frame.status = static_cast<ucs_status_t>(std::to_integer<std::int8_t>(head[7]));
    frame.number = get_u32(&head[8]);
    frame.rank = get_u32(&head[12]);
    frame.size = get_u32(&head[16]);
    frame.bytes = get_u32(&head[20]);
    if (!makes_sense(frame))
        return std::nullopt;
    return frame;
}

std::vector<std::byte> with_payload(const Frame& frame, std::span<const std::byte> payload) {
    const FrameHead head = encode(frame);
    std::vector<std::byte> bytes(head.size() + payload.size());
    std::copy(payload.begin(), payload.end(), std::copy(head.begin(), head.end(), bytes.begin()));
    return bytes;
}

std::optional<Frame> decode_whole(std::span<const std::byte> bytes) {
    if (bytes.size() < kFrameBytes)
        return std::nullopt;
    const auto frame = decode(bytes.first<kFrameBytes>());
    if (!frame || frame->payload_bytes() != bytes.size() - kFrameBytes)
        return std::nullopt;
    return frame;
}

std::string text_of(std::span<const std::byte> payload) {
    std::string text;
    for (const std::byte byte : payload.first(std::min(payload.size(), kTextBytesMax))) {
        const char letter = static_cast<char>(byte);
        text += letter >= ' ' && letter <= '~' ? letter : '?';
    }
    return text;
}

std::string reason_of(std::span<const std::byte> payload) {
    return payload.empty() ? "the job has failed, and no reason was given" : text_of(payload);
}

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), std::min(text.size(), kTextBytesMax)));
}

Frame failure_frame(ucs_status_t status, std::uint32_t size, const std::string& why) {
    return {.kind = FrameKind::kFailure,
            .status = status,
            .size = size,
            .bytes = static_cast<std::uint32_t>(bytes_of(why).size())};
}

std::string operation_text(const Frame& frame) {
    if (frame.operation == Operation::kBarrier)
        return "barrier";
    return "allgather of " + std::to_string(frame.bytes) + " bytes";
}

}  // namespace tagwire::bootstrap
