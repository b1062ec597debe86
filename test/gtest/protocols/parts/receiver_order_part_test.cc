// SPDX-License-Identifier: BSD-3-Clause
// The receiver, alone: multi-receives, receives without a buffer, places in the order of a device,
// peers that say anything, everything in any order, and no memory.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/receiver_part.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/limits.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::Ack;
using proto::AmId;
using proto::Ats;
using proto::Header;
using proto::Placeholder;
using proto::Request;
using proto::Unexpected;
using proto::WorkerCounter;

using ReceiverOrder = ReceiverPart;

// ---- Multi-receives

TEST_F(ReceiverOrder, a_multi_receive_takes_messages_until_too_little_of_it_is_left) {
    FakeMatchPeer& peer = add_peer();
    send(peer, untagged(1000, 1000));
    ASSERT_EQ(receive_untagged(proto::kMultiReceive, 3000), TW_INPROGRESS);
    send(peer, untagged(1000, 1000));
    send(peer, untagged(600, 600));  // 400 are left
    send(peer, untagged(10, 10));
    const auto ends = told();
    ASSERT_EQ(ends.size(), 4U);
    const std::byte* at = buffers_[0]->data();
    for (const std::size_t bytes : {1000U, 1000U, 600U}) {
        const auto& end = ends[static_cast<std::size_t>(at - buffers_[0]->data()) / 1000];
        EXPECT_EQ(end.buffer, at);
        EXPECT_EQ(end.length, bytes);
        EXPECT_EQ(end.flags & TW_DONE_MULTI_RECV, 0U);
        at += bytes;
    }
    EXPECT_EQ(ends[3].status, TW_OK);
    EXPECT_EQ(ends[3].flags & TW_DONE_MULTI_RECV, TW_DONE_MULTI_RECV);
    EXPECT_EQ(receive_untagged(0), TW_OK);  // which has waited
}

TEST_F(ReceiverOrder, a_multi_receive_ends_behind_its_parts) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_untagged(proto::kMultiReceive, 1000), TW_INPROGRESS);
    send(peer, untagged(100, 700));  // 300 are left
    EXPECT_TRUE(told().empty());
    send_rest(peer);
    const auto ends = told();
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_EQ(ends[0].length, 700U);
    EXPECT_EQ(ends[1].flags & TW_DONE_MULTI_RECV, TW_DONE_MULTI_RECV);
}

TEST_F(ReceiverOrder, a_multi_receive_that_is_canceled_keeps_what_it_has) {
    FakeMatchPeer& peer = add_peer();
    const tw_op_t how = op();
    tw_request_h handle = nullptr;
    ASSERT_EQ(receiver_.receive({buffer().data(), kRoom, nullptr, 0, 0, 0, false, &how, &handle,
                                 proto::kMultiReceive}),
              TW_INPROGRESS);
    Request& request = proto::request_of(handle);
    send(peer, untagged(100, 700));
    receiver_.unpost(request);
    receiver_.close_multi(request, UCS_ERR_CANCELED);
    EXPECT_TRUE(told().empty());
    fail(peer);
    const auto ends = told();
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_EQ(ends[0].status, TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(ends[1].status, TW_ERR_CANCELED);
}

TEST_F(ReceiverOrder, a_multi_receive_of_one_source_ends_with_that) {
    FakeMatchPeer& peer = add_peer();
    const tw_op_t how = op_from(peer);
    const auto post = [&] {
        return receiver_.receive(
            {buffer().data(), kRoom, nullptr, 0, 0, 0, false, &how, nullptr, proto::kMultiReceive});
    };
    ASSERT_EQ(post(), TW_INPROGRESS);
    send(peer, untagged(100, 100));
    EXPECT_EQ(told().size(), 1U);
    fail(peer);
    EXPECT_EQ(told_one(), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(post(), TW_INPROGRESS);  // its end is told in any case
    EXPECT_EQ(told_one(), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(done_.flags & TW_DONE_MULTI_RECV, TW_DONE_MULTI_RECV);
}

// ---- Receives without a buffer

class BufferedPart : public ReceiverPart {
  protected:
    tw_status_t receive_buffered(std::uint64_t tag) {
        const tw_op_t how = op();
        return receiver_.receive(
            {nullptr, 0, nullptr, 0, tag, kExact, true, &how, nullptr, proto::kBufferedReceive});
    }
    /// The program has the message: it is released.
    void release(tw_message_h message) { EXPECT_TRUE(table_.drop(message)); }
    /// The library's own receive of a rendezvous has ended.
    void end_fetch(ucs_status_t status) {
        Request& fetch = *rndv_.back().request;
        std::fill_n(fetch.buffer.base, fetch.wanted, std::byte{0x44});
        end_rndv(fetch, status, fetch.wanted);
    }
};

TEST_F(BufferedPart, the_program_gets_a_message_where_it_is_kept) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    send(peer, 1, 100);
    send(peer, 2, 200);
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_EQ(static_cast<const std::byte*>(done_.buffer)[99], std::byte{1});
    EXPECT_EQ(done_.flags & (TW_DONE_BUFFERED | TW_DONE_MORE), TW_DONE_BUFFERED);
    release(done_.message);
    ASSERT_EQ(receive_buffered(2), TW_INPROGRESS);  // a completion tells where the data is
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 200U);
    fail(peer);
    release(done_.message);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(BufferedPart, the_start_of_a_long_message_is_enough) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    send(peer, with_acks(eager(1, 100, limits_.buffered_bytes_limit + 1), proto::kAckMatch));
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 1U);
    EXPECT_TRUE(told().empty());
    EXPECT_TRUE(part(peer, limits_.buffered_bytes_min - 100));
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, limits_.buffered_bytes_min);
    EXPECT_EQ(done_.flags & TW_DONE_MORE, TW_DONE_MORE);
    ASSERT_EQ(receive_message(table_.claimed(done_.message), 10'000), TW_INPROGRESS);
    send_rest(peer);
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, limits_.buffered_bytes_limit + 1);
    ASSERT_EQ(receive_buffered(2), TW_INPROGRESS);
    send(peer, eager(2, 100, limits_.buffered_bytes_limit));  // all of this is waited for
    EXPECT_TRUE(part(peer, limits_.buffered_bytes_limit - 101));
    EXPECT_TRUE(told().empty());
    EXPECT_TRUE(part(peer, 1));
    ASSERT_EQ(told_one(), TW_OK);
    release(done_.message);
}

TEST_F(BufferedPart, a_rendezvous_is_fetched_as_a_whole_or_its_start) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    send(peer, rendezvous(1, 5000));
    ASSERT_EQ(rndv_.size(), 1U);
    EXPECT_FALSE(rndv_[0].request->is_start);
    EXPECT_EQ(rndv_[0].keys, kKeys);
    EXPECT_TRUE(told().empty());
    end_fetch(UCS_OK);
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 5000U);
    EXPECT_EQ(static_cast<const std::byte*>(done_.buffer)[4999], std::byte{0x44});
    release(done_.message);
    EXPECT_EQ(peer.fake.sent.count<Ats>(), 0U);  // the fetch has said so

    send(peer, rendezvous(2, 100'000));
    ASSERT_EQ(receive_buffered(2), TW_INPROGRESS);
    EXPECT_TRUE(rndv_.back().request->is_start);
    end_fetch(UCS_ERR_MESSAGE_TRUNCATED);
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, limits_.buffered_bytes_min);
    EXPECT_EQ(done_.message_length, 100'000U);
    EXPECT_EQ(done_.flags & TW_DONE_MORE, TW_DONE_MORE);
    release(done_.message);
    EXPECT_EQ(peer.fake.sent.count<Ats>(), 1U);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(BufferedPart, a_rendezvous_without_a_start_is_shown_at_once) {
    limits_.buffered_bytes_min = 0;
    FakeMatchPeer& peer = add_peer();
    send(peer, rendezvous(1, 100'000));
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    ASSERT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 0U);
    EXPECT_TRUE(rndv_.empty());
    release(done_.message);
}

TEST_F(BufferedPart, a_fetch_that_fails_is_the_end_of_the_receive) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    send(peer, rendezvous(1, 5000));
    end_fetch(UCS_ERR_CANCELED);
    EXPECT_EQ(told_one(), TW_ERR_CANCELED);
    EXPECT_EQ(done_.message, nullptr);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(BufferedPart, a_sender_that_goes_ends_receives_that_wait_for_it) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    ASSERT_EQ(receive_buffered(2), TW_INPROGRESS);
    send(peer, rendezvous(1, 5000));
    send(peer, eager(2, 100, 5000));
    fail(peer);
    const auto ends = told();
    ASSERT_EQ(ends.size(), 2U);
    for (const auto& end : ends) {
        EXPECT_EQ(end.status, TW_ERR_CONNECTION_RESET);
        EXPECT_EQ(end.message, nullptr);
    }
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(BufferedPart, a_fetch_that_has_ended_when_its_sender_goes_is_told_to_nobody) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    send(peer, rendezvous(1, 5000));
    end_fetch(UCS_OK);  // progress has not told it yet
    fail(peer);
    EXPECT_EQ(told_one(), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(BufferedPart, a_message_that_cannot_be_kept_ends_the_receive_with_its_connection) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive_buffered(1), TW_INPROGRESS);
    send(peer, eager(1, 100, kTableBytes + 1));
    EXPECT_EQ(peer.fake.failures, std::vector{UCS_ERR_EXCEEDS_LIMIT});
    EXPECT_EQ(told_one(), TW_ERR_EXCEEDS_LIMIT);
}

// ---- A device that matches tags

TEST_F(ReceiverOrder, a_device_learns_of_tagged_receives_that_are_posted_and_leave) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(0), TW_INPROGRESS);
    send(peer, 0);
    EXPECT_TRUE(posted_.empty());
    EXPECT_TRUE(unposted_.empty());
    receiver_.set_has_device();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    ASSERT_EQ(receive(2, op_from(peer)), TW_INPROGRESS);
    ASSERT_EQ(receive_untagged(0), TW_INPROGRESS);
    EXPECT_EQ(posted_.size(), 2U);
    send(peer, 1);
    send(peer, untagged(1, 1));
    EXPECT_EQ(unposted_, std::vector{posted_[0]});
    fail(peer);
    EXPECT_EQ(unposted_, posted_);
    EXPECT_EQ(told().size(), 4U);
}

TEST_F(ReceiverOrder, a_message_that_a_device_has_written_ends_its_receive) {
    FakeMatchPeer& peer = add_peer();
    receiver_.set_has_device();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    Request& request = *posted_[0];
    table_.space(true).posted.cancel(request);  // as the device has matched it
    request.is_posted = false;
    receiver_.end_in_place(request, peer, eager(1, 100, 100));
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_TRUE(unposted_.empty());
}

class AnnouncedPart : public ReceiverPart {
  protected:
    AnnouncedPart() { receiver_.set_has_device(); }

    void announce(FakeMatchPeer& peer, std::uint64_t tag, std::size_t bytes) {
        const std::vector<std::byte> data(bytes, std::byte{0x55});
        receiver_.announce(peer, AmId::kEager, {peer.id, proto::kTagged | proto::kAnnounced, tag},
                           data);
    }
    bool place(FakeMatchPeer& peer, std::uint32_t number, std::uint64_t tag) {
        return receiver_.take_announced(peer, Placeholder{peer.id, number}, tag, nullptr);
    }
};

TEST_F(AnnouncedPart, an_announced_message_arrives_when_its_place_comes) {
    FakeMatchPeer& peer = add_peer();
    ASSERT_EQ(receive(1), TW_INPROGRESS);
    announce(peer, 2, 200);
    announce(peer, 1, 100);
    EXPECT_TRUE(told().empty());
    EXPECT_NE(in_use(), InUse{});
    EXPECT_TRUE(place(peer, 1, 1));
    EXPECT_EQ(told_one(), TW_OK);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_FALSE(place(peer, 1, 1));
    EXPECT_TRUE(place(peer, 0, 2));
    EXPECT_EQ(receive(2), TW_OK);
    EXPECT_EQ(done_.length, 200U);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AnnouncedPart, a_place_of_another_message_drops_it) {
    FakeMatchPeer& peer = add_peer();
    EXPECT_FALSE(place(peer, 0, 1));
    announce(peer, 1, 100);
    EXPECT_FALSE(place(peer, 0, 2));
    EXPECT_EQ(count(WorkerCounter::kGarbage), 2U);
    receiver_.announce(peer, AmId::kRts, {peer.id, proto::kTagged | proto::kAnnounced, 1}, {});
    EXPECT_FALSE(place(peer, 1, 1));  // no request of a rendezvous
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AnnouncedPart, announced_messages_are_of_the_budget_until_their_peer_goes) {
    FakeMatchPeer& peer = add_peer();
    for (unsigned i = 0; i < 400 && !peer.budget.told_to_pause_eager; ++i)
        announce(peer, i, kTableData);
    EXPECT_TRUE(peer.budget.told_to_pause_eager);
    EXPECT_TRUE(place(peer, 3, 3));
    fail(peer);
    EXPECT_EQ(receive(3), TW_OK);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AnnouncedPart, what_has_no_place_is_dropped) {
    FakeMatchPeer& peer = add_peer();
    receiver_.announce(peer, AmId::kEager, {peer.id, proto::kAnnounced, 0}, {});  // untagged
    receiver_.announce(peer, AmId::kEager,
                       {peer.id, proto::kTagged | proto::kAnnounced | proto::kMoreParts, 0}, {});
    EXPECT_EQ(count(WorkerCounter::kGarbage), 2U);
    EXPECT_EQ(in_use(), InUse{});
}

// ---- Peers that say anything

TEST_F(ReceiverOrder, malformed_messages_are_dropped_and_counted) {
    for_each_seed(5, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        FakeMatchPeer& peer = add_peer();
        ASSERT_EQ(receive(1, 0, 0), TW_INPROGRESS);
        for (unsigned i = 0; i < 3000; ++i) {
            std::vector<std::byte> bytes(random() % 64);
            std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() % 3); });
            const Header header{peer.id, static_cast<std::uint32_t>(random() % 160), random() % 3};
            const std::uint64_t before = count(WorkerCounter::kGarbage);
            const InUse kept = in_use();
            const bool is_taken =
                random() % 2 == 0
                    ? receiver_.take_eager(peer, header, bytes, nullptr)
                    : (random() % 4 == 0 ? receiver_.take_part(peer, bytes)
                                         : receiver_.take_rndv(peer, header, bytes, nullptr));
            EXPECT_LE(count(WorkerCounter::kGarbage) - before, 1U);
            EXPECT_TRUE(is_taken || in_use() == kept) << "a refused message was kept";
            if (!peer.fake.failures.empty())
                break;
            told();
            if (worker_.table.in_use() < 3)
                static_cast<void>(receive(random() % 3, 0, random() % 3));
        }
        fail(peer);
        told();
        while (auto* posted = static_cast<Request*>(table_.space(true).posted.take_any()))
            worker_.table.release(*posted);
        drop_all();
    });
}

TEST_F(ReceiverOrder, a_second_long_message_behind_a_first_one_that_is_not_all_here_is_dropped) {
    FakeMatchPeer& peer = add_peer();
    send(peer, eager(1, 100, 1000));
    std::vector<std::byte> bytes(sizeof(std::uint64_t) + 10);
    const std::uint64_t total = 100;
    std::memcpy(bytes.data(), &total, sizeof total);
    const Header header{peer.id, proto::kTagged | proto::kMoreParts, 2};
    EXPECT_FALSE(receiver_.take_eager(peer, header, bytes, nullptr));
    send_rest(peer);
    EXPECT_TRUE(receiver_.take_eager(peer, header, bytes, nullptr));
    send_rest(peer);
    EXPECT_EQ(receive(1), TW_OK);
    EXPECT_EQ(receive(2), TW_OK);
    EXPECT_EQ(done_.length, 100U);
}

// ---- Everything in any order

/// Each receive ends once, and each message is received by one or not at all.
TEST_F(ReceiverOrder, each_receive_ends_once_whatever_comes_in_whichever_order) {
    for_each_seed(10, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        const auto below = [&](std::size_t end) {
            return static_cast<std::size_t>(random() % end);
        };
        std::vector<FakeMatchPeer*> peers{&add_peer(), &add_peer()};
        std::size_t began = 0, ended = 0;
        const auto count_ends = [&] { ended += told().size(); };
        for (unsigned step = 0; step < 2000; ++step) {
            FakeMatchPeer& peer = *peers[below(peers.size())];
            const std::uint64_t tag = below(3);
            switch (below(6)) {
                case 0:
                case 1: {
                    const std::uint64_t mask = below(3) == 0 ? 0 : kExact;
                    if (below(4) == 0) {
                        static_cast<void>(probe(tag, mask));
                        break;
                    }
                    const tw_status_t status = receive(tag, 0, mask, below(2) == 0 ? 50 : kRoom);
                    began += status == TW_INPROGRESS ? 1 : 0;
                    break;
                }
                case 2:
                    if (peer.incoming.is_under_way)
                        send_rest(peer);
                    else
                        send(peer, eager(tag, 100, 100 + (below(2) == 0 ? 0 : below(900))));
                    break;
                case 3:
                    send(peer, rendezvous(tag, 1 + below(9000)));
                    break;
                case 4:
                    if (!rndv_.empty()) {
                        Request& request = *rndv_.front().request;
                        rndv_.erase(rndv_.begin());
                        end_rndv(request, UCS_OK, request.wanted);
                    }
                    break;
                default:
                    if (below(40) == 0) {
                        fail(peer);
                        std::ranges::replace(peers, &peer, &add_peer());
                    }
                    count_ends();
                    break;
            }
        }
        for (FakeMatchPeer* peer : peers)
            fail(*peer);
        count_ends();
        while (auto* posted = static_cast<Request*>(table_.space(true).posted.take_any())) {
            worker_.table.release(*posted);
            ++ended;
        }
        drop_all();
        buffers_.clear();
        EXPECT_EQ(began, ended);
        EXPECT_EQ(in_use(), InUse{});
        EXPECT_EQ(worker_.table.in_use(), 0U);
    });
}

// ---- Memory

TEST_F(ReceiverOrder, without_memory_a_receive_is_refused_or_its_message_ends_the_connection) {
    ASSERT_TRUE(ucs::reserve_open());
    told_.reserve(16);
    for (unsigned long which = 1; which < 25; ++which) {
        FakeMatchPeer& peer = add_peer();
        const std::vector<tw_op_t> how(4, op());
        const tw_iov_t list{buffer().data(), kRoom};
        const std::vector<proto::Incoming> wanted{
            {nullptr, kRoom, &list, 1, 1, kExact, true, how.data(), nullptr},
            {nullptr, 0, nullptr, 0, 2, kExact, true, &how[1], nullptr, proto::kBufferedReceive},
            {buffer().data(), kRoom, nullptr, 0, 0, 0, false, &how[2], nullptr,
             proto::kMultiReceive},
            tagged(3, how[3])};
        const proto::Arrival fetched = rendezvous(2, 5000);
        const std::vector<std::byte> keys(bytes_);
        outstanding_.reserve(16);
        rndv_.reserve(16);
        unsigned refused = 0;
        {
            const FailingAllocation failing(which);
            for (const proto::Incoming& each : wanted)
                refused += receiver_.receive(each) == TW_ERR_NO_RESOURCE ? 1 : 0;
            proto::Arrival arrival = fetched;
            arrival.bytes = keys;
            send(peer, arrival);
            bytes_.resize(100);
            arrival = {};
            arrival.length = 100;
            arrival.bytes = bytes_;
            send(peer, arrival);
            arrival.tag = 1;
            arrival.flags = proto::kTagged;
            send(peer, arrival);
            arrival.tag = 4;
            send(peer, arrival);
        }
        if (nomem::is_there()) {
            EXPECT_LE(refused + peer.fake.failures.size(), 1U) << which;
        }
        fail(peer);
        told();
        EXPECT_TRUE(outstanding_.empty()) << which;
        for (const bool is_tagged : {false, true})
            while (auto* posted = static_cast<Request*>(table_.space(is_tagged).posted.take_any()))
                worker_.table.release(*posted);
        drop_all();
        EXPECT_EQ(in_use(), InUse{}) << which;
        EXPECT_EQ(worker_.table.in_use(), 0U) << which;
        buffers_.clear();
    }
}

}  // namespace
}  // namespace tagwire::test
