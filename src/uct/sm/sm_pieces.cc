// SPDX-License-Identifier: BSD-3-Clause
// Many puts or gets in one call. Pieces go on as the first of those that are left does:
//
//   in the peer's arena, or of this process   loads and stores, one batch behind one look at the
//                                             key; a writer says once for a batch that it writes
//   registered, readable                      one system call for many pieces, of many keys
//   registered, not readable                  one by one, by messages
#include <algorithm>
#include <array>
#include <cstring>

#include "ucs/memory/copy.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/sys/process_proof.hpp"
#include "uct/pieces.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"
#include "uct/sm/sm_target.hpp"

namespace tagwire::sm {

namespace {

/// Bytes that are copied behind one look at a key: its owner waits for a batch when the key ends.
constexpr std::size_t kDirectBatchBytes = std::size_t{256} << 10;
/// Bytes of one system call, but for one piece that is longer.
constexpr std::size_t kProcessBatchBytes = std::size_t{4} << 20;

}  // namespace

/// Copies pieces of the first one's key, which loads and stores reach.
ucs_status_t SmEp::copy_direct(const uct::Pieces& pieces, std::size_t* begun_p) {
    const uct_rkey_t rkey = pieces.first[*begun_p].rkey;
    std::size_t bytes = 0, copied = 0;
    Target target;
    // The owner of the memory waits for this: one that is wrong is told of behind it, as the first
    // of the next batch.
    const auto copy_some = [&] {
        for (; *begun_p + copied < pieces.count && bytes < kDirectBatchBytes; ++copied) {
            const tagwire_uct_piece_t& piece = pieces.first[*begun_p + copied];
            if (piece.rkey != rkey)
                return;
            if (find_target(rkey, piece.remote_addr, piece.length, &target) != UCS_OK ||
                target.direct == nullptr)
                return;
            const ucs::CopyKind kind = ucs::plain_kind_for(piece.length);
            if (pieces.is_put)
                ucs::copy(kind, target.direct, piece.buffer, piece.length);
            else
                ucs::copy(kind, piece.buffer, target.direct, piece.length);
            bytes += piece.length;
        }
    };
    const tagwire_uct_piece_t& first = pieces.first[*begun_p];
    ucs_status_t status = resolve(rkey, first.remote_addr, first.length, &target);
    if (status != UCS_OK)
        return status;
    const Target key = target;
    status = pieces.is_put ? key.write(link(), copy_some) : key.read(copy_some);
    if (status != UCS_OK)
        return status;
    *begun_p += copied;
    link().iface.count(SmCounter::kDirectBytes, bytes);
    return UCS_OK;
}

/// Copies pieces by one system call. UCS_ERR_REJECTED: it is not permitted any more.
ucs_status_t SmEp::copy_in_process(const uct::Pieces& pieces, std::size_t* begun_p) {
    constexpr std::size_t kPiecesMax = ucs::kProvedRangesMax;
    std::array<iovec, kPiecesMax + 1> here, there;
    std::array<const SmRemoteKey*, kPiecesMax> keys;
    std::array<KeyGuard, kPiecesMax> guards;
    std::size_t count = 0, key_count = 0, bytes = 0;
    ucs_status_t wrong = UCS_OK;
    for (; count < kPiecesMax && *begun_p + count < pieces.count; ++count) {
        const tagwire_uct_piece_t& piece = pieces.first[*begun_p + count];
        if (count > 0 && bytes + piece.length > kProcessBatchBytes)
            break;
        Target target;
        wrong = resolve(piece.rkey, piece.remote_addr, piece.length, &target);
        if (wrong != UCS_OK || target.direct != nullptr)
            break;
        if (key_count == 0 || keys[key_count - 1] != target.key) {
            keys[key_count] = target.key;
            guards[key_count++] = target.guard;
        }
        here[count] = {piece.buffer, piece.length};
        there[count] = {reinterpret_cast<void*>(piece.remote_addr), piece.length};
        bytes += piece.length;
    }
    if (count == 0)
        return wrong;
    const auto all_good = [&] {
        for (std::size_t i = 0; i < key_count; ++i)
            if (!guards[i].is_good())
                return refuse_ended_key(*keys[i]);
        return UCS_OK;
    };
    const Link& l = link();
    ucs_status_t status = UCS_OK;
    if (pieces.is_put) {
        status = ucs::process_prove(l.peer.pid, l.proof);
        if (status == UCS_OK) {
            const Writing writing(l.writer);
            status = all_good();
            if (status == UCS_OK)
                status = ucs::process_write_ranges(l.peer.pid, here.data(), count, there.data(),
                                                   count, bytes);
        }
    } else {
        status = all_good();
        if (status == UCS_OK)
            status = ucs::process_read_ranges_proved(l.peer.pid, l.proof, here.data(), count,
                                                     there.data(), count, bytes);
        for (std::size_t i = 0; i < key_count && status == UCS_OK; ++i)
            status = guards[i].status();
    }
    if (status != UCS_OK)
        return status;
    *begun_p += count;
    link().iface.count(SmCounter::kProcessVmBytes, bytes);
    return wrong;
}

ucs_status_t SmEp::move_pieces(uct_ep_h handle, const uct::Pieces& pieces, std::size_t* begun_p) {
    SmEp& ep = *static_cast<SmEp*>(handle);
    while (*begun_p < pieces.count) {
        const tagwire_uct_piece_t& next = pieces.first[*begun_p];
        Target target;
        ucs_status_t status = ep.resolve(next.rkey, next.remote_addr, next.length, &target);
        if (status == UCS_OK) {
            const bool in_process = ep.link().copy_path == CopyPath::kProcessVm;
            status = target.direct != nullptr ? ep.copy_direct(pieces, begun_p)
                     : in_process             ? ep.copy_in_process(pieces, begun_p)
                                              : UCS_ERR_REJECTED;
        }
        if (status == UCS_ERR_REJECTED) {
            // zcopy() of each finds the way that is left, and says why.
            const uct::Pieces one{pieces.is_put, &next, 1, pieces.comp};
            std::size_t begun = 0;
            status = uct::move_one_by_one(handle, one, &begun);
            *begun_p += begun;
        }
        if (status == UCS_ERR_NO_RESOURCE && *begun_p > 0)
            return UCS_OK;
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

}  // namespace tagwire::sm
