// SPDX-License-Identifier: BSD-3-Clause
// Parts of a transfer that are pieces of a list: many begin by one call of the transport.
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <array>

#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/transfer/transfer.hpp"

namespace tagwire::proto {

namespace {

/// Pieces of one call, and their bytes, but for a piece that is longer.
constexpr std::size_t kListPieces = 256;
constexpr std::size_t kListBytes = kPiecesOut * kPieceBytes;

}  // namespace

bool TransferPart::begin_list(uct_ep_h ep, const Rail& rail) {
    const RmaList& list = *transfer->list;
    const auto& cap = rail.attr().cap;
    const std::size_t most =
        std::min(transfer->is_put ? cap.put.max_zcopy : cap.get.max_zcopy, kPieceBytes);
    done.status = UCS_OK;
    done.count = 1;  // ours, until release()
    if (lane == nullptr && transfer->request->wants_cancel) {
        uct_completion_update_status(&done, UCS_ERR_CANCELED);
        return true;
    }
    std::array<tagwire_uct_piece_t, kListPieces> pieces;
    ListCursor behind = cursor;
    tw_key_h last = nullptr;
    uct_rkey_t rkey = UCT_INVALID_RKEY;
    std::size_t count = 0;
    std::uint64_t at = next;
    while (count < kListPieces && at < end && at - next < kListBytes) {
        ListPart piece{};
        if (!behind.take(list, std::min<std::uint64_t>(most, end - at), &piece))
            break;
        if (piece.key != last) {
            last = piece.key;
            rkey = lane_key_of(last, peer_domain);
        }
        const uct_mem_h handle =
            piece.mem == nullptr ? UCT_MEM_HANDLE_NULL : memory_of(piece.mem).handle(domain);
        pieces[count++] = {piece.local, piece.length, piece.remote, handle, rkey};
        at += piece.length;
    }
    const auto move = transfer->is_put ? tagwire_uct_ep_put_pieces : tagwire_uct_ep_get_pieces;
    std::size_t begun = 0;
    const ucs_status_t status =
        count == 0 ? UCS_ERR_IO_ERROR : move(ep, pieces.data(), count, &begun, &done);
    if (status == UCS_ERR_NO_RESOURCE && begun == 0) {
        done.count = 0;
        return false;
    }
    if (begun == count) {
        cursor = behind;
        next = at;
    } else {
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < begun; ++i)
            bytes += pieces[i].length;
        cursor.skip(list, bytes);
        next += bytes;
    }
    if (status < 0 && status != UCS_ERR_NO_RESOURCE)
        uct_completion_update_status(&done, status);
    return true;
}

}  // namespace tagwire::proto
