// SPDX-License-Identifier: BSD-3-Clause
#include <tagwire.h>

#include <vector>

#include "cli/failure.hpp"
#include "tools/pattern.hpp"
#include "tools/soak.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kNoiseBits = 8;

std::size_t draw_size(Random& random) {
    // As many of each magnitude, so that every way of a message is taken often.
    constexpr std::uint64_t kMagnitudes = 23;  // up to 4 MiB
    const std::uint64_t power = random.below(kMagnitudes);
    return power == 0 ? 0 : random.below((std::uint64_t{1} << power) + 1);
}

}  // namespace

SoakMessage draw_message(Random& random, std::uint64_t sequence, std::size_t inject_max) {
    constexpr std::uint32_t kLevels[] = {
        0, 0, 0, TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE, TW_OP_MATCH_COMPLETE};
    SoakMessage message;
    message.sequence = sequence;
    message.size = draw_size(random);
    message.is_tagged = !random.one_in(4);
    message.tag = message.is_tagged ? (sequence << kNoiseBits) + random.below(1 << kNoiseBits) : 0;
    message.ignore = message.is_tagged && random.one_in(3) ? (1 << kNoiseBits) - 1 : 0;
    message.send_flags = kLevels[random.below(std::size(kLevels))];
    if (message.send_flags == 0 && message.size <= inject_max && random.one_in(3))
        message.send_flags = TW_OP_INJECT;
    if (random.one_in(4)) {
        message.send_flags |= TW_OP_IMM;
        message.imm = random.one_in(2) ? random.next() : random.below(1 << 16);
    }
    if (random.one_in(32))
        message.send_flags |= TW_OP_FENCE;
    const std::uint64_t how = random.below(8);
    message.receive = how == 0   ? SoakReceive::kDiscarded
                      : how == 1 ? SoakReceive::kClaimed
                                 : SoakReceive::kPosted;
    message.room = random.one_in(2) ? 0 : random.below(4096);
    message.is_directed = random.one_in(2);
    message.has_callback = random.one_in(2);
    return message;
}

std::optional<std::string> wrong_byte(const SoakMessage& message, Side sender, const void* data) {
    const Pattern pattern(static_cast<std::uint64_t>(sender), message.sequence);
    if (pattern.matches(data, message.size))
        return std::nullopt;
    std::vector<std::uint8_t> expected(message.size);
    pattern.fill(expected.data(), expected.size());
    const auto* got = static_cast<const std::uint8_t*>(data);
    std::size_t offset = 0;
    while (got[offset] == expected[offset])
        ++offset;
    return text("byte %zu of %zu is 0x%02x, expected 0x%02x", offset, message.size, got[offset],
                expected[offset]);
}

void SoakCounts::add(const SoakMessage& message) {
    ++messages;
    bytes += message.size;
    const bool is[kKinds] = {message.is_tagged,
                             !message.is_tagged,
                             (message.send_flags & TW_OP_INJECT) != 0,
                             (message.send_flags & TW_OP_IMM) != 0,
                             message.is_directed,
                             message.ignore != 0,
                             message.receive == SoakReceive::kClaimed,
                             message.receive == SoakReceive::kDiscarded};
    for (std::size_t kind = 0; kind < kKinds; ++kind)
        kinds[kind] += is[kind] ? 1 : 0;
}

void SoakCounts::add(const SoakCounts& other) {
    messages += other.messages;
    bytes += other.bytes;
    cancels += other.cancels;
    for (std::size_t kind = 0; kind < kKinds; ++kind)
        kinds[kind] += other.kinds[kind];
}

}  // namespace tagwire::tools
