// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_channel.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "uct/ib/dc/dc_ep.hpp"

namespace tagwire::dc {

// ---- The requests that a shared channel keeps

SentRing::SentRing(std::uint32_t depth)
    : mask_(std::bit_ceil(depth) - 1), requests_(std::bit_ceil(depth)) {}

void SentRing::keep(std::uint32_t sn, DcEp& ep, const ibv_send_wr& request) {
    SentRequest& kept = at(sn);
    kept.ep = &ep;
    kept.request = request;
    kept.request.next = nullptr;
    const auto count = static_cast<std::size_t>(request.num_sge);
    if ((request.send_flags & IBV_SEND_INLINE) == 0) {
        std::copy_n(request.sg_list, count, kept.pieces);
    } else {
        std::uint32_t bytes = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const ibv_sge& piece = request.sg_list[i];
            // NOLINTNEXTLINE: as verbs has it
            const void* from = reinterpret_cast<const void*>(piece.addr);
            std::memcpy(kept.data + bytes, from, piece.length);
            bytes += piece.length;
        }
        kept.pieces[0] = {ib::address_of(kept.data), bytes, 0};
        kept.request.num_sge = 1;
    }
    kept.request.sg_list = kept.pieces;
}

void SentRing::move(std::uint32_t from, std::uint32_t to) {
    SentRequest& kept = at(to);
    if (&kept == &at(from))
        return;
    kept = at(from);
    kept.request.sg_list = kept.pieces;
    if ((kept.request.send_flags & IBV_SEND_INLINE) != 0)
        kept.pieces[0].addr = ib::address_of(kept.data);
}

// ---- Channels

void Channel::set_reserve() {
    const bool is_stopped = (is_shared && is_broken) || dci->is_breaking || dci->holders != 0;
    reserve = is_stopped ? kStopped : is_turn_over ? kNoMore : 1;
}

// ---- The send ring that the streams of a DCI share

void Channel::give_places_up_to(std::uint32_t number) {
    if (static_cast<std::int32_t>(number - ring_base) <= 0)
        return;
    free += number - ring_base;
    ring_base = number;
}

void Dci::ended(Channel& channel, std::uint32_t sn) {
    channel.ring_ended = sn + channel.replayed;
    if (channel.is_behind && static_cast<std::int32_t>(channel.ring_ended - channel.mark) >= 0) {
        channel.is_behind = false;
        --behind;
    }
    while (behind == 0 && !is_settled())
        next_epoch();
    for (const Channel* other : channels)
        if (other != &channel && !other->has_all_ended())
            return;
    // Nobody else has anything in the ring: where the oldest of this one lies is known.
    channel.give_places_up_to(channel.ring_ended);
}

void Dci::reset(Channel& channel) {
    channel.ring_ended = channel.ring_end();
    channel.give_places_up_to(channel.ring_ended);
    if (std::exchange(channel.is_behind, false))
        --behind;
}

bool Dci::serves_others() const {
    for (const Channel* channel : channels) {
        if (!channel->is_shared && !channel->is_drained() && channel->owner->failure == UCS_OK)
            return true;
        for (std::uint32_t sn = channel->acked + 1; channel->is_shared && sn != channel->posted + 1;
             ++sn)
            if (channel->sent->at(sn).ep->failure == UCS_OK)
                return true;
    }
    return false;
}

void Dci::set_reserves() {
    for (Channel* channel : channels)
        channel->set_reserve();
}

// All that was posted before it began has ended.
void Dci::next_epoch() {
    for (Channel* channel : channels) {
        channel->give_places_up_to(channel->mark);
        channel->mark = channel->ring_end();
        channel->is_behind = !channel->has_all_ended();
        behind += channel->is_behind ? 1 : 0;
    }
}

bool Dci::is_settled() const {
    return std::ranges::all_of(
        channels, [](const Channel* channel) { return channel->ring_base == channel->ring_end(); });
}

}  // namespace tagwire::dc
