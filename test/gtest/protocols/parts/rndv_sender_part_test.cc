// SPDX-License-Identifier: BSD-3-Clause
// The sender of rendezvous, alone: the way that a message goes, its request, and a receiver that
// says anything.
#include "protocols/rndv/rndv_sender.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/api/tw_am.h"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/parts/real_key.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/wire/eager_header.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::Advice;
using proto::Advisor;
using proto::AmId;
using proto::Cts;
using proto::DataEnd;
using proto::Pattern;
using proto::Request;
using proto::RequestKind;
using proto::WorkerCounter;

class RndvSenderPart : public testing::Test {
  protected:
    static constexpr std::size_t kFrom = 100'000;
    static constexpr std::size_t kLong = 200'000, kShort = 50'000;  // both are learnt from
    static constexpr std::uint32_t kPeerNames = 11, kReceiveId = 5;
    static constexpr std::uint8_t kDomain = 3;

    RndvSenderPart() {
        rail_.set_rndv_from(kFrom);
        lane_.ep = uct_.ep();
        lane_.over = &rail_;
        lane_.state = proto::EpState::kReady;
        peer_.peer_names = kPeerNames;
    }

    Request& message(std::size_t length, std::uint32_t flags = 0) {
        buffers_.emplace_back(length);
        tw_op_t op{};
        op.flags = flags;
        Request& request = worker_.make(RequestKind::kSend, buffers_.back(), op);
        request.ep = as_endpoint(peer_);
        request.is_tagged = true;
        request.order = next_order_++;
        messages_.push_back(&request);
        return request;
    }
    /// One whose request has gone.
    Request& begun(std::size_t length) {
        Request& request = message(length);
        EXPECT_EQ(sender_.start(request), UCS_INPROGRESS);
        outstanding_.push_back(request);
        return request;
    }
    proto::Rts last_rts() const {
        proto::Header header{};
        std::memcpy(&header, uct_.sent.back().bytes.data(), sizeof header);
        proto::RtsBody body;
        EXPECT_TRUE(
            proto::decode(header, std::span(uct_.sent.back().bytes).subspan(sizeof header), &body));
        return body.rts;
    }
    bool cts(Request* request, std::uint64_t bytes, std::uint32_t receive_id = kReceiveId) {
        return sender_.on_cts(Cts{.send_id = request == nullptr ? 0 : request->id,
                                  .receive_id = receive_id,
                                  .bytes = bytes},
                              request);
    }
    bool rtr(Request* request, std::uint64_t bytes, std::uint8_t domain = kDomain) {
        proto::RtrMessage offered{};
        offered.rtr.receive_id = kReceiveId;
        offered.rtr.domain = domain;
        offered.rtr.length = bytes;
        offered.keys.used = sizeof(proto::KeyHead);
        return sender_.on_rtr(offered, request, kDomain);
    }
    static Advice advice(std::uint32_t from, unsigned trials = 0) {
        Advice message{};
        message.rndv_from = from;
        message.regime = message.regimes = 1;
        message.trials = static_cast<std::uint8_t>(trials);
        return message;
    }
    /// Sends all that the receiver has asked for.
    std::size_t send_pieces(Request& request) {
        std::size_t pieces = 0;
        const std::size_t removed = peer_.fake.removed.size();
        while (peer_.fake.removed.size() == removed) {
            if (sender_.send_piece(request) != UCS_OK || ++pieces > 10'000)
                break;
        }
        return pieces;
    }
    void TearDown() override {
        while (Request* request = outstanding_.pop_front())
            static_cast<void>(request);
        for (Request* request : messages_) {
            worker_.requests.release_id(*request);
            worker_.requests.release(*request);
        }
        EXPECT_EQ(worker_.requests.in_use(), 0U);
    }

    FakeWorker worker_;
    FakeMatchPeer peer_{1};
    FakeUct uct_;
    FakeRail rail_{worker_.options};
    proto::Domain& domain_ = rail_.own_domain;
    proto::LaneState lane_;
    proto::CopyChooser copies_;
    proto::SendWindow window_{peer_.fake.port};
    proto::RequestList outstanding_;
    proto::RndvSender sender_{{worker_.port, peer_, lane_, copies_, window_, outstanding_}};
    std::uint64_t next_order_ = 0;
    std::vector<Request*> messages_;
    std::deque<std::vector<std::byte>> buffers_;
};

// ---- The way of a message

TEST_F(RndvSenderPart, takes_long_messages_and_all_but_urgent_ones_while_eager_data_is_paused) {
    EXPECT_FALSE(sender_.takes(message(kFrom - 1)));
    EXPECT_TRUE(sender_.takes(message(kFrom)));
    EXPECT_FALSE(sender_.takes(message(kFrom, TW_OP_URGENT)));
    lane_.eager_is_paused = true;
    EXPECT_TRUE(sender_.takes(message(1)));
    EXPECT_FALSE(sender_.takes(message(0)));
    EXPECT_FALSE(sender_.takes(message(1, TW_OP_URGENT)));
}

TEST_F(RndvSenderPart, takes_what_the_peer_cannot_keep) {
    sender_.set_eager_max(proto::Options::kEagerShare * 10'000 + TW_AM_HEADER_MAX);
    EXPECT_FALSE(sender_.takes(message(10'000)));
    EXPECT_TRUE(sender_.takes(message(10'001)));
}

TEST_F(RndvSenderPart, a_device_that_matches_tags_has_short_messages_only) {
    rail_.set_matches_tags();
    const std::size_t most = FakeUct::kBufferBytes - sizeof(proto::Envelope);
    EXPECT_FALSE(sender_.takes(message(most)));
    EXPECT_TRUE(sender_.takes(message(most + 1)));
    Request& untagged = message(most + 1);
    untagged.is_tagged = false;
    EXPECT_FALSE(sender_.takes(untagged));
}

TEST_F(RndvSenderPart, an_eager_message_that_has_begun_stays_one) {
    Request& in_parts = message(kShort);
    Request& announced = message(kShort);
    Request& whole = message(kShort);
    in_parts.offset = 1;
    announced.is_announced = true;
    whole.has_gone = true;  // its transmission is to be tracked
    lane_.eager_is_paused = true;
    EXPECT_FALSE(sender_.takes(in_parts));
    EXPECT_FALSE(sender_.takes(announced));
    EXPECT_FALSE(sender_.takes(whole));
}

TEST_F(RndvSenderPart, a_receivers_advice_moves_the_threshold_until_the_connection_ends) {
    rail_.set_learning();
    ASSERT_TRUE(sender_.on_advice(advice(Advisor::kFirst)));
    EXPECT_TRUE(sender_.takes(message(kShort)));
    EXPECT_FALSE(sender_.is_eager_untimed(kShort));
    sender_.begin_anew();
    EXPECT_FALSE(sender_.takes(message(kShort)));
    EXPECT_TRUE(sender_.takes(message(kFrom)));
}

TEST_F(RndvSenderPart, advice_that_makes_no_sense_is_refused) {
    EXPECT_FALSE(sender_.on_advice(advice(Advisor::kFirst)));  // nothing is learnt of this rail
    rail_.set_learning();
    EXPECT_FALSE(sender_.on_advice(advice(1)));
    EXPECT_FALSE(sender_.on_advice(advice(Advisor::kEnd + 1)));
    EXPECT_FALSE(sender_.on_advice(advice(0)));
    Advice no_regime = advice(Advisor::kFirst);
    no_regime.regime = 2;
    EXPECT_FALSE(sender_.on_advice(no_regime));
    no_regime.regime = 0;
    EXPECT_FALSE(sender_.on_advice(no_regime));
    EXPECT_FALSE(sender_.takes(message(kShort)));
}

TEST_F(RndvSenderPart, so_many_messages_are_tried_the_other_way_and_each_keeps_its_way) {
    rail_.set_learning();
    ASSERT_TRUE(sender_.on_advice(advice(0, 2)));  // two by rendezvous
    std::vector<bool> ways;
    for (int i = 0; i < 4; ++i) {
        Request& request = message(kShort);
        const bool way = sender_.takes(request);
        EXPECT_EQ(sender_.takes(request), way);
        ways.push_back(way);
    }
    EXPECT_EQ(ways, (std::vector{true, true, false, false}));
    ASSERT_TRUE(sender_.on_advice(advice(0, proto::kTrialsOfEager + 1)));
    ++worker_.arrivals;                            // these are no stream
    EXPECT_FALSE(sender_.takes(message(kShort)));  // it is eager anyway
    EXPECT_FALSE(sender_.takes(message(kFrom)));
    EXPECT_TRUE(sender_.takes(message(kFrom)));
}

TEST_F(RndvSenderPart, who_leads_sends_as_it_receives_and_tries_nothing_for_the_other) {
    rail_.set_learning();
    ASSERT_TRUE(sender_.on_advice(advice(Advisor::kFirst, proto::kTrialsOfEager + 3)));
    sender_.lead(kLong, kShort);
    EXPECT_TRUE(sender_.is_leading(Pattern::kTurns, kShort));
    EXPECT_FALSE(sender_.is_leading(Pattern::kStream, kShort));
    EXPECT_FALSE(sender_.takes(message(kShort)));
    EXPECT_EQ(sender_.advised_from(Pattern::kTurns, kShort), kLong);
    ++worker_.arrivals;
    sender_.lead(Advisor::kFirst, kShort);
    EXPECT_TRUE(sender_.takes(message(kShort)));
}

TEST_F(RndvSenderPart, who_leads_follows_the_advice_for_other_lengths_than_come) {
    rail_.set_learning();
    ASSERT_TRUE(sender_.on_advice(advice(Advisor::kFirst)));
    sender_.lead(Advisor::kEnd, kShort);
    EXPECT_FALSE(sender_.takes(message(kShort)));
    EXPECT_TRUE(sender_.takes(message(kLong)));
    EXPECT_EQ(sender_.advised_from(Pattern::kTurns, kLong), Advisor::kFirst);
    ASSERT_TRUE(sender_.on_advice(advice(Advisor::kFirst, proto::kTrialsOfEager + 1)));
    ++worker_.arrivals;
    EXPECT_FALSE(sender_.takes(message(kLong))) << "it is tried";
}

TEST_F(RndvSenderPart, who_hears_nothing_of_the_peer_for_some_messages_leads_no_more) {
    rail_.set_learning();
    ASSERT_TRUE(sender_.on_advice(advice(Advisor::kFirst)));
    sender_.lead(kLong, kShort);
    unsigned eager = 0;
    while (!sender_.takes(message(kShort)) && eager < 100) {
        ++eager;
        ++worker_.arrivals;  // of other peers
    }
    EXPECT_EQ(eager, 2 * Advisor::kSampleEvery + 1);
    EXPECT_FALSE(sender_.is_leading(Pattern::kTurns, kShort));
    sender_.lead(kLong, kShort);
    sender_.begin_anew();
    EXPECT_FALSE(sender_.is_leading(Pattern::kTurns, kShort));
}

TEST_F(RndvSenderPart, messages_without_one_of_the_peer_in_between_are_a_stream) {
    rail_.set_learning();
    EXPECT_EQ(sender_.pattern(), Pattern::kTurns);
    for (int i = 0; i < 3; ++i)
        sender_.takes(message(kShort));
    EXPECT_EQ(sender_.pattern(), Pattern::kStream);
    ++worker_.arrivals;
    EXPECT_EQ(sender_.pattern(), Pattern::kTurns);
}

TEST_F(RndvSenderPart, one_of_some_eager_messages_is_timed) {
    rail_.set_learning();
    rail_.bcopy_max = kFrom;
    unsigned timed = 0;
    for (unsigned i = 0; i < 4 * Advisor::kSampleEvery; ++i) {
        if (sender_.is_eager_untimed(kShort))
            continue;
        Request& request = message(kShort);
        EXPECT_FALSE(sender_.takes(request));
        std::uint64_t begun = 0;
        timed += sender_.is_timed(request, &begun) ? 1U : 0U;
    }
    EXPECT_EQ(timed, 4U);
}

// ---- The request

TEST_F(RndvSenderPart, a_request_names_the_buffer_and_is_outstanding) {
    Request& request = message(kLong);
    EXPECT_EQ(sender_.start(request), UCS_INPROGRESS);
    ASSERT_EQ(uct_.sent.size(), 1U);
    EXPECT_EQ(uct_.sent[0].id, AmId::kRts);
    const proto::Rts rts = last_rts();
    EXPECT_EQ(rts.length, kLong);
    EXPECT_EQ(rts.send_id, request.id);
    EXPECT_EQ(rts.key_count, 0U);
    EXPECT_EQ(rts.flags & proto::kRtsCanPut, 0U);
    EXPECT_EQ(worker_.outstanding, std::vector{&request});
    EXPECT_EQ(worker_.count(WorkerCounter::kTxRndv), 1U);
    EXPECT_EQ(worker_.requests.find(request.id), &request);
}

TEST_F(RndvSenderPart, the_receiver_learns_that_this_side_can_write) {
    rail_.attributes().cap.flags |= UCT_IFACE_FLAG_PUT_ZCOPY;
    begun(kLong);
    EXPECT_NE(last_rts().flags & proto::kRtsCanPut, 0U);
    worker_.options.rndv_scheme = static_cast<int>(proto::RndvScheme::kCopy);
    begun(kLong);
    EXPECT_EQ(last_rts().flags & proto::kRtsCanPut, 0U);
}

TEST_F(RndvSenderPart, a_request_without_room_is_sent_once_and_keeps_its_name) {
    Request& request = message(kLong);
    uct_.room = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(sender_.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(sender_.start(request), UCS_ERR_NO_RESOURCE);
    const std::uint32_t id = request.id;
    EXPECT_TRUE(worker_.outstanding.empty());
    EXPECT_EQ(worker_.count(WorkerCounter::kTxRndv), 0U);
    uct_.room = UCS_OK;
    EXPECT_EQ(sender_.start(request), UCS_INPROGRESS);
    EXPECT_EQ(request.id, id);
    EXPECT_EQ(uct_.sent.size(), 1U);
    EXPECT_EQ(worker_.count(WorkerCounter::kTxRndv), 1U);
}

TEST_F(RndvSenderPart, a_failure_of_the_transport_is_the_end_of_the_request) {
    Request& request = message(kLong);
    uct_.room = UCS_ERR_CONNECTION_RESET;
    EXPECT_EQ(sender_.start(request), UCS_ERR_CONNECTION_RESET);
    EXPECT_TRUE(worker_.outstanding.empty());
}

TEST_F(RndvSenderPart, the_place_of_a_tagged_request_follows_it_and_is_repeated_alone) {
    rail_.set_matches_tags();
    Request& request = message(kLong);
    peer_.fake.on_placeholder = [](Request& announced) {
        announced.is_announced = true;
        return UCS_ERR_NO_RESOURCE;
    };
    EXPECT_EQ(sender_.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(sender_.takes(request));
    EXPECT_EQ(sender_.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(uct_.sent.size(), 1U);
    EXPECT_TRUE(worker_.outstanding.empty());
    peer_.fake.on_placeholder = [](Request& announced) {
        announced.is_announced = false;
        return UCS_OK;
    };
    EXPECT_EQ(sender_.start(request), UCS_INPROGRESS);
    EXPECT_EQ(uct_.sent.size(), 1U);
    EXPECT_EQ(worker_.outstanding, std::vector{&request});
}

TEST_F(RndvSenderPart, a_cancel_follows_a_request_that_was_wanted_back_before_it_had_gone) {
    Request& request = message(kLong);
    request.wants_cancel = true;
    EXPECT_EQ(sender_.start(request), UCS_INPROGRESS);
    EXPECT_EQ(peer_.fake.canceled, std::vector{&request});
}

TEST_F(RndvSenderPart, nothing_starts_at_once_over_a_rail_that_does_not_lend) {
    Request& request = message(kLong);
    EXPECT_FALSE(sender_.try_start_at_once(request, 7));
    EXPECT_EQ(request.id, 0U);
    EXPECT_NE(request.order, 7U);
    EXPECT_TRUE(uct_.sent.empty());
}

// ---- The receiver

TEST_F(RndvSenderPart, sends_what_the_receiver_asks_for_in_messages) {
    Request& request = begun(kLong);
    uct_.sent.clear();
    EXPECT_TRUE(cts(&request, kLong));
    EXPECT_EQ(peer_.fake.data, std::vector{&request});
    const std::size_t each = FakeUct::kBufferBytes - sizeof(proto::RndvData);
    EXPECT_EQ(send_pieces(request), (kLong + each - 1) / each);
    std::size_t bytes = 0;
    for (const FakeUct::Message& piece : uct_.sent) {
        proto::RndvData head{};
        std::memcpy(&head, piece.bytes.data(), sizeof head);
        EXPECT_EQ(piece.id, AmId::kData);
        EXPECT_EQ(head.receive_id, kReceiveId);
        EXPECT_EQ(head.offset, bytes);
        bytes += piece.bytes.size() - sizeof head;
    }
    EXPECT_EQ(bytes, kLong);
    EXPECT_TRUE(worker_.ends.empty());  // the receiver ends it
    EXPECT_TRUE(sender_.may_end(&request));
}

TEST_F(RndvSenderPart, a_receiver_that_asks_for_the_start_may_ask_again) {
    Request& request = begun(kLong);
    ASSERT_TRUE(cts(&request, 1000));
    EXPECT_FALSE(cts(&request, kLong));
    send_pieces(request);
    EXPECT_TRUE(cts(&request, kLong));
    send_pieces(request);
    EXPECT_FALSE(cts(&request, kLong));
}

TEST_F(RndvSenderPart, a_receiver_that_asks_for_nothing_or_too_much_is_refused) {
    Request& request = begun(kLong);
    EXPECT_FALSE(cts(&request, 0));
    EXPECT_FALSE(cts(&request, kLong + 1));
    EXPECT_FALSE(cts(&request, kLong, 0));
    EXPECT_FALSE(rtr(&request, kLong + 1));
    EXPECT_TRUE(peer_.fake.data.empty());
    EXPECT_TRUE(peer_.fake.sent.empty());
}

TEST_F(RndvSenderPart, a_receiver_that_asks_for_what_has_ended_is_told) {
    EXPECT_TRUE(cts(nullptr, kLong));
    ASSERT_EQ(peer_.fake.sent.count<DataEnd>(), 1U);
    EXPECT_EQ(peer_.fake.sent.back().as<DataEnd>().status, UCS_ERR_CANCELED);
    EXPECT_EQ(peer_.fake.sent.back().as<DataEnd>().receive_id, kReceiveId);
}

TEST_F(RndvSenderPart, the_buffer_of_an_eager_message_is_not_the_receivers) {
    Request& request = message(kShort);
    request.is_outstanding = true;  // until its acknowledgement is here
    EXPECT_FALSE(cts(&request, kShort));
    EXPECT_FALSE(rtr(&request, kShort));
    EXPECT_FALSE(sender_.may_end(&request));
    EXPECT_FALSE(sender_.has_lent(request));
}

TEST_F(RndvSenderPart, a_message_of_another_endpoint_is_not_the_receivers) {
    FakeMatchPeer other(2);
    Request& request = begun(kLong);
    request.ep = as_endpoint(other);
    EXPECT_FALSE(cts(&request, kLong));
    EXPECT_FALSE(rtr(&request, kLong));
    EXPECT_FALSE(sender_.may_end(&request));
}

TEST_F(RndvSenderPart, an_offer_that_this_side_cannot_write_to_gets_messages) {
    for (const std::uint8_t domain : {kDomain, static_cast<std::uint8_t>(kDomain + 1)}) {
        Request& request = begun(kLong);
        EXPECT_TRUE(rtr(&request, kLong, domain));
        EXPECT_EQ(peer_.fake.data.back(), &request);
        EXPECT_TRUE(peer_.fake.transfers.empty());
        EXPECT_EQ(request.wanted, kLong);
    }
    EXPECT_EQ(peer_.fake.runs, 2U);
}

TEST_F(RndvSenderPart, a_piece_without_room_is_sent_again) {
    Request& request = begun(kLong);
    ASSERT_TRUE(cts(&request, kLong));
    uct_.room = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(sender_.send_piece(request), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(request.offset, 0U);
    EXPECT_TRUE(peer_.fake.removed.empty());
}

TEST_F(RndvSenderPart, a_piece_that_fails_ends_the_request_and_the_receiver_is_told) {
    Request& request = begun(kLong);
    ASSERT_TRUE(cts(&request, kLong));
    uct_.room = UCS_ERR_IO_ERROR;
    EXPECT_EQ(sender_.send_piece(request), UCS_OK);
    EXPECT_EQ(peer_.fake.removed, std::vector{&request});
    EXPECT_EQ(peer_.fake.sent.back().as<DataEnd>().status, UCS_ERR_IO_ERROR);
    EXPECT_EQ(worker_.ends, (std::vector<FakeWorker::End>{{&request, UCS_ERR_IO_ERROR}}));
}

TEST_F(RndvSenderPart, the_receiver_is_busy_with_a_message_about_as_long) {
    EXPECT_FALSE(sender_.keeps_receiver_busy(kLong));
    Request& request = begun(kLong);
    EXPECT_TRUE(sender_.keeps_receiver_busy(kLong));
    EXPECT_TRUE(sender_.keeps_receiver_busy(2 * kLong));
    EXPECT_FALSE(sender_.keeps_receiver_busy(2 * kLong + 2));
    ASSERT_TRUE(cts(&request, kLong));
    EXPECT_FALSE(sender_.keeps_receiver_busy(kLong));
}

/// Whatever it says: no byte that it was not given is read, and each message ends at most once.
TEST_F(RndvSenderPart, a_receiver_may_say_anything) {
    for_each_seed(50, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        constexpr std::size_t kBytes = 3000;
        Request& request = begun(kBytes);
        worker_.ends.clear();
        for (int i = 0; i < 200 && worker_.ends.empty(); ++i) {
            const std::uint64_t bytes = random() % 3 == 0 ? random() : random() % (kBytes + 2);
            const auto id = static_cast<std::uint32_t>(random() % 3);
            const bool was_free = sender_.may_end(&request) && request.peer_id == 0;
            bool is_taken = false;
            switch (random() % 4) {
                case 0:
                    is_taken = cts(&request, bytes, id);
                    EXPECT_TRUE(!is_taken || (id != 0 && bytes != 0));
                    break;
                case 1:
                    is_taken = rtr(&request, bytes, static_cast<std::uint8_t>(random()));
                    break;
                case 2:
                    sender_.on_advice(advice(static_cast<std::uint32_t>(bytes),
                                             static_cast<unsigned>(random() % 256)));
                    break;
                default:
                    if (random() % 100 == 0)
                        uct_.room = UCS_ERR_IO_ERROR;
                    if (!peer_.fake.data.empty()) {
                        request.is_queued = true;
                        sender_.send_piece(request);
                        EXPECT_LE(request.offset, request.wanted);
                        request.is_queued = peer_.fake.removed.empty();
                        if (!request.is_queued) {
                            peer_.fake.data.clear();
                            peer_.fake.removed.clear();
                        }
                    }
            }
            EXPECT_TRUE(!is_taken || was_free);
            if (is_taken) {
                EXPECT_LE(request.wanted, kBytes);
                request.is_queued = true;
            }
        }
        EXPECT_LE(worker_.ends.size(), 1U);
        uct_.room = UCS_OK;
        peer_.fake.data.clear();
        peer_.fake.removed.clear();
        outstanding_.erase(request);
    });
}

// ---- Memory

/// The offer of a receiver is taken, by a write or by messages, whatever allocation fails.
TEST_F(RndvSenderPart, an_offer_is_taken_whatever_has_no_memory) {
    ASSERT_TRUE(ucs::reserve_open());
    const RealKey real;
    domain_ = real.domain();
    rail_.attributes().cap.flags = UCT_IFACE_FLAG_PUT_ZCOPY;
    peer_.fake.transfers.reserve(16);
    peer_.fake.data.reserve(16);
    for (unsigned long which = 1; which < 8; ++which) {
        Request& request = begun(kLong);
        proto::RtrMessage offered{};
        offered.rtr.receive_id = kReceiveId;
        offered.rtr.domain = kDomain;
        offered.rtr.key_bytes = static_cast<std::uint8_t>(domain_.attr.rkey_packed_size);
        offered.rtr.length = kLong;
        offered.keys.used = sizeof(proto::KeyHead) + domain_.attr.rkey_packed_size;
        const proto::WireBytes packed = real.message.key_of(real.domain_index);
        std::memcpy(offered.keys.bytes + sizeof(proto::KeyHead), packed.data(), packed.size());
        {
            const FailingAllocation failing(which);
            EXPECT_TRUE(sender_.on_rtr(offered, &request, kDomain));
        }
        EXPECT_EQ(peer_.fake.transfers.size() + peer_.fake.data.size(), which);
        end_transfer(request);
    }
}

}  // namespace
}  // namespace tagwire::test
