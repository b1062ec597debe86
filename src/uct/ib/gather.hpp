// SPDX-License-Identifier: BSD-3-Clause
// Conversion of iov lists to verbs gather lists, and the refusals that all operations share.
#pragma once

#include <infiniband/verbs.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

inline constexpr unsigned kSgesMax = 16;

/// As work requests carry it.
inline std::uint64_t address_of(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

/// UCS_ERR_INVALID_PARAM, with a line in the log that names call, value and limit.
ucs_status_t refuse(const char* call, std::size_t value, std::size_t limit);
ucs_status_t refuse_am_id(std::uint8_t id);

struct Gather {
    ibv_sge sges[kSgesMax];
    unsigned count = 0;
    std::size_t bytes = 0;

    void add(const void* address, std::size_t length, std::uint32_t lkey) {
        if (length == 0)
            return;
        sges[count++] = {address_of(address), static_cast<std::uint32_t>(length), lkey};
        bytes += length;
    }
    /// Adds a list: with those that are here at most `pieces_max` pieces and `bytes_max` bytes.
    /// UCS_ERR_INVALID_PARAM (logged): more, or memory without a handle.
    ucs_status_t add(const char* call, const uct_iov_t* iov, std::size_t iovcnt,
                     unsigned pieces_max, std::size_t bytes_max);
    /// Takes the first byte out of the list behind sges[0], which is the caller's: into `to`.
    /// Returns 1.
    std::size_t cut_first(std::byte& to);
};

/// The bytes of a list, copied one behind the other.
std::size_t gather_copy(void* to, const uct_iov_t* iov, std::size_t iovcnt);
std::size_t gather_bytes(const uct_iov_t* iov, std::size_t iovcnt);

}  // namespace tagwire::ib
