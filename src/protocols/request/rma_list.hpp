// SPDX-License-Identifier: BSD-3-Clause
// The pieces of a list (tw_list.h) as operations walk them: arrays of the program, or those of a
// prepared list.
//
// Threads: any reads a list that was checked; a cursor belongs to one.
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_list.h"
#include "ucs/memory/reserve.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_prepared {};

namespace tagwire::proto {

class Prepared;
struct Domain;

/// A list that was checked.
struct RmaList {
    const tw_piece_t* pieces = nullptr;
    std::size_t piece_count = 0;
    const tw_stride_t* strides = nullptr;
    std::size_t stride_count = 0;
    std::size_t bytes = 0;         // of all pieces
    std::uint64_t use = 0;         // of its keys (RemoteKey::use)
    bool has_all_handles = true;   // each piece with bytes has `mem`
    Prepared* prepared = nullptr;  // whose arrays these are; null: the program's

    bool is_empty() const { return piece_count == 0 && stride_count == 0; }
    /// The first piece's; not is_empty().
    tw_key_h first_key() const { return piece_count > 0 ? pieces->key : strides->key; }
    std::uint64_t first_address() const {
        return piece_count > 0 ? pieces->remote : strides->remote;
    }
    /// Calls `visit(key)` for the key of each piece or stride with bytes, once for those in a row
    /// that have the same, while it returns true. False: a call did not.
    template <class Visit>
    bool for_keys(const Visit& visit) const {
        tw_key_h last = nullptr;
        const auto look = [&](tw_key_h key, std::size_t length) {
            if (key == last || length == 0)
                return true;
            last = key;
            return visit(key);
        };
        for (std::size_t i = 0; i < piece_count; ++i)
            if (!look(pieces[i].key, pieces[i].length))
                return false;
        for (std::size_t i = 0; i < stride_count; ++i)
            if (!look(strides[i].key, std::min(strides[i].length, strides[i].count)))
                return false;
        return true;
    }
};

/// There is a key of that domain of the owner, for a lane over `own`; it is made if it was not
/// there. (rma/prepared.cc)
bool has_lane_key(tw_key_h key, std::uint8_t peer_domain, const Domain& own);
/// The lane's key, which has_lane_key() has found. (rma/prepared.cc)
uct_rkey_t lane_key_of(tw_key_h key, std::uint8_t peer_domain);

/// A part of a piece.
struct ListPart {
    std::byte* local;
    std::uint64_t remote;
    std::size_t length;
    tw_key_h key;
    tw_mem_h mem;
};

/// A place in a list, behind a number of its bytes.
class ListCursor {
  public:
    /// The rest of the piece here, at most `most` bytes (not 0), which the cursor passes. False:
    /// the list ends here.
    bool take(const RmaList& list, std::size_t most, ListPart* part_p) {
        while (entry_ < list.piece_count) {
            const tw_piece_t& piece = list.pieces[entry_];
            if (offset_ < piece.length) [[likely]] {
                *part_p = {static_cast<std::byte*>(piece.local) + offset_, piece.remote + offset_,
                           std::min(most, piece.length - offset_), piece.key, piece.mem};
                offset_ += part_p->length;
                if (offset_ == piece.length)
                    next_entry();
                return true;
            }
            next_entry();
        }
        return take_of_stride(list, most, part_p);
    }
    /// Passes bytes, of which there are as many.
    void skip(const RmaList& list, std::size_t bytes) {
        ListPart part{};
        while (bytes > 0 && take(list, bytes, &part))
            bytes -= part.length;
    }

  private:
    void next_entry() {
        ++entry_;
        offset_ = index_ = 0;
    }
    bool take_of_stride(const RmaList& list, std::size_t most, ListPart* part_p) {
        for (; entry_ - list.piece_count < list.stride_count; next_entry()) {
            const tw_stride_t& stride = list.strides[entry_ - list.piece_count];
            if (stride.length == 0 || index_ == stride.count)
                continue;
            // Unsigned: distances may be negative.
            const std::size_t local = index_ * static_cast<std::size_t>(stride.local_distance);
            const std::uint64_t remote =
                index_ * static_cast<std::uint64_t>(stride.remote_distance);
            *part_p = {
                static_cast<std::byte*>(stride.local) + static_cast<ptrdiff_t>(local) + offset_,
                stride.remote + remote + offset_, std::min(most, stride.length - offset_),
                stride.key, stride.mem};
            offset_ += part_p->length;
            if (offset_ == stride.length) {
                offset_ = 0;
                ++index_;
            }
            return true;
        }
        return false;
    }

    std::size_t entry_ = 0;   // pieces, then strides
    std::size_t index_ = 0;   // of a piece in its stride
    std::size_t offset_ = 0;  // in that piece
};

/// A list that the program uses again. Its arrays and its keys are held until the last operation
/// has ended.
class Prepared : public tw_prepared, public ucs::FromReserve {
  public:
    /// Copies the arrays of `of`, and holds the keys. May throw for want of memory.
    Prepared(const RmaList& of, tw_rma_kind_t kind);
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;

    const RmaList& list() const { return list_; }
    const tw_rma_kind_t kind;

    void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }  // Relaxed: a count
    void let_go() {
        // SYNC prepared_holders: a holder's use comes before the end, in whichever thread.
        if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

  private:
    ~Prepared();

    ucs::ReserveVector<tw_piece_t> pieces_;
    ucs::ReserveVector<tw_stride_t> strides_;
    RmaList list_;
    std::atomic<std::uint32_t> holders_{1};
};

}  // namespace tagwire::proto
