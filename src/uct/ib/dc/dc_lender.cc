// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_lender.hpp"

#include <algorithm>
#include <utility>

#include "ucs/sys/process.hpp"
#include "uct/ib/dc/dc_flow.hpp"
#include "uct/ib/dc/dc_post.hpp"

namespace tagwire::dc {

ChannelLender::ChannelLender(ib::MessageIface& owner, DcFlow& flow, const DcOptions& options)
    : owner_(owner),
      flow_(flow),
      options_(options.dci),
      policy_(static_cast<Policy>(options.dci.policy)),
      pool_(owner, options, post_call),
      shared_(owner, pool_),
      // A device may wait four times as long as it was told before it gives a peer up.
      close_ns_(std::min<std::uint64_t>(
          5'000'000'000,
          4 * options.retries.timeout_ns * (options.retries.retry_count + 1) + 1'000'000'000)) {}

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
    channel.is_turn_over = false;
    channel.set_reserve();
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
    channel.rests = channel.dci->is_breaking || channel.free < places_of_a_turn();
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
        if (channel.rests && !dci.is_breaking && channel.free >= places_of_a_turn()) {
            channel.rests = false;
            hand_on(channel);
        }
        shared_.use_places(channel);
    }
}

void ChannelLender::special_completed(ib::WorkQueue& queue, const ib::Completion& reported) {
    auto& channel = static_cast<Channel&>(queue);
    Dci& dci = *channel.dci;
    ib::Completion completion = reported;
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    // The first that was flushed: all before it were carried out.
    if (dci.is_breaking && !channel.is_broken && sn == channel.stop_mark)
        completion.status = IBV_WC_SUCCESS;
    if (dci.initiator.has_streams)
        dci.ended(channel, sn);
    if (channel.is_shared)
        shared_.completed(channel, completion);
    else
        owner_.owned_completed(channel, completion);
    end_break_if_flushed(dci);
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

void ChannelLender::drained(ib::WorkQueue& queue) {
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
        if (channel->posted - channel->turn_begin >= turn) {
            channel->is_turn_over = true;
            channel->set_reserve();
        }
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

int ChannelLender::post_call(ib::WorkQueue& queue, ib::MessageEp& any, ibv_send_wr* first,
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

ib::MessageEp* ChannelLender::poster_of(const ib::WorkQueue& queue) const {
    const auto& channel = static_cast<const Channel&>(queue);
    if (channel.dci->is_breaking)
        return nullptr;
    return channel.is_shared ? SharedChannels::poster_of(channel) : channel.owner;
}

}  // namespace tagwire::dc
