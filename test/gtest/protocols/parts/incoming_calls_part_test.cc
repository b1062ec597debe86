// SPDX-License-Identifier: BSD-3-Clause
// The requests that have come, alone: handlers, replies once, limits, and refusals that wait for
// room.
#include "protocols/call/incoming_calls.hpp"

#include <gtest/gtest.h>

#include <array>
#include <new>
#include <vector>

#include "protocols/parts/fake_calls.hpp"

namespace tagwire::test {
namespace {

using proto::CallHeader;
using proto::ReplyHeader;
using proto::WorkerCounter;

class IncomingCallsPart : public testing::Test {
  protected:
    static constexpr std::uint64_t kSource = 77;
    static constexpr std::uint32_t kMethod = 5;
    static constexpr std::size_t kBytesMax = 1000, kRequestsMax = 4;

    IncomingCallsPart() { calls_.set(kMethod, &IncomingCallsPart::take, this); }

    void ask(std::uint64_t id, std::size_t length = 0, std::uint32_t flags = 0,
             std::uint32_t method = kMethod) {
        CallHeader header;
        header.id = id;
        header.method = method;
        header.timeout_ns = 9;
        tw_am_t am = FakeCallWorld::am(header, kSource, data_.data(), length, flags);
        calls_.on_request(am);
    }
    tw_status_t reply(std::uint64_t request, std::size_t length = 0, const tw_op_t* op = nullptr) {
        return calls_.reply({request, -2, data_.data(), length}, op, nullptr);
    }
    /// The last message that was sent is a refusal of the call.
    void expect_refusal(std::uint64_t id, tw_status_t status) {
        ASSERT_FALSE(world_.sent.empty());
        const FakeCallWorld::Sent& last = world_.sent.back();
        EXPECT_EQ(last.to, kSource);
        EXPECT_EQ(last.id, proto::kReplyAmId);
        EXPECT_NE(last.op.flags & TW_OP_URGENT, 0U);
        const auto header = FakeCallWorld::header_of<ReplyHeader>(last);
        EXPECT_TRUE(header.is_refusal());
        EXPECT_EQ(header.id, id);
        EXPECT_EQ(header.status, status);
    }
    static void take(void* arg, tw_call_request_t* request) {
        auto& self = *static_cast<IncomingCallsPart*>(arg);
        const nomem::Spared spared;
        self.seen_.push_back(*request);
        if (self.keeps_) {
            EXPECT_EQ(proto::IncomingCalls::keep(*request), TW_OK);
        }
    }

    std::array<std::byte, 2000> data_{};
    std::vector<tw_call_request_t> seen_;
    bool keeps_ = false;
    FakeCallWorld world_;
    const proto::CallPort port_ = world_.port();
    proto::IncomingCalls calls_{port_, {.requests_max = kRequestsMax, .bytes_max = kBytesMax}};
};

TEST_F(IncomingCallsPart, a_request_is_replied_to_once) {
    ask(11, 100);
    ASSERT_EQ(seen_.size(), 1U);
    EXPECT_EQ(seen_[0].method, kMethod);
    EXPECT_EQ(seen_[0].length, 100U);
    EXPECT_EQ(seen_[0].source, kSource);
    EXPECT_EQ(seen_[0].timeout_ns, 9U);
    EXPECT_EQ(reply(seen_[0].id, 20), TW_OK);
    ASSERT_EQ(world_.sent.size(), 1U);
    const auto header = FakeCallWorld::header_of<ReplyHeader>(world_.sent[0]);
    EXPECT_EQ(header.id, 11U);
    EXPECT_EQ(header.status, -2);
    EXPECT_FALSE(header.is_refusal());
    EXPECT_EQ(world_.sent[0].length, 20U);
    EXPECT_EQ(reply(seen_[0].id), TW_ERR_NO_ELEM);
    EXPECT_EQ(calls_.open_requests(), 0U);
    ask(12);
    EXPECT_NE(seen_[1].id, seen_[0].id);  // in the same place
    EXPECT_EQ(reply(seen_[0].id), TW_ERR_NO_ELEM);
    for (const std::uint64_t unknown : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}})
        EXPECT_EQ(reply(unknown), TW_ERR_NO_ELEM);
    EXPECT_EQ(reply(seen_[1].id), TW_OK);
}

TEST_F(IncomingCallsPart, a_reply_that_could_not_begin_may_be_repeated) {
    keeps_ = true;
    ask(11, 10);
    for (const tw_status_t status :
         {TW_ERR_NO_RESOURCE, TW_ERR_NO_MEMORY, TW_ERR_INVALID_PARAM, TW_ERR_EXCEEDS_LIMIT}) {
        world_.sends = status;
        EXPECT_EQ(reply(seen_[0].id), status);
        EXPECT_TRUE(world_.released.empty());
    }
    world_.sends = TW_ERR_NOT_CONNECTED;
    EXPECT_EQ(reply(seen_[0].id), TW_ERR_NOT_CONNECTED);
    EXPECT_EQ(world_.released.size(), 1U);
    EXPECT_EQ(reply(seen_[0].id), TW_ERR_NO_ELEM);
}

TEST_F(IncomingCallsPart, short_replies_are_urgent_unless_they_ask_for_a_level) {
    tw_op_t delivered{};
    delivered.flags = TW_OP_DELIVERY_COMPLETE;
    for (int i = 0; i < 3; ++i)
        ask(static_cast<std::uint64_t>(i));
    EXPECT_EQ(reply(seen_[0].id, 100), TW_OK);
    EXPECT_NE(world_.sent[0].op.flags & TW_OP_URGENT, 0U);
    EXPECT_EQ(reply(seen_[1].id, 100, &delivered), TW_OK);
    EXPECT_EQ(world_.sent[1].op.flags & TW_OP_URGENT, 0U);
    EXPECT_EQ(reply(seen_[2].id, TW_AM_URGENT_MAX), TW_OK);
    EXPECT_EQ(world_.sent[2].op.flags & TW_OP_URGENT, 0U);
}

TEST_F(IncomingCallsPart, long_requests_are_received_before_their_handler_runs) {
    ask(11, 600, TW_AM_RNDV);
    EXPECT_TRUE(seen_.empty());
    ASSERT_EQ(world_.received.size(), 1U);
    ask(12, 500, TW_AM_RNDV);
    expect_refusal(12, TW_ERR_NO_RESOURCE);
    ask(13, kBytesMax + 1, TW_AM_RNDV);
    expect_refusal(13, TW_ERR_EXCEEDS_LIMIT);
    FakeCallWorld::end(world_.received[0], TW_OK, 600);
    ASSERT_EQ(seen_.size(), 1U);
    EXPECT_EQ(seen_[0].length, 600U);
    EXPECT_NE(seen_[0].data, nullptr);
    EXPECT_EQ(reply(seen_[0].id), TW_OK);
    // Room again; one whose caller has gone leaves nothing.
    ask(14, kBytesMax, TW_AM_RNDV);
    ASSERT_EQ(world_.received.size(), 2U);
    FakeCallWorld::end(world_.received[1], TW_ERR_CONNECTION_RESET, 0);
    EXPECT_EQ(seen_.size(), 1U);
    EXPECT_EQ(calls_.open_requests(), 0U);
    world_.receives = TW_ERR_NO_RESOURCE;
    ask(15, kBytesMax, TW_AM_RNDV);
    expect_refusal(15, TW_ERR_NO_RESOURCE);
    EXPECT_EQ(calls_.open_requests(), 0U);
}

TEST_F(IncomingCallsPart, methods_and_places_that_are_not_there_are_refused) {
    ask(11, 0, 0, kMethod + 1);
    expect_refusal(11, TW_ERR_NO_ELEM);
    for (std::uint64_t id = 0; id < kRequestsMax; ++id)
        ask(id);
    ask(12);
    expect_refusal(12, TW_ERR_NO_RESOURCE);
    EXPECT_EQ(world_.counted(WorkerCounter::kCallTurnedAway), 2U);
    EXPECT_EQ(reply(seen_[2].id), TW_OK);
    ask(13);
    EXPECT_EQ(seen_.size(), kRequestsMax + 1);
    // The handler goes while data of its request comes.
    EXPECT_EQ(reply(seen_[0].id), TW_OK);
    ask(14, 10, TW_AM_RNDV);
    calls_.set(kMethod, nullptr, nullptr);
    FakeCallWorld::end(world_.received.back(), TW_OK, 10);
    expect_refusal(14, TW_ERR_NO_ELEM);
}

TEST_F(IncomingCallsPart, malformed_requests_are_dropped) {
    CallHeader header;
    header.method = kMethod;
    for (int what = 0; what < 4; ++what) {
        CallHeader wrong = header;
        tw_am_t am = FakeCallWorld::am(wrong, kSource);
        wrong.version = what == 0 ? 0 : wrong.version;
        wrong.reserved = what == 1 ? 1 : 0;
        am.header_length = what == 2 ? 0 : what == 3 ? 23 : am.header_length;
        calls_.on_request(am);
    }
    EXPECT_EQ(world_.counted(WorkerCounter::kCallRefused), 4U);
    EXPECT_TRUE(seen_.empty());
    EXPECT_TRUE(world_.sent.empty());
}

TEST_F(IncomingCallsPart, refusals_wait_for_room) {
    world_.sends = TW_ERR_NO_RESOURCE;
    for (std::uint64_t id = 0; id < proto::IncomingCalls::kRefusalsMax + 10; ++id)
        ask(id, 0, 0, kMethod + 1);
    EXPECT_TRUE(calls_.has_refusals());
    calls_.look();
    EXPECT_TRUE(calls_.has_refusals());
    world_.sent.clear();
    world_.sends = TW_OK;
    calls_.look();
    EXPECT_EQ(world_.sent.size(), proto::IncomingCalls::kRefusalsMax);
    EXPECT_FALSE(calls_.has_refusals());
}

TEST_F(IncomingCallsPart, what_is_kept_is_released_by_the_reply) {
    keeps_ = true;
    ask(11, 10);
    ask(12);  // nothing to keep
    EXPECT_EQ(reply(seen_[0].id), TW_OK);
    EXPECT_EQ(reply(seen_[1].id), TW_OK);
    EXPECT_EQ(world_.released.size(), 1U);
}

TEST_F(IncomingCallsPart, whatever_has_no_memory_each_request_is_answered_once) {
    for (unsigned long which = 1; which < 20; ++which) {
        proto::IncomingCalls calls(port_, {.requests_max = 1000, .bytes_max = 1 << 20});
        calls.set(kMethod, &IncomingCallsPart::take, this);
        seen_.clear();
        world_.sent.clear();
        world_.received.clear();
        {
            const FailingAllocation failing(which);
            for (std::uint64_t id = 0; id < 100; ++id) {
                CallHeader header;
                header.id = id;
                header.method = kMethod;
                tw_am_t am = FakeCallWorld::am(header, kSource, data_.data(), 100,
                                               id % 2 == 0 ? 0U : std::uint32_t{TW_AM_RNDV});
                calls.on_request(am);
            }
            for (const tw_op_t& op : world_.received)
                FakeCallWorld::end(op, TW_OK, 100);
        }
        EXPECT_EQ(world_.sent.size() + seen_.size(), 100U) << which;
        for (const tw_call_request_t& each : seen_)
            EXPECT_EQ(calls.reply({each.id, 0, nullptr, 0}, nullptr, nullptr), TW_OK);
        EXPECT_EQ(world_.sent.size(), 100U);
        EXPECT_EQ(calls.open_requests(), 0U);
    }
}

}  // namespace
}  // namespace tagwire::test
