// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/rma/rma_ops.hpp"

#include <new>
#include <utility>

#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_sender.hpp"

namespace tagwire::proto {

ucs_status_t RmaOps::open() {
    ucs_status_t status =
        ops_.init({.name = "one-sided operations", .element_bytes = sizeof(RmaOp)});
    if (status == UCS_OK)
        status =
            lists_.init({.name = "lists of one-sided operations", .element_bytes = sizeof(ListOp)});
    if (status != UCS_OK)
        return status;
    return pieces_.init(
        {.name = "pieces of one-sided operations", .element_bytes = sizeof(RmaPiece)});
}

bool RmaOps::add(Request& request, const RmaWish& wish) {
    void* memory = ops_.get();
    if (memory == nullptr)
        return false;
    request.rma = ::new (memory) RmaOp(wish);
    if (wish.key != nullptr)
        wish.key->hold();
    return true;
}

bool RmaOps::add_list(Request& request, const RmaList& list) {
    void* memory = lists_.get();
    if (memory == nullptr)
        return false;
    request.rma->list = ::new (memory) ListOp(list);
    if (list.prepared != nullptr)
        list.prepared->hold();
    return true;
}

void RmaOps::end(Request& request) {
    RmaOp* const op = std::exchange(request.rma, nullptr);
    while (RmaPiece* piece = op->pieces.pop_front())
        piece->request = nullptr;
    // Without an endpoint it has outlived that.
    if (op->owes_notice != nullptr && request.ep != nullptr)
        op->owes_notice->notice_is_off();
    if (op->kind == RmaKind::kKeys)
        op->key->question_ended();
    if (ListOp* const list = op->list) {
        if (list->list.prepared != nullptr)
            list->list.prepared->let_go();
        lists_.put(list);
    }
    if (op->key != nullptr)
        op->key->let_go();
    op->~RmaOp();
    ops_.put(op);
}

RmaPiece* RmaOps::make_piece(Request& request, RmaSender& sender) {
    void* memory = pieces_.get();
    if (memory == nullptr)
        return nullptr;
    auto* piece = ::new (memory) RmaPiece;
    piece->func = ended;
    piece->count = 1;
    piece->status = UCS_OK;
    piece->ops = this;
    piece->sender = &sender;
    piece->request = &request;
    request.rma->pieces.push_back(*piece);
    return piece;
}

void RmaOps::release_piece(RmaPiece& piece) {
    piece.request->rma->pieces.erase(piece);
    pieces_.put(&piece);
}

void RmaOps::ended(uct_completion_t* self) {
    auto& piece = *static_cast<RmaPiece*>(self);
    RmaOps& own = *piece.ops;
    RmaSender* const sender = piece.sender;
    Request* const request = piece.request;
    if (request == nullptr)
        return own.pieces_.put(&piece);
    const ucs_status_t status = piece.status;
    const std::uint64_t value = piece.value;
    own.release_piece(piece);
    sender->piece_ended(*request, status, value);
}

}  // namespace tagwire::proto
