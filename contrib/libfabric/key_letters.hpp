// SPDX-License-Identifier: BSD-3-Clause
// The letters about keys, as they are on the wire. Sides of one version and of one byte order only:
// every letter has its length, and another is dropped.
#pragma once

#include <tagwire.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "letters.hpp"

namespace tagwire::fi {

/// kAskKey, kRevokeKey, kForgotKey
struct KeyLetter {
    std::uint64_t key;
};

/// kTellKey
struct TellKeyLetter {
    std::uint64_t key;
    std::uint64_t origin;
    std::uint64_t base;
    std::uint64_t length;
    std::uint32_t flags;         ///< RegionFlag
    std::uint32_t error;         ///< Positive: the key is refused, and nothing else holds.
    std::uint32_t packed_bytes;  ///< 0: a region without bytes.
    std::uint32_t reserved;
    std::array<std::byte, TW_KEY_BYTES_MAX> packed;
};
static_assert(sizeof(TellKeyLetter) == 48 + TW_KEY_BYTES_MAX);

/// kNotice. An operation on several regions has one for each; the first one counts at the endpoint.
struct NoticeLetter {
    std::uint64_t key;
    std::uint64_t imm;
    std::uint64_t length;
    std::uint32_t is_read;
    std::uint16_t has_data;    ///< `imm` and `length` are for the queue.
    std::uint16_t is_further;  ///< Its operation has a notice already.
};
static_assert(sizeof(NoticeLetter) == 32);

/// Nothing: it is no such letter, which is all header, and is counted as refused.
template <class Letter>
std::optional<Letter> letter_of(const tw_am_t& am, Refusals& refusals) {
    Letter letter;
    if (am.header_length != sizeof letter || am.length != 0) {
        refusals.add(am.source, "a letter about a key has another length");
        return std::nullopt;
    }
    std::memcpy(&letter, am.header, sizeof letter);
    return letter;
}

}  // namespace tagwire::fi
