// SPDX-License-Identifier: BSD-3-Clause
// A shared channel is broken, and what was flushed there waits for places of the ring, which the
// other stream of its DCI keeps.
//
//   ring   d . . | b . . . .        d: to a target that goes    b: to one that is paused
//          ^ first channel ^        .: to a peer                |: an epoch begins
//                 ^ second channel
//
// When d fails the places before b come back, and those are too few for what was flushed.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

class DcBreak : public ::testing::Test {
  protected:
    static constexpr int kStepsMax = 100'000'000;

    static EntityOptions options(const char* receives) {
        EntityOptions options;
        options.iface_config = {
            {"DC_POLICY", "rand"},     {"DC_DCIS", "1"},       {"DC_STREAMS", "2"},
            {"DC_TX_DEPTH", "16"},     {"DC_TIMEOUT", "67ms"}, {"DC_RETRY_COUNT", "2"},
            {"DC_RX_DEPTH", receives}, {"DC_RNDV_MAX", "1"},   {"DC_RNR_TIMER", "1ms"}};
        return options;
    }

    void SetUp() override {
        to_paused_ = connect(sender_, paused_);
        choose_channels();
        ASSERT_FALSE(HasFatalFailure());
        break_first_channel();
    }

    template <class Done>
    bool until(Done&& done) {
        for (int i = 0; i < kStepsMax; ++i) {
            if (done())
                return true;
            sender_.progress();
        }
        return false;
    }
    void progress(int steps) {
        for (int i = 0; i < steps; ++i)
            sender_.progress();
    }

    /// False: refused.
    bool send(uct_ep_h ep) {
        if (uct_ep_am_short(ep, Entity::kAmId, sent_, nullptr, 0) != UCS_OK)
            return false;
        ++sent_;
        return true;
    }

    /// The first channel is the one that to_paused_ does not have.
    void choose_channels() {
        for (int refused = 0; refused < 100; progress(1))
            refused +=
                uct_ep_am_short(to_paused_.forward, Entity::kAmId, 0, nullptr, 0) == UCS_OK ? 0 : 1;
        for (int i = 0; i < 1000 && to_dying_.forward.get() == nullptr; ++i) {
            Connection link = connect(sender_, dying_);
            const bool is_first =
                uct_ep_am_short(link.forward, Entity::kAmId, 0, nullptr, 0) == UCS_OK;
            (is_first ? to_dying_ : others_.emplace_back()) = std::move(link);
        }
        for (int i = 0; i < 1000 && to_peer_.size() < 2; ++i) {
            Connection link = connect(sender_, peer_);
            const bool is_first = send(link.forward);
            (is_first ? to_peer_ : others_).push_back(std::move(link));
        }
        ASSERT_EQ(2U, to_peer_.size());
        others_.clear();
        ASSERT_TRUE(until([&] {
            paused_.progress();
            dying_.progress();
            return has_ended(to_paused_.forward) && has_ended(to_dying_.forward);
        }));
    }

    /// Returns what tells when it has ended.
    Completion& send_zcopy(Entity& from, uct_ep_h ep, std::uint64_t number) {
        const Buffer& payload = payloads_.emplace_back(make_payload(from, 256, 1));
        const uct_iov_t iov = payload.iov();
        Completion& completion = zcopies_.emplace_back();
        EXPECT_EQ(UCS_INPROGRESS, uct_ep_am_zcopy(ep, Entity::kAmId, &number, sizeof number, &iov,
                                                  1, 0, &completion));
        return completion;
    }
    /// It does not where the target has no buffer for it.
    bool ends_soon(Entity& from, uct_ep_h ep) {
        const Completion& completion = send_zcopy(from, ep, 0);
        for (int i = 0; i < 500; ++i)
            from.progress();
        return completion.calls == 1;
    }
    /// A message to the target waits from now on.
    void exhaust(Entity& target) {
        Connection& link = fillers_.emplace_back(connect(filler_, target));
        while (ends_soon(filler_, link.forward)) {
        }
    }

    void break_first_channel() {
        exhaust(dying_);
        exhaust(paused_);
        ASSERT_FALSE(ends_soon(sender_, to_dying_.forward));
        flushed_ = &send_zcopy(sender_, to_peer_[0].forward, sent_++);
        ASSERT_TRUE(send(to_peer_[1].forward));
        Completion checked;  // an epoch begins
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_check(to_paused_.forward, 0, &checked));
        ASSERT_TRUE(until([&] { return checked.calls == 1; }));
        ASSERT_FALSE(ends_soon(sender_, to_paused_.forward));
        while (send(to_peer_[sent_ % 2].forward)) {
        }
        dying_.close_iface();
        ASSERT_TRUE(until([&] {
            return uct_ep_am_short(to_dying_.forward, Entity::kAmId, 0, nullptr, 0) !=
                   UCS_ERR_NO_RESOURCE;
        }));
        progress(100);
        ASSERT_EQ(1U, sender_.errors.size()) << "its failure waits for others";
        EXPECT_FALSE(send(to_peer_[0].forward)) << "there are places again";
    }

    static bool has_ended(uct_ep_h ep) {
        return uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK;
    }
    void expect_all_arrive() {
        EXPECT_TRUE(until([&] {
            peer_.progress();
            return peer_.am_count >= sent_;
        }));
        ASSERT_EQ(sent_, peer_.am_count);
        for (std::size_t i = 0; i < peer_.am.size(); ++i) {
            std::uint64_t number = UINT64_MAX;
            std::memcpy(&number, peer_.am[i].bytes.data(), sizeof number);
            EXPECT_EQ(i, number);
        }
        ASSERT_EQ(1U, sender_.errors.size());
        EXPECT_EQ(static_cast<uct_ep_h>(to_dying_.forward), sender_.errors[0].ep);
    }

    const Resource& resource_ = resource_of("dc");
    Entity sender_{resource_, options("2")};
    Entity paused_{resource_, options("2")};
    Entity dying_{resource_, options("2")};
    Entity peer_{resource_, options("64")};
    Entity filler_{resource_};
    std::deque<Buffer> payloads_;
    std::deque<Completion> zcopies_;
    Connection to_paused_, to_dying_;
    std::vector<Connection> to_peer_, others_, fillers_;
    Completion* flushed_ = nullptr;  // of to_peer_[0]
    std::uint64_t sent_ = 0;
};

// A flush there would be flushed itself, and be one more to post again.
TEST_F(DcBreak, who_flushes_before_all_is_posted_again_waits) {
    std::deque<Completion> flushed;
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(UCS_ERR_NO_RESOURCE,
                  uct_ep_flush(to_peer_[0].forward, UCT_FLUSH_FLAG_LOCAL, &flushed.emplace_back()));
        EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(to_peer_[1].forward, UCT_FLUSH_FLAG_LOCAL, nullptr));
        progress(1);
    }
    EXPECT_TRUE(until([&] {
        paused_.progress();
        return has_ended(to_peer_[0].forward) && has_ended(to_paused_.forward);
    }));
    expect_all_arrive();
}

TEST_F(DcBreak, who_is_destroyed_before_all_is_posted_again_takes_nobody_along) {
    ASSERT_EQ(0, flushed_->calls);
    to_peer_[0].forward.reset();
    EXPECT_EQ(1, flushed_->calls);
    EXPECT_TRUE(until([&] {
        paused_.progress();
        peer_.progress();
        return has_ended(to_peer_[1].forward) && has_ended(to_paused_.forward);
    }));
    EXPECT_TRUE(send(to_peer_[1].forward));
    EXPECT_EQ(1U, sender_.errors.size());
}

TEST_F(DcBreak, what_waits_for_places_gets_them_where_the_dci_is_stopped) {
    Completion closed;
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(to_paused_.forward, UCT_FLUSH_FLAG_CANCEL, &closed));
    EXPECT_TRUE(until([&] { return closed.calls == 1; }));
    EXPECT_EQ(UCS_OK, closed.ended);
    expect_all_arrive();
    for (const Connection& each : to_peer_)
        EXPECT_TRUE(until([&] { return send(each.forward); }));
    expect_all_arrive();
}

}  // namespace
}  // namespace tagwire::test
