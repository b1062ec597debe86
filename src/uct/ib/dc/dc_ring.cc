// SPDX-License-Identifier: BSD-3-Clause
// The send ring that the streams of a DCI share.
#include <algorithm>
#include <utility>

#include "uct/ib/dc/dc_pool.hpp"

namespace tagwire::dc {

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
