// SPDX-License-Identifier: BSD-3-Clause
// The packed key of memory (tw_mem_pack()): for any transport, at most 64 bytes.
//
//      0            1            6           9       10
//     +------------+------------+-----------+-------+------------------------+------+------+-
//     | version,   | memory id  | owner     | words | address, length (u64), | key  | key  | ...
//     | rights     | (40 bits)  | (24 bits) |       | unless in the 1st key  |      |      |
//     +------------+------------+-----------+-------+------------------------+------+------+-
//
// The owner is the context that knows the memory: the ids of its workers begin with these bits.
// A key of a domain is `domain | code << 5` and its bytes: 4, 8, 12, 16, 24, 32 or 48 of them, by
// the code, or, with code 7, as many as the next byte says. Keys that do not fit are left out: a
// peer that needs one asks the owner for all of them (RemoteKey::ask_owner()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_memory.h"
#include "protocols/api/tw_rma.h"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

/// Most domains whose keys are found.
inline constexpr std::size_t kKeyDomainsMax = 32;

inline constexpr unsigned kOwnerBits = 24;

/// The owner of memory that the worker of this id knows.
constexpr std::uint32_t owner_of(std::uint64_t worker_id) {
    return static_cast<std::uint32_t>(worker_id >> (64 - kOwnerBits));
}

/// A number that a key shares with the endpoints that it may be used with: the worker of both, by
/// its id, and the owner.
constexpr std::uint64_t key_use(std::uint64_t own_worker_id, std::uint32_t owner) {
    return own_worker_id << kOwnerBits | owner;
}

/// A key, but the keys of domains in it.
struct MemoryKey {
    std::uint64_t memory = 0;  // its id at the owner (mem_table.hpp)
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint32_t access = 0;  // TW_ACCESS_x
    // The owner's device carries atomics out, and nothing else does; else its processors.
    bool by_device = false;
    std::uint32_t owner = 0;
};

/// Packs a key. Keys of domains are added in order; those that do not fit are left out.
class MemoryKeyWriter {
  public:
    explicit MemoryKeyWriter(const MemoryKey& key) : key_(key) {}
    void add(std::size_t domain, WireBytes key);
    /// Writes all; returns the length, at most TW_KEY_BYTES_MAX.
    std::size_t write(std::byte* to) const;

  private:
    std::size_t head_bytes() const;

    const MemoryKey key_;
    std::array<std::byte, TW_KEY_BYTES_MAX> keys_{};
    std::size_t used_ = 0;
    // Which words of the first key are address and length; kNoWord: not both are there.
    std::uint8_t words_ = kNoWords;
    static constexpr std::uint8_t kNoWords = 0xff;
};

/// A packed key that was checked.
struct MemoryKeyMessage {
    MemoryKey key;
    std::array<std::byte, TW_KEY_BYTES_MAX> bytes{};
    struct At {
        std::uint8_t begin = 0;  // in `bytes`
        std::uint8_t bytes = 0;  // 0: there is none
    };
    std::array<At, kKeyDomainsMax> of_domain{};

    WireBytes key_of(std::size_t domain) const {
        return domain < kKeyDomainsMax
                   ? WireBytes(bytes).subspan(of_domain[domain].begin, of_domain[domain].bytes)
                   : WireBytes();
    }
};

/// nullptr: it is one; else what is wrong with it.
[[nodiscard]] const char* decode(WireBytes bytes, MemoryKeyMessage* message);

}  // namespace tagwire::proto
