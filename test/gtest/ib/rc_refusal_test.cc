// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of rc whose device refuses a call in the middle of an operation, or that have failed
// before they are destroyed. The virtual HCA's functions are replaced by the test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "entity.hpp"
#include "operations.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::test {
namespace {

constexpr int kRefusalStepsMax = 2'000'000;

template <class Done>
bool both_until(Entity& one, Entity& other, Done&& done) {
    for (int i = 0; i < kRefusalStepsMax; ++i) {
        if (done())
            return true;
        one.progress();
        other.progress();
    }
    return false;
}

ucs_status_t end_by_cancel(uct_ep_h ep) {
    return uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, nullptr);
}

// ---- Connections

/// Changes of the state of queue pairs to ready-to-send, one of which is refused.
struct Refusal {
    static inline decltype(ib::VerbsTable::modify_qp) modify_qp = nullptr;
    static inline int refused = 0;  // which; 0: none
    static inline int seen = 0;

    static int modify(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
        if ((mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RTS && ++seen == refused)
            return EINVAL;
        return modify_qp(qp, attr, mask);
    }
};

Endpoint unconnected(const Entity& entity) {
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = entity.iface();
    uct_ep_h ep = nullptr;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_OK);
    return Endpoint(ep);
}

/// `peer` is an endpoint of `to`.
ucs_status_t connect_to(const Endpoint& ep, const Entity& to, const Endpoint& peer) {
    const Bytes device = to.device_address();
    Bytes address(to.attr().ep_addr_len);
    auto* bytes = reinterpret_cast<uct_ep_addr_t*>(address.data());
    EXPECT_EQ(uct_ep_get_address(peer, bytes), UCS_OK);
    return uct_ep_connect_to_ep(ep, reinterpret_cast<const uct_device_addr_t*>(device.data()),
                                bytes);
}

class RcConnect : public testing::TestWithParam<int> {
  protected:
    static ib::VerbsTable& verbs_of_md(uct_md_h md) {
        return const_cast<ib::VerbsTable&>(  // NOLINT: of this process
            static_cast<ib::IbMd&>(uct::md_of(md)).verbs());
    }
    ~RcConnect() override {
        if (verbs_ != nullptr)
            verbs_->modify_qp = Refusal::modify_qp;
    }
    EntityOptions refusing() {
        EntityOptions options;
        options.before_iface = [this](uct_md_h md) {
            verbs_ = &verbs_of_md(md);
            Refusal::modify_qp = verbs_->modify_qp;
            Refusal::refused = GetParam();
            Refusal::seen = 0;
            verbs_->modify_qp = Refusal::modify;
        };
        return options;
    }

    ib::VerbsTable* verbs_ = nullptr;
};

// The first queue pair is connected by then, or is about to be.
TEST_P(RcConnect, that_was_refused_may_be_tried_again) {
    Entity other(resource_of("rc"));
    Entity one(resource_of("rc"), refusing());
    if (fact_of(one, "qps_per_peer") != 2)
        GTEST_SKIP() << "there is one queue pair";
    const Endpoint there = unconnected(one);
    const Endpoint back = unconnected(other);
    testing::internal::CaptureStderr();
    EXPECT_LT(connect_to(there, other, back), UCS_OK);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::HasSubstr("ibv_modify_qp to RTS failed: Invalid argument"));
    EXPECT_EQ(Refusal::seen, Refusal::refused);
    ASSERT_EQ(connect_to(there, other, back), UCS_OK);
    ASSERT_EQ(connect_to(back, one, there), UCS_OK);
    Receive receive(other, 10'000);
    ASSERT_EQ(receive.post(7), UCS_OK);
    ASSERT_EQ(send_eager_bytes(there, 7, 0, Bytes(100, std::byte{5})), UCS_OK);
    ASSERT_EQ(uct_ep_am_short(back, Entity::kAmId, 1, nullptr, 0), UCS_OK);
    EXPECT_TRUE(
        both_until(one, other, [&] { return receive.completed == 1 && one.am_count == 1; }));
}

INSTANTIATE_TEST_SUITE_P(OfItsQueuePairs, RcConnect, testing::Values(1, 2),
                         [](const auto& parameter) {
                             return parameter.param == 1 ? "the_first" : "the_second";
                         });

// ---- Chains of requests

/// Takes the first requests of a chain alone, as a device does whose queue is full.
struct ShortQueue {
    static inline decltype(ibv_context_ops::post_send) post_send = nullptr;
    static inline int taken = -1;          // requests of the next chain; -1: all
    static inline std::uint64_t head = 0;  // where that of the newest chain lies

    static int post(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad_p) {
        if (requests->num_sge > 0)
            head = requests->sg_list[0].addr;
        const int count = std::exchange(taken, -1);
        if (count < 0)
            return post_send(qp, requests, bad_p);
        ibv_send_wr* last = nullptr;
        ibv_send_wr* rest = requests;
        for (int i = 0; i < count; ++i) {
            last = rest;
            rest = rest->next;
        }
        if (last != nullptr) {
            last->next = nullptr;
            const int error = post_send(qp, requests, bad_p);
            last->next = rest;
            if (error != 0)
                return error;
        }
        *bad_p = rest;
        return ENOMEM;
    }
};

class RcChain : public testing::Test {
  protected:
    static EntityOptions refusing() {
        EntityOptions options;
        options.iface_config = {{"RC_TAG_MATCHING", "software"}};
        options.before_iface = [](uct_md_h md) {
            ibv_context& context = *static_cast<ib::IbMd&>(uct::md_of(md)).device().context();
            ShortQueue::post_send = context.ops.post_send;
            ShortQueue::taken = -1;
            context.ops.post_send = ShortQueue::post;
        };
        return options;
    }
    /// Refused by the device, which has taken `requests` of its chain; where its heads lie.
    std::uint64_t refuse_after(int requests) {
        const uct_iov_t iov = long_payload_.iov();
        ShortQueue::taken = requests;
        testing::internal::CaptureStderr();
        EXPECT_EQ(UCS_ERR_IO_ERROR,
                  uct_ep_tag_eager_zcopy(first_.forward, 1, 0, &iov, 1, 0, nullptr));
        EXPECT_THAT(testing::internal::GetCapturedStderr(),
                    testing::HasSubstr("ibv_post_send failed: Cannot allocate memory"));
        return ShortQueue::head;
    }
    ucs_status_t send_other() {
        const uct_iov_t iov = short_payload_.iov();
        return uct_ep_am_zcopy(second_.forward, Entity::kAmId, nullptr, 0, &iov, 1, 0, nullptr);
    }
    void expect_failure_of_one() {
        EXPECT_TRUE(both_until(sender_, receiver_, [&] { return !sender_.errors.empty(); }));
        ASSERT_EQ(1U, sender_.errors.size());
        EXPECT_EQ(first_.forward.get(), sender_.errors[0].ep);
        EXPECT_TRUE(both_until(sender_, receiver_, [&] { return receiver_.am_count == 1; }));
    }

    Entity sender_{resource_of("rc"), refusing()};
    Entity receiver_{resource_of("rc"), {.iface_config = {{"RC_TAG_MATCHING", "software"}}}};
    const Connection first_ = connect(sender_, receiver_);
    const Connection second_ = connect(sender_, receiver_);
    const Buffer long_payload_ = make_payload(sender_, sender_.attr().cap.tag.eager.max_zcopy, 1);
    const Buffer short_payload_ = make_payload(sender_, 1000, 2);
};

// The device may not have read them yet, and what it carries out it does not tell of: the request
// that was to was refused.
TEST_F(RcChain, keeps_its_heads_while_requests_of_it_are_under_way) {
    const std::uint64_t heads = refuse_after(1);
    EXPECT_GE(send_other(), UCS_OK);
    EXPECT_NE(heads, ShortQueue::head) << "they are written over";
    expect_failure_of_one();
}

TEST_F(RcChain, of_which_nothing_was_taken_fails_its_endpoint_alone) {
    refuse_after(0);
    EXPECT_GE(send_other(), UCS_OK);
    expect_failure_of_one();
}

// ---- Endpoints that have failed

class RcFailed : public testing::Test {
  protected:
    static constexpr std::size_t kRounds = 8;
    static constexpr int kTimesMax = 10;

    /// Steps from the destruction of an endpoint until the interface has let it go.
    int steps_to_go(bool has_failed) {
        Connection link = connect(one_, other_);
        const long before = fact_of(one_, "endpoints");
        if (has_failed) {
            EXPECT_TRUE(
                both_until(one_, other_, [&] { return end_by_cancel(link.forward) == UCS_OK; }));
            // Some looks, so that the events of its queue pairs have come.
            for (int i = 0; i < kTimesMax * slowest_; ++i)
                one_.progress();
        }
        link.forward.reset();
        int steps = 0;
        EXPECT_TRUE(both_until(one_, other_,
                               [&] { return ++steps > 0 && fact_of(one_, "endpoints") < before; }));
        return steps;
    }

    Entity one_{resource_of("rc")};
    Entity other_{resource_of("rc")};
    int slowest_ = 0;
};

// The events of its queue pairs, for which a destroyed one waits, have come before.
TEST_F(RcFailed, endpoints_go_as_soon_as_others) {
    for (std::size_t i = 0; i < kRounds; ++i)
        slowest_ = std::max(slowest_, steps_to_go(false));
    int quickest = kRefusalStepsMax;
    for (std::size_t i = 0; i < kRounds; ++i)
        quickest = std::min(quickest, steps_to_go(true));
    EXPECT_LE(quickest, kTimesMax * slowest_);
}

}  // namespace
}  // namespace tagwire::test
