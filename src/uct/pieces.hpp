// SPDX-License-Identifier: BSD-3-Clause
// Many puts or gets in one call (tagwire_uct_ep_put_pieces()): the function of an interface that
// does this cheaper than one by one.
//
// Threads: the owner of the interface.
#pragma once

#include <uct/api/tagwire_uct.h>

#include <cstddef>

namespace tagwire::uct {

/// Pieces of one call.
struct Pieces {
    bool is_put;
    const tagwire_uct_piece_t* first;
    std::size_t count;
    uct_completion_t* comp;
};

/// As tagwire_uct_ep_put_pieces(). *begun_p is 0 before.
using MovePieces = ucs_status_t (*)(uct_ep_h ep, const Pieces& pieces, std::size_t* begun_p);

/// One by one, by the operations table: for interfaces that have nothing better.
ucs_status_t move_one_by_one(uct_ep_h ep, const Pieces& pieces, std::size_t* begun_p);

}  // namespace tagwire::uct
