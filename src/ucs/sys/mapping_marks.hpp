// SPDX-License-Identifier: BSD-3-Clause
// Marks on mappings of this process, which tell whether memory has been unmapped since. Any thread.
//
// A mark is a registration with a userfaultfd that asks for no fault and no event, so that nothing
// ever waits for it. It belongs to the mapping: memory unmapped, moved or mapped anew has none.
// Looking for it costs one system call (PAGEMAP_SCAN, Linux 6.7), whatever the length. Not noticed:
// pages that are discarded within their mapping (madvise).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ucs/sys/fd.hpp"

namespace tagwire::ucs {

class MappingMarks {
  public:
    /// Null, with *reason: this system does not allow it.
    static std::unique_ptr<MappingMarks> open(std::string* reason);

    /// Ranges are whole pages. False: memory of this kind takes no mark, or part of it is unmapped.
    bool set(const void* address, std::size_t bytes);
    /// False: some of it was unmapped since set(), whether there is something else now or not yet.
    /// Memory that is unmapped during the call and not mapped again may pass as unchanged.
    [[nodiscard]] bool is_set(const void* address, std::size_t bytes) const;
    void clear(const void* address, std::size_t bytes);

  private:
    MappingMarks(UniqueFd faults, UniqueFd pages)
        : faults_(std::move(faults)), pages_(std::move(pages)) {}

    UniqueFd faults_;
    UniqueFd pages_;
};

}  // namespace tagwire::ucs
