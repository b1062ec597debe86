// SPDX-License-Identifier: BSD-3-Clause
// Tells whether memory that registration caches know has stayed mapped. Any thread.
//
// Marks (ucs/sys/mapping_marks.hpp) belong to the process's mappings, so there is one table of them
// per process, which the caches of all contexts and domains share. It divides the memory that is
// registered into pieces:
//
//     begin -> | end | users: regions over it | since: generation in which its mark was set |
//
//  1. Pieces do not overlap. Each has a mark for as long as its memory is not unmapped.
//  2. A mark that is there is never set again, one that is lost is set again in a new generation:
//     so a region of an earlier generation over that piece is known to be stale, whoever marked
//     the piece anew.
//  3. A piece without users has no mark.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/mapping_marks.hpp"

namespace tagwire::proto {

/// Whole pages.
struct PageRange {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t bytes() const { return end - begin; }
    void* address() const;
};

class RegionMarks {
  public:
    /// The table of this process. Null, with *reason: the system has no marks.
    static std::shared_ptr<RegionMarks> of_process(std::string* reason);
    RegionMarks(const RegionMarks&) = delete;
    RegionMarks& operator=(const RegionMarks&) = delete;

    /// Marks the range, until remove(). Returns the generation of what is registered from now on;
    /// 0: some of it is unmapped, or of a kind that takes no mark.
    std::uint64_t add(PageRange range);
    /// `range` was added as it is.
    void remove(PageRange range);
    /// Whether the range, which is inside one that was added, has not been unmapped since then.
    bool has_stayed(PageRange range, std::uint64_t generation);
    /// The number of times that lost marks were set anew.
    std::uint64_t remarks() const {
        return remarks_.load(std::memory_order_acquire);  // SYNC reg_remarks: before the marks
    }
    /// As has_stayed(), without a lock, for what had stayed when remarks() returned `remarks`. Also
    /// false if any other memory was marked anew since.
    bool has_stayed_since(PageRange range, std::uint64_t remarks) const {
        // SYNC reg_remarks: behind the mark, which is set again after the count only.
        return marks_->is_set(range.address(), range.bytes()) &&
               remarks_.load(std::memory_order_acquire) == remarks;
    }

  private:
    struct Piece {
        std::uintptr_t end;
        std::uint32_t users;
        std::uint64_t since;
    };
    using Pieces = ucs::ReserveMap<std::uintptr_t, Piece>;  // by begin

    explicit RegionMarks(std::unique_ptr<ucs::MappingMarks> marks) : marks_(std::move(marks)) {}
    /// The first piece that ends behind `address`.
    Pieces::iterator first_behind(std::uintptr_t address);
    /// A border of pieces is at `address`, if it is inside one.
    void split(std::uintptr_t address);
    bool fill(PageRange range);
    void clear_unused(PageRange range);

    const std::unique_ptr<ucs::MappingMarks> marks_;
    std::atomic<std::uint64_t> remarks_{0};
    alignas(128) std::mutex mutex_;
    Pieces pieces_;
    std::uint64_t generation_ = 1;
};

}  // namespace tagwire::proto
