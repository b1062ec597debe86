// SPDX-License-Identifier: BSD-3-Clause
// Walks over the bytes that an array of uct_iov_t describes, in order, `count` elements of `length`
// bytes each `stride` apart.
#pragma once

#include <sys/uio.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ucs/memory/copy.hpp"
#include "ucs/memory/copy_short.hpp"

namespace tagwire::uct {

constexpr std::size_t kIovMax = 16;

inline std::size_t iov_bytes(const uct_iov_t* iov, std::size_t count) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i)
        bytes += iov[i].length * iov[i].count;
    return bytes;
}

using ucs::copy_short;

class IovCursor {
  public:
    IovCursor() = default;
    /// `iov` stays the caller's and must outlive the cursor.
    IovCursor(const uct_iov_t* iov, std::size_t count) : iov_(iov), count_(count) { settle(); }

    /// Copies the next `bytes` bytes to `to`, or fewer when the end comes first. Returns how many.
    std::size_t gather(void* to, std::size_t bytes) {
        return walk(bytes, [&](std::byte* piece, std::size_t n, std::size_t done) {
            ucs::copy_plain(static_cast<std::byte*>(to) + done, piece, n);
        });
    }
    std::size_t scatter(const void* from, std::size_t bytes) {
        return walk(bytes, [&](std::byte* piece, std::size_t n, std::size_t done) {
            ucs::copy_plain(piece, static_cast<const std::byte*>(from) + done, n);
        });
    }
    std::size_t skip(std::size_t bytes) {
        return walk(bytes, [](std::byte*, std::size_t, std::size_t) {});
    }
    /// Describes the next at most `bytes` bytes by at most `max` pieces; returns the bytes,
    /// *count_p the pieces.
    std::size_t pieces(iovec* out, std::size_t max, std::size_t bytes, std::size_t* count_p) {
        std::size_t filled = 0, total = 0;
        while (filled < max && total < bytes && element_ < count_) {
            total += walk(std::min(bytes - total, left_in_piece()),
                          [&](std::byte* piece, std::size_t n, std::size_t) {
                              out[filled++] = iovec{piece, n};
                          });
        }
        *count_p = filled;
        return total;
    }

  private:
    [[nodiscard]] std::size_t left_in_piece() const { return iov_[element_].length - offset_; }

    void settle() {
        while (element_ < count_ &&
               (iov_[element_].length == offset_ || repeat_ == iov_[element_].count)) {
            offset_ = 0;
            if (iov_[element_].length == 0 || repeat_ == iov_[element_].count ||
                ++repeat_ == iov_[element_].count) {
                repeat_ = 0;
                ++element_;
            }
        }
    }

    template <class Visit>
    std::size_t walk(std::size_t bytes, Visit&& visit) {
        std::size_t done = 0;
        while (done < bytes && element_ < count_) {
            const uct_iov_t& e = iov_[element_];
            const std::size_t n = std::min(bytes - done, left_in_piece());
            visit(static_cast<std::byte*>(e.buffer) + repeat_ * e.stride + offset_, n, done);
            done += n;
            offset_ += n;
            settle();
        }
        return done;
    }

    const uct_iov_t* iov_ = nullptr;
    std::size_t count_ = 0;
    std::size_t element_ = 0;  // which uct_iov_t
    std::size_t repeat_ = 0;   // which of its `count` pieces
    std::size_t offset_ = 0;   // in that piece
};

/// Where the first of the bytes is; null when there is none.
inline std::byte* first_piece(const uct_iov_t* iov, std::size_t count) {
    iovec piece{};
    std::size_t pieces = 0;
    IovCursor(iov, count).pieces(&piece, 1, 1, &pieces);
    return static_cast<std::byte*>(piece.iov_base);
}

/// An iov array that outlives the call that brought it.
struct IovCopy {
    uct_iov_t iov[kIovMax];
    std::size_t count = 0;

    void assign(const uct_iov_t* from, std::size_t n) {
        std::copy_n(from, n, iov);
        count = n;
    }
    [[nodiscard]] IovCursor cursor() const { return IovCursor(iov, count); }
};

}  // namespace tagwire::uct
