// SPDX-License-Identifier: BSD-3-Clause
// Memory of the program that the driver face reads and writes: queue buffers and doorbell records
// that a command named, and the structures of commands.
//
// The program may unmap or change them at any time. Every access is guarded (core/guarded.hpp):
// one to memory that is gone fails, as it does in the kernel and on a card.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "vhca/core/guarded.hpp"

namespace tagwire::vhca::driver {

/// False: memory is not there.
[[nodiscard]] inline bool copy_in(void* to, const void* from, std::size_t bytes) {
    return bytes == 0 || guarded([&] { std::memcpy(to, from, bytes); });
}
[[nodiscard]] inline bool copy_out(void* to, const void* from, std::size_t bytes) {
    return bytes == 0 || guarded([&] { std::memcpy(to, from, bytes); });
}

/// Words of a doorbell record: big endian, written by the driver in the program. Of no memory, reads
/// are 0 and writes vanish.
class Record {
  public:
    Record() = default;
    explicit Record(std::uint64_t address) : words_(reinterpret_cast<std::uint32_t*>(address)) {}

    /// In host order. `is_gone_p` is set when the memory is gone.
    [[nodiscard]] std::uint32_t load(unsigned word, bool* is_gone_p) const {
        std::uint32_t value = 0;
        const bool is_there = words_ != nullptr && guarded([&] {
                                  // SYNC record: pairs with the driver's barrier before it writes the record
                                  value =
                                      std::atomic_ref(words_[word]).load(std::memory_order_acquire);
                              });
        *is_gone_p = *is_gone_p || !is_there;
        return __builtin_bswap32(value);
    }
    /// False: it was not `expected`, or is gone.
    [[nodiscard]] bool exchange(unsigned word, std::uint32_t expected, std::uint32_t value) const {
        bool is_done = false;
        const bool is_there = words_ != nullptr && guarded([&] {
                                  std::uint32_t raw = __builtin_bswap32(expected);
                                  // SYNC record: pairs with the driver's store of the same word
                                  is_done =
                                      std::atomic_ref(words_[word])
                                          .compare_exchange_strong(raw, __builtin_bswap32(value));
                              });
        return is_there && is_done;
    }
    bool store(unsigned word, std::uint32_t value) const {
        return words_ != nullptr && guarded([&] {
                   // SYNC record: read by the driver after it polled
                   std::atomic_ref(words_[word])
                       .store(__builtin_bswap32(value), std::memory_order_release);
               });
    }

  private:
    std::uint32_t* words_ = nullptr;
};

}  // namespace tagwire::vhca::driver
