// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "vhca/core/guarded.hpp"

namespace tagwire::vhca {

constinit thread_local FaultLanding* fault_landing = nullptr;

namespace {

constexpr std::uint32_t kMrsMax = (1 << 24) - 2 * NumberTable<Mr>::kQuarantine;
constexpr unsigned kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | kRemoteChanges |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                                  unsigned{IBV_ACCESS_OPTIONAL_RANGE};

int check_access(unsigned access) {
    if ((access & IBV_ACCESS_ON_DEMAND) != 0)
        return EOPNOTSUPP;
    const bool changes_unwritable =
        (access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0;
    return (access & ~kKnownAccess) != 0 || changes_unwritable ? EINVAL : 0;
}

int check_range(std::uint64_t first, std::uint64_t length) {
    return length == 0 || first > UINT64_MAX - length ? EINVAL : 0;
}

/// Calls visit(sge, address, bytes) for each piece of [offset, offset + bytes) of the list; stops
/// when that returns false, which is then the result.
template <typename F>
bool for_each_piece(std::span<const ibv_sge> sges, std::uint64_t offset, std::size_t bytes,
                    F&& visit) {
    for (const ibv_sge& sge : sges) {
        if (bytes == 0)
            break;
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const auto piece = static_cast<std::size_t>(
            std::min<std::uint64_t>(bytes, std::uint64_t{sge.length} - offset));
        if (!visit(sge, sge.addr + offset, piece))
            return false;
        bytes -= piece;
        offset = 0;
    }
    return bytes == 0;
}

}  // namespace

void MemoryTable::assign_key(Mr& mr) {
    mr.key = (mrs_.add(&mr) << 8) | variant_++;
    mr.is_invalidated = false;
}

MemoryTable::~MemoryTable() {
    mrs_.for_each([](Mr& mr) { delete &mr; });
}

int MemoryTable::create(Pd& pd, void* base, std::uint64_t length, std::uint64_t iova,
                        unsigned access, Mr** mr_p) {
    if (check_range(reinterpret_cast<std::uint64_t>(base), length) != 0)
        return EINVAL;
    Mr* mr = nullptr;
    if (const int error = add(pd, length, iova, access, &mr))
        return error;
    mr->base = static_cast<std::byte*>(base);
    *mr_p = mr;
    return 0;
}

int MemoryTable::create_indirect(Pd& pd, std::uint64_t length, std::uint64_t iova, unsigned access,
                                 std::vector<MrPiece> pieces, Mr** mr_p) {
    std::uint64_t first = 0;
    for (MrPiece& piece : pieces) {
        if (check_range(piece.address, piece.bytes) != 0 || piece.bytes > UINT64_MAX - first)
            return EINVAL;
        piece.first = first;
        first += piece.bytes;
    }
    if (first < length)
        return EINVAL;
    Mr* mr = nullptr;
    if (const int error = add(pd, length, iova, access, &mr))
        return error;
    mr->is_indirect = true;
    mr->pieces = std::move(pieces);
    *mr_p = mr;
    return 0;
}

const MrPiece& MemoryTable::piece_at(const Mr& mr, std::uint64_t offset) {
    const auto is_behind = [](std::uint64_t at, const MrPiece& piece) { return at < piece.first; };
    return *std::prev(std::upper_bound(mr.pieces.begin(), mr.pieces.end(), offset, is_behind));
}

int MemoryTable::add(Pd& pd, std::uint64_t length, std::uint64_t iova, unsigned access, Mr** mr_p) {
    if (const int error = check_access(access); error != 0)
        return error;
    if (check_range(iova, length) != 0)
        return EINVAL;
    if (mrs_.used() >= kMrsMax)
        return ENOMEM;
    auto mr = std::make_unique<Mr>();
    mr->pd = &pd;
    mr->iova = iova;
    mr->length = length;
    mr->access = access;
    assign_key(*mr);
    ++pd.users;
    *mr_p = mr.release();
    return 0;
}

int MemoryTable::change(Mr& mr, int flags, Pd* pd, void* base, std::uint64_t length,
                        unsigned access) {
    const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    constexpr int kKnownFlags =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    if (flags == 0 || (flags & ~kKnownFlags) != 0 || (changes_pd && pd == nullptr))
        return EINVAL;
    if (const int error = changes_access ? check_access(access) : 0; error != 0)
        return error;
    if (moves && check_range(reinterpret_cast<std::uint64_t>(base), length) != 0)
        return EINVAL;
    if (moves) {
        mr.base = static_cast<std::byte*>(base);
        mr.iova = reinterpret_cast<std::uint64_t>(base);
        mr.length = length;
    }
    if (changes_pd) {
        --mr.pd->users;
        mr.pd = pd;
        ++pd->users;
    }
    if (changes_access)
        mr.access = access;
    if (moves || mr.is_invalidated) {
        mrs_.remove(mr.key >> 8);
        assign_key(mr);
    }
    return 0;
}

void MemoryTable::destroy(Mr& mr) {
    mrs_.remove(mr.key >> 8);
    --mr.pd->users;
    delete &mr;
}

bool MemoryTable::invalidate(std::uint32_t key, const Pd* pd) {
    Mr* mr = mrs_.find(key >> 8);
    if (mr == nullptr || mr->key != key || mr->is_invalidated || mr->pd != pd)
        return false;
    mr->is_invalidated = true;
    return true;
}

bool MemoryTable::gather(std::span<const ibv_sge> sges, const Pd* pd, std::uint64_t offset,
                         std::byte* to, std::size_t bytes) const {
    const auto copy = [&](const std::byte* from, std::size_t count) {
        if (!copy_from_region(to, from, count))
            return false;
        to += count;
        return true;
    };
    return for_each_piece(sges, offset, bytes,
                          [&](const ibv_sge& sge, std::uint64_t address, std::size_t piece) {
                              return visit(sge.lkey, pd, address, piece, 0, copy);
                          });
}

bool MemoryTable::scatter(std::span<const ibv_sge> sges, const Pd* pd, std::uint64_t offset,
                          const std::byte* from, std::size_t bytes) const {
    const auto copy = [&](std::byte* to, std::size_t count) {
        if (!copy_into_region(to, from, count))
            return false;
        from += count;
        return true;
    };
    return for_each_piece(
        sges, offset, bytes, [&](const ibv_sge& sge, std::uint64_t address, std::size_t piece) {
            return visit(sge.lkey, pd, address, piece, IBV_ACCESS_LOCAL_WRITE, copy);
        });
}

bool MemoryTable::opens(std::span<const ibv_sge> sges, const Pd* pd, unsigned access) const {
    return std::all_of(sges.begin(), sges.end(), [&](const ibv_sge& sge) {
        return sge.length == 0 || opens(sge.lkey, pd, sge.addr, sge.length, access);
    });
}

bool copy_from_region(std::byte* to, const std::byte* from, std::size_t bytes) {
    return guarded([&] { std::memcpy(to, from, bytes); });
}

bool copy_into_region(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes == 0)
        return true;
    return guarded([&] {
        std::memcpy(to, from, bytes - 1);
        // SYNC last_byte: pairs with the program that polls on memory. All bytes before are visible
        // to who sees this one.
        std::atomic_ref(to[bytes - 1]).store(from[bytes - 1], std::memory_order_release);
    });
}

}  // namespace tagwire::vhca
