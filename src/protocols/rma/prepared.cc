// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/rma_list.hpp"
#include "protocols/rma/remote_key.hpp"

namespace tagwire::proto {

bool has_lane_key(tw_key_h key, std::uint8_t peer_domain, const Domain& own) {
    return key_of(key).found(peer_domain) != nullptr ||
           key_of(key).resolve(peer_domain, own) != nullptr;
}

uct_rkey_t lane_key_of(tw_key_h key, std::uint8_t peer_domain) {
    return key_of(key).found(peer_domain)->bundle.rkey;
}

Prepared::Prepared(const RmaList& of, tw_rma_kind_t of_kind)
    : kind(of_kind),
      pieces_(of.pieces, of.pieces + of.piece_count),
      strides_(of.strides, of.strides + of.stride_count),
      list_(of) {
    list_.pieces = pieces_.data();
    list_.strides = strides_.data();
    list_.prepared = this;
    for (const tw_piece_t& piece : pieces_)
        key_of(piece.key).hold();
    for (const tw_stride_t& stride : strides_)
        key_of(stride.key).hold();
}

// SYNC prepared_holders: let_go() has seen the last holder go.
Prepared::~Prepared() {
    for (const tw_piece_t& piece : pieces_)
        key_of(piece.key).let_go();
    for (const tw_stride_t& stride : strides_)
        key_of(stride.key).let_go();
}

}  // namespace tagwire::proto
