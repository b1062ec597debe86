// SPDX-License-Identifier: BSD-3-Clause
// The receiver of active messages, alone: what handlers get, what the program keeps, ends while a
// handler runs, and peers that say anything.
#include "protocols/am/am_receiver.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/receiver_part.hpp"
#include "protocols/wire/am_header.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::Ack;
using proto::AmCall;
using proto::AmWord;
using proto::Ats;
using proto::Header;
using proto::Rts;
using proto::Unexpected;
using proto::WorkerCounter;

class AmReceiverPart : public ReceiverPart {
  protected:
    static constexpr std::uint16_t kId = 3;

    AmReceiverPart() {
        ams_.set(
            kId, [](void* arg, tw_am_t* am) { static_cast<AmReceiverPart*>(arg)->on(*am); }, this);
    }

    static Header header_of(const FakeMatchPeer& peer, std::size_t header_bytes,
                            std::uint32_t flags = 0, std::uint16_t id = kId) {
        return {peer.id, flags, AmWord::encode(id, header_bytes)};
    }
    static void put(std::vector<std::byte>& bytes, std::uint64_t word) {
        const auto more = std::as_bytes(std::span(&word, 1));
        bytes.insert(bytes.end(), more.begin(), more.end());
    }
    static void put(std::vector<std::byte>& bytes, std::size_t count, std::byte value) {
        bytes.insert(bytes.end(), count, value);
    }
    /// In one piece, with a header of kHead bytes.
    void send(FakeMatchPeer& peer, std::size_t bytes, std::uint32_t flags = 0,
              std::uint16_t id = kId) {
        std::vector<std::byte> message;
        if ((flags & proto::kAcks) != 0)
            put(message, kSendId);
        put(message, kHead, kHeadByte);
        put(message, bytes, kDataByte);
        ams_.take_eager(peer, header_of(peer, kHead, flags, id), message);
    }
    /// Its first part, with 10 bytes of data.
    void begin(FakeMatchPeer& peer, std::size_t bytes, std::uint32_t flags = 0,
               std::uint16_t id = kId) {
        std::vector<std::byte> message;
        if ((flags & proto::kAcks) != 0)
            put(message, kSendId);
        put(message, kHead + bytes);
        put(message, kHead, kHeadByte);
        put(message, 10, kDataByte);
        ams_.take_eager(peer, header_of(peer, kHead, flags | proto::kMoreParts, id), message);
    }
    void send_rndv(FakeMatchPeer& peer, std::size_t bytes, std::uint16_t id = kId) {
        std::vector<std::byte> message;
        put(message, kHead, kHeadByte);
        Rts rts{};
        rts.length = bytes;
        rts.send_id = kSendId;
        const auto more = std::as_bytes(std::span(&rts, 1));
        message.insert(message.end(), more.begin(), more.end());
        ams_.take_rndv(peer, header_of(peer, kHead, 0, id), message);
    }
    /// The rest of a message in parts has come.
    void end_parts(FakeMatchPeer& peer) {
        send_rest(peer);
        if (am_.empty())
            return;
        Unexpected& message = *am_.back();
        am_.pop_back();
        ams_.complete(message);
    }
    tw_status_t keep(tw_am_t& am) { return ams_.keep(static_cast<AmCall&>(am), &kept_); }
    /// tw_message_recv().
    tw_status_t receive_kept(tw_message_h message, std::size_t bytes = kRoom) {
        Unexpected* claimed = table_.claimed(message);
        return claimed == nullptr ? TW_ERR_INVALID_PARAM : receive_message(claimed, bytes);
    }

    static constexpr std::size_t kHead = 12;
    static constexpr std::byte kHeadByte{0x11}, kDataByte{0x22};

    struct Seen {
        std::string header, data;  // of the first byte each
        std::size_t header_bytes, bytes;
        std::uint32_t id, flags;
        std::uint64_t source;
        tw_message_h message;
    };
    std::vector<Seen> seen_;
    std::function<void(tw_am_t&)> on_message_ = [](tw_am_t&) {};
    tw_message_h kept_ = nullptr;

  private:
    void on(tw_am_t& am) {
        const auto text = [](const void* bytes, std::size_t count) {
            return bytes == nullptr ? std::string()
                                    : std::string(static_cast<const char*>(bytes), count);
        };
        const std::size_t here = am.data == nullptr ? 0 : am.length;
        seen_.push_back({text(am.header, am.header_length), text(am.data, here), am.header_length,
                         am.length, am.id, am.flags, am.source, am.message});
        on_message_(am);
    }

  protected:
    proto::AmReceiver ams_{
        {port_, table_, nullptr, this, [](void*, const proto::AmHandler& handler, AmCall& call) {
             handler.callback(handler.arg, &call);
         }}};
};

// ---- Handlers

TEST_F(AmReceiverPart, a_handler_gets_header_and_data) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 100);
    ASSERT_EQ(seen_.size(), 1U);
    EXPECT_EQ(seen_[0].header, std::string(kHead, '\x11'));
    EXPECT_EQ(seen_[0].data, std::string(100, '\x22'));
    EXPECT_EQ(seen_[0].id, kId);
    EXPECT_EQ(seen_[0].flags, 0U);
    EXPECT_EQ(seen_[0].source, peer.worker_id);
    EXPECT_EQ(seen_[0].message, nullptr);
    EXPECT_TRUE(peer.fake.sent.empty());
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_sender_hears_of_the_end_of_the_handler) {
    FakeMatchPeer& peer = add_peer();
    on_message_ = [&](tw_am_t&) { EXPECT_TRUE(peer.fake.sent.empty()); };
    send(peer, 100, proto::kAckDelivery);
    EXPECT_EQ(peer.fake.sent.pop().as<Ack>().send_id, kSendId);
    begin(peer, 100, proto::kAckMatch);
    EXPECT_TRUE(peer.fake.sent.empty());
    end_parts(peer);
    EXPECT_EQ(peer.fake.sent.pop().as<Ack>().send_id, kSendId);
    EXPECT_EQ(seen_.size(), 2U);
}

TEST_F(AmReceiverPart, a_message_without_a_handler_is_dropped_and_its_sender_goes_on) {
    FakeMatchPeer& peer = add_peer();
    send(peer, 100, proto::kAckDelivery, kId + 1);
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 1U);
    begin(peer, 100, proto::kAckDelivery, 9999);
    EXPECT_EQ(peer.fake.sent.count<Ack>(), 2U);
    end_parts(peer);
    send_rndv(peer, 100'000, kId + 1);
    EXPECT_EQ(peer.fake.sent.back().as<Ats>().status, UCS_ERR_NO_ELEM);
    EXPECT_EQ(count(WorkerCounter::kAmDropped), 3U);
    EXPECT_TRUE(seen_.empty());
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_handler_is_replaced_and_removed) {
    FakeMatchPeer& peer = add_peer();
    unsigned calls = 0;
    ams_.set(
        kId, [](void* arg, tw_am_t*) { ++*static_cast<unsigned*>(arg); }, &calls);
    send(peer, 1);
    EXPECT_EQ(calls, 1U);
    ams_.set(kId, nullptr, nullptr);
    ams_.set(TW_AM_ID_MAX, nullptr, nullptr);
    EXPECT_EQ(ams_.find(kId), nullptr);
    EXPECT_EQ(ams_.find(TW_AM_ID_MAX), nullptr);
    send(peer, 1);
    EXPECT_EQ(calls, 1U);
    EXPECT_TRUE(seen_.empty());
}

TEST_F(AmReceiverPart, a_message_in_parts_is_handled_when_all_of_it_is_here) {
    FakeMatchPeer& peer = add_peer();
    begin(peer, 1000);
    EXPECT_TRUE(seen_.empty());
    end_parts(peer);
    ASSERT_EQ(seen_.size(), 1U);
    EXPECT_EQ(seen_[0].header, std::string(kHead, '\x11'));
    EXPECT_EQ(seen_[0].data.size(), 1000U);
    EXPECT_EQ(seen_[0].data[999], '\x33');
    EXPECT_NE(seen_[0].message, nullptr);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_message_whose_parts_do_not_come_goes_with_its_peer) {
    FakeMatchPeer& peer = add_peer();
    begin(peer, 1000);
    fail(peer);
    EXPECT_TRUE(seen_.empty());
    EXPECT_EQ(in_use(), InUse{});
}

// ---- Rendezvous

TEST_F(AmReceiverPart, a_rendezvous_that_its_handler_leaves_is_over) {
    FakeMatchPeer& peer = add_peer();
    send_rndv(peer, 100'000);
    ASSERT_EQ(seen_.size(), 1U);
    EXPECT_EQ(seen_[0].header, std::string(kHead, '\x11'));
    EXPECT_EQ(seen_[0].bytes, 100'000U);
    EXPECT_EQ(seen_[0].flags, std::uint32_t{TW_AM_RNDV});
    EXPECT_EQ(peer.fake.sent.back().as<Ats>().status, UCS_OK);
    EXPECT_FALSE(table_.drop(seen_[0].message));
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_rendezvous_is_received_in_the_handler_or_behind_it) {
    FakeMatchPeer& peer = add_peer();
    on_message_ = [&](tw_am_t& am) { EXPECT_EQ(receive_kept(am.message), TW_INPROGRESS); };
    send_rndv(peer, 5000);
    on_message_ = [&](tw_am_t& am) { EXPECT_EQ(keep(am), TW_OK); };
    send_rndv(peer, 5000);
    EXPECT_EQ(receive_kept(kept_), TW_INPROGRESS);
    EXPECT_EQ(receive_kept(kept_), TW_ERR_INVALID_PARAM);
    ASSERT_EQ(rndv_.size(), 2U);
    for (const Rndv& each : std::vector(rndv_))
        end_rndv(*each.request, UCS_OK, kRoom);
    for (const auto& end : told())
        EXPECT_EQ(end.flags & TW_DONE_AM, TW_DONE_AM);
    EXPECT_TRUE(peer.fake.sent.empty());  // the receiver of a rendezvous says the end
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_sender_takes_back_a_rendezvous_that_is_kept) {
    FakeMatchPeer& peer = add_peer();
    on_message_ = [&](tw_am_t& am) { EXPECT_EQ(keep(am), TW_OK); };
    send_rndv(peer, 5000);
    EXPECT_TRUE(table_.withdraw(peer, kSendId));
    EXPECT_FALSE(table_.withdraw(peer, kSendId));
    EXPECT_EQ(receive_kept(kept_), TW_ERR_CANCELED);
    send_rndv(peer, 5000);
    EXPECT_TRUE(table_.withdraw(peer, kSendId));
    EXPECT_TRUE(table_.drop(kept_));
    EXPECT_TRUE(peer.fake.sent.empty());
    EXPECT_EQ(in_use(), InUse{});
}

// ---- Messages that the program keeps

TEST_F(AmReceiverPart, a_message_that_is_kept_is_copied_once_and_received_or_released) {
    FakeMatchPeer& peer = add_peer();
    on_message_ = [&](tw_am_t& am) {
        const void* const before = am.data;
        EXPECT_EQ(keep(am), TW_OK);
        EXPECT_NE(am.data, before);
        EXPECT_EQ(static_cast<const std::byte*>(am.data)[99], kDataByte);
        EXPECT_EQ(static_cast<const std::byte*>(am.header)[kHead - 1], kHeadByte);
        EXPECT_EQ(keep(am), TW_ERR_INVALID_PARAM);
    };
    send(peer, 100);
    EXPECT_EQ(in_use().claimed, 1U);
    EXPECT_EQ(receive_kept(kept_), TW_OK);
    EXPECT_EQ(done_.length, 100U);
    EXPECT_EQ(buffers_.back()->at(99), kDataByte);
    EXPECT_FALSE(table_.drop(kept_));
    send(peer, 100);
    EXPECT_TRUE(table_.drop(kept_));
    EXPECT_FALSE(table_.drop(kept_));
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_message_in_parts_is_kept_where_it_is) {
    FakeMatchPeer& peer = add_peer();
    on_message_ = [&](tw_am_t& am) {
        const void* const before = am.data;
        EXPECT_EQ(keep(am), TW_OK);
        EXPECT_EQ(am.data, before);
    };
    begin(peer, 1000);
    end_parts(peer);
    fail(peer);
    EXPECT_EQ(receive_kept(kept_, 10), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(done_.source, peer.worker_id);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, a_message_that_was_received_cannot_be_kept) {
    FakeMatchPeer& peer = add_peer();
    on_message_ = [&](tw_am_t& am) {
        EXPECT_EQ(receive_kept(am.message), TW_OK);
        EXPECT_EQ(keep(am), TW_ERR_INVALID_PARAM);
    };
    begin(peer, 1000);
    end_parts(peer);
    EXPECT_EQ(seen_.size(), 1U);
    EXPECT_EQ(in_use(), InUse{});
}

TEST_F(AmReceiverPart, nothing_is_kept_of_a_peer_that_is_gone_or_beyond_the_budget) {
    FakeMatchPeer& peer = add_peer();
    tw_status_t status = TW_OK;
    on_message_ = [&](tw_am_t& am) { status = keep(am); };
    for (unsigned i = 0; i < 20'000 && status == TW_OK; ++i)
        send(peer, 1000);
    EXPECT_EQ(status, TW_ERR_EXCEEDS_LIMIT);
    EXPECT_TRUE(peer.budget.told_to_pause);
    EXPECT_TRUE(peer.fake.failures.empty());  // its message was handled
    peer.fake.failures.push_back(UCS_ERR_CONNECTION_RESET);
    send(peer, 1000);
    EXPECT_EQ(status, TW_ERR_CONNECTION_RESET);
}

// ---- Ends while a handler runs

TEST_F(AmReceiverPart, a_message_stays_until_its_handler_returns_whatever_that_does) {
    FakeMatchPeer& first = add_peer();
    on_message_ = [&](tw_am_t& am) {
        EXPECT_TRUE(table_.drop(am.message));
        EXPECT_EQ(static_cast<const std::byte*>(am.header)[0], kHeadByte);
    };
    begin(first, 1000);
    end_parts(first);
    send_rndv(first, 5000);
    EXPECT_EQ(first.fake.sent.count<Ats>(), 1U);
    on_message_ = [&](tw_am_t& am) {
        fail(first);
        EXPECT_EQ(static_cast<const std::byte*>(am.header)[0], kHeadByte);
        EXPECT_EQ(keep(am), TW_ERR_CONNECTION_RESET);
    };
    begin(first, 1000);
    end_parts(first);
    FakeMatchPeer& second = add_peer();
    on_message_ = [&](tw_am_t& am) {
        EXPECT_EQ(keep(am), TW_OK);
        fail(second);
    };
    send_rndv(second, 5000);
    EXPECT_EQ(receive_kept(kept_), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(seen_.size(), 4U);
    EXPECT_EQ(in_use(), InUse{});
}

// ---- Peers that say anything

TEST_F(AmReceiverPart, malformed_messages_are_dropped_and_counted) {
    FakeMatchPeer& peer = add_peer();
    ams_.take_eager(peer, header_of(peer, kHead), {});  // no room for its header
    ams_.take_eager(peer, header_of(peer, kHead, proto::kImm), std::vector<std::byte>(100));
    ams_.take_rndv(peer, header_of(peer, kHead), std::vector<std::byte>(kHead));
    begin(peer, 1000);
    begin(peer, 1000);  // while the first is under way
    EXPECT_EQ(count(WorkerCounter::kGarbage), 4U);
    EXPECT_TRUE(seen_.empty());
    for_each_seed(5, [&](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        for (unsigned i = 0; i < 3000; ++i) {
            std::vector<std::byte> bytes(random() % 64);
            std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() % 3); });
            const Header header{
                peer.id, static_cast<std::uint32_t>(random() % 32),
                AmWord::encode(static_cast<std::uint16_t>(random() % 5), random() % 40)};
            const std::uint64_t before = count(WorkerCounter::kGarbage);
            const std::size_t handled = seen_.size();
            if (random() % 2 == 0)
                ams_.take_eager(peer, header, bytes);
            else
                ams_.take_rndv(peer, header, bytes);
            EXPECT_LE(count(WorkerCounter::kGarbage) - before + seen_.size() - handled, 1U);
            if (peer.incoming.is_under_way && random() % 8 == 0)
                static_cast<void>(receiver_.take_part(peer, bytes));
            while (!am_.empty()) {
                Unexpected& message = *am_.back();
                am_.pop_back();
                ams_.complete(message);
            }
        }
    });
}

// ---- Memory

TEST_F(AmReceiverPart, without_memory_nothing_is_kept_or_the_connection_ends) {
    ASSERT_TRUE(ucs::reserve_open());
    seen_.reserve(64);
    for (unsigned long which = 1; which < 12; ++which) {
        FakeMatchPeer& peer = add_peer();
        std::vector<tw_message_h> kept;
        kept.reserve(8);
        am_.reserve(8);
        on_message_ = [&](tw_am_t& am) {
            if (keep(am) == TW_OK)
                kept.push_back(kept_);
        };
        const auto id = static_cast<std::uint16_t>(8U << which);  // the table grows
        bool is_set = true;
        std::vector<std::byte> first;
        put(first, kHead + 1000);
        put(first, kHead, kHeadByte);
        {
            const FailingAllocation failing(which);
            try {
                ams_.set(
                    id, [](void*, tw_am_t*) {}, nullptr);
            } catch (const std::bad_alloc&) {
                is_set = false;
            }
            ams_.take_eager(peer, header_of(peer, 0), {});
            ams_.take_eager(peer, header_of(peer, kHead, proto::kMoreParts), first);
        }
        EXPECT_EQ(ams_.find(id) != nullptr, is_set);
        if (peer.incoming.is_under_way)
            end_parts(peer);
        for (tw_message_h message : kept)
            EXPECT_TRUE(table_.drop(message));
        fail(peer);
        seen_.clear();
        EXPECT_EQ(in_use(), InUse{}) << which;
    }
}

}  // namespace
}  // namespace tagwire::test
