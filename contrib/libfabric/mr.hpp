// SPDX-License-Identifier: BSD-3-Clause
// Registered memory. Its key names it among the regions of its domain (regions.hpp). All of this
// runs with the domain's lock.
#pragma once

#include <rdma/fi_domain.h>
#include <tagwire.h>

#include <cstddef>
#include <cstdint>

#include "fabric.hpp"

namespace tagwire::fi {

class Cntr;

/// Its descriptor (fi_mr_desc()) is the object.
class Mr : public fid_mr {
  public:
    struct Range {
        void* base;
        std::size_t length;
        std::uint64_t access;  ///< FI_x.
    };

    Mr(Domain& parent, const Range& range, void* user_context);
    Mr(const Mr&) = delete;
    Mr& operator=(const Mr&) = delete;
    ~Mr();

    static fi_ops_mr* table();

    /// Where this side has `length` bytes that a peer names by `address`. nullptr: they are not all
    /// inside, or the region does not give all of the rights `access` (FI_REMOTE_READ,
    /// FI_REMOTE_WRITE).
    void* find(std::uint64_t address, std::size_t length, std::uint64_t access) const;
    /// The number that makes an address of this side of what a peer names.
    std::uint64_t origin() const;
    int bind(Cntr& cntr, std::uint64_t flags);
    /// Counts an operation of a peer that does this with the region (FI_REMOTE_READ,
    /// FI_REMOTE_WRITE or both).
    void count(std::uint64_t access) const;
    void release_counters();

    Domain& domain;
    const Range range;
    tw_mem_h mem = nullptr;         ///< nullptr: of no bytes.
    Cntr* remote_reads = nullptr;   ///< Counts operations of peers that read the region.
    Cntr* remote_writes = nullptr;  ///< ... and those that change it, atomics with results too.
};

/// Every transport copies what is shorter, and a message without a handle takes fewer steps.
inline constexpr std::size_t kHandleBytesMin = 1024;

/// The handle to pass for a buffer of `length` bytes.
inline tw_mem_h mem_of(void* desc, std::size_t length) {
    return desc == nullptr || length < kHandleBytesMin ? nullptr : static_cast<Mr*>(desc)->mem;
}

}  // namespace tagwire::fi
