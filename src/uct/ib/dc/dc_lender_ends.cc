// SPDX-License-Identifier: BSD-3-Clause
// The ends of endpoints, whose requests share DCIs with those of others.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "uct/completion.hpp"
#include "uct/ib/dc/dc_lender.hpp"

namespace tagwire::dc {

namespace {

// A destroy waits so long for its requests, and for those of others where its own are stuck. A
// message just sent arrives within that: it may say that this endpoint goes.
constexpr std::uint64_t kOthersNs = 100'000'000;

/// The device reads or writes a buffer of ours; the program's is written when it ends.
bool is_copied(const ib::SendOp& op) {
    return op.kind == ib::SendOp::Kind::kUnpack || op.kind == ib::SendOp::Kind::kFetch;
}

}  // namespace

// Its requests end: in a DCI of its own at once, because that goes to error; otherwise when the
// device is done with them, since others have requests there. Where that takes for ever, because a
// peer that is there does not receive, look() makes an end.
void ChannelLender::stop(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (owner_.has_lost_device() || !has_channel(ep) || ep.has_ended())
        return;
    if (ep.queue->is_broken) {  // what was posted is being flushed, or all of it was
        if (ep.queue->is_shared)
            close_later(ep);
        return;
    }
    auto& channel = static_cast<Channel&>(*ep.queue);
    if (is_alone(ep)) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        const int error = owner_.verbs().modify_qp(channel.qp, &attr, IBV_QP_STATE);
        if (error != 0)
            TW_LOG_ERROR("ibv_modify_qp of a DCI to ERR failed: %s", std::strerror(error));
        if (error == EIO)
            return owner_.lose_device("the device does not stop a DCI (EIO)");
        channel.is_broken = true;
    } else {
        close_later(ep);
    }
    if (!channel.dci->is_breaking)
        owner_.sends.mark_end(channel, ep);
}

void ChannelLender::close_later(const DcEp& ep) {
    Dci* dci = static_cast<const Channel&>(*ep.queue).dci;
    closing_.push_back({ep.id, dci, owner_.watched.ns() + close_ns_});
}

bool ChannelLender::is_alone(const DcEp& ep) const {
    const auto& channel = static_cast<const Channel&>(*ep.queue);
    return !channel.is_shared && !channel.dci->initiator.has_streams;
}

// Where other endpoints have requests, those of this endpoint do not end at once. Operations that
// copy to or from the library's buffers end for the program all the same; their requests go on
// without them.
void ChannelLender::end_copied(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (!has_channel(ep) || is_alone(ep))
        return;
    ucs::ReserveVector<uct_completion_t*> ended;
    ib::SendOp* previous = nullptr;
    for (ib::SendOp *op = ep.queue->first, *next = nullptr; op != nullptr; op = next) {
        next = op->next;
        if (op->ep == &ep && op->is_flush()) {
            ep.queue->remove(op, previous);
            ib::OpEnds::keep_flush(ep, *op);
            continue;
        }
        previous = op;
        if (op->ep != &ep || !is_copied(*op))
            continue;
        ended.push_back(std::exchange(op->comp, nullptr));
        op->kind = ib::SendOp::Kind::kBuffer;
    }
    for (uct_completion_t* comp : ended)
        if (comp != nullptr)
            uct::invoke_completion(comp, ep.failure);
}

bool ChannelLender::uses_memory(const ib::MessageEp& any) const {
    const auto& ep = static_cast<const DcEp&>(any);
    if (!has_channel(ep) || ep.has_ended())
        return false;
    if (is_alone(ep))
        return true;
    for (const ib::SendOp* op = ep.queue->first; op != nullptr; op = op->next)
        if (op->ep == &ep && op->kind != ib::SendOp::Kind::kBuffer && !op->is_flush() &&
            !is_copied(*op))
            return true;
    return false;
}

// Nobody sends while a destroy waits, so requests end, of others, too, or are stuck.
void ChannelLender::press(ib::MessageEp& any, std::uint64_t waited_ns) {
    auto& ep = static_cast<DcEp&>(any);
    auto& channel = static_cast<Channel&>(*ep.queue);
    Dci& dci = *channel.dci;
    shared_.end_failed(channel);
    if (is_alone(ep) || channel.is_broken || dci.is_breaking)
        return;
    if (waited_ns >= kOthersNs)
        return break_off(dci);
    ask_for_ends(dci);
}

// All that is posted there is flushed, and tells by that what was carried out: everything before
// the first that was flushed. Then the DCI starts anew.
void ChannelLender::break_off(Dci& dci) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    const int error = owner_.verbs().modify_qp(dci.initiator.qp.get(), &attr, IBV_QP_STATE);
    if (error == EIO)
        return owner_.lose_device("the device does not stop a DCI (EIO)");
    if (error != 0) {
        TW_LOG_ERROR("ibv_modify_qp of a DCI to ERR failed: %s", std::strerror(error));
        return start_anew(dci);
    }
    dci.is_breaking = true;
    dci.set_reserves();
    for (Channel* channel : dci.channels)
        channel->stop_mark = channel->acked;
    mark_stops(dci);
    end_break_if_flushed(dci);
}

// Where the completion queue had no place for a mark, look() tries again.
void ChannelLender::mark_stops(Dci& dci) {
    for (Channel* channel : dci.channels)
        if (!channel->is_drained() && !channel->is_broken)
            mark_stop(*channel);
}

// Requests without a completion that were carried out end silently.
void ChannelLender::mark_stop(Channel& channel) {
    ib::MessageEp* ep = channel.is_shared ? channel.sent->at(channel.posted).ep : channel.owner;
    if (!channel.has_unsignaled() || channel.free == 0 || !owner_.sends.has_last_place())
        return;
    if (ep->post_signal() == UCS_OK)
        channel.stop_mark = channel.posted;
}

// To be asked whenever something has completed there, and at the beginning: where all was flushed
// before, nothing completes any more.
void ChannelLender::end_break_if_flushed(Dci& dci) {
    if (!dci.is_breaking || !std::ranges::all_of(dci.channels, &Channel::is_flushed))
        return;
    pool_.restart(dci);
    dci.is_breaking = false;
    for (Channel* channel : dci.channels) {
        if (dci.initiator.has_streams)
            dci.reset(*channel);
        channel->is_broken = channel->is_broken && channel->is_shared;
    }
    dci.set_reserves();
    // By index: callbacks may send, and channels be made for that. One may stop the DCI again.
    for (std::size_t i = 0; i < dci.channels.size() && !dci.is_breaking; ++i)
        if (dci.channels[i]->is_broken)
            shared_.post_again(*dci.channels[i]);
    use_places(dci);
}

// Endpoints sharing the channel fail too: it is unknown which of their requests executed.
void ChannelLender::give_up(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    const bool is_last = owner_.has_lost_device();
    if (is_last)
        pool_.close();
    if (!has_channel(ep))
        return;
    Dci& dci = *static_cast<Channel&>(*ep.queue).dci;
    if (is_last)
        drop_requests(dci);
    else
        start_anew(dci);
}

void ChannelLender::look() {
    if (!std::exchange(is_contended_, false))
        owner_.sends.set_signal_every(owner_.limits.signal_every);
    for (const auto& dci : pool_.dcis())
        if (dci->is_breaking)
            mark_stops(*dci);
    // By index: callbacks may have others closed.
    for (std::size_t i = 0; i < closing_.size();) {
        const auto* ep = static_cast<DcEp*>(owner_.eps.find(closing_[i].ep_id));
        if (ep != nullptr && has_channel(*ep))
            shared_.end_failed(static_cast<Channel&>(*ep->queue));
        const bool has_ended = ep == nullptr || ep->has_ended();
        // Flushed requests end soon, without an end of others' requests.
        if (!has_ended && (ep->queue->is_broken || must_wait(closing_[i]))) {
            ++i;
            continue;
        }
        Closing closing = closing_[i];
        closing_[i] = closing_.back();
        closing_.pop_back();
        hold(closing, false);
        if (!has_ended && !closing.dci->is_breaking)
            break_off(*closing.dci);
    }
}

void ChannelLender::hold(Closing& closing, bool is_held) {
    if (std::exchange(closing.is_held, is_held) == is_held)
        return;
    if (is_held)
        ++closing.dci->holders;
    else
        --closing.dci->holders;
    closing.dci->set_reserves();
}

// As long as others have requests there, within bounds; at last others are kept from sending, so
// that theirs end.
bool ChannelLender::must_wait(Closing& closing) {
    const std::uint64_t now = owner_.watched.ns();
    if (closing.dci->is_breaking || !closing.dci->serves_others())
        return closing.dci->is_breaking;
    if (now < closing.deadline)
        return true;
    hold(closing, true);
    const bool waits = now < closing.deadline + kOthersNs;
    ask_for_ends(*closing.dci);  // what fails there may be added to the list that `closing` is in
    return waits;
}

void ChannelLender::ask_for_ends(Dci& dci) {
    for (Channel* channel : dci.channels)
        if (channel->has_unsignaled() && channel->free > 0)
            owner_.sends.signal(*channel, *this);
}

// Whatever is under way there is given up. Nobody can say what of it was carried out, so everyone
// whose requests they are fails.
void ChannelLender::start_anew(Dci& dci) {
    pool_.restart(dci);
    drop_requests(dci);
    dci.is_breaking = false;
    dci.set_reserves();
    use_places(dci);
}

void ChannelLender::drop_requests(Dci& dci) {
    constexpr const char* kStartedAnew =
        "its DCI was reset, because requests of a closed endpoint did not end";
    for (Channel* each : dci.channels) {
        Channel& channel = *each;
        if (channel.is_drained()) {
            if (dci.initiator.has_streams)
                dci.reset(channel);
            channel.is_broken = false;
            continue;
        }
        const std::uint32_t given_up = channel.posted - channel.acked;
        const std::uint32_t first = channel.acked + 1;
        channel.id += 1U << ib::kIndexBits;  // completions that are still there find nobody
        channel.acked = channel.posted;
        if (dci.initiator.has_streams)
            dci.reset(channel);
        else
            channel.free += given_up;
        owner_.sends.give_back(given_up);
        channel.clear_unsignaled();
        channel.is_broken = true;  // nothing is posted meanwhile
        for (std::uint32_t sn = first; pool_.is_shared() && sn != channel.posted + 1; ++sn) {
            DcEp& ep = *channel.sent->at(sn).ep;
            --ep.under_way;
            owner_.fail(ep, UCS_ERR_CONNECTION_RESET, kStartedAnew);
        }
        if (!pool_.is_shared())
            owner_.fail(*channel.owner, UCS_ERR_CONNECTION_RESET, kStartedAnew);
        channel.is_broken = false;
        while (ib::SendOp* op = channel.take_any())
            owner_.op_ends.finish_later(*op, op->ep->failure);
    }
    owner_.sends.settle_signals();
}

void ChannelLender::take_back(DcEp& ep) {
    if (pool_.is_shared() || !has_channel(ep))
        return;
    auto& channel = static_cast<Channel&>(*ep.queue);
    if (std::exchange(channel.is_broken, false) && !channel.dci->is_breaking)
        pool_.restart(channel);
    give_back(channel);
}

}  // namespace tagwire::dc
