// SPDX-License-Identifier: BSD-3-Clause
// The messages of a worker that nobody has received, alone: what is kept of whom, who is told to
// pause and to resume, what stays of a peer that is gone.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/match_table_part.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/limits.hpp"

namespace tagwire::test {
namespace {

using proto::Arrival;
using proto::MatchTable;
using proto::Pause;
using proto::PauseEager;
using proto::Resume;
using proto::ResumeEager;
using proto::Unexpected;
using proto::WorkerCounter;

// ---- Messages

TEST_F(MatchTablePart, a_message_waits_with_all_that_it_said) {
    FakeMatchPeer& peer = add_peer();
    Arrival arrival = eager(5, 100, 100);
    arrival.imm = 77;
    arrival.flags |= proto::kImm;
    table_.add(peer, arrival);
    EXPECT_EQ(count(WorkerCounter::kRxUnexpected), 1U);
    EXPECT_EQ(peer.kept.size(), 1U);
    EXPECT_EQ(peer.budget.held_bytes, MatchTable::bytes_of(100));
    EXPECT_EQ(in_use(), (InUse{1, MatchTable::bytes_of(100), 0, 0}));
    EXPECT_EQ(taken(6), nullptr);
    Unexpected* message = taken(5);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(message->peer, &peer);
    EXPECT_EQ(message->worker_id, peer.worker_id);
    EXPECT_EQ(message->imm, 77U);
    EXPECT_EQ(message->length, 100U);
    EXPECT_EQ(message->received, 100U);
    EXPECT_EQ(message->data()[99], std::byte{5});
    table_.release(*message);
    EXPECT_TRUE(peer.kept.empty());
    EXPECT_EQ(peer.budget.held_bytes, 0U);
}

TEST_F(MatchTablePart, the_keys_of_a_rendezvous_wait_and_not_its_data) {
    FakeMatchPeer& peer = add_peer();
    Arrival arrival = eager(5, 40, std::size_t{1} << 40);
    arrival.is_rndv = true;
    table_.add(peer, arrival);
    EXPECT_EQ(peer.budget.held_bytes, MatchTable::bytes_of(40));
    EXPECT_FALSE(peer.incoming.is_under_way);
    EXPECT_TRUE(receive(5));
}

TEST_F(MatchTablePart, parts_go_to_a_message_for_as_long_as_it_is_kept) {
    FakeMatchPeer& peer = add_peer();
    table_.add(peer, eager(5, 100, 300));
    EXPECT_TRUE(peer.incoming.is_under_way);
    EXPECT_NE(peer.incoming.message, nullptr);
    EXPECT_TRUE(peer.incoming.has_room(200));
    EXPECT_FALSE(peer.incoming.has_room(201));
    EXPECT_EQ(peer.budget.held_bytes, MatchTable::bytes_of(300));
    EXPECT_TRUE(receive(5));
    EXPECT_EQ(peer.incoming.message, nullptr);
    EXPECT_TRUE(peer.incoming.is_under_way);  // they come all the same, and are dropped
}

TEST_F(MatchTablePart, a_plain_message_takes_a_block_that_was_freed) {
    FakeMatchPeer& peer = add_peer();
    const std::array<std::byte, 8> data{std::byte{1}};
    const proto::Header header{0, proto::kTagged, 9};
    EXPECT_FALSE(table_.add_plain(peer, header, 0, data));  // there is none yet
    keep(peer, 1, 8);
    EXPECT_TRUE(receive(1));
    const bool keeps_blocks = table_.add_plain(peer, header, 3, data);
    EXPECT_EQ(keeps_blocks, !ucs::kDebugChecks);
    if (!keeps_blocks)
        return;
    EXPECT_FALSE(table_.add_plain(peer, header, 0, data));
    Unexpected* message = taken(9);
    ASSERT_NE(message, nullptr);
    EXPECT_TRUE(message->is_plain);
    EXPECT_EQ(message->imm, 3U);
    EXPECT_EQ(message->behind()[0], std::byte{1});
    table_.release_plain(*message);
    EXPECT_EQ(in_use(), InUse{});
    peer.budget.told_to_pause = true;
    EXPECT_FALSE(table_.add_plain(peer, header, 0, data));
}

TEST_F(MatchTablePart, a_message_outlives_its_handler_only_if_it_is_not_over) {
    FakeMatchPeer& peer = add_peer();
    Arrival arrival = eager(5, 10, 10);
    arrival.is_am = true;
    Unexpected* message = table_.make(peer, arrival);
    ASSERT_NE(message, nullptr);
    table_.claim(*message);
    message->is_in_handler = true;
    table_.release(*message);
    EXPECT_TRUE(message->is_over);
    EXPECT_EQ(in_use().messages, 1U);
    message->is_in_handler = false;
    table_.unclaim(*message);
    table_.release(*message);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(MatchTablePart, a_handle_that_the_program_made_up_is_no_message) {
    FakeMatchPeer& peer = add_peer();
    keep(peer, 5);
    Unexpected* message = taken(5);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(table_.claimed(message), nullptr);
    EXPECT_EQ(table_.claimed(nullptr), nullptr);
    table_.claim(*message);
    EXPECT_EQ(table_.claimed(message), message);
    table_.unclaim(*message);
    EXPECT_EQ(table_.claimed(message), nullptr);
    table_.release(*message);
}

// ---- Messages that their sender takes back

TEST_F(MatchTablePart, a_sender_takes_back_its_own_messages_once) {
    FakeMatchPeer& peer = add_peer();
    FakeMatchPeer& other = add_peer();
    Arrival arrival = eager(5, 10, 10);
    arrival.send_id = 3;
    table_.add(peer, arrival);
    EXPECT_FALSE(table_.withdraw(other, 3));
    EXPECT_FALSE(table_.withdraw(peer, 0));
    EXPECT_FALSE(table_.withdraw(peer, 4));
    EXPECT_TRUE(table_.withdraw(peer, 3));
    EXPECT_FALSE(table_.withdraw(peer, 3));
    EXPECT_EQ(taken(5), nullptr);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(MatchTablePart, a_message_that_a_receive_has_cannot_be_taken_back) {
    FakeMatchPeer& peer = add_peer();
    Arrival arrival = eager(5, 10, 10);
    arrival.send_id = 3;
    table_.add(peer, arrival);
    Unexpected* message = taken(5);
    ASSERT_NE(message, nullptr);
    EXPECT_FALSE(table_.withdraw(peer, 3));
    table_.claim(*message);
    table_.name(*message);  // a rendezvous that the program keeps
    EXPECT_TRUE(table_.withdraw(peer, 3));
    EXPECT_TRUE(message->is_canceled);
    EXPECT_FALSE(table_.withdraw(peer, 3));
    EXPECT_EQ(table_.claimed(message), message);
    table_.unclaim(*message);
    table_.release(*message);
}

// ---- Budget

TEST_F(MatchTablePart, a_peer_with_half_of_its_quota_keeps_its_data) {
    FakeMatchPeer& peer = add_peer();
    FakeMatchPeer& other = add_peer();
    const std::uint64_t quota = kTableBytes / 3;  // one is for who may come
    std::uint64_t tag = 0;
    while (peer.budget.held_bytes + MatchTable::bytes_of(kTableData) <= quota / 2)
        keep(peer, tag++);
    EXPECT_TRUE(peer.fake.sent.empty());
    keep(peer, tag++);
    keep(peer, tag++);
    EXPECT_EQ(peer.fake.sent.count<PauseEager>(), 1U);
    EXPECT_EQ(peer.fake.sent.size(), 1U);
    EXPECT_EQ(count(WorkerCounter::kPausedEager), 1U);
    keep(other, 5000);
    EXPECT_TRUE(other.fake.sent.empty());
    while (peer.budget.held_bytes > quota / 4) {
        EXPECT_EQ(peer.fake.sent.count<ResumeEager>(), 0U);
        ASSERT_TRUE(receive(--tag));
    }
    EXPECT_EQ(peer.fake.sent.count<ResumeEager>(), 1U);
}

TEST_F(MatchTablePart, all_pause_when_the_budget_is_used_and_resume_when_it_is_free) {
    FakeMatchPeer& peer = add_peer();
    FakeMatchPeer& other = add_peer();
    std::uint64_t tag = 0;
    while (in_use().bytes <= kTableBytes / 4 * 3) {
        EXPECT_EQ(peer.fake.sent.count<Pause>() + other.fake.sent.count<Pause>(), 0U);
        keep(tag % 2 == 0 ? peer : other, tag);
        ++tag;
    }
    keep(peer, tag++);
    keep(other, tag++);
    for (FakeMatchPeer* each : {&peer, &other}) {
        EXPECT_EQ(each->fake.sent.count<PauseEager>(), 1U);
        EXPECT_EQ(each->fake.sent.count<Pause>(), 1U);
    }
    EXPECT_EQ(count(WorkerCounter::kPaused), 2U);
    while (in_use().bytes > kTableBytes / 4) {
        EXPECT_EQ(peer.fake.sent.count<Resume>(), 0U);
        ASSERT_TRUE(receive(--tag));
    }
    EXPECT_EQ(peer.fake.sent.count<Resume>(), 1U);
    EXPECT_EQ(other.fake.sent.count<Resume>(), 1U);
    while (tag > 0)
        ASSERT_TRUE(receive(--tag));
    EXPECT_EQ(peer.fake.sent.count<ResumeEager>(), 1U);
    EXPECT_EQ(other.fake.sent.count<ResumeEager>(), 1U);
}

TEST_F(MatchTablePart, the_number_of_messages_has_its_limit_too) {
    FakeMatchPeer& peer = add_peer();
    for (std::uint64_t tag = 0; tag <= kTableMessages / 2; ++tag) {
        EXPECT_EQ(peer.fake.sent.count<Pause>(), 0U);
        keep(peer, tag, 0);
    }
    EXPECT_EQ(peer.fake.sent.count<Pause>(), 1U);
}

TEST_F(MatchTablePart, a_peer_may_send_its_window_after_it_was_told_to_pause_and_no_more) {
    FakeMatchPeer& peer = add_peer();
    FakeMatchPeer& honest = add_peer();
    keep(honest, 77777);
    constexpr std::size_t kLength = 100'000;
    std::uint64_t tag = 0;
    while (!peer.budget.told_to_pause)
        keep(peer, tag++, kLength);
    std::uint64_t sent = 0;
    while (peer.fake.failures.empty()) {
        EXPECT_LE(sent, proto::kWindowBytes + 2 * MatchTable::bytes_of(kLength));
        keep(peer, tag++, kLength);
        sent += MatchTable::bytes_of(kLength);
    }
    EXPECT_GT(sent, proto::kWindowBytes);
    EXPECT_EQ(peer.fake.failures, std::vector{UCS_ERR_EXCEEDS_LIMIT});
    EXPECT_TRUE(peer.budget.has_flooded);
    // All that it sent has gone with it, and what others sent has not.
    EXPECT_EQ(in_use().messages, 1U);
    EXPECT_TRUE(receive(77777));
}

TEST_F(MatchTablePart, a_message_longer_than_the_budget_ends_its_connection) {
    FakeMatchPeer& peer = add_peer();
    table_.add(peer, eager(5, 100, kTableBytes + 1));
    EXPECT_EQ(peer.fake.failures, std::vector{UCS_ERR_EXCEEDS_LIMIT});
    EXPECT_FALSE(peer.incoming.is_under_way);
    EXPECT_EQ(in_use(), InUse{});
    EXPECT_EQ(count(WorkerCounter::kRxUnexpected), 0U);
}

TEST_F(MatchTablePart, notices_count_until_they_are_polled) {
    FakeMatchPeer& peer = add_peer();
    for (std::uint64_t i = 0; i < kTableMessages; ++i)
        table_.add_notice();
    table_.pause_if_full(peer);
    EXPECT_EQ(peer.fake.sent.count<Pause>(), 1U);
    for (std::uint64_t i = 0; i < kTableMessages; ++i)
        table_.remove_notice();
    table_.resume_if_free(nullptr);
    EXPECT_EQ(peer.fake.sent.count<Resume>(), 1U);
    EXPECT_EQ(peer.fake.sent.count<ResumeEager>(), 1U);
}

// ---- Peers that go

TEST_F(MatchTablePart, whole_messages_of_a_peer_that_is_gone_stay_and_halves_go) {
    FakeMatchPeer& peer = add_peer();
    keep(peer, 1);
    Arrival rndv = eager(2, 40, 40);
    rndv.is_rndv = true;
    table_.add(peer, rndv);
    keep(peer, 3);
    table_.add(peer, eager(4, 100, 300));
    Unexpected* whole = taken(3);
    Unexpected* half = taken(4);
    ASSERT_TRUE(whole != nullptr && half != nullptr);
    table_.claim(*whole);
    table_.claim(*half);
    go(peer);
    EXPECT_TRUE(peer.kept.empty());
    EXPECT_EQ(in_use().orphans, 1U);
    EXPECT_EQ(in_use().messages, 3U);
    EXPECT_EQ(taken(2), nullptr);
    EXPECT_FALSE(whole->has_failed);
    EXPECT_TRUE(half->has_failed);
    EXPECT_EQ(whole->peer, nullptr);
    EXPECT_TRUE(receive(1));
    EXPECT_EQ(in_use().orphans, 0U);
    for (Unexpected* message : {whole, half}) {
        table_.unclaim(*message);
        table_.release(*message);
    }
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(MatchTablePart, messages_of_peers_that_are_gone_hold_nobody_back_and_give_way) {
    FakeMatchPeer& gone = add_peer();
    FakeMatchPeer& peer = add_peer();
    std::uint64_t tag = 0;
    while (gone.fake.sent.count<Pause>() == 0)
        keep(gone, tag++);
    go(gone);
    EXPECT_GT(in_use().orphans, 0U);
    keep(peer, 100'000);
    EXPECT_TRUE(peer.fake.sent.empty());
    EXPECT_EQ(count(WorkerCounter::kOrphansDropped), 0U);
    for (std::uint64_t i = 1; count(WorkerCounter::kOrphansDropped) == 0; ++i) {
        ASSERT_LT(i, 4 * proto::kWindowBytes / kTableData);
        ASSERT_TRUE(peer.fake.failures.empty());
        keep(peer, 100'000 + i);
    }
    EXPECT_EQ(taken(0), nullptr);  // the oldest
    EXPECT_TRUE(receive(1));
}

TEST_F(MatchTablePart, receives_that_wait_go_with_the_worker) {
    const tw_op_t op{};
    std::vector<std::unique_ptr<proto::Request>> receives;
    for (const bool is_tagged : {false, true}) {
        receives.push_back(std::make_unique<proto::Request>(
            nullptr, op, proto::RequestState{.kind = proto::RequestKind::kReceive}));
        receives.back()->tag = 1;
        receives.back()->mask = UINT64_MAX;
        receives.back()->source = proto::kAnySource;
        table_.space(is_tagged).posted.post(*receives.back());
    }
    table_.clear();
    EXPECT_EQ(released_.size(), 2U);
}

}  // namespace
}  // namespace tagwire::test
