// SPDX-License-Identifier: BSD-3-Clause
// The receiver, alone: messages and receives in either order, parts, acknowledgements, peeks and
// claims.
#include "protocols/eager/receiver.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/cost/advisor.hpp"
#include "protocols/parts/receiver_part.hpp"
#include "protocols/wire/eager_header.hpp"

namespace tagwire::test {
namespace {

using proto::Ack;
using proto::Ats;
using proto::Unexpected;
using proto::WorkerCounter;

// ---- A receive and a message

TEST_F(ReceiverPart, a_posted_receive_ends_with_the_message_that_comes) {
    FakeMatchPeer& peer = add_peer();
    peer.hold.is_open = true;
    ASSERT_EQ(receive(5), TW_INPROGRESS);
    proto::Arrival arrival = eager(5, 100, 100);
    arrival.flags |= proto::kImm;
    arrival.imm = 77;
    send(peer, arrival);
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.tag, 5U);
    EXPECT_EQ(done_.imm, 77U);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_EQ(done_.message_length, 100U);
    EXPECT_EQ(done_.source, peer.worker_id);
    EXPECT_EQ(done_.ep, &peer);
    EXPECT_EQ(done_.flags, TW_DONE_RECV | TW_DONE_TAGGED | TW_DONE_IMM);
    EXPECT_EQ(buffers_[0]->at(99), std::byte{5});
    EXPECT_EQ(buffers_[0]->at(100), std::byte{});
    EXPECT_EQ(count(WorkerCounter::kRxExpected), 1U);
}

TEST_F(ReceiverPart, a_call_ends_with_a_message_that_waits) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 5, 100);
    EXPECT_EQ(receive(6), TW_INPROGRESS);
    ASSERT_EQ(receive(5), TW_OK);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_EQ(done_.ep, nullptr);  // the program has no endpoint to the peer
    EXPECT_EQ(buffers_[1]->at(99), std::byte{5});
    EXPECT_EQ(in_use(), InUse{});
    EXPECT_TRUE(told().empty());
}

TEST_F(ReceiverPart, a_sender_is_named_by_the_endpoint_that_the_program_has) {
    FakeMatchPeer& peer = add_peer();
    tw_ep other{};
    peer.fake.other_handle = &other;  // to the worker whose transmit context the peer is
    send(peer, 5);
    ASSERT_EQ(receive(5), TW_OK);
    EXPECT_EQ(done_.ep, &other);
    peer.hold.is_open = peer.hold.is_closing = true;
    send(peer, 5);
    ASSERT_EQ(receive(5), TW_OK);
    EXPECT_EQ(done_.ep, &other);
    peer.hold.is_closing = false;
    send(peer, 5);
    ASSERT_EQ(receive(5), TW_OK);
    EXPECT_EQ(done_.ep, &peer);
}

TEST_F(ReceiverPart, a_longer_message_is_cut_in_either_order) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1, 0, kExact, 10), TW_INPROGRESS);
    send(peer, 1, 100);
    EXPECT_EQ(told_one(), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(done_.length, 10U);
    EXPECT_EQ(done_.message_length, 100U);
    send(peer, 2, 100);
    EXPECT_EQ(receive(2, 0, kExact, 10), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(done_.length, 10U);
    EXPECT_EQ(done_.message_length, 100U);
}

TEST_F(ReceiverPart, a_message_of_a_peer_that_is_gone_is_received_if_all_of_it_is_here) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 1, 100);
    send(peer, 2, 100);
    send(peer, eager(3, 100, 200));
    send(peer, rendezvous(4, 100'000));
    fail(peer);
    EXPECT_EQ(receive(1), TW_OK);
    EXPECT_EQ(done_.source, peer.worker_id);
    EXPECT_EQ(receive(2, 0, kExact, 10), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(receive(3), TW_INPROGRESS);
    EXPECT_EQ(receive(4), TW_INPROGRESS);
}

TEST_F(ReceiverPart, a_receive_of_one_source_ends_with_that) {
    FakeMatchPeer& peer = add_peer();
    FakeMatchPeer& other = add_peer();
    ASSERT_EQ(receive(1, op_from(peer)), TW_INPROGRESS);
    ASSERT_EQ(receive(1, op_from(peer)), TW_INPROGRESS);
    send(other, 1);
    EXPECT_TRUE(told().empty());
    send(peer, 1);
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.source, peer.worker_id);
    send(peer, 2);
    fail(peer);
    EXPECT_EQ(told_one(), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(receive(2, op_from(peer)), TW_OK);  // it was here before
    EXPECT_EQ(receive(3, op_from(peer)), TW_ERR_CONNECTION_RESET);
}

TEST_F(ReceiverPart, receives_of_a_source_go_on_with_the_endpoint_that_replaces_it) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1, op_from(peer)), TW_INPROGRESS);
    receiver_.drop_incoming(peer, UCS_ERR_CONNECTION_RESET, false);
    EXPECT_TRUE(told().empty());
    send(peer, 1);
    EXPECT_EQ(told_one(), TW_OK);
}

TEST_F(ReceiverPart, a_receive_is_refused_when_all_requests_are_in_use) {
    for (unsigned i = 0; i < kTableRequests; ++i)
        ASSERT_EQ(receive(i), TW_INPROGRESS);
    EXPECT_EQ(receive(99), TW_ERR_NO_RESOURCE);
    FakeMatchPeer& peer = add_peer();
    send(peer, 0);
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(receive(99), TW_INPROGRESS);
}

TEST_F(ReceiverPart, a_call_that_has_returned_already_is_told_of_its_end) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 1);
    const tw_op_t how = op();
    receiver_.begin(tagged(1, how));
    receiver_.begin(tagged(2, how));
    EXPECT_EQ(told_one(), TW_OK);
    send(peer, 2);
    EXPECT_EQ(told_one(), TW_OK);
}

// ---- Long messages

TEST_F(ReceiverPart, parts_go_to_the_receive_or_to_what_is_kept_and_then_to_the_receive) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    send(peer, eager(1, 100, 1000));
    EXPECT_TRUE(part(peer, 400));
    EXPECT_TRUE(told().empty());
    EXPECT_TRUE(part(peer, 500));
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 1000U);
    EXPECT_EQ(buffers_[0]->at(99), std::byte{1});
    EXPECT_EQ(buffers_[0]->at(999), std::byte{0x33});

    send(peer, eager(2, 100, 1000));
    EXPECT_TRUE(part(peer, 400));
    ASSERT_EQ(receive(2), TW_INPROGRESS);
    EXPECT_TRUE(part(peer, 500));
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(buffers_[1]->at(499), std::byte{0x33});
    EXPECT_EQ(buffers_[1]->at(999), std::byte{0x33});

    send(peer, eager(3, 100, 1000));
    send_rest(peer);
    EXPECT_EQ(receive(3), TW_OK);
    EXPECT_EQ(buffers_[2]->at(999), std::byte{0x33});
}

TEST_F(ReceiverPart, parts_beyond_the_buffer_are_dropped) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1, 0, kExact, 150), TW_INPROGRESS);
    send(peer, eager(1, 100, 1000));
    EXPECT_TRUE(part(peer, 100));
    EXPECT_TRUE(part(peer, 800));
    EXPECT_EQ(told_one(), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(done_.length, 150U);
}

TEST_F(ReceiverPart, a_part_that_belongs_to_no_message_is_refused) {
    FakeMatchPeer& peer = add_peer();
    EXPECT_FALSE(part(peer, 1));
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    send(peer, eager(1, 100, 1000));
    EXPECT_FALSE(part(peer, 901));
    EXPECT_TRUE(part(peer, 900));
    EXPECT_FALSE(part(peer, 1));
    EXPECT_EQ(told_one(), TW_OK);
}

TEST_F(ReceiverPart, a_message_that_is_half_here_ends_with_its_peer) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    send(peer, eager(1, 100, 1000));
    fail(peer);
    EXPECT_EQ(told_one(), TW_ERR_CONNECTION_RESET);
    EXPECT_FALSE(part(peer, 1));
}

TEST_F(ReceiverPart, a_rendezvous_goes_to_its_receiver_with_the_keys) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    send(peer, rendezvous(1, 100'000));
    send(peer, rendezvous(2, 100'000));
    ASSERT_EQ(receive(2), TW_INPROGRESS);
    ASSERT_EQ(rndv_.size(), 2U);
    for (const Rndv& each : rndv_) {
        EXPECT_EQ(each.from, &peer);
        EXPECT_EQ(each.keys, kKeys);
        end_rndv(*each.request, UCS_OK, kRoom);
    }
    EXPECT_EQ(told().size(), 2U);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(ReceiverPart, messages_that_are_timed_are_learnt_from_when_all_of_them_is_here) {
    FakeMatchPeer& peer = add_peer();
    constexpr std::size_t kLong = proto::Advisor::kFirst;
    const auto timed = [&](std::uint64_t tag, std::size_t here, std::size_t length) {
        proto::Arrival arrival = eager(tag, here, length);
        arrival.flags |= proto::kTimed;
        arrival.begun = 1;
        return arrival;
    };
    for (const std::uint64_t tag : {1U, 2U, 3U, 4U})
        ASSERT_EQ(receive(tag, 0, kExact, tag == 4 ? kLong / 2 : kLong), TW_INPROGRESS);
    send(peer, timed(1, kLong, kLong));
    EXPECT_EQ(learnt_, 1U);
    send(peer, timed(2, 100, kLong));
    EXPECT_EQ(learnt_, 1U);
    send_rest(peer);
    EXPECT_EQ(learnt_, 2U);
    send(peer, timed(3, 100, 100));      // too short
    send(peer, timed(4, kLong, kLong));  // cut
    send(peer, timed(5, kLong, kLong));  // it has waited
    EXPECT_EQ(receive(5, 0, kExact, kLong), TW_OK);
    EXPECT_EQ(learnt_, 2U);
    EXPECT_EQ(told().size(), 4U);
}

// ---- Acknowledgements

TEST_F(ReceiverPart, a_sender_hears_of_match_and_delivery_as_it_has_asked) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    send(peer, with_acks(eager(1, 100, 1000), proto::kAckMatch));
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 1U);
    send_rest(peer);
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 1U);
    ASSERT_EQ(receive(2), TW_INPROGRESS);
    send(peer, with_acks(eager(2, 100, 1000), proto::kAckDelivery));
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 1U);
    send_rest(peer);
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 2U);
    send(peer, with_acks(eager(3, 100, 100), proto::kAckMatch));
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 2U);
    EXPECT_EQ(receive(3), TW_OK);
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 3U);
    EXPECT_EQ(peer.fake.sent.back().as<Ack>().send_id, kSendId);
    EXPECT_EQ(told().size(), 2U);
}

// ---- Probes, and messages that were taken

TEST_F(ReceiverPart, a_probe_finds_the_message_and_leaves_it) {
    FakeMatchPeer& peer = add_peer();
    EXPECT_EQ(probe(1), TW_ERR_NO_MESSAGE);
    send(peer, 1, 100);
    EXPECT_EQ(probe(1), TW_OK);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_EQ(done_.source, peer.worker_id);
    EXPECT_EQ(done_.flags, TW_DONE_RECV | TW_DONE_TAGGED);
    EXPECT_EQ(receive(1), TW_OK);
}

TEST_F(ReceiverPart, a_probe_finds_a_message_that_is_not_all_here) {
    FakeMatchPeer& peer = add_peer();
    send(peer, eager(1, 100, 1000));
    send(peer, rendezvous(2, 100'000));
    EXPECT_EQ(probe(1), TW_OK);
    EXPECT_EQ(done_.length, 1000U);
    EXPECT_EQ(probe(2), TW_OK);
    EXPECT_EQ(done_.length, 100'000U);
}

TEST_F(ReceiverPart, a_probe_of_one_source_finds_its_messages_alone) {
    FakeMatchPeer &peer = add_peer(), &other = add_peer();
    send(peer, 1, 100);
    EXPECT_EQ(receiver_.probe(true, 1, kExact, &other), nullptr);
    EXPECT_NE(receiver_.probe(true, 1, kExact, &peer), nullptr);
    EXPECT_EQ(receiver_.probe(false, 1, 0, &peer), nullptr);
}

TEST_F(ReceiverPart, a_message_is_dropped_and_the_sender_learns_of_it) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 1);
    send(peer, with_acks(eager(2, 100, 100), proto::kAckDelivery));
    send(peer, rendezvous(3, 100'000));
    for (const std::uint64_t tag : {1U, 2U, 3U}) {
        proto::Unexpected* message = take(tag);
        EXPECT_TRUE(table_.drop(message));
        EXPECT_FALSE(table_.drop(message));
    }
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 1U);
    EXPECT_EQ(peer.fake.sent.count<Ats>(), 1U);
    EXPECT_EQ(in_use(), InUse{});
    EXPECT_EQ(probe(1), TW_ERR_NO_MESSAGE);
}

TEST_F(ReceiverPart, a_message_that_was_taken_is_received_or_dropped_once) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 1);
    send(peer, 2);
    send(peer, rendezvous(3, 100'000));
    proto::Unexpected *first = take(1), *second = take(2), *third = take(3);
    EXPECT_EQ(take(1), nullptr);
    EXPECT_EQ(receive(1), TW_INPROGRESS);  // it is no other receive's
    EXPECT_EQ(receive_message(first), TW_OK);
    EXPECT_EQ(done_.tag, 1U);
    EXPECT_EQ(done_.flags, TW_DONE_RECV | TW_DONE_TAGGED);
    EXPECT_EQ(table_.claimed(first), nullptr);
    EXPECT_TRUE(table_.drop(second));
    EXPECT_EQ(receive_message(third), TW_INPROGRESS);
    ASSERT_EQ(rndv_.size(), 1U);
    end_rndv(*rndv_[0].request, UCS_OK, kRoom);
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(ReceiverPart, a_message_that_was_taken_fails_with_its_peer_unless_all_of_it_is_here) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 1);
    send(peer, rendezvous(2, 100'000));
    proto::Unexpected *whole = take(1), *half = take(2);
    fail(peer);
    EXPECT_EQ(receive_message(whole), TW_OK);
    EXPECT_EQ(receive_message(half), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(in_use(), InUse{});
}

}  // namespace
}  // namespace tagwire::test
