// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cstring>

#include "uct/ib/dc/dc_pool.hpp"

namespace tagwire::dc {

SentRing::SentRing(std::uint32_t depth)
    : mask_(std::bit_ceil(depth) - 1), requests_(std::bit_ceil(depth)) {}

void SentRing::keep(std::uint32_t sn, DcEp& ep, const ibv_send_wr& request) {
    SentRequest& kept = at(sn);
    kept.ep = &ep;
    kept.request = request;
    kept.request.next = nullptr;
    const auto count = static_cast<std::size_t>(request.num_sge);
    if ((request.send_flags & IBV_SEND_INLINE) == 0) {
        std::copy_n(request.sg_list, count, kept.pieces);
    } else {
        std::uint32_t bytes = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const ibv_sge& piece = request.sg_list[i];
            // NOLINTNEXTLINE: as verbs has it
            const void* from = reinterpret_cast<const void*>(piece.addr);
            std::memcpy(kept.data + bytes, from, piece.length);
            bytes += piece.length;
        }
        kept.pieces[0] = {ib::address_of(kept.data), bytes, 0};
        kept.request.num_sge = 1;
    }
    kept.request.sg_list = kept.pieces;
}

void SentRing::move(std::uint32_t from, std::uint32_t to) {
    SentRequest& kept = at(to);
    if (&kept == &at(from))
        return;
    kept = at(from);
    kept.request.sg_list = kept.pieces;
    if ((kept.request.send_flags & IBV_SEND_INLINE) != 0)
        kept.pieces[0].addr = ib::address_of(kept.data);
}

}  // namespace tagwire::dc
