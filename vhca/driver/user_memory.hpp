// SPDX-License-Identifier: BSD-3-Clause
// Memory of the program that the driver face reads and writes: queue buffers and doorbell records
// that a command named, and the structures of commands.
//
// The program may unmap or change it at any time. Every access is guarded (core/guarded.hpp): an
// access to unmapped memory fails, as it does in the kernel and on a card.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "vhca/core/guarded.hpp"

namespace tagwire::vhca::driver {

/// memcpy(3) of an address that a program named: it may be null or lead nowhere, which is for the
/// guard to find out, not for a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(TAGWIRE_DEBUG_CHECKS)
__attribute__((no_sanitize("address", "undefined"), noinline)) inline void copy_foreign(
    void* to, const void* from, std::size_t bytes) {
    auto* target = static_cast<volatile unsigned char*>(to);
    const auto* source = static_cast<const volatile unsigned char*>(from);
    for (std::size_t i = 0; i != bytes; ++i)
        target[i] = source[i];
}
#else
inline void copy_foreign(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}
#endif

/// False: memory is not there.
[[nodiscard]] inline bool copy_in(void* to, const void* from, std::size_t bytes) {
    return bytes == 0 || guarded([&] { copy_foreign(to, from, bytes); });
}
[[nodiscard]] inline bool copy_out(void* to, const void* from, std::size_t bytes) {
    return bytes == 0 || guarded([&] { copy_foreign(to, from, bytes); });
}

/// Words of a doorbell record: big endian, written by the driver in the program. Without memory, or
/// at an unaligned address, reads are 0 and writes vanish.
class Record {
  public:
    Record() = default;
    explicit Record(std::uint64_t address)
        : words_(address % sizeof(std::uint32_t) == 0 ? reinterpret_cast<std::uint32_t*>(address)
                                                      : nullptr) {}

    /// In host order. `is_gone_p` is set when the memory is gone.
    [[nodiscard]] std::uint32_t load(unsigned word, bool* is_gone_p) const {
        std::uint32_t value = 0;
        // SYNC record: pairs with the driver's barrier before it writes the record
        const auto load = [&] {
            value = std::atomic_ref(words_[word]).load(std::memory_order_acquire);
        };
        const bool is_there = words_ != nullptr && guarded(load);
        *is_gone_p = *is_gone_p || !is_there;
        return __builtin_bswap32(value);
    }
    /// False: it was not `expected`, or is gone.
    [[nodiscard]] bool exchange(unsigned word, std::uint32_t expected, std::uint32_t value) const {
        bool is_done = false;
        std::uint32_t raw = __builtin_bswap32(expected);
        // SYNC record: pairs with the driver's store of the same word
        const auto exchange = [&] {
            is_done = std::atomic_ref(words_[word])
                          .compare_exchange_strong(raw, __builtin_bswap32(value),
                                                   std::memory_order_acq_rel);
        };
        return words_ != nullptr && guarded(exchange) && is_done;
    }
    bool store(unsigned word, std::uint32_t value) const {
        // SYNC record: read by the driver after it polled
        const auto store = [&] {
            std::atomic_ref(words_[word])
                .store(__builtin_bswap32(value), std::memory_order_release);
        };
        return words_ != nullptr && guarded(store);
    }

  private:
    std::uint32_t* words_ = nullptr;
};

}  // namespace tagwire::vhca::driver
