// SPDX-License-Identifier: BSD-3-Clause
// Reading and writing in pieces, as many at a time as TAGWIRE_RNDV_FRAGMENTS says.
#include "protocols/rndv_transfer.hpp"

#include <algorithm>

#include "protocols/endpoint.hpp"
#include "protocols/rail.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

namespace {

/// So many of Endpoint::kStepsMax it takes to begin some of them, which may move them, too.
constexpr unsigned kStepsOfTransfer = 8;

void pieces_done(uct_completion_t* self) {
    RndvTransfer* transfer = static_cast<OwnedBy<uct_completion_t, RndvTransfer>*>(self)->owner;
    if (transfer->request == nullptr || transfer->ending != UCS_OK) {
        transfer->idle();
    } else {
        Endpoint& ep = *transfer->request->ep;
        // The end of the lane cancels its pieces; the receive ends as the endpoint has.
        const bool has_failed = self->status != UCS_OK && ep.failure() != UCS_OK;
        ep.pieces_ended(*transfer->request, has_failed ? ep.failure() : self->status);
    }
}

}  // namespace

RndvTransfer::RndvTransfer() = default;

RndvTransfer::~RndvTransfer() {
    if (cached != nullptr)
        cache->release(*cached, true);
    if (component != nullptr)
        uct_rkey_release(component, &key);
}

bool RndvTransfer::is_busy() const {
    return done.count > 0 ||
           std::ranges::any_of(parts, [](const auto& part) { return part->done.count > 0; });
}

void RndvTransfer::idle() {
    if (is_busy())
        return;
    if (request == nullptr)
        delete this;
    else
        request->worker->end_late(*request, ending);
}

bool RndvTransfer::has_lost() const {
    return std::ranges::any_of(parts, [](const auto& part) { return part->is_lost; });
}

void end_transfer(Request& request) {
    if (request.transfer == nullptr)
        return;
    RndvTransfer* transfer = std::exchange(request.transfer, nullptr);
    for (const auto& part : transfer->parts) {
        if (part->is_waiting)
            part->lane->waiting.remove_if([&](StripePart& other) { return &other == part.get(); });
        part->is_waiting = false;
    }
    if (transfer->is_busy())
        transfer->request = nullptr;
    else
        delete transfer;
}

void Endpoint::queue_transfer(Request& request) {
    request.is_queued = true;
    data_.push_back(request);
    drain_and_arm();
}

void Endpoint::pieces_ended(Request& request, ucs_status_t status) {
    const RndvTransfer& transfer = *request.transfer;
    if (status == UCS_OK && request.offset < transfer.end)
        return queue_transfer(request);
    if (!transfer.parts.empty())
        return lane_part_ended(request, status);
    transfer_ended(request, status);
}

/// All of it has been moved, or something of it cannot be.
void Endpoint::transfer_ended(Request& request, ucs_status_t status) {
    if (request.transfer->is_put)
        return all_is_written(request, status);
    worker.rndv_ended(request, status);
}

/// Begins as many pieces as may be under way at a time; they end together.
ucs_status_t Endpoint::move_pieces(Request& request) {
    RndvTransfer& transfer = *request.transfer;
    const auto& cap = rail_->attr().cap;
    const std::size_t most =
        std::min(transfer.is_put ? cap.put.max_zcopy : cap.get.max_zcopy, kPieceBytes);
    const auto move = transfer.is_put ? uct_ep_put_zcopy : uct_ep_get_zcopy;
    transfer.done.func = pieces_done;
    transfer.done.owner = &transfer;
    transfer.done.status = UCS_OK;
    transfer.done.count = 1;  // ours, so that it does not fire before all are begun
    ucs_status_t status = UCS_OK;
    steps_left_ -= std::min(steps_left_, kStepsOfTransfer);
    for (std::uint64_t i = 0; i < worker.options().rndv_fragments && request.offset < transfer.end;
         ++i) {
        uct_iov_t iov{nullptr, 0, transfer.memh, 0, 1};
        iov.buffer = request.buffer.piece(request.offset, &iov.length);
        iov.length = std::min({iov.length, most, transfer.end - request.offset});
        ++transfer.done.count;
        status = move(lane_, &iov, 1, transfer.address + request.offset, transfer.key.rkey,
                      &transfer.done);
        if (status != UCS_INPROGRESS)
            --transfer.done.count;
        if (status != UCS_OK && status != UCS_INPROGRESS)
            break;
        request.offset += iov.length;
    }
    const bool has_begun = transfer.done.count > 1;
    if (status == UCS_ERR_NO_RESOURCE && !has_begun) {
        transfer.done.count = 0;
        return status;
    }
    if (status < 0 && status != UCS_ERR_NO_RESOURCE)
        uct_completion_update_status(&transfer.done, status);
    data_.pop_front();
    request.is_queued = false;
    if (--transfer.done.count == 0)
        pieces_done(&transfer.done);
    return UCS_INPROGRESS;
}

}  // namespace tagwire::proto
