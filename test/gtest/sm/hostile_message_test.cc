// SPDX-License-Identifier: BSD-3-Clause
//
// Hostile messages in the ring of a peer: a message that breaks the format ends its connection, a
// request that is merely wrong is answered with an error.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>

#include "sm/hostile_fixture.hpp"

namespace tagwire::test {
namespace {

using sm::Kind;

// ---- Messages that break the format ------------------------------------------------------------

struct BadMessage {
    const char* name;
    void (*send)(RawPeer& peer);
};
void PrintTo(const BadMessage& message, std::ostream* out) {
    *out << message.name;
}

class HostileMessage : public HostilePeer, public testing::WithParamInterface<BadMessage> {};

TEST_P(HostileMessage, ends_the_connection) {
    RawPeer peer = connected_peer();
    peer.publish(Kind::kAm, std::uint64_t{1}, kAmId);  // the good one before it arrives
    GetParam().send(peer);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(victim.am_count, 1U);
    EXPECT_EQ(victim.eager_count, 0U);
    EXPECT_EQ(victim.rndv_count, 0U);
    EXPECT_TRUE(others_go_on());
}

sm::RndvBody good_rndv() {
    return {1, 0x1000, 64, sm::kNoOffset, 1, 0, 0, 0, 0, {}};
}

template <Kind kind, class Body>
void send_wrong_length(RawPeer& peer) {
    peer.publish(kind, Body{}, 0, sizeof(Body) - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, HostileMessage,
    testing::Values(
        BadMessage{"no_kind", [](RawPeer& p) { p.publish(Kind::kNone, 0); }},
        BadMessage{"kind_above_the_last", [](RawPeer& p) { p.publish(Kind{18}, 0); }},
        BadMessage{"kind_255", [](RawPeer& p) { p.publish(Kind{255}, 0); }},
        BadMessage{"am_length", [](RawPeer& p) { p.publish(Kind::kAm, 0, kAmId, 121); }},
        BadMessage{"am_length_max", [](RawPeer& p) { p.publish(Kind::kAm, 0, kAmId, 65535); }},
        BadMessage{"am_id", [](RawPeer& p) { p.publish(Kind::kAm, 0, UCT_AM_ID_MAX, 8); }},
        BadMessage{"am_id_255", [](RawPeer& p) { p.publish(Kind::kAm, 0, 255, 8); }},
        BadMessage{"am_seg_index",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, in_buffer(64), kAmId, 200); }},
        BadMessage{"am_seg_index_max",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, in_buffer(~0U), kAmId, 200); }},
        BadMessage{"am_seg_length",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, in_buffer(0), kAmId, 1025); }},
        BadMessage{"am_seg_runs_over_the_pool",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, in_buffer(63), kAmId, 513); }},
        BadMessage{"am_seg_of_the_reserve",
                   [](RawPeer& p) {
                       p.publish(Kind::kAmSeg, in_buffer(sm::kReserveBit | sm::kReserveCount),
                                 kAmId, 200);
                   }},
        BadMessage{"am_seg_shorter_than_its_head",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, in_buffer(0), kAmId, 48); }},
        BadMessage{"other_ring_that_is_not_there",
                   [](RawPeer& p) { p.publish(Kind::kOtherRing, 0); }},
        BadMessage{"am_seg_id", [](RawPeer& p) { p.publish(Kind::kAmSeg, in_buffer(0), 77, 200); }},
        BadMessage{"tag_short_length", [](RawPeer& p) { p.publish(Kind::kTagShort, 0, 0, 113); }},
        BadMessage{"tag_imm_length", [](RawPeer& p) { p.publish(Kind::kTagImm, 0, 0, 105); }},
        BadMessage{"fragment_index",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 64}, sm::kFirst, 8);
                   }},
        BadMessage{"fragment_length",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 1025, 0}, sm::kFirst, 1025);
                   }},
        BadMessage{"fragment_longer_than_its_message",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 0}, sm::kFirst, 9);
                   }},
        BadMessage{"fragment_says_no_more_follow",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 16, 0}, sm::kFirst, 8);
                   }},
        BadMessage{
            "fragment_says_more_follow",
            [](RawPeer& p) {
                p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 0}, sm::kFirst | sm::kMore, 8);
            }},
        BadMessage{"fragment_without_a_first",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 0}, 0, 8);
                   }},
        BadMessage{"two_first_fragments",
                   [](RawPeer& p) {
                       for (int i = 0; i < 2; ++i)
                           p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 2000, 0},
                                     sm::kFirst | sm::kMore, 1000);
                   }},
        BadMessage{"message_of_too_many_fragments",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 9 * 1024, 0},
                                 sm::kFirst | sm::kMore, 1024);
                   }},
        BadMessage{"rndv_op",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.op = sm::kRndvCount;
                       p.publish(Kind::kRndv, body, 0, 0);
                   }},
        BadMessage{"rndv_header_length",
                   [](RawPeer& p) { p.publish(Kind::kRndv, good_rndv(), 0, 73); }},
        BadMessage{"rndv_header_buffer",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.seg = 64;
                       p.publish(Kind::kRndv, body, sm::kHeaderInSeg, 8);
                   }},
        BadMessage{"rndv_header_longer_than_its_buffer",
                   [](RawPeer& p) { p.publish(Kind::kRndv, good_rndv(), sm::kHeaderInSeg, 1025); }},
        BadMessage{"rndv_wraps_around",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.address = UINT64_MAX - 10;
                       p.publish(Kind::kRndv, body, 0, 0);
                   }},
        BadMessage{"rndv_behind_its_arena",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.arena_offset = RawPeer::kArenaBytes - 63;
                       p.publish(Kind::kRndv, body, sm::kInArena, 0);
                   }},
        BadMessage{"rndv_arena_offset_wraps_around",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.arena_offset = UINT64_MAX - 31;
                       p.publish(Kind::kRndv, body, sm::kInArena, 0);
                   }},
        BadMessage{
            "request_header_length",
            [](RawPeer& p) { p.publish(Kind::kRndvRequest, sm::RndvRequestBody{}, 0, 105); }},
        BadMessage{"request_header_buffer",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvRequest, sm::RndvRequestBody{1, 64, 0, {}},
                                 sm::kHeaderInSeg, 8);
                   }},
        BadMessage{"fin_of_nothing",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvFin, sm::RndvFinBody{1, 0, 0});
                   }},
        BadMessage{"fin_op_max",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvFin, sm::RndvFinBody{1, ~0U, 0});
                   }},
        BadMessage{"help_with_nothing",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvHelp, sm::RndvHelpBody{0x1000, 8, 1, 0});
                   }},
        BadMessage{"get_help_word",
                   [](RawPeer& p) {
                       p.publish(Kind::kGetHelp,
                                 sm::GetHelpBody{0x1000, 0x1000, 8, 1, 0, sm::kRndvCount, 0});
                   }},
        BadMessage{"get_help_address_wraps_around",
                   [](RawPeer& p) {
                       p.publish(Kind::kGetHelp, sm::GetHelpBody{~0ULL - 6, 0x1000, 8, 1, 0, 0, 0});
                   }},
        BadMessage{"get_help_remote_wraps_around",
                   [](RawPeer& p) {
                       p.publish(Kind::kGetHelp, sm::GetHelpBody{0x1000, ~0ULL - 6, 8, 1, 0, 0, 0});
                   }},
        BadMessage{"get_help_neither_registered_nor_lent",
                   [](RawPeer& p) {
                       p.publish(Kind::kGetHelp, sm::GetHelpBody{0x1000, 0x1000, 8, 1, 0, 0, 2});
                   }},
        BadMessage{"pull_of_no_rendezvous",
                   [](RawPeer& p) {
                       p.publish(Kind::kPull, sm::PullBody{0x1000, 8, 1, 0, 0, 0});
                   }},
        BadMessage{"push_buffer",
                   [](RawPeer& p) {
                       p.publish(Kind::kPush, sm::PushBody{0x1000, 0, 64, 8, 0, 1});
                   }},
        BadMessage{"push_length",
                   [](RawPeer& p) {
                       p.publish(Kind::kPush, sm::PushBody{0x1000, 0, 0, 1025, 0, 1});
                   }},
        BadMessage{"pull_data_buffer",
                   [](RawPeer& p) {
                       p.publish(Kind::kPullData, sm::PullDataBody{0, 64, 0, 8});
                   }},
        BadMessage{"pull_data_length",
                   [](RawPeer& p) {
                       p.publish(Kind::kPullData, sm::PullDataBody{0, 0, 0, 1025});
                   }},
        BadMessage{
            "atomic_opcode",
            [](RawPeer& p) {
                p.publish(Kind::kAtomic, sm::AtomicBody{0x1000, 1, 0, 0, 0, UCT_ATOMIC_OP_LAST, 8});
            }},
        BadMessage{"atomic_bytes",
                   [](RawPeer& p) {
                       p.publish(Kind::kAtomic, sm::AtomicBody{0x1000, 1, 0, 0, 0, 0, 3});
                   }},
        BadMessage{"fin_length", send_wrong_length<Kind::kRndvFin, sm::RndvFinBody>},
        BadMessage{"help_length", send_wrong_length<Kind::kRndvHelp, sm::RndvHelpBody>},
        BadMessage{"get_help_length", send_wrong_length<Kind::kGetHelp, sm::GetHelpBody>},
        BadMessage{"pull_length", send_wrong_length<Kind::kPull, sm::PullBody>},
        BadMessage{"pull_data_own_length", send_wrong_length<Kind::kPullData, sm::PullDataBody>},
        BadMessage{"push_own_length", send_wrong_length<Kind::kPush, sm::PushBody>},
        BadMessage{"push_ack_length", send_wrong_length<Kind::kPushAck, sm::PushAckBody>},
        BadMessage{"atomic_length", send_wrong_length<Kind::kAtomic, sm::AtomicBody>},
        BadMessage{"atomic_reply_length",
                   send_wrong_length<Kind::kAtomicReply, sm::AtomicReplyBody>}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// ---- Requests that are merely wrong
// --------------------------------------------------------------

TEST_F(HostilePeer, is_answered_with_an_error_when_it_asks_for_memory_that_is_not_registered) {
    RawPeer peer = connected_peer();
    const Buffer buffer(victim, 100, Backing::kRegistered);
    for (const std::uint32_t key : {0U, 12345U, ~0U}) {
        peer.publish(Kind::kPull, sm::PullBody{buffer.address(), 8, 0, key, sm::kNoOp, 77});
        const auto pulled = answer(peer);
        ASSERT_TRUE(pulled.is(Kind::kPullData));
        EXPECT_EQ(pulled.as<sm::PullDataBody>().op, 77U);
        EXPECT_LT(pulled.as<sm::PullDataBody>().status, 0);

        peer.publish(Kind::kPush, sm::PushBody{buffer.address(), key, 0, 8, 78, 1});
        const auto pushed = answer(peer);
        ASSERT_TRUE(pushed.is(Kind::kPushAck));
        EXPECT_EQ(pushed.as<sm::PushAckBody>().op, 78U);
        EXPECT_LT(pushed.as<sm::PushAckBody>().status, 0);

        peer.publish(Kind::kAtomic, sm::AtomicBody{buffer.address(), 1, 0, key, 79, 0, 8});
        const auto changed = answer(peer);
        ASSERT_TRUE(changed.is(Kind::kAtomicReply));
        EXPECT_EQ(changed.as<sm::AtomicReplyBody>().op, 79U);
        EXPECT_LT(changed.as<sm::AtomicReplyBody>().status, 0);
    }
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, is_answered_with_an_error_when_it_leaves_a_registration) {
    RawPeer peer = connected_peer();
    const Buffer buffer(victim, 4096, Backing::kRegistered);
    sm::PackedRkey key{};
    std::memcpy(&key, buffer.packed_rkey().data(), sizeof key);
    const Bytes before(buffer.span().begin(), buffer.span().end());
    for (const std::uint64_t address :
         {key.address - 1, key.address + key.length - 7, key.address + key.length, std::uint64_t{0},
          UINT64_MAX - 3}) {
        peer.publish(Kind::kPush, sm::PushBody{address, key.key, 0, 8, 1, 1});
        EXPECT_LT(answer(peer).as<sm::PushAckBody>().status, 0) << address - key.address;
        peer.publish(Kind::kPull, sm::PullBody{address, 8, 0, key.key, sm::kNoOp, 1});
        EXPECT_LT(answer(peer).as<sm::PullDataBody>().status, 0) << address - key.address;
        peer.publish(Kind::kAtomic, sm::AtomicBody{address, 1, 0, key.key, 1, 0, 8});
        EXPECT_LT(answer(peer).as<sm::AtomicReplyBody>().status, 0) << address - key.address;
    }
    peer.publish(Kind::kAtomic, sm::AtomicBody{key.address + 1, 1, 0, key.key, 1, 0, 8});
    EXPECT_LT(answer(peer).as<sm::AtomicReplyBody>().status, 0) << "not aligned";
    EXPECT_EQ(before, Bytes(buffer.span().begin(), buffer.span().end()));

    peer.publish(Kind::kAtomic, sm::AtomicBody{key.address, 5, 0, key.key, 1, 0, 8});
    EXPECT_EQ(answer(peer).as<sm::AtomicReplyBody>().status, UCS_OK);
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_answers_what_nobody_asked_is_ignored) {
    RawPeer peer = connected_peer();
    for (const std::uint32_t op : {0U, 1U, 4096U, ~0U}) {
        peer.publish(Kind::kPullData, sm::PullDataBody{op, 0, 0, 8});
        peer.publish(Kind::kPushAck, sm::PushAckBody{op, 0});
        peer.publish(Kind::kAtomicReply, sm::AtomicReplyBody{1, op, 0});
    }
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

// The hang-up is seen together with the ring, the message only when what came before the end is
// delivered.
TEST_F(HostilePeer, whose_last_message_is_bad_is_buried) {
    progress();
    Holdings before{};
    constexpr std::uint64_t kRounds = 16;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
        RawPeer peer = make_peer();
        peer.say_hello();
        progress();
        const Endpoint ep = back_to(peer);
        ASSERT_EQ(uct_ep_am_short(ep, kAmId, 1, nullptr, 0), UCS_OK);
        peer.offer_ring();
        peer.publish(sm::Control::make(Kind::kAm, kAmId, 121));
        peer.hang_up();
        for (int i = 0; i < kHostileSteps && victim.errors.size() < round; ++i)
            progress(1);
        EXPECT_EQ(victim.errors.size(), round) << "its failure is told once";
        EXPECT_EQ(counter("violations"), round);
        EXPECT_EQ(uct_iface_event_arm(victim.iface(), UCT_EVENT_RECV), UCS_OK)
            << "whom nobody writes to may sleep";
        if (round == 1)
            before = holdings();
        EXPECT_EQ(holdings().descriptors, before.descriptors);
        EXPECT_LT(holdings().mappings, before.mappings + kRounds)
            << "the allocator's may be some, but not those of each";
    }
    EXPECT_TRUE(others_go_on());
}

}  // namespace
}  // namespace tagwire::test
