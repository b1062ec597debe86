// SPDX-License-Identifier: BSD-3-Clause
// A program that gives the processor away itself, behind a lock of its own
// (tw_worker_params_t.away).
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgAwayHandler : private Settings, public MsgTest {
  protected:
    MsgAwayHandler() : Settings({{"TAGWIRE_PROGRESS", "polite"}}) {
        tw_worker_params_t params{};
        params.away = [](void* arg, tw_away_t how) {
            static_cast<MsgAwayHandler*>(arg)->told_ = how;
        };
        params.away_arg = this;
        asks_ = std::make_unique<Node>(context_.get(), params);
    }

    /// Both have an endpoint to the other one.
    void SetUp() override {
        greet(*asks_, node(0));
        greet(node(0), *asks_);
    }
    void greet(Node& from, Node& to) {
        Bytes buffer(data_.size());
        tw_request_h request = nullptr;
        ASSERT_EQ(tw_tag_recv(to.worker(), buffer.data(), buffer.size(), 1, 0, nullptr, &request),
                  TW_INPROGRESS);
        const tw_status_t sent =
            tw_tag_send(from.to(to), data_.data(), data_.size(), 1, nullptr, nullptr);
        ASSERT_TRUE(sent == TW_OK || sent == TW_INPROGRESS) << tw_status_string(sent);
        run_until([&] {
            asks_->progress();
            return tw_request_test(request, nullptr) == TW_OK;
        });
        EXPECT_EQ(buffer, data_);
        tw_request_free(request);
    }
    /// A yield may help one that is in sight. For others it is the transport's choice.
    [[nodiscard]] bool sees_peers() const {
        return asks_->description().find("sees_peers_run: yes") != std::string::npos;
    }
    /// Progress of one side, while the other makes no call, until it would give the processor away.
    tw_away_t next_wish() {
        constexpr unsigned long kCallsMax = 100'000'000;
        told_.reset();
        for (unsigned long calls = 0; calls < kCallsMax && !told_; ++calls)
            asks_->progress();
        EXPECT_TRUE(told_) << "it was never told";
        return told_.value_or(TW_AWAY_YIELD);
    }

    const Bytes data_ = pattern(10, 1);
    std::unique_ptr<Node> asks_;
    std::optional<tw_away_t> told_;
};

TEST_F(MsgAwayHandler, is_told_in_place_of_progress_going_away) {
    const tw_away_t first = next_wish();
    EXPECT_EQ(next_wish(), first);
    if (sees_peers()) {
        EXPECT_EQ(first, TW_AWAY_YIELD);
    }
    EXPECT_EQ(asks_->counter("yields"), 0U);
    EXPECT_EQ(asks_->counter("naps"), 0U);
}

// Naps end by the clock, which may be over on a busy machine before anything is asked for.
TEST_F(MsgAwayHandler, is_told_of_naps_behind_yields_that_took_a_slice) {
    constexpr std::uint64_t kSecondNs = 1'000'000'000;
    constexpr std::uint64_t kYieldsMax = 1000;
    std::uint64_t yields = 0;
    tw_away_t how = next_wish();
    if (sees_peers()) {
        EXPECT_EQ(how, TW_AWAY_YIELD);
    }
    for (; how == TW_AWAY_YIELD && yields < kYieldsMax; ++yields) {
        const auto now = static_cast<std::uint64_t>(
            std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
        ASSERT_EQ(tw_worker_was_away(asks_->worker(), TW_AWAY_YIELD, now - kSecondNs, now), TW_OK);
        how = next_wish();
    }
    EXPECT_EQ(how, TW_AWAY_NAP);
    EXPECT_GE(yields, 2U) << "one alone may be an accident";
    ASSERT_EQ(tw_worker_was_away(asks_->worker(), TW_AWAY_NAP, 0, TW_NAP_NS), TW_OK);
    EXPECT_EQ(asks_->counter("yields"), yields);
    EXPECT_EQ(asks_->counter("naps"), 1U);
    EXPECT_EQ(asks_->counter("away"), yields * kSecondNs + TW_NAP_NS);
}

TEST_F(MsgAwayHandler, what_is_no_time_away_is_refused) {
    tw_worker_h const worker = asks_->worker();
    EXPECT_EQ(tw_worker_was_away(nullptr, TW_AWAY_YIELD, 0, 1), TW_ERR_INVALID_PARAM);
    for (const int unknown : {-1, TW_AWAY_NAP + 1})
        EXPECT_EQ(tw_worker_was_away(worker, std::bit_cast<tw_away_t>(unknown), 0, 1),
                  TW_ERR_INVALID_PARAM)
            << unknown;
    EXPECT_EQ(tw_worker_was_away(worker, TW_AWAY_YIELD, 2, 1), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_worker_was_away(worker, TW_AWAY_YIELD, 1, UINT64_MAX), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(asks_->counter("yields"), 0U);
}

}  // namespace
}  // namespace tagwire::test
