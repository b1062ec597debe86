// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that wait for a DCI take turns: while all have something to send, the messages of
// another endpoint between two of one's own are bounded. No endpoint fails because a peer does not
// progress for a while.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kTurnStepsMax = 20'000'000;
constexpr std::uint32_t kDispatchMax = 32;  // requests that wait, served in one call of progress

struct Pool {
    unsigned dcis;
    unsigned endpoints;
    std::uint32_t quota;
};

void PrintTo(const Pool& pool, std::ostream* out) {
    *out << pool.endpoints << " endpoints, " << pool.dcis << " DCIs";
}

EntityOptions options_of(const Pool& pool) {
    EntityOptions options;
    options.iface_config = {{"DC_POLICY", "dcs_quota"},
                            {"DC_STREAMS", "1"},
                            {"DC_DCIS", std::to_string(pool.dcis)},
                            {"DC_QUOTA", std::to_string(pool.quota)}};
    return options;
}

/// One endpoint of many that send as long as they may.
struct Turn : uct_pending_req_t {
    Endpoint ep;
    class Round* round = nullptr;
    std::uint32_t sent = 0;
    std::vector<std::uint32_t> seen;  // of each endpoint, when this one sent its last
};

class Round {
  public:
    Round(const Pool& pool, std::uint32_t messages)
        : pool_(pool), messages_(messages), sender_(resource_of("dc"), options_of(pool)) {
        for (int i = 0; i < 3; ++i) {
            targets_.push_back(std::make_unique<Entity>(resource_of("dc"), options_of(pool)));
            targets_.back()->keep_record = false;
        }
        for (unsigned i = 0; i < pool.endpoints; ++i) {
            auto turn = std::make_unique<Turn>();
            turn->ep = connect(sender_, *targets_[i % targets_.size()]).forward;
            turn->round = this;
            turn->seen.resize(pool.endpoints);
            turn->func = [](uct_pending_req_t* self) {
                auto& mine = *static_cast<Turn*>(self);
                return mine.round->take(mine);
            };
            turns_.push_back(std::move(turn));
        }
    }

    /// Until the first endpoint has sent all of its messages; then the others may go on alone.
    void run() {
        for (const auto& turn : turns_)
            ASSERT_EQ(UCS_OK, uct_ep_pending_add(turn->ep, turn.get(), 0));
        std::uint64_t steps = 0;
        while (left_ > 0 && ++steps < kTurnStepsMax)
            step();
        EXPECT_EQ(0U, left_);
        const std::uint64_t all = std::uint64_t{messages_} * pool_.endpoints;
        while (arrived() < all && ++steps < kTurnStepsMax)
            step();
        EXPECT_EQ(all, arrived());
        for (const auto& turn : turns_)
            turn->ep.reset();
    }

    /// The most that one other endpoint sent between two messages of any.
    [[nodiscard]] std::uint32_t most_of_one() const { return most_of_one_; }

  private:
    void step() {
        sender_.progress();
        for (const auto& target : targets_)
            target->progress();
    }

    [[nodiscard]] std::uint64_t arrived() const {
        std::uint64_t all = 0;
        for (const auto& target : targets_)
            all += target->am_count;
        return all;
    }

    ucs_status_t take(Turn& turn) {
        const ucs_status_t status = uct_ep_am_short(turn.ep, Entity::kAmId, turn.sent, nullptr, 0);
        if (status != UCS_OK)
            return status;
        for (unsigned i = 0; i < turns_.size() && left_ == pool_.endpoints; ++i)
            if (turns_[i].get() != &turn)
                most_of_one_ = std::max(most_of_one_, turns_[i]->sent - turn.seen[i]);
        for (unsigned i = 0; i < turns_.size(); ++i)
            turn.seen[i] = turns_[i]->sent;
        if (++turn.sent < messages_)
            return UCS_INPROGRESS;
        --left_;
        return UCS_OK;
    }

    Pool pool_;
    std::uint32_t messages_;
    Entity sender_;
    std::vector<std::unique_ptr<Entity>> targets_;
    std::vector<std::unique_ptr<Turn>> turns_;
    unsigned left_ = pool_.endpoints;
    std::uint32_t most_of_one_ = 0;
};

class DcTurns : public ::testing::TestWithParam<Pool> {};

// An endpoint that waits has at most two turns of another before its own, each of a quota plus the
// messages that one call of progress lets through before the next look.
TEST_P(DcTurns, nobody_sees_more_than_two_turns_of_another_between_its_own) {
    const Pool& pool = GetParam();
    Round round(pool, 1000);
    round.run();
    RecordProperty("most_of_one", static_cast<int>(round.most_of_one()));
    std::printf("most of another between two messages: %u\n", round.most_of_one());
    EXPECT_LE(round.most_of_one(), 2 * (pool.quota + kDispatchMax));
}

INSTANTIATE_TEST_SUITE_P(Dc, DcTurns,
                         ::testing::Values(Pool{1, 2, 32}, Pool{1, 50, 32}, Pool{1, 200, 1},
                                           Pool{2, 50, 8}, Pool{8, 200, 32}),
                         [](const auto& parameter) {
                             const Pool& pool = parameter.param;
                             return std::to_string(pool.endpoints) + "_endpoints_" +
                                    std::to_string(pool.dcis) + "_dcis_quota_" +
                                    std::to_string(pool.quota);
                         });

// More than the receiver has posted, from senders that have not asked yet: they wait for it, longer
// than a message is sent again for want of a buffer.
TEST(DcPatience, nobody_fails_while_a_peer_does_not_progress) {
    Entity receiver(resource_of("dc"));
    receiver.keep_record = false;
    std::vector<std::unique_ptr<Entity>> senders;
    std::vector<Endpoint> eps;
    for (int i = 0; i < 8; ++i) {
        senders.push_back(std::make_unique<Entity>(
            resource_of("dc"), EntityOptions{.iface_config = {{"DC_STREAMS", "1"}}}));
        eps.push_back(connect(*senders.back(), receiver).forward);
    }
    std::uint64_t sent = 0;
    for (int i = 0; i < 200'000; ++i) {
        for (std::size_t k = 0; k < eps.size(); ++k) {
            sent += uct_ep_am_short(eps[k], Entity::kAmId, 0, nullptr, 0) == UCS_OK ? 1 : 0;
            senders[k]->progress();
        }
    }
    EXPECT_GT(sent, 1000U);
    for (std::uint64_t i = 0; i < kTurnStepsMax && receiver.am_count < sent; ++i) {
        receiver.progress();
        for (const auto& sender : senders)
            sender->progress();
    }
    EXPECT_EQ(sent, receiver.am_count);
    for (const auto& sender : senders)
        EXPECT_TRUE(sender->errors.empty());
}

}  // namespace
}  // namespace tagwire::test
