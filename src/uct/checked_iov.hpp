// SPDX-License-Identifier: BSD-3-Clause
// Copies between a buffer and what an iov describes that fail where its memory cannot be reached.
#pragma once

#include <sys/uio.h>

#include <cstddef>

#include "ucs/sys/checked_copy.hpp"
#include "uct/iov.hpp"

namespace tagwire::uct {

namespace detail {

/// Calls `copy(piece, at)` for each piece of the next `bytes` bytes. False: one failed, or there
/// are fewer.
template <class Copy>
bool for_pieces(IovCursor& cursor, std::size_t bytes, const Copy& copy) {
    iovec piece{};
    std::size_t count = 0;
    for (std::size_t at = 0, taken = 0; at < bytes; at += taken) {
        taken = cursor.pieces(&piece, 1, bytes - at, &count);
        if (taken == 0 || copy(piece, at) != UCS_OK)
            return false;
    }
    return true;
}

}  // namespace detail

/// As IovCursor::gather().
inline bool gather_checked(IovCursor& cursor, std::byte* to, std::size_t bytes) {
    return detail::for_pieces(cursor, bytes, [to](const iovec& piece, std::size_t at) {
        return ucs::read_checked(to + at, piece.iov_base, piece.iov_len);
    });
}

/// As IovCursor::scatter().
inline bool scatter_checked(IovCursor& cursor, const std::byte* from, std::size_t bytes) {
    return detail::for_pieces(cursor, bytes, [from](const iovec& piece, std::size_t at) {
        return ucs::write_checked(piece.iov_base, from + at, piece.iov_len);
    });
}

}  // namespace tagwire::uct
