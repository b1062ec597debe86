// SPDX-License-Identifier: BSD-3-Clause
// Registered memory: keys, and copies that go through them.
//
// No byte is touched before the key, protection domain, rights and bounds of its region were
// checked for exactly the bytes that are touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
    int create_indirect(Pd& pd, std::uint64_t length, std::uint64_t iova, unsigned access,
                        std::vector<MrPiece> pieces, Mr** mr_p);
    int change(Mr& mr, int flags, Pd* pd, void* base, std::uint64_t length, unsigned access);
    void destroy(Mr& mr);

    /// Calls visit(std::byte* at, std::size_t bytes) for the parts of memory that the bytes are in,
    /// one unless the region is indirect. False: the key does not open all of them for `access`,
    /// or visit() said so.
    template <typename F>
    [[nodiscard]] bool visit(std::uint32_t key, const Pd* pd, std::uint64_t address,
                             std::uint64_t bytes, unsigned access, const F& visit_part) const {
        const Mr* mr = find_open(key, pd, address, bytes, access);
        if (mr == nullptr) [[unlikely]]
            return false;
        if (mr->is_indirect) [[unlikely]] {
            std::uint32_t pieces_left = kPiecesMax;
            return visit_pieces(*mr, address - mr->iova, bytes, access, {1, &pieces_left},
                                visit_part);
        }
        return visit_part(mr->base + (address - mr->iova), static_cast<std::size_t>(bytes));
    }
    /// The key opens all of the bytes for `access`.
    [[nodiscard]] bool opens(std::uint32_t key, const Pd* pd, std::uint64_t address,
                             std::uint64_t bytes, unsigned access) const {
        return visit(key, pd, address, bytes, access, [](std::byte*, std::size_t) { return true; });
    }
    /// Where the bytes are; nullptr when the key does not open all of them for `access`, or they
    /// are in several parts.
    [[nodiscard]] std::byte* resolve(std::uint32_t key, const Pd* pd, std::uint64_t address,
                                     std::uint64_t bytes, unsigned access) const {
        std::byte* found = nullptr;
        const auto keep = [&](std::byte* at, std::size_t count) {
            found = at;
            return count == bytes;
        };
        return visit(key, pd, address, bytes, access, keep) ? found : nullptr;
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
    static constexpr unsigned kDepthMax = 4;  // indirect regions of indirect ones
    /// Limit of one access, in all regions: it fails where there are more, since it holds up the
    /// device.
    static constexpr std::uint32_t kPiecesMax = 1U << 18;
    struct Descent {
        unsigned depth;
        std::uint32_t* pieces_left;
    };

    void assign_key(Mr& mr);
    /// A region that has no bytes yet.
    int add(Pd& pd, std::uint64_t length, std::uint64_t iova, unsigned access, Mr** mr_p);
    [[nodiscard]] const Mr* find_open(std::uint32_t key, const Pd* pd, std::uint64_t address,
                                      std::uint64_t bytes, unsigned access) const {
        const Mr* mr = mrs_.find(key >> 8);
        if (mr == nullptr || mr->key != key || mr->is_invalidated || mr->pd != pd ||
            (mr->access & access) != access || address < mr->iova || bytes > mr->length ||
            address - mr->iova > mr->length - bytes) [[unlikely]] {
            return nullptr;
        }
        return mr;
    }
    /// The piece that has this byte of an indirect region.
    [[nodiscard]] static const MrPiece& piece_at(const Mr& mr, std::uint64_t offset);

    template <typename F>
    [[nodiscard]] bool visit_pieces(const Mr& mr, std::uint64_t offset, std::uint64_t bytes,
                                    unsigned access, Descent descent, const F& visit_part) const {
        // Rights of a peer are those of the key that it has.
        constexpr unsigned kChanges =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        const unsigned local = (access & kChanges) != 0 ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
        while (bytes != 0) {
            if ((*descent.pieces_left)-- == 0)
                return false;
            const MrPiece& piece = piece_at(mr, offset);
            const std::uint64_t skipped = offset - piece.first;
            const std::uint64_t count = std::min(bytes, piece.bytes - skipped);
            const std::uint64_t address = piece.address + skipped;
            const Mr* below = find_open(piece.key, mr.pd, address, count, local);
            if (below == nullptr)
                return false;
            const bool is_done =
                below->is_indirect
                    ? descent.depth != kDepthMax &&
                          visit_pieces(*below, address - below->iova, count, local,
                                       {descent.depth + 1, descent.pieces_left}, visit_part)
                    : visit_part(below->base + (address - below->iova),
                                 static_cast<std::size_t>(count));
            if (!is_done)
                return false;
            offset += count;
            bytes -= count;
        }
        return true;
    }

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
    for (const ibv_sge& sge : sges)
        sum += sge.length;
    return sum;
}

}  // namespace tagwire::vhca
