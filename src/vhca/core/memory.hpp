// SPDX-License-Identifier: BSD-3-Clause
// Registered memory: keys, and copies that go through them.
//
// No byte is touched before the key, protection domain, rights and bounds of its region were
// checked for exactly the bytes that are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "vhca/core/device.hpp"
#include "vhca/core/number_table.hpp"

namespace tagwire::vhca {

class MemoryTable {
  public:
    explicit MemoryTable(std::uint64_t seed) : variant_(static_cast<std::uint8_t>(seed)) {}
    ~MemoryTable();
    MemoryTable(const MemoryTable&) = delete;
    MemoryTable& operator=(const MemoryTable&) = delete;

    /// 0, or the errno of ibv_reg_mr(3).
    int create(Pd& pd, void* base, std::uint64_t length, std::uint64_t iova, unsigned access,
               Mr** mr_p);
    int change(Mr& mr, int flags, Pd* pd, void* base, std::uint64_t length, unsigned access);
    void destroy(Mr& mr);

    /// Where the bytes are, or nullptr when the key does not open all of them for `access`.
    [[nodiscard]] std::byte* resolve(std::uint32_t key, const Pd* pd, std::uint64_t address,
                                     std::uint64_t bytes, unsigned access) const {
        const Mr* mr = mrs_.find(key >> 8);
        if (mr == nullptr || mr->key != key || mr->is_invalidated || mr->pd != pd ||
            (mr->access & access) != access || address < mr->iova || bytes > mr->length ||
            address - mr->iova > mr->length - bytes) [[unlikely]] {
            return nullptr;
        }
        return mr->base + (address - mr->iova);
    }

    /// A peer takes the key of a region back. False: it is none of `pd`.
    [[nodiscard]] bool invalidate(std::uint32_t key, const Pd* pd);

    /// Copies `bytes` from `offset` of the list to `to`. False: a key did not open its bytes.
    [[nodiscard]] bool gather(std::span<const ibv_sge> sges, const Pd* pd, std::uint64_t offset,
                              std::byte* to, std::size_t bytes) const;
    /// The other way round; the last byte of each piece is written last. The keys need
    /// IBV_ACCESS_LOCAL_WRITE.
    [[nodiscard]] bool scatter(std::span<const ibv_sge> sges, const Pd* pd, std::uint64_t offset,
                               const std::byte* from, std::size_t bytes) const;
    /// All bytes of the list may be accessed.
    [[nodiscard]] bool opens(std::span<const ibv_sge> sges, const Pd* pd, unsigned access) const;

  private:
    void assign_key(Mr& mr);

    // 24-bit numbers from 2: key 0 opens nothing, and 0x100 ends the list of a receive for mlx5.
    NumberTable<Mr> mrs_{2};
    std::uint8_t variant_;
};

/// Copies out of a region. False: the memory is gone, although it is registered.
[[nodiscard]] bool copy_from_region(std::byte* to, const std::byte* from, std::size_t bytes);
/// Copies into one, likewise. The last byte is written last: a program that polls on it may read
/// all of what arrived when it sees that byte.
[[nodiscard]] bool copy_into_region(std::byte* to, const std::byte* from, std::size_t bytes);

/// Sum of the lengths.
[[nodiscard]] inline std::uint64_t total_bytes(std::span<const ibv_sge> sges) {
    std::uint64_t sum = 0;
    for (const ibv_sge& sge : sges) {
        sum += sge.length;
    }
    return sum;
}

}  // namespace tagwire::vhca
