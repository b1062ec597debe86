// SPDX-License-Identifier: BSD-3-Clause
// Assignment of channels to endpoints, and its end.
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/time/clock.hpp"
#include "uct/completion.hpp"
#include "uct/ib/dc/dc_iface.hpp"

namespace tagwire::dc {

namespace {

/// The device reads or writes a buffer of ours; the program's is written when it ends.
bool is_copied(const ib::SendOp& op) {
    return op.kind == ib::SendOp::Kind::kUnpack || op.kind == ib::SendOp::Kind::kFetch;
}

}  // namespace

// ---- Channels

ucs_status_t DcIface::new_dci(Dci** dci_p) {
    auto dci = std::make_unique<Dci>();
    const ucs_status_t status =
        make_initiator(ib_md(), *dc_, port(), initiator_params_, &dci->initiator);
    if (status != UCS_OK)
        return status;
    dcis_.push_back(std::move(dci));
    *dci_p = dcis_.back().get();
    return UCS_OK;
}

Channel* DcIface::new_channel(Dci& dci) {
    auto channel = std::make_unique<Channel>();
    channel->dci = &dci;
    channel->stream = static_cast<std::uint16_t>(dci.channels.size());
    channel->qp = dci.initiator.qp.get();
    channel->post_call = post_call;
    channel->free = static_cast<std::uint32_t>(options_.tx_depth);
    channel->id = static_cast<std::uint32_t>(channels_.size());
    channel->is_shared = is_shared();
    channel->is_special = is_shared() || dci.initiator.has_streams;
    dci.channels.push_back(channel.get());
    if (is_shared())
        channel->sent = std::make_unique<SentRing>(channel->free);
    map_queue(*channel);
    channels_.push_back(std::move(channel));
    return channels_.back().get();
}

// First one of each DCI, then further streams of them.
Channel* DcIface::grow_pool() {
    Dci* dci = nullptr;
    if (pool_.size() < dcis_max_ && new_dci(&dci) != UCS_OK) {
        TW_LOG_WARN("%s: %zu DCIs instead of TAGWIRE_DC_DCIS=%zu", ib_md().device().name().c_str(),
                    pool_.size(), dcis_max_);
        dcis_max_ = pool_.size();
    }
    if (pool_.size() == dcis_max_ * streams_)
        return nullptr;
    if (dci == nullptr)
        dci = pool_[pool_.size() % dcis_max_]->dci;
    return add_to_pool(*dci);
}

Channel* DcIface::add_to_pool(Dci& dci) {
    Channel* channel = new_channel(dci);
    channel->index = static_cast<std::uint16_t>(pool_.size());
    pool_.push_back(channel);
    return channel;
}

// A DCI that goes to another target disconnects from the old one: so an endpoint gets the channel
// that it had, if it can, or one that nobody used for long.
Channel* DcIface::take_channel(const DcEp& ep) {
    Channel* last = ep.last_channel_ < pool_.size() ? pool_[ep.last_channel_] : nullptr;
    if (last != nullptr && idle_.is_linked(*last)) {
        idle_.erase(*last);
        return last;
    }
    Channel* grown = grow_pool();
    return grown != nullptr ? grown : idle_.pop_front();
}

// Answers owed to peers get a DCI of their own when all others are taken: an endpoint that holds
// one of those may itself wait for an answer of a peer.
Channel* DcIface::take_answer_channel() {
    if (answer_channel_ == nullptr) {
        Dci* dci = nullptr;
        if (new_dci(&dci) != UCS_OK)
            return nullptr;
        answer_channel_ = new_channel(*dci);
    }
    return answer_channel_->owner == nullptr ? answer_channel_ : nullptr;
}

bool DcIface::own_channel(DcEp& ep) {
    Channel* channel = take_channel(ep);
    if (channel == nullptr && ep.is_internal_)
        channel = take_answer_channel();
    if (channel != nullptr) {
        begin_turn(*channel, ep);
        return true;
    }
    if (ep.group_ != nullptr && !ep.is_waiting_) {
        ep.is_waiting_ = true;
        waiting_.push_back(ep.id_);
    }
    end_turns();
    return false;
}

void DcIface::begin_turn(Channel& channel, DcEp& ep) {
    channel.owner = &ep;
    channel.reserve = 1;
    channel.turn_begin = channel.posted;
    channel.was_granted = false;
    ep.queue_ = &channel;
    if (&channel != answer_channel_)
        ep.last_channel_ = channel.index;
}

void DcIface::give_back(Channel& channel) {
    static_cast<DcEp*>(std::exchange(channel.owner, nullptr))->queue_ = &no_queue_;
    if (&channel == answer_channel_)
        return;
    channel.rests = channel.free < places_of_a_turn();
    if (!channel.rests)
        hand_on(channel);
}

void DcIface::hand_on(Channel& channel) {
    if (DcEp* next = next_waiting(); next != nullptr) {
        begin_turn(channel, *next);
        channel.was_granted = true;
        pending_.put_first(*next->group_);
        has_work_ = true;
    } else {
        idle_.push_back(channel);
    }
}

void DcIface::use_places(const Dci& dci) {
    // By index: callbacks may send, and channels be made for that.
    for (std::size_t i = 0; i < dci.channels.size(); ++i) {
        Channel& channel = *dci.channels[i];
        if (channel.rests && channel.free >= places_of_a_turn()) {
            channel.rests = false;
            hand_on(channel);
        }
        if (channel.is_shared && channel.is_broken && channel.flushed == channel.posted)
            post_again(channel);
    }
}

void DcIface::special_completed(ib::SendQueue& queue, const ib::Completion& completion) {
    auto& channel = static_cast<Channel&>(queue);
    Dci& dci = *channel.dci;
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    if (dci.initiator.has_streams)
        dci.ended(channel, sn);
    if (channel.is_shared)
        shared_completed(channel, completion);
    else
        owned_completed(channel, completion);
    if (!dci.initiator.has_streams)
        return;
    // Others' requests keep places, and nobody asked whether they have ended: in time, so that who
    // answers in a callback finds room.
    if (channel.waits_for_others() && channel.free <= options_.tx_depth / 2)
        ask_for_completions();
    use_places(dci);
}

// The endpoint that has waited longest and still has something to send.
DcEp* DcIface::next_waiting() {
    while (!waiting_.empty()) {
        auto* ep = static_cast<DcEp*>(find(waiting_.front()));
        waiting_.pop_front();
        if (ep == nullptr)
            continue;
        ep->is_waiting_ = false;
        if (ep->failure_ == UCS_OK && ep->queue_ == &no_queue_ && ep->group_ != nullptr &&
            (!ep->group_->empty() || ep->group_->is_visited()))
            return ep;
    }
    return nullptr;
}

void DcIface::drained(ib::SendQueue& queue) {
    // A callback may have found no use for it, and given it back already. After a failure
    // settled() decides what is next.
    if (queue.owner != nullptr && static_cast<DcEp*>(queue.owner)->failure_ == UCS_OK)
        give_back(static_cast<Channel&>(queue));
}

void DcIface::end_turns() {
    const std::uint64_t turn =
        policy_ == Policy::kDcsQuota ? dci_options_.quota : options_.tx_depth;
    for (Channel* channel : pool_) {
        auto* ep = static_cast<DcEp*>(channel->owner);
        if (ep == nullptr)
            continue;
        if (channel->posted - channel->turn_begin >= turn)
            channel->reserve = kNoMore;  // but for the request that ends it
        // The requests that it waited to send may have been purged meanwhile.
        const bool has_nothing =
            ep->group_ == nullptr || (ep->group_->empty() && !ep->group_->is_visited());
        if (channel->was_granted && has_nothing && channel->posted == channel->turn_begin)
            gave_up(*ep);
    }
    wants_signals_ = true;
    has_work_ = true;
    // A completion of each request costs less than an empty write behind each.
    if (!std::exchange(is_contended_, true))
        signal_every_ = 1;
}

// One of all that there may be; it is made when it is the first time.
bool DcIface::share_channel(DcEp& ep) {
    const std::uint64_t by_target =
        (ep.key_ ^ ep.number_) * 0x9e3779b97f4a7c15 >> 32;  // the golden ratio's
    const std::uint64_t drawn = policy_ == Policy::kHash ? by_target : ucs::random_u64();
    const auto index = static_cast<std::size_t>(drawn % (dcis_max_ * streams_));
    while (pool_.size() <= index && grow_pool() != nullptr) {
    }
    if (pool_.empty())
        return false;
    ep.queue_ = pool_[index % pool_.size()];
    return true;
}

bool DcIface::make_room(ib::MessageEp& any, unsigned requests, unsigned messages) {
    auto& ep = static_cast<DcEp&>(any);
    const bool has_credit = ep.has_credit(messages);
    if (ep.failure_ != UCS_OK || (!has_credit && ep.has_asked_))
        return false;  // none to waste a channel on
    if (ep.queue_ == &no_queue_ && !(is_shared() ? share_channel(ep) : own_channel(ep)))
        return false;
    if (!has_credit && ep.has_room(requests + 1))
        ask(ep);
    const bool has_places = ep.has_room(requests);
    const bool is_enough = has_places && ep.has_credit(messages);
    // Requests of others may be all that keeps the places, and nobody asked whether they ended.
    if (!has_places && static_cast<Channel*>(ep.queue_)->waits_for_others())
        ask_for_completions();
    if (!is_enough)
        gave_up(ep);
    return is_enough;
}

// It was given a channel and had no use for it.
void DcIface::gave_up(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (!is_shared() && ep.queue_ != &no_queue_ && ep.queue_->is_drained() && ep.failure_ == UCS_OK)
        give_back(static_cast<Channel&>(*ep.queue_));
}

// ---- Posting

int DcIface::post_call(ib::SendQueue& queue, ib::MessageEp& any, ibv_send_wr* first,
                       ibv_send_wr** bad_p) {
    auto& channel = static_cast<Channel&>(queue);
    auto& ep = static_cast<DcEp&>(any);
    const int error = post_to(channel.dci->initiator, first, ep.target(), channel.stream);
    *bad_p = error == 0 ? nullptr : first;
    if (channel.is_shared && error == 0) {
        for (const ibv_send_wr* each = first; each != nullptr; each = each->next) {
            channel.sent->keep(static_cast<std::uint32_t>(each->wr_id), ep, *each);
            ++ep.under_way_;
        }
    }
    return error;
}

// ---- The ends of endpoints

// Its requests end: in a DCI of its own at once, because that goes to error; otherwise when the
// device is done with them, since others have requests there. Where that takes for ever, because a
// peer that is there does not receive, look() makes an end.
void DcIface::stop(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (ep.queue_ == &no_queue_ || ep.has_ended())
        return;
    if (ep.queue_->is_broken) {  // what was posted is being flushed
        // Before others' requests can be posted again some that wait may have to end.
        if (ep.queue_->is_shared)
            closing_.push_back({ep.id_, ucs::clock_now_ns() + close_ns_});
        return;
    }
    auto& channel = static_cast<Channel&>(*ep.queue_);
    if (is_alone(ep)) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        const int error = verbs().modify_qp(channel.qp, &attr, IBV_QP_STATE);
        if (error != 0)
            TW_LOG_ERROR("ibv_modify_qp of a DCI to ERR failed: %s", std::strerror(error));
        channel.is_broken = true;
    } else {
        closing_.push_back({ep.id_, ucs::clock_now_ns() + close_ns_});
    }
    mark_end(channel, ep);
}

/// Nobody else has requests in its DCI.
bool DcIface::is_alone(const DcEp& ep) const {
    const auto& channel = static_cast<const Channel&>(*ep.queue_);
    return !channel.is_shared && !channel.dci->initiator.has_streams;
}

// Where other endpoints have requests, those of this endpoint do not end at once. Operations that
// copy to or from the library's buffers end for the program all the same; their requests go on
// without them.
void DcIface::end_copied(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (ep.queue_ == &no_queue_ || is_alone(ep))
        return;
    ucs::ReserveVector<uct_completion_t*> ended;
    ib::SendOp* previous = nullptr;
    for (ib::SendOp *op = ep.queue_->first, *next = nullptr; op != nullptr; op = next) {
        next = op->next;
        if (op->ep == &ep && op->kind == ib::SendOp::Kind::kFlush) {
            ep.queue_->remove(op, previous);
            keep_flush(ep, *op);
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
            uct::invoke_completion(comp, ep.failure_);
}

bool DcIface::uses_memory(const ib::MessageEp& any) const {
    const auto& ep = static_cast<const DcEp&>(any);
    if (ep.queue_ == &no_queue_ || ep.has_ended())
        return false;
    if (is_alone(ep))
        return true;
    for (const ib::SendOp* op = ep.queue_->first; op != nullptr; op = op->next)
        if (op->ep == &ep && op->kind != ib::SendOp::Kind::kBuffer &&
            op->kind != ib::SendOp::Kind::kFlush && !is_copied(*op))
            return true;
    return false;
}

// Others that have requests there fail, too: what of theirs was carried out nobody can say.
void DcIface::give_up(ib::MessageEp& ep) {
    start_anew(*static_cast<Channel&>(*static_cast<DcEp&>(ep).queue_).dci);
}

// A DCI or a stream where a request failed goes on with others.
void DcIface::restart(Channel& channel) {
    const Initiator& initiator = channel.dci->initiator;
    if (initiator.has_streams)
        restart_stream(ib_md(), *dc_, initiator, channel.stream);
    else
        dc::restart(ib_md(), port(), initiator_params_, initiator);
}

void DcIface::look(std::uint64_t now) {
    if (!std::exchange(is_contended_, false))
        signal_every_ = usual_signal_every_;
    for (std::size_t i = 0; i < closing_.size();) {
        auto* ep = static_cast<DcEp*>(find(closing_[i].ep_id));
        const bool has_ended = ep == nullptr || ep->has_ended();
        if (!has_ended && now < closing_[i].deadline) {
            ++i;
            continue;
        }
        closing_[i] = closing_.back();
        closing_.pop_back();
        if (!has_ended)
            start_anew(*static_cast<Channel&>(*ep->queue_).dci);
    }
}

// Whatever is under way there is given up. Nobody can say what of it was carried out, so everyone
// whose requests they are fails.
void DcIface::start_anew(Dci& dci) {
    constexpr const char* kStartedAnew =
        "its DCI was reset, because requests of a closed endpoint did not end";
    dc::restart(ib_md(), port(), initiator_params_, dci.initiator);
    const bool was_in_progress = std::exchange(in_progress_, true);
    // By index: callbacks may send, and channels be made for that.
    for (std::size_t i = 0; i < channels_.size(); ++i) {
        Channel& channel = *channels_[i];
        if (channel.dci != &dci)
            continue;
        if (channel.is_drained()) {
            if (dci.initiator.has_streams)
                dci.reset(channel);
            continue;
        }
        const std::uint32_t given_up = channel.posted - channel.acked;
        const std::uint32_t first = channel.acked + 1;
        channel.id += 1U << kIndexBits;  // completions that are still there find nobody
        channel.acked = channel.posted;
        if (dci.initiator.has_streams)
            dci.reset(channel);
        else
            channel.free += given_up;
        cq_free_ += given_up;
        channel.clear_unsignaled();
        channel.reserve = 1;
        channel.is_broken = true;  // nothing is posted meanwhile
        for (std::uint32_t sn = first; is_shared() && sn != channel.posted + 1; ++sn) {
            DcEp& ep = *channel.sent->at(sn).ep;
            --ep.under_way_;
            fail(ep, UCS_ERR_CONNECTION_RESET, kStartedAnew);
        }
        if (!is_shared())
            fail(*channel.owner, UCS_ERR_CONNECTION_RESET, kStartedAnew);
        channel.is_broken = false;
        while (ib::SendOp* op = channel.take_any())
            finish(*op->ep, *op, op->ep->failure());
    }
    use_places(dci);
    if (cq_free_ == options_.tx_cq_depth)
        signals_out_ = 0;
    in_progress_ = was_in_progress;
}

// Whoever failed has no requests any more.
bool DcIface::settled(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    if (!is_shared() && ep.queue_ != &no_queue_) {
        auto& channel = static_cast<Channel&>(*ep.queue_);
        if (std::exchange(channel.is_broken, false))
            restart(channel);
        give_back(channel);
    }
    if (ep.is_internal_) {
        std::erase_if(ways_back_, [&](const auto& entry) { return entry.second.ep == &ep; });
        receives_.want_less(buffers_per_peer());
    }
    if (!ep.is_destroyed_ && !ep.is_internal_)
        return true;
    delete_ep(ep);
    return false;
}

}  // namespace tagwire::dc
