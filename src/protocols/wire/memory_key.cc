// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/memory_key.hpp"

#include <algorithm>
#include <iterator>

namespace tagwire::proto {

namespace {

constexpr unsigned kKeyVersion = 2;
constexpr std::size_t kIdBytes = 5;
constexpr std::size_t kOwnerBytes = kOwnerBits / 8;
constexpr std::size_t kWordsAt = 1 + kIdBytes + kOwnerBytes;
constexpr std::size_t kFixedBytes = kWordsAt + 1;
constexpr unsigned kByDevice = 8;  // beside TW_ACCESS_x in the upper half of the first byte
constexpr unsigned kCodeShift = 5;
constexpr unsigned kCodeOther = 7;
/// Lengths of keys that have a code; those of the transports are among them.
constexpr std::size_t kCodedBytes[kCodeOther] = {4, 8, 12, 16, 24, 32, 48};
constexpr unsigned kNoWord = 15;
constexpr std::size_t kWord = sizeof(std::uint64_t);

/// The word of `key` that is `value`; kNoWord: none.
unsigned find_word(WireBytes key, std::uint64_t value) {
    for (unsigned i = 0; i < kNoWord && (i + 1) * kWord <= key.size(); ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, key.data() + i * kWord, kWord);
        if (word == value)
            return i;
    }
    return kNoWord;
}

bool take_word(WireBytes key, unsigned index, std::uint64_t* value) {
    if ((index + 1) * kWord > key.size())
        return false;
    std::memcpy(value, key.data() + index * kWord, kWord);
    return true;
}

}  // namespace

void MemoryKeyWriter::add(std::size_t domain, WireBytes key) {
    if (domain >= kKeyDomainsMax || key.empty() || key.size() > UINT8_MAX)
        return;
    const auto code = static_cast<std::size_t>(std::ranges::find(kCodedBytes, key.size()) -
                                               std::begin(kCodedBytes));
    const std::size_t head = code != kCodeOther ? 1 : 2;
    const std::uint8_t words_before = words_;
    if (used_ == 0) {
        const unsigned address = find_word(key, key_.address);
        const unsigned length = find_word(key, key_.length);
        if (address != kNoWord && length != kNoWord)
            words_ = static_cast<std::uint8_t>(address | length << 4);
    }
    if (head_bytes() + used_ + head + key.size() > TW_KEY_BYTES_MAX) {
        words_ = words_before;
        return;
    }
    keys_[used_++] = static_cast<std::byte>(domain | code << kCodeShift);
    if (code == kCodeOther)
        keys_[used_++] = static_cast<std::byte>(key.size());
    std::memcpy(keys_.data() + used_, key.data(), key.size());
    used_ += key.size();
}

std::size_t MemoryKeyWriter::head_bytes() const {
    return kFixedBytes + (words_ == kNoWords ? 2 * kWord : 0);
}

std::size_t MemoryKeyWriter::write(std::byte* to) const {
    const unsigned rights = key_.access | (key_.by_device ? kByDevice : 0);
    to[0] = static_cast<std::byte>(kKeyVersion | rights << 4);
    std::memcpy(to + 1, &key_.memory, kIdBytes);
    std::memcpy(to + 1 + kIdBytes, &key_.owner, kOwnerBytes);
    to[kWordsAt] = static_cast<std::byte>(words_);
    std::byte* at = to + kFixedBytes;
    if (words_ == kNoWords) {
        std::memcpy(at, &key_.address, kWord);
        std::memcpy(at + kWord, &key_.length, kWord);
        at += 2 * kWord;
    }
    std::memcpy(at, keys_.data(), used_);
    return head_bytes() + used_;
}

const char* decode(WireBytes bytes, MemoryKeyMessage* message) {
    if (bytes.size() < kFixedBytes || bytes.size() > TW_KEY_BYTES_MAX)
        return "a packed key has 26 to 64 bytes";
    *message = {};
    std::memcpy(message->bytes.data(), bytes.data(), bytes.size());
    WireBytes rest(message->bytes.data(), bytes.size());
    const unsigned first = static_cast<unsigned>(rest[0]);
    if ((first & 15U) != kKeyVersion)
        return "it does not begin as a key of this version does";
    MemoryKey& key = message->key;
    key.access = first >> 4 & TW_ACCESS_ALL;
    key.by_device = (first >> 4 & kByDevice) != 0;
    std::memcpy(&key.memory, rest.data() + 1, kIdBytes);
    std::memcpy(&key.owner, rest.data() + 1 + kIdBytes, kOwnerBytes);
    const unsigned words = static_cast<unsigned>(rest[kWordsAt]);
    rest = rest.subspan(kFixedBytes);
    const bool is_apart = words == UINT8_MAX;
    if (is_apart && (!take(&rest, &key.address) || !take(&rest, &key.length)))
        return "it ends early";
    for (bool is_first = true; !rest.empty(); is_first = false) {
        const unsigned head = static_cast<unsigned>(rest[0]);
        rest = rest.subspan(1);
        std::size_t length = 0;
        if (head >> kCodeShift != kCodeOther) {
            length = kCodedBytes[head >> kCodeShift];
        } else {
            std::uint8_t other = 0;
            if (!take(&rest, &other))
                return "it ends early";
            length = other;
        }
        if (length == 0 || length > rest.size())
            return "it ends early";
        MemoryKeyMessage::At& at = message->of_domain[head & (kKeyDomainsMax - 1)];
        if (at.bytes != 0)
            return "it has two keys of one domain";
        at = {static_cast<std::uint8_t>(rest.data() - message->bytes.data()),
              static_cast<std::uint8_t>(length)};
        const WireBytes own = rest.first(length);
        if (is_first && !is_apart &&
            (!take_word(own, words & 15U, &key.address) ||
             !take_word(own, words >> 4, &key.length)))
            return "it names no address";
        rest = rest.subspan(length);
    }
    if (key.access == 0 || key.length == 0 || key.address + key.length < key.address)
        return "it gives no right, or its range is not possible";
    return nullptr;
}

}  // namespace tagwire::proto
