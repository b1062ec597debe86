// SPDX-License-Identifier: BSD-3-Clause
// Tables of rc that fill up: queue slots, completions, buffers, credits; each also at the least
// that its option takes, and on sides that only receive.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "entity.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kId = Entity::kAmId;

struct Limits {
    const char* name;
    std::size_t peers;
    std::uint64_t each;  // messages of one peer
    std::vector<std::pair<std::string, std::string>> options;
};

void PrintTo(const Limits& limits, std::ostream* out) {
    *out << limits.name;
}

class RcLimits : public ::testing::TestWithParam<Limits> {
  protected:
    static constexpr std::uint64_t kStillMax = 2'000'000;  // steps without a message

    void open(const std::vector<std::pair<std::string, std::string>>& options, std::size_t peers) {
        EntityOptions with;
        with.iface_config = options;
        receiver_ = std::make_unique<Entity>(resource_of("rc"), with);
        sender_ = std::make_unique<Entity>(resource_of("rc"), with);
        receiver_->keep_record = sender_->keep_record = false;
        for (std::size_t i = 0; i < peers; ++i)
            links_.push_back(connect(*sender_, *receiver_));
    }
    void step() {
        sender_->progress();
        receiver_->progress();
    }
    /// All peers at about the same rate; `send(ep)` answers as an operation does.
    template <class Send>
    void send_all(std::uint64_t each, Send&& send) {
        std::vector<std::uint64_t> sent(links_.size(), 0);
        const std::uint64_t all = each * links_.size();
        std::uint64_t seen = 0;
        for (std::uint64_t still = 0; receiver_->am_count < all; ++still) {
            ASSERT_LT(still, kStillMax) << receiver_->am_count << " of " << all << " arrived, then "
                                        << facts_of(*receiver_, links_[0].backward);
            const std::uint64_t floor = receiver_->am_count / links_.size();
            for (std::size_t i = 0; i < sent.size(); ++i) {
                while (sent[i] < each && sent[i] < floor + 64) {
                    const ucs_status_t status = send(links_[i].forward);
                    if (status == UCS_ERR_NO_RESOURCE)
                        break;
                    ASSERT_EQ(UCS_OK, status);
                    ++sent[i];
                }
            }
            step();
            if (receiver_->am_count != seen) {
                seen = receiver_->am_count;
                still = 0;
            }
        }
        EXPECT_TRUE(sender_->errors.empty());
        EXPECT_TRUE(receiver_->errors.empty());
    }

    std::unique_ptr<Entity> receiver_;
    std::unique_ptr<Entity> sender_;
    std::vector<Connection> links_;
};

// The receiver's credit messages ask for no completion, and nothing else is posted there.
TEST_P(RcLimits, who_only_receives_goes_on_giving_credit) {
    open(GetParam().options, GetParam().peers);
    send_all(GetParam().each, [](uct_ep_h ep) { return uct_ep_am_short(ep, kId, 0, nullptr, 0); });
}

TEST_P(RcLimits, buffers_of_packed_messages_come_back) {
    open(GetParam().options, GetParam().peers);
    const Bytes bytes = pattern(40, 1);
    send_all(std::min<std::uint64_t>(GetParam().each, 200),
             [&](uct_ep_h ep) { return send_am_bytes(ep, kId, bytes); });
}

INSTANTIATE_TEST_SUITE_P(
    Rc, RcLimits,
    ::testing::Values(Limits{"one_peer", 1, 4000, {{"RC_TX_CQ_DEPTH", "64"}}},
                      Limits{"few_peers", 9, 2000, {{"RC_TX_CQ_DEPTH", "64"}}},
                      Limits{"least_completions", 3, 500, {{"RC_TX_CQ_DEPTH", "4"}}},
                      Limits{"least_places", 3, 500, {{"RC_TX_DEPTH", "4"}, {"RC_CREDITS", "1"}}},
                      Limits{"one_buffer", 2, 500, {{"RC_TX_BUFFERS", "1"}}},
                      Limits{"fewer_buffers_than_peers", 9, 500, {{"RC_TX_BUFFERS", "8"}}},
                      Limits{"all_least",
                             3,
                             500,
                             {{"RC_TX_CQ_DEPTH", "4"},
                              {"RC_TX_DEPTH", "4"},
                              {"RC_CREDITS", "1"},
                              {"RC_TX_BUFFERS", "1"}}}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

// The default options, where 65 peers and more used up the completions.
INSTANTIATE_TEST_SUITE_P(Many, RcLimits, ::testing::Values(Limits{"of_200_peers", 200, 4000, {}}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

class RcRequests : public RcLimits {};
INSTANTIATE_TEST_SUITE_P(Rc, RcRequests,
                         ::testing::Values(Limits{"alone", 24, 0, {{"RC_TX_CQ_DEPTH", "64"}}}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// Each end of a queue takes a place in the completion queue, the last ones, too.
TEST_P(RcRequests, ends_of_endpoints_leave_the_limit_of_requests_alone) {
    open(GetParam().options, GetParam().peers);
    const auto fill = [&](std::size_t first) {
        std::uint64_t posted = 0;
        for (bool any = true; any;) {
            any = false;
            for (std::size_t i = first; i < links_.size(); ++i) {
                const ucs_status_t status = uct_ep_am_short(links_[i].forward, kId, 0, nullptr, 0);
                EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_NO_RESOURCE);
                any |= status == UCS_OK;
                posted += status == UCS_OK ? 1 : 0;
            }
        }
        return posted;
    };
    const std::uint64_t first = fill(0);
    EXPECT_GE(64u, first);
    for (std::size_t i = 0; i < 20; ++i) {
        const ucs_status_t status = uct_ep_flush(links_[i].forward, UCT_FLUSH_FLAG_CANCEL, nullptr);
        EXPECT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
    }
    EXPECT_EQ(0u, fill(20)) << "no completion was looked at meanwhile";
    for (std::size_t i = 0; i < 20; ++i) {
        std::uint64_t steps = 0;
        while (uct_ep_flush(links_[i].forward, UCT_FLUSH_FLAG_CANCEL, nullptr) != UCS_OK) {
            ASSERT_LT(++steps, kStillMax) << "what was posted there does not end";
            step();
        }
    }
    links_.erase(links_.begin(), links_.begin() + 20);
    receiver_->am_count = 0;
    send_all(500, [](uct_ep_h ep) { return uct_ep_am_short(ep, kId, 0, nullptr, 0); });
}

// Its queue pairs and receive buffers come back although there is always another message.
TEST_P(RcRequests, a_destroyed_endpoint_is_gone_while_messages_never_end) {
    open({}, 2);
    const long before = fact_of(*receiver_, "endpoints");
    links_[1].backward.reset();
    links_[1].forward.reset();
    const auto send = [&] {
        for (int i = 0; i < 64; ++i)
            uct_ep_am_short(links_[0].forward, kId, 0, nullptr, 0);
    };
    for (int i = 0; i < 100; ++i)
        send();  // more than one look takes
    for (std::uint64_t steps = 0; fact_of(*receiver_, "endpoints") == before; ++steps) {
        ASSERT_LT(steps, kStillMax);
        send();
        sender_->progress();
        receiver_->progress();
    }
}

/// Many endpoints, of which few send: flush and fence of an interface look at those alone.
class FewOfMany : public ::testing::TestWithParam<const char*> {
  protected:
    static constexpr std::size_t kEndpoints = 200;
    static constexpr int kStepsMax = 1'000'000;

    void SetUp() override {
        self_ = std::make_unique<Entity>(resource_of(GetParam()));
        self_->keep_record = false;
        for (std::size_t i = 0; i < kEndpoints; ++i)
            links_.push_back(connect(*self_, *self_));
        flush();
    }
    void send(std::size_t index) {
        for (int i = 0; i < kStepsMax; ++i) {
            const ucs_status_t status =
                uct_ep_am_short(links_[index].forward, kId, index, nullptr, 0);
            if (status == UCS_OK)
                return;
            ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
            self_->progress();
        }
        FAIL() << "no room for a message";
    }
    void flush() {
        for (int i = 0; i < kStepsMax; ++i) {
            if (uct_iface_flush(self_->iface(), 0, nullptr) == UCS_OK)
                return;
            self_->progress();
        }
        FAIL() << "the flush does not end";
    }
    [[nodiscard]] long busy() const { return fact_of(*self_, "send_queues_busy"); }

    std::unique_ptr<Entity> self_;
    std::vector<Connection> links_;
};

TEST_P(FewOfMany, are_all_that_a_flush_of_the_interface_looks_at) {
    EXPECT_EQ(0, busy());
    for (int round = 0; round < 3; ++round) {
        for (const std::size_t index : {std::size_t{3}, std::size_t{77}, kEndpoints - 1})
            send(index);
        EXPECT_LE(busy(), 3);
        EXPECT_EQ(UCS_OK, uct_iface_fence(self_->iface(), 0));
        EXPECT_LE(busy(), 3);
        flush();
        EXPECT_EQ(0, busy());
    }
    EXPECT_EQ(UCS_OK, uct_iface_fence(self_->iface(), 0));
    EXPECT_EQ(9U, self_->am_count);
}

TEST_P(FewOfMany, and_all_of_them_are_flushed_when_all_have_sent) {
    for (std::size_t i = 0; i < kEndpoints; ++i)
        send(i);
    flush();
    EXPECT_EQ(0, busy());
    for (const Connection& link : links_)
        EXPECT_EQ(UCS_OK, uct_ep_flush(link.forward, 0, nullptr));
}

TEST_P(FewOfMany, may_go_while_they_are_busy) {
    for (std::size_t i = 0; i < kEndpoints; ++i)
        send(i);
    links_.resize(kEndpoints / 2);
    flush();
    send(0);
    flush();
    EXPECT_LE(busy(), 1) << "endpoints that were destroyed";
    for (int i = 0; i < kStepsMax && self_->am_count <= kEndpoints / 2; ++i)
        self_->progress();
    EXPECT_GT(self_->am_count, kEndpoints / 2);
}

INSTANTIATE_TEST_SUITE_P(Transports, FewOfMany, testing::Values("rc", "dc"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
