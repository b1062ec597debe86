// SPDX-License-Identifier: BSD-3-Clause
// The calls that are under way, alone: each ends once, whatever comes first, and replies that
// nobody waits for are dropped.
#include "protocols/call/outgoing_calls.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "common/seeds.hpp"
#include "protocols/parts/fake_calls.hpp"

namespace tagwire::test {
namespace {

using proto::CallHeader;
using proto::EndedPeer;
using proto::ReplyHeader;
using proto::WorkerCounter;

class OutgoingCallsPart : public testing::Test {
  protected:
    static constexpr std::uint64_t kPeer = 77, kOther = 78, kCopiesMax = 5000;

    struct End {
        std::uint64_t id;
        tw_status_t status;
        std::int32_t reply_status;
        std::size_t length;
    };

    tw_status_t begin(std::uint64_t* id_p, std::uint64_t timeout_ns = 0, std::uint64_t peer = kPeer,
                      std::size_t length = 0) {
        tw_call_params_t params{};
        params.context = this;
        params.timeout_ns = timeout_ns;
        params.reply = room_.data();
        params.reply_bytes = room_.size();
        params.done = [](const tw_call_done_t* done) {
            auto& self = *static_cast<OutgoingCallsPart*>(done->context);
            const nomem::Spared spared;
            self.ends_.push_back({done->id, done->status, done->reply_status, done->length});
        };
        return calls_.begin({nullptr, peer, 5, long_.data(), length}, params, id_p);
    }
    std::uint64_t begun(std::uint64_t timeout_ns = 0, std::uint64_t peer = kPeer) {
        std::uint64_t id = 0;
        EXPECT_EQ(begin(&id, timeout_ns, peer), TW_OK);
        return id;
    }
    void reply(std::uint64_t id, std::int32_t status = 3, std::uint64_t source = kPeer,
               std::size_t length = 0, std::uint32_t flags = 0) {
        ReplyHeader header;
        header.id = id;
        header.status = status;
        tw_am_t am = FakeCallWorld::am(header, source, data_.data(), length, flags);
        calls_.on_reply(am);
    }
    void refuse(std::uint64_t id, tw_status_t status) {
        ReplyHeader header;
        header.id = id;
        header.flags = ReplyHeader::kRefused;
        header.status = status;
        tw_am_t am = FakeCallWorld::am(header, kPeer);
        calls_.on_reply(am);
    }
    void expect_end(std::uint64_t id, tw_status_t status) {
        ASSERT_EQ(ends_.size(), 1U);
        EXPECT_EQ(ends_[0].id, id);
        EXPECT_EQ(ends_[0].status, status);
        ends_.clear();
    }

    std::array<std::byte, 16> room_{};
    std::array<std::byte, 64> data_{std::byte{9}};
    std::array<std::byte, 4000> long_{};
    std::vector<End> ends_;
    std::vector<std::uint64_t> alarms_;
    FakeCallWorld world_;
    const proto::CallPort port_ = world_.port();
    proto::OutgoingCalls calls_{port_,
                                {this,
                                 [](void* self, std::uint64_t at) {
                                     const nomem::Spared spared;
                                     static_cast<OutgoingCallsPart*>(self)->alarms_.push_back(at);
                                 }},
                                kCopiesMax};
};

TEST_F(OutgoingCallsPart, a_reply_ends_its_call_once) {
    const std::uint64_t first = begun(), second = begun();
    EXPECT_NE(first, second);
    const auto header = FakeCallWorld::header_of<CallHeader>(world_.sent[0]);
    EXPECT_EQ(header.id, first);
    EXPECT_EQ(header.method, 5U);
    reply(second, -3, kPeer, 10);
    EXPECT_EQ(room_[0], std::byte{9});
    ASSERT_EQ(ends_.size(), 1U);
    EXPECT_EQ(ends_[0].reply_status, -3);
    EXPECT_EQ(ends_[0].length, 10U);
    expect_end(second, TW_OK);
    reply(second);  // again
    EXPECT_TRUE(ends_.empty());
    EXPECT_EQ(world_.counted(WorkerCounter::kCallLate), 1U);
    reply(first);
    expect_end(first, TW_OK);
}

TEST_F(OutgoingCallsPart, a_place_is_used_again_under_another_id) {
    const std::uint64_t first = begun();
    reply(first);
    ends_.clear();
    const std::uint64_t second = begun();
    EXPECT_NE(first, second);
    reply(first);
    EXPECT_TRUE(ends_.empty());
    EXPECT_EQ(world_.counted(WorkerCounter::kCallLate), 1U);
    reply(second);
    expect_end(second, TW_OK);
}

TEST_F(OutgoingCallsPart, replies_of_others_and_malformed_ones_are_refused) {
    const std::uint64_t id = begun();
    reply(id, 3, kOther);
    EXPECT_EQ(world_.counted(WorkerCounter::kCallRefused), 1U);
    ReplyHeader header;
    header.id = id;
    for (int what = 0; what < 5; ++what) {
        ReplyHeader wrong = header;
        tw_am_t am = FakeCallWorld::am(wrong, kPeer);
        wrong.version = what == 0 ? 2 : wrong.version;
        wrong.flags = what == 1 ? 2 : wrong.flags;
        wrong.reserved = what == 2 ? 1 : 0;
        am.header_length -= what == 3 ? 1 : 0;
        if (what == 4) {  // a reason that no server gives
            wrong.flags = ReplyHeader::kRefused;
            wrong.status = TW_OK;
        }
        calls_.on_reply(am);
    }
    EXPECT_EQ(world_.counted(WorkerCounter::kCallRefused), 6U);
    for (const std::uint64_t unknown : {std::uint64_t{0}, std::uint64_t{1}, id + 1, id << 1, ~id})
        reply(unknown);
    EXPECT_EQ(world_.counted(WorkerCounter::kCallLate), 5U);
    EXPECT_TRUE(ends_.empty());
    reply(id);
    expect_end(id, TW_OK);
}

TEST_F(OutgoingCallsPart, a_refusal_is_the_status) {
    for (const tw_status_t status :
         {TW_ERR_NO_ELEM, TW_ERR_NO_RESOURCE, TW_ERR_EXCEEDS_LIMIT, TW_ERR_NO_MEMORY}) {
        const std::uint64_t id = begun();
        refuse(id, status);
        expect_end(id, status);
    }
}

TEST_F(OutgoingCallsPart, time_ends_calls_in_its_order) {
    const std::uint64_t late = begun(500), early = begun(100), never = begun();
    EXPECT_EQ(calls_.due_ns(), world_.now + 100);
    EXPECT_EQ(alarms_, (std::vector<std::uint64_t>{world_.now + 500, world_.now + 100}));
    world_.now += 99;
    EXPECT_EQ(calls_.look(), 0U);
    world_.now += 1;
    EXPECT_EQ(calls_.look(), 1U);
    expect_end(early, TW_ERR_TIMED_OUT);
    world_.now += 1000;
    EXPECT_EQ(calls_.look(), 1U);
    expect_end(late, TW_ERR_TIMED_OUT);
    EXPECT_EQ(calls_.due_ns(), UINT64_MAX);
    EXPECT_EQ(world_.counted(WorkerCounter::kCallTimeouts), 2U);
    reply(early);
    EXPECT_EQ(world_.counted(WorkerCounter::kCallLate), 1U);
    reply(never);
    expect_end(never, TW_OK);
}

TEST_F(OutgoingCallsPart, a_request_that_is_being_sent_is_taken_back_before_the_end) {
    world_.sends = TW_INPROGRESS;
    const std::uint64_t id = begun(100);
    world_.now += 100;
    EXPECT_EQ(calls_.look(), 0U);
    ASSERT_EQ(world_.cancelled.size(), 1U);
    EXPECT_EQ(world_.cancelled[0], world_.sent[0].request);
    EXPECT_TRUE(ends_.empty());  // its data is still the library's
    reply(id);                   // too late
    world_.complete(world_.sent[0], TW_ERR_CANCELED);
    expect_end(id, TW_ERR_TIMED_OUT);
}

TEST_F(OutgoingCallsPart, a_long_request_with_a_deadline_is_sent_from_a_copy) {
    world_.sends = TW_INPROGRESS;
    std::uint64_t id = 0, next = 0;
    ASSERT_EQ(begin(&id, 100, kPeer, long_.size()), TW_OK);
    EXPECT_NE(world_.sent[0].data, long_.data());
    ASSERT_EQ(begin(&next, 200, kPeer, long_.size()), TW_OK);
    EXPECT_EQ(world_.sent[1].data, long_.data());  // no room for another copy
    world_.now += 100;
    EXPECT_EQ(calls_.look(), 1U);
    expect_end(id, TW_ERR_TIMED_OUT);  // though the peer may read the copy
    reply(id);
    calls_.end_of_peer({kPeer, 1, TW_ERR_CONNECTION_RESET});
    EXPECT_FALSE(calls_.cancel(id));
    EXPECT_TRUE(ends_.empty());
    world_.complete(world_.sent[0], TW_ERR_CANCELED);
    EXPECT_TRUE(ends_.empty());
    world_.now += 100;
    EXPECT_EQ(calls_.look(), 0U);
    world_.complete(world_.sent[1], TW_OK);
    expect_end(next, TW_ERR_TIMED_OUT);
    ASSERT_EQ(begin(&id, 100, kPeer, long_.size()), TW_OK);
    EXPECT_NE(world_.sent[2].data, long_.data());
    ASSERT_EQ(begin(&next, 0, kPeer, long_.size()), TW_OK);
    EXPECT_EQ(world_.sent[3].data, long_.data());  // it has no deadline
}

TEST_F(OutgoingCallsPart, a_send_that_fails_is_the_end) {
    world_.sends = TW_INPROGRESS;
    const std::uint64_t id = begun(100);
    world_.complete(world_.sent[0], TW_ERR_CONNECTION_RESET);
    expect_end(id, TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(calls_.due_ns(), UINT64_MAX);
    world_.sends = TW_ERR_NO_RESOURCE;
    std::uint64_t none = 0;
    EXPECT_EQ(begin(&none, 100), TW_ERR_NO_RESOURCE);
    EXPECT_EQ(calls_.due_ns(), UINT64_MAX);
    calls_.end_of_peer({kPeer, UINT64_MAX, TW_ERR_CONNECTION_RESET});
    EXPECT_TRUE(ends_.empty());
}

TEST_F(OutgoingCallsPart, a_reply_may_come_before_the_send_has_ended) {
    world_.sends = TW_INPROGRESS;
    const std::uint64_t id = begun();
    reply(id, 4);
    EXPECT_TRUE(ends_.empty());
    world_.complete(world_.sent[0], TW_OK);
    ASSERT_EQ(ends_.size(), 1U);
    EXPECT_EQ(ends_[0].reply_status, 4);
    expect_end(id, TW_OK);
}

TEST_F(OutgoingCallsPart, a_reply_that_comes_while_the_call_begins_is_told_in_progress) {
    std::uint64_t id = 0;
    world_.while_sending = [&] {
        reply(FakeCallWorld::header_of<CallHeader>(world_.sent.back()).id);
    };
    ASSERT_EQ(begin(&id), TW_OK);
    EXPECT_TRUE(ends_.empty());
    EXPECT_EQ(calls_.due_ns(), 0U);
    EXPECT_EQ(alarms_, std::vector<std::uint64_t>{0});
    EXPECT_EQ(calls_.look(), 1U);
    expect_end(id, TW_OK);
    EXPECT_EQ(calls_.due_ns(), UINT64_MAX);
}

TEST_F(OutgoingCallsPart, a_long_reply_is_received_and_nothing_else_ends_the_call_meanwhile) {
    const std::uint64_t id = begun(100);
    reply(id, 6, kPeer, 16, TW_AM_RNDV);
    ASSERT_EQ(world_.received.size(), 1U);
    world_.now += 1000;
    EXPECT_EQ(calls_.look(), 0U);
    EXPECT_FALSE(calls_.cancel(id));
    calls_.end_of_peer({kPeer, UINT64_MAX, TW_ERR_CONNECTION_RESET});
    reply(id);
    EXPECT_EQ(world_.counted(WorkerCounter::kCallLate), 1U);
    EXPECT_TRUE(ends_.empty());
    FakeCallWorld::end(world_.received[0], TW_OK, 16);
    ASSERT_EQ(ends_.size(), 1U);
    EXPECT_EQ(ends_[0].length, 16U);
    expect_end(id, TW_OK);
    world_.receives = TW_ERR_NO_RESOURCE;
    const std::uint64_t next = begun();
    reply(next, 6, kPeer, 16, TW_AM_RNDV);
    expect_end(next, TW_ERR_NO_RESOURCE);
}

TEST_F(OutgoingCallsPart, the_end_of_a_peer_ends_its_earlier_calls) {
    const std::uint64_t first = begun(), other = begun(0, kOther);
    const EndedPeer ended{kPeer, calls_.numbers(), TW_ERR_NOT_CONNECTED};
    const std::uint64_t anew = begun();  // over the next connection
    EXPECT_EQ(calls_.end_of_peer(ended), 1U);
    expect_end(first, TW_ERR_NOT_CONNECTED);
    reply(other, 3, kOther);
    expect_end(other, TW_OK);
    reply(anew);
    expect_end(anew, TW_OK);
}

TEST_F(OutgoingCallsPart, whatever_has_no_memory_each_call_ends_once_or_never_began) {
    for (unsigned long which = 1; which < 20; ++which) {
        ends_.clear();
        ends_.reserve(200);
        std::vector<std::uint64_t> ids;
        ids.reserve(200);
        proto::OutgoingCalls calls(port_, {this, [](void*, std::uint64_t) {}}, kCopiesMax);
        {
            const FailingAllocation failing(which);
            for (int i = 0; i < 100; ++i) {
                std::uint64_t id = 0;
                tw_call_params_t params{};
                params.context = &ends_;
                params.timeout_ns = i % 2 == 0 ? 10 : 0;
                params.done = [](const tw_call_done_t* done) {
                    const nomem::Spared spared;
                    static_cast<std::vector<End>*>(done->context)
                        ->push_back({done->id, done->status, 0, 0});
                };
                try {
                    if (calls.begin({nullptr, kPeer, 1, nullptr, 0}, params, &id) == TW_OK)
                        ids.push_back(id);
                } catch (const std::bad_alloc&) {
                    continue;
                }
            }
            world_.now += 100;
            calls.look();
            calls.end_of_peer({kPeer, UINT64_MAX, TW_ERR_CONNECTION_RESET});
        }
        EXPECT_GE(ids.size(), 99U);
        EXPECT_EQ(ends_.size(), ids.size()) << which;
        EXPECT_EQ(calls.due_ns(), UINT64_MAX);
        world_.sent.clear();
    }
}

TEST_F(OutgoingCallsPart, any_order_of_events_ends_each_call_once) {
    for_each_seed(20, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<std::uint64_t> open;
        const auto check_ends = [&] {
            for (const End& end : ends_)
                EXPECT_EQ(std::erase(open, end.id), 1U);
            ends_.clear();
        };
        // Sends and receives end in their order.
        const auto end_operations = [&](std::size_t left) {
            for (; world_.sent.size() > left; world_.sent.pop_front())
                if (const FakeCallWorld::Sent one = world_.sent.front();
                    one.answer == TW_INPROGRESS)
                    world_.complete(one, random() % 9 == 0 ? TW_ERR_CANCELED : TW_OK);
            for (; world_.received.size() > left; world_.received.pop_front())
                FakeCallWorld::end(tw_op_t(world_.received.front()), TW_OK, 8);
        };
        for (int step = 0; step < 2000; ++step) {
            const std::uint64_t id = open.empty() ? 0 : open[random() % open.size()];
            switch (random() % 8) {
                case 0:
                case 1:
                    world_.sends = random() % 2 == 0 ? TW_OK : TW_INPROGRESS;
                    open.emplace_back();
                    ASSERT_EQ(begin(&open.back(), random() % 3 == 0 ? random() % 1000 : 0, kPeer,
                                    random() % 4000),
                              TW_OK);
                    break;
                case 2:
                    reply(id, 0, random() % 8 == 0 ? kOther : kPeer);
                    break;
                case 3:
                    calls_.cancel(id);
                    break;
                case 4:
                    world_.now += random() % 500;
                    calls_.look();
                    break;
                case 5:
                    if (random() % 50 == 0)
                        calls_.end_of_peer({kPeer, calls_.numbers(), TW_ERR_CONNECTION_RESET});
                    break;
                case 6:
                    reply(id, 0, kPeer, 8, TW_AM_RNDV);
                    break;
                default:
                    end_operations(3);
            }
            check_ends();
        }
        end_operations(0);
        calls_.look();
        calls_.end_of_peer({kPeer, calls_.numbers(), TW_ERR_CONNECTION_RESET});
        check_ends();
        EXPECT_TRUE(open.empty());
        EXPECT_EQ(calls_.due_ns(), UINT64_MAX);
    });
}

}  // namespace
}  // namespace tagwire::test
