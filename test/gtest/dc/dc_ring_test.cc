// SPDX-License-Identifier: BSD-3-Clause
// Send queue slots that the streams of a DCI share, against a ring with one tail as in libmlx5: no
// request is overwritten before it has ended, none is refused, and all slots come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "common/seeds.hpp"
#include "uct/ib/dc/dc_channel.hpp"

namespace tagwire::dc {
namespace {

class Model {
  public:
    explicit Model(std::uint64_t seed) : random_(seed) {
        depth_ = static_cast<std::uint32_t>(8 << below(3));
        channels_.resize(1 + below(8));
        for (auto& channel : channels_) {
            channel = std::make_unique<Channel>();
            channel->free = depth_;
            // Numbers go beyond 32 bits.
            channel->posted = channel->acked = channel->mark = channel->ring_base =
                channel->ring_ended = static_cast<std::uint32_t>(0 - below(300));
            dci_.channels.push_back(channel.get());
        }
        places_.resize(channels_.size());
        share_ = depth_ * static_cast<std::uint32_t>(channels_.size());
    }

    void run() {
        for (int step = 0; step < 3000; ++step) {
            const std::size_t which = below(channels_.size());
            if (below(16) == 0)
                paused_ = below(2 * channels_.size());  // nothing of it ends for a while; or none
            for (std::uint64_t i = below(depth_); i > 0 && channels_[which]->free > 0; --i)
                post(which);
            if (which != paused_ && !places_[which].empty())
                end(which, 1 + below(places_[which].size()));
            if (below(50) == 0)
                replay(which);
        }
        for (std::size_t which = 0; which < channels_.size(); ++which)
            if (!places_[which].empty())
                end(which, places_[which].size());
        for (const auto& channel : channels_)
            EXPECT_EQ(depth_, channel->free);
    }

  private:
    std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

    void post(std::size_t which) {
        Channel& channel = *channels_[which];
        ++channel.posted;
        --channel.free;
        to_ring(which);
    }

    void to_ring(std::size_t which) {
        ASSERT_LT(head_ - tail_, 2 * share_) << "it would be refused";
        places_[which].push_back(head_++);
        std::uint64_t oldest = head_;
        for (const auto& places : places_)
            oldest = places.empty() ? oldest : std::min(oldest, places.front());
        ASSERT_LE(head_ - oldest, share_) << "it overwrites what has not ended";
    }

    void end(std::size_t which, std::uint64_t count) {
        Channel& channel = *channels_[which];
        for (; count > 0; --count) {
            tail_ = places_[which].front() + 1;
            places_[which].pop_front();
            ++channel.acked;
        }
        dci_.ended(channel, channel.acked);
    }

    /// Requests under way are flushed; some are posted again, with numbers from `acked` on.
    void replay(std::size_t which) {
        Channel& channel = *channels_[which];
        auto& places = places_[which];
        if (places.empty())
            return;
        tail_ = places.back() + 1;
        places.clear();
        dci_.ended(channel, channel.posted);
        const std::uint32_t flushed = channel.posted - channel.acked;
        const auto again = static_cast<std::uint32_t>(below(flushed + 1));
        if (channel.free < again) {  // they are given up
            channel.acked = channel.posted;
            return;
        }
        channel.posted_again(channel.acked + again);
        for (std::uint32_t i = 0; i < again; ++i)
            to_ring(which);
    }

    std::mt19937_64 random_;
    std::uint32_t depth_ = 0, share_ = 0;
    Dci dci_;
    std::vector<std::unique_ptr<Channel>> channels_;
    std::vector<std::deque<std::uint64_t>> places_;  // of requests that have not ended
    std::uint64_t head_ = 0, tail_ = 0;
    std::uint64_t paused_ = UINT64_MAX;
};

TEST(DcRing, no_request_is_overwritten_or_refused_and_all_places_come_back) {
    test::for_each_seed(200, [](std::uint64_t seed) { Model(seed).run(); });
}

// A request to a queue pair in error is flushed, and its place comes back: there would be more to
// post again than there are places.
TEST(DcChannel, one_that_is_stopped_takes_nothing_not_even_a_flush) {
    Dci dci;
    Channel owned;
    Channel shared;
    shared.is_shared = true;
    for (Channel* channel : {&owned, &shared}) {
        channel->dci = &dci;
        channel->free = 8;
        dci.channels.push_back(channel);
    }
    dci.set_reserves();
    EXPECT_TRUE(owned.has_last_place());
    EXPECT_TRUE(shared.has_last_place());
    owned.is_broken = shared.is_broken = true;
    dci.set_reserves();
    EXPECT_TRUE(owned.has_last_place()) << "its owner knows";
    EXPECT_FALSE(shared.has_last_place());
    owned.is_broken = shared.is_broken = false;
    dci.is_breaking = true;
    ++dci.holders;
    dci.set_reserves();
    EXPECT_FALSE(owned.has_last_place());
    EXPECT_FALSE(shared.has_last_place());
    dci.is_breaking = false;
    dci.set_reserves();
    EXPECT_FALSE(owned.has_last_place()) << "somebody holds it";
    --dci.holders;
    owned.is_turn_over = true;
    dci.set_reserves();
    EXPECT_TRUE(owned.has_last_place()) << "for what ends the turn";
    EXPECT_GT(owned.reserve, owned.free);
    EXPECT_EQ(1U, shared.reserve);
}

}  // namespace
}  // namespace tagwire::dc
