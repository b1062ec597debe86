// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/transfer.hpp"

#include <algorithm>
#include <utility>

#include "protocols/request/rail.hpp"
#include "protocols/transfer/stripe.hpp"

namespace tagwire::proto {

// ---- A part

TransferPart::TransferPart() {
    done.owner = this;
    done.func = [](uct_completion_t* self) {
        TransferPart& part = *static_cast<OwnedBy<uct_completion_t, TransferPart>*>(self)->owner;
        part.done.count = 0;
        part.transfer->pieces_ended(part, self->status);
    };
}

TransferPart::~TransferPart() {
    if (cached != nullptr)
        RegLeases::release(*cached, true);
    if (component != nullptr)
        uct_rkey_release(component, &key);
}

/// Begins to read or write the piece at `next`.
ucs_status_t TransferPart::move_piece(uct_ep_h ep, const uct_iov_t& iov) {
    if (transfer->is_lent) {
        tagwire_uct_loan_t loan = transfer->loan;
        loan.place += next;
        return tagwire_uct_ep_read_lent(ep, &iov, 1, &loan, &done);
    }
    const auto move = transfer->is_put ? uct_ep_put_zcopy : uct_ep_get_zcopy;
    return move(ep, &iov, 1, transfer->address + next, key.rkey, &done);
}

bool TransferPart::begin_pieces(uct_ep_h ep, const Rail& rail) {
    if (transfer->reads_whole())
        return read_whole(ep);
    if (transfer->list != nullptr)
        return begin_list(ep, rail);
    const Request& request = *transfer->request;
    const auto& cap = rail.attr().cap;
    const std::size_t most =
        std::min(transfer->is_put ? cap.put.max_zcopy : cap.get.max_zcopy, kPieceBytes);
    done.status = UCS_OK;
    done.count = 1;  // ours, so that it does not fire before all are begun
    ucs_status_t status = UCS_OK;
    for (unsigned i = 0; i < kPiecesOut && next < end; ++i) {
        uct_iov_t iov{nullptr, 0, memh, 0, 1};
        iov.buffer = request.buffer.piece(next, &iov.length);
        iov.length = std::min({iov.length, most, end - next});
        ++done.count;
        status = move_piece(ep, iov);
        if (status != UCS_INPROGRESS)
            --done.count;
        if (status != UCS_OK && status != UCS_INPROGRESS)
            break;
        next += iov.length;
    }
    if (status == UCS_ERR_NO_RESOURCE && done.count == 1) {
        done.count = 0;
        return false;
    }
    if (status < 0 && status != UCS_ERR_NO_RESOURCE)
        uct_completion_update_status(&done, status);
    return true;
}

bool TransferPart::read_whole(uct_ep_h ep) {
    uct_iov_t iov[TW_IOV_MAX];
    std::size_t count = 0;
    for (std::uint64_t at = 0; at < end; at += iov[count++].length) {
        iov[count] = {nullptr, 0, UCT_MEM_HANDLE_NULL, 0, 1};
        iov[count].buffer = transfer->request->buffer.piece(at, &iov[count].length);
        iov[count].length = std::min<std::size_t>(iov[count].length, end - at);
    }
    done.status = UCS_OK;
    done.count = 2;  // until release(), and until it is read
    const ucs_status_t status = tagwire_uct_ep_read_lent(ep, iov, count, &transfer->loan, &done);
    if (status != UCS_INPROGRESS)
        done.count = status == UCS_ERR_NO_RESOURCE ? 0 : 1;
    if (status == UCS_ERR_NO_RESOURCE)
        return false;
    if (status < 0)
        uct_completion_update_status(&done, status);
    next = end;
    return true;
}

void TransferPart::release() {
    if (--done.count == 0)
        done.func(&done);
}

// ---- The whole

Transfer::Transfer(Request& owner, const TransferPorts& ports, Ended on_end)
    : request(&owner), ended(on_end), to_(ports) {
    own.transfer = this;
}

bool Transfer::is_busy() const {
    return own.is_busy() || std::ranges::any_of(others, [](const auto& p) { return p->is_busy(); });
}

bool Transfer::reads_whole() const {
    return is_lent && request->buffer.list != nullptr &&
           own.end / request->buffer.count < kElementOfPieces;
}

bool Transfer::has_lost() const {
    return std::ranges::any_of(others, [](const auto& part) { return part->is_lost; });
}

/// Pieces of an abandoned transfer have ended.
void Transfer::idle() {
    if (is_busy())
        return;
    if (request == nullptr)
        delete this;
    else
        to_.worker.drained(*request, ending);
}

void Transfer::pieces_ended(TransferPart& part, ucs_status_t result) {
    if (is_abandoned())
        return idle();
    if (part.lane != nullptr)
        return lane_part_ended(part, result);
    if (result == UCS_OK && part.next < part.end)
        return to_.lane.push_data(*request);
    // The end of the lane cancels its pieces; the request ends as the endpoint has.
    if (result != UCS_OK && to_.lane.failure() != UCS_OK)
        result = to_.lane.failure();
    part.has_ended = true;
    if (status == UCS_OK)
        status = result;
    check();
}

/// As pieces_ended(), for the part of a lane beside the endpoint's own.
void Transfer::lane_part_ended(TransferPart& part, ucs_status_t result) {
    // Where the own part has failed, or was canceled, no other piece begins.
    if (result == UCS_OK && part.next < part.end && !part.lane->has_failed && status == UCS_OK)
        return part.lane->push(part);
    part.has_ended = result == UCS_OK && (part.next == part.end || status != UCS_OK);
    part.is_lost = !part.has_ended;
    if (part.is_lost && !part.lane->has_failed) {
        part.done.count = 1;  // holds the transfer: the end of the lane may end the request
        part.lane->failed(result);
        part.done.count = 0;
        if (is_abandoned())
            return idle();
    }
    check();
}

void Transfer::check() {
    if (!own.has_ended)
        return;
    for (const auto& part : others) {
        if (status != UCS_OK && part->is_waiting) {
            part->lane->forget(*part);
            part->has_ended = true;
        } else if (part->is_lost) {
            part->is_lost = false;
            part->has_ended = true;
            if (status != UCS_OK)
                continue;
            to_.worker.count(WorkerCounter::kRndvRailLost);
            has_lost_rail = true;
            own.begin = own.next = part->begin;
            own.end = part->end;
            if (list != nullptr) {
                own.cursor = {};
                own.cursor.skip(*list, own.begin);
            }
            own.has_ended = false;
            return to_.lane.push_data(*request);
        }
    }
    if (std::ranges::all_of(others, [](const auto& part) { return part->has_ended; }))
        ended(*request, status);
}

void end_transfer(Request& request) {
    Transfer* const transfer = std::exchange(request.transfer, nullptr);
    if (transfer == nullptr)
        return;
    for (const auto& part : transfer->others)
        if (part->is_waiting)
            part->lane->forget(*part);
    if (transfer->is_busy())
        transfer->request = nullptr;
    else
        delete transfer;
}

}  // namespace tagwire::proto
