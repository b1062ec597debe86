// SPDX-License-Identifier: BSD-3-Clause
#include "uct/pieces.hpp"

#include "uct/base_iface.hpp"
#include "uct/refuse.hpp"

namespace tagwire::uct {

ucs_status_t move_one_by_one(uct_ep_h ep, const Pieces& pieces, std::size_t* begun_p) {
    const auto move = pieces.is_put ? ep->iface->ops.ep_put_zcopy : ep->iface->ops.ep_get_zcopy;
    for (; *begun_p < pieces.count; ++*begun_p) {
        const tagwire_uct_piece_t& piece = pieces.first[*begun_p];
        const uct_iov_t iov{piece.buffer, piece.length, piece.memh, 0, 1};
        ++pieces.comp->count;
        const ucs_status_t status = move(ep, &iov, 1, piece.remote_addr, piece.rkey, pieces.comp);
        if (status == UCS_INPROGRESS)
            continue;
        --pieces.comp->count;
        if (status == UCS_ERR_NO_RESOURCE && *begun_p > 0)
            return UCS_OK;
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

namespace {

ucs_status_t move(const char* call, uct_ep_h ep, const Pieces& pieces, std::size_t* begun_p) {
    if (has_null(call, {{"ep", ep}, {"begun_p", begun_p}, {"comp", pieces.comp}}))
        return UCS_ERR_INVALID_PARAM;
    if (pieces.count > 0 && has_null(call, {{"pieces", pieces.first}}))
        return UCS_ERR_INVALID_PARAM;
    *begun_p = 0;
    return pieces.count == 0 ? UCS_OK : iface_of(ep->iface).move_pieces(ep, pieces, begun_p);
}

}  // namespace

}  // namespace tagwire::uct

extern "C" {

ucs_status_t tagwire_uct_ep_put_pieces(uct_ep_h ep, const tagwire_uct_piece_t* pieces, size_t count,
                                       size_t* begun_p, uct_completion_t* comp) {
    return tagwire::uct::move(__func__, ep, {true, pieces, count, comp}, begun_p);
}

ucs_status_t tagwire_uct_ep_get_pieces(uct_ep_h ep, const tagwire_uct_piece_t* pieces, size_t count,
                                       size_t* begun_p, uct_completion_t* comp) {
    return tagwire::uct::move(__func__, ep, {false, pieces, count, comp}, begun_p);
}

}  // extern "C"
