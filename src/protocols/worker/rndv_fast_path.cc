// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/rndv_fast_path.hpp"

#include <uct/api/tagwire_uct.h>

#include "protocols/request/keys.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/rndv/read_timing.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/fast_path.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

namespace {

/// Nothing waits for the lane: what is sent now overtakes nothing, nor is read before its turn.
bool has_free_lane(Endpoint& ep) {
    return ep.state() == EpState::kReady && ep.queue().has_nothing();
}

/// The plain receive that such a message matches, if it is the earliest of all; it stays posted.
Request* plain_receive(WorkerCore& worker, const Endpoint& ep, const Header& header,
                       std::uint64_t length) {
    auto& posted = worker.space(header.flags == kTagged).posted;
    auto* const request = static_cast<Request*>(posted.first(header.tag, ep.source));
    const bool is_plain =
        request != nullptr && (is_short(*request, length) || is_short_tested(*request, length));
    return is_plain ? request : nullptr;
}

}  // namespace

bool take_lent(WorkerCore& worker, Endpoint& ep, const Header& header, WireBytes behind) {
    LentRts message;
    if (!is_sound(header, kTagged) || !decode(behind, &message) || !has_free_lane(ep) ||
        !worker.options().may_get())
        return false;
    const Rts& rts = message.rts;
    if (rts.length > kReadAtOnceMax)
        return false;
    Request* const request = plain_receive(worker, ep, header, rts.length);
    if (request == nullptr)
        return false;
    const Timing timing = timing_of(ep.lane_state().is_learning(), rts, rts.length);
    tagwire_uct_loan_t loan = lent_by(rts, message.loan);
    if (ep.rndv().keeps_receiver_busy(rts.length))
        loan.id = 0;
    const uct_iov_t iov{request->buffer.base, rts.length, UCT_MEM_HANDLE_NULL, 0, 1};
    if (tagwire_uct_ep_read_lent(ep.lane(), &iov, 1, &loan, nullptr) != UCS_OK)
        return false;
    worker.space(header.flags == kTagged).posted.take_first();
    worker.count(WorkerCounter::kRxRndv);
    worker.count(WorkerCounter::kRndvGet);
    worker.count(WorkerCounter::kRndvLent);
    const Ats ats{.send_id = rts.send_id, .status = UCS_OK};
    if (ep.queue().send_now(Control::of(ats)) != UCS_OK)
        ep.control(ats);
    if (timing.is_wanted())
        ep.rndv_receiver().learning().add(true, rts.length, timing);
    if (request->complete != nullptr)
        end_plain(worker, *request, ep, header, rts.length, 0, worker.is_multi);
    else
        end_tested(worker, *request, ep, header, rts.length, 0);
    return true;
}

bool take_ats(WorkerCore& worker, WireBytes bytes) {
    Control message;
    if (!decode(bytes, &message) || message.operation() != ControlOp::kAts)
        return false;
    const Ats ats = message.as<Ats>();
    Endpoint* const ep = worker.endpoints().find(message.sender);
    Request* const request = worker.requests().find(ats.send_id);
    if (ats.status != UCS_OK || ep == nullptr || !ep->rndv().may_end(request) ||
        ep->queue().replies() >= kRepliesMax)
        return false;
    worker.finish(*request, UCS_OK);
    if (ep->state() == EpState::kReady && !ep->queue().has_nothing())
        ep->queue().run();
    return true;
}

}  // namespace tagwire::proto
