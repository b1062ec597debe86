// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_lender.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/time/clock.hpp"
#include "uct/completion.hpp"
#include "uct/ib/dc/dc_flow.hpp"

namespace tagwire::dc {

namespace {

/// The device reads or writes a buffer of ours; the program's is written when it ends.
bool is_copied(const ib::SendOp& op) {
    return op.kind == ib::SendOp::Kind::kUnpack || op.kind == ib::SendOp::Kind::kFetch;
}

}  // namespace

ChannelLender::ChannelLender(ib::MessageIface& owner, DcFlow& flow, const DcOptions& options)
    : owner_(owner),
      flow_(flow),
      options_(options.dci),
      policy_(static_cast<Policy>(options.dci.policy)),
      pool_(owner, options, post_call),
      shared_(owner, pool_),
      // A device may wait four times as long as it was told before it gives a peer up.
      close_ns_(4 * options.retries.timeout_ns * (options.retries.retry_count + 1) +
                1'000'000'000) {}

// ---- Turns

bool ChannelLender::own_channel(DcEp& ep) {
    Channel* channel = pool_.take(ep);
    if (channel == nullptr && ep.is_internal)
        channel = pool_.take_answer_channel();
    if (channel != nullptr) {
        begin_turn(*channel, ep);
        return true;
    }
    if (ep.group != nullptr && !ep.is_waiting) {
        ep.is_waiting = true;
        waiting_.push_back(ep.id);
    }
    end_turns();
    return false;
}

void ChannelLender::begin_turn(Channel& channel, DcEp& ep) {
    channel.owner = &ep;
    channel.reserve = 1;
    channel.turn_begin = channel.posted;
    channel.was_granted = false;
    ep.queue = &channel;
    if (!pool_.is_answer_channel(channel))
        ep.last_channel = channel.index;
}

void ChannelLender::give_back(Channel& channel) {
    static_cast<DcEp*>(std::exchange(channel.owner, nullptr))->queue = &no_queue_;
    if (pool_.is_answer_channel(channel))
        return;
    channel.rests = channel.free < places_of_a_turn();
    if (!channel.rests)
        hand_on(channel);
}

void ChannelLender::hand_on(Channel& channel) {
    if (DcEp* next = next_waiting(); next != nullptr) {
        begin_turn(channel, *next);
        channel.was_granted = true;
        owner_.pending.put_first(*next);
        owner_.has_work = true;
    } else {
        pool_.put_idle(channel);
    }
}

void ChannelLender::use_places(const Dci& dci) {
    // By index: callbacks may send, and channels be made for that.
    for (std::size_t i = 0; i < dci.channels.size(); ++i) {
        Channel& channel = *dci.channels[i];
        if (channel.rests && channel.free >= places_of_a_turn()) {
            channel.rests = false;
            hand_on(channel);
        }
        shared_.use_places(channel);
    }
}

void ChannelLender::special_completed(ib::SendQueue& queue, const ib::Completion& completion) {
    auto& channel = static_cast<Channel&>(queue);
    Dci& dci = *channel.dci;
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    if (dci.initiator.has_streams)
        dci.ended(channel, sn);
    if (channel.is_shared)
        shared_.completed(channel, completion);
    else
        owner_.owned_completed(channel, completion);
    if (!dci.initiator.has_streams)
        return;
    // Others' requests keep places, and nobody asked whether they have ended: in time, so that who
    // answers in a callback finds room.
    if (channel.waits_for_others() && channel.free <= owner_.limits.options.tx_depth / 2)
        owner_.sends.ask_for_completions();
    use_places(dci);
}

// The endpoint that has waited longest and still has something to send.
DcEp* ChannelLender::next_waiting() {
    while (!waiting_.empty()) {
        auto* ep = static_cast<DcEp*>(owner_.eps.find(waiting_.front()));
        waiting_.pop_front();
        if (ep == nullptr)
            continue;
        ep->is_waiting = false;
        if (ep->failure == UCS_OK && !has_channel(*ep) && ep->group != nullptr &&
            (!ep->group->empty() || ep->group->is_visited()))
            return ep;
    }
    return nullptr;
}

void ChannelLender::drained(ib::SendQueue& queue) {
    // A callback may have found no use for it, and given it back already. After a failure
    // settled() decides what is next.
    if (queue.owner != nullptr && static_cast<DcEp*>(queue.owner)->failure == UCS_OK)
        give_back(static_cast<Channel&>(queue));
}

void ChannelLender::end_turns() {
    const std::uint64_t turn =
        policy_ == Policy::kDcsQuota ? options_.quota : owner_.limits.options.tx_depth;
    for (Channel* channel : pool_.channels()) {
        auto* ep = static_cast<DcEp*>(channel->owner);
        if (ep == nullptr)
            continue;
        if (channel->posted - channel->turn_begin >= turn)
            channel->reserve = Channel::kNoMore;  // but for the request that ends it
        // The requests that it waited to send may have been purged meanwhile.
        const bool has_nothing =
            ep->group == nullptr || (ep->group->empty() && !ep->group->is_visited());
        if (channel->was_granted && has_nothing && channel->posted == channel->turn_begin)
            gave_up(*ep);
    }
    owner_.sends.ask_for_completions();
    // A completion of each request costs less than an empty write behind each.
    if (!std::exchange(is_contended_, true))
        owner_.sends.set_signal_every(1);
}

bool ChannelLender::share_channel(DcEp& ep) {
    const std::uint64_t by_target =
        (ep.key ^ ep.number) * 0x9e3779b97f4a7c15 >> 32;  // the golden ratio's
    Channel* channel = pool_.draw(policy_ == Policy::kHash ? by_target : ucs::random_u64());
    if (channel == nullptr)
        return false;
    ep.queue = channel;
    return true;
}

bool ChannelLender::make_room(ib::MessageEp& any, unsigned requests, unsigned messages) {
    auto& ep = static_cast<DcEp&>(any);
    const bool has_credit = ep.has_credit(messages);
    if (ep.failure != UCS_OK || (!has_credit && ep.has_asked))
        return false;  // none to waste a channel on
    if (!has_channel(ep) && !(pool_.is_shared() ? share_channel(ep) : own_channel(ep)))
        return false;
    if (!has_credit && ep.has_room(requests + 1))
        flow_.ask(ep);
    const bool has_places = ep.has_room(requests);
    const bool is_enough = has_places && ep.has_credit(messages);
    // Requests of others may be all that keeps the places, and nobody asked whether they ended.
    if (!has_places && static_cast<Channel*>(ep.queue)->waits_for_others())
        owner_.sends.ask_for_completions();
    if (!is_enough)
        gave_up(ep);
    return is_enough;
}

// It was given a channel and had no use for it.
void ChannelLender::gave_up(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (!pool_.is_shared() && has_channel(ep) && ep.queue->is_drained() && ep.failure == UCS_OK)
        give_back(static_cast<Channel&>(*ep.queue));
}

// ---- Posting

int ChannelLender::post_call(ib::SendQueue& queue, ib::MessageEp& any, ibv_send_wr* first,
                             ibv_send_wr** bad_p) {
    auto& channel = static_cast<Channel&>(queue);
    auto& ep = static_cast<DcEp&>(any);
    const int error = post_to(channel.dci->initiator, first, ep.target(), channel.stream);
    *bad_p = error == 0 ? nullptr : first;
    if (channel.is_shared && error == 0) {
        for (const ibv_send_wr* each = first; each != nullptr; each = each->next) {
            channel.sent->keep(static_cast<std::uint32_t>(each->wr_id), ep, *each);
            ++ep.under_way;
        }
    }
    return error;
}

// ---- The ends of endpoints

// Its requests end: in a DCI of its own at once, because that goes to error; otherwise when the
// device is done with them, since others have requests there. Where that takes for ever, because a
// peer that is there does not receive, look() makes an end.
void ChannelLender::stop(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (!has_channel(ep) || ep.has_ended())
        return;
    if (ep.queue->is_broken) {  // what was posted is being flushed
        // Before others' requests can be posted again some that wait may have to end.
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
        channel.is_broken = true;
    } else {
        close_later(ep);
    }
    owner_.sends.mark_end(channel, ep);
}

void ChannelLender::close_later(const DcEp& ep) {
    closing_.push_back({ep.id, ucs::clock_now_ns() + close_ns_});
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
        if (op->ep == &ep && op->kind == ib::SendOp::Kind::kFlush) {
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
        if (op->ep == &ep && op->kind != ib::SendOp::Kind::kBuffer &&
            op->kind != ib::SendOp::Kind::kFlush && !is_copied(*op))
            return true;
    return false;
}

// Others that have requests there fail, too: what of theirs was carried out nobody can say.
void ChannelLender::give_up(ib::MessageEp& ep) {
    start_anew(*static_cast<Channel&>(*static_cast<DcEp&>(ep).queue).dci);
}

void ChannelLender::look(std::uint64_t now) {
    if (!std::exchange(is_contended_, false))
        owner_.sends.set_signal_every(owner_.limits.signal_every);
    for (std::size_t i = 0; i < closing_.size();) {
        auto* ep = static_cast<DcEp*>(owner_.eps.find(closing_[i].ep_id));
        const bool has_ended = ep == nullptr || ep->has_ended();
        if (!has_ended && now < closing_[i].deadline) {
            ++i;
            continue;
        }
        closing_[i] = closing_.back();
        closing_.pop_back();
        if (!has_ended)
            start_anew(*static_cast<Channel&>(*ep->queue).dci);
    }
}

// Whatever is under way there is given up. Nobody can say what of it was carried out, so everyone
// whose requests they are fails.
void ChannelLender::start_anew(Dci& dci) {
    constexpr const char* kStartedAnew =
        "its DCI was reset, because requests of a closed endpoint did not end";
    pool_.restart(dci);
    const bool was_in_progress = std::exchange(owner_.in_progress, true);
    // By index: callbacks may send, and channels be made for that.
    for (std::size_t i = 0; i < pool_.all_channels().size(); ++i) {
        Channel& channel = *pool_.all_channels()[i];
        if (channel.dci != &dci)
            continue;
        if (channel.is_drained()) {
            if (dci.initiator.has_streams)
                dci.reset(channel);
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
        channel.reserve = 1;
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
            owner_.op_ends.finish(*op, op->ep->failure);
    }
    use_places(dci);
    owner_.sends.settle_signals();
    owner_.in_progress = was_in_progress;
}

void ChannelLender::take_back(DcEp& ep) {
    if (pool_.is_shared() || !has_channel(ep))
        return;
    auto& channel = static_cast<Channel&>(*ep.queue);
    if (std::exchange(channel.is_broken, false))
        pool_.restart(channel);
    give_back(channel);
}

ib::MessageEp* ChannelLender::poster_of(const ib::SendQueue& queue) const {
    if (!queue.is_shared)
        return queue.owner;
    return SharedChannels::poster_of(static_cast<const Channel&>(queue));
}

}  // namespace tagwire::dc
