// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations whose data a transfer moves, over one rail or several.
#include <memory>
#include <utility>

#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_sender.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/wire/control_message.hpp"
#include "ucs/debug/check.hpp"

namespace tagwire::proto {

/// `key`: the lane's, null of a list. UCS_INPROGRESS: begun() begins it. UCS_ERR_NO_MEMORY: the
/// buffer cannot be registered.
ucs_status_t RmaSender::make_transfer(Request& request, const LaneKey* key) {
    const Domain& domain = to_.lane.rail().domain();
    const std::size_t index = to_.lane.rail().domain_index();
    const bool is_put = request.rma->kind == RmaKind::kPut;
    const TransferPorts ports{to_.worker, to_.peer.lane};
    auto transfer =
        std::make_unique<Transfer>(request, ports, [](Request& done, ucs_status_t status) {
            auto& own = *static_cast<RmaSender*>(done.transfer->mover);
            if (own.to_.lane.state == EpState::kFailed)
                return;  // which ends what waits
            const bool is_late =
                done.transfer->is_put && done.transfer->has_lost_rail && status == UCS_OK;
            end_transfer(done);
            if (is_late)
                own.await_down(done);
            else
                own.transfer_ended(done, status);
        });
    transfer->mover = this;
    if (request.rma->list != nullptr)
        transfer->list = &request.rma->list->list;
    TransferPart& own = transfer->own;
    if (key != nullptr)
        own.key = key->bundle;  // which the operation holds
    own.end = request.buffer.length;
    transfer->is_put = is_put;
    transfer->address = request.rma->address;
    own.domain = index;
    own.peer_domain = to_.rma_lane.peer_domain;
    if (transfer->list != nullptr) {
        TW_ASSERT(transfer->list->bytes == request.buffer.length);  // each piece has its handle
    } else if (request.buffer.memory != nullptr) {
        own.memh = request.buffer.memory->handle(index);
    } else if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        own.cached =
            to_.worker.cache_region(request, index, is_put ? RegUse::kSource : RegUse::kTarget);
        if (own.cached == nullptr)
            return UCS_ERR_NO_MEMORY;
        own.memh = own.cached->handle;
    }
    request.wanted = request.buffer.length;
    request.transfer = transfer.release();
    return UCS_INPROGRESS;
}

void RmaSender::begun(Request& request) {
    if (request.transfer == nullptr)
        return;
    KeyList keys;
    if (request.rma->list == nullptr)
        request.rma->key->list(&keys);
    to_.peer.lane.begin_transfer(request, keys.all(), false);
}

/// A rail was lost, and what it had was written again. The target hears of that (Down) before this
/// flush, and nothing of the rail lands there once it has replied: not into what a later put
/// writes.
void RmaSender::await_down(Request& request) {
    if (request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return settle(request, UCS_ERR_NO_MEMORY);
    request.rma->awaits_down = true;
    to_.peer.lane.control(Flush{request.id, 0});
}

bool RmaSender::on_flushed(Request& request) {
    if (request.rma == nullptr || !std::exchange(request.rma->awaits_down, false))
        return false;
    transfer_ended(request, UCS_OK);
    return true;
}

void RmaSender::transfer_ended(Request& request, ucs_status_t status) {
    request.rma->phase = RmaPhase::kNotice;
    request.rma->is_there = true;
    settle(request, status);
}

}  // namespace tagwire::proto
