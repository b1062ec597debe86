// SPDX-License-Identifier: BSD-3-Clause
// The initiator of one-sided operations, alone: over a rail that reaches no memory, so that the
// owner is asked, and an owner that says anything.
#include "protocols/rma/rma_sender.hpp"

#include <uct/api/tagwire_uct.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/parts/real_key.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/transfer/transfer.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;
using proto::Request;
using proto::RmaKind;
using proto::RmaReply;
using proto::RmaSender;

class RmaSenderPart : public testing::Test {
  protected:
    static constexpr std::uint64_t kMemory = 9, kAddress = 0x1000;
    static constexpr std::size_t kEach = FakeUct::kBufferBytes - sizeof(proto::PutPart);

    RmaSenderPart() {
        EXPECT_EQ(ops_.open(), UCS_OK);
        worker_.on_end_rma = [this](Request& request) { ops_.end(request); };
        lane_.ep = uct_.ep();
        lane_.over = &rail_;
        lane_.state = proto::EpState::kReady;
        proto::MemoryKeyMessage message;
        message.key = {.memory = kMemory, .address = kAddress, .length = 1 << 20, .access = 0xff};
        key_ = new proto::RemoteKey(1, message);
    }

    proto::RmaWish wish(RmaKind kind) const {
        proto::RmaWish wish;
        wish.key = key_;
        wish.address = kAddress;
        wish.kind = kind;
        return wish;
    }
    tw_status_t call(const proto::RmaWish& what, std::size_t length, std::uint32_t flags = 0) {
        buffer_.assign(length, std::byte{1});
        tw_op_t op{};
        op.flags = flags;
        return sender_.call({what, buffer_.data(), length, nullptr, 0, &op, nullptr});
    }
    /// A new operation, whose turn has come; nullptr: it was refused.
    Request* made(const proto::RmaWish& what, std::size_t length, std::uint32_t flags = 0) {
        const std::size_t before = peer_.fake.submitted.size();
        const tw_status_t status = call(what, length, flags);
        if (peer_.fake.submitted.size() == before)
            return nullptr;
        EXPECT_EQ(status, TW_INPROGRESS);
        Request* const request = peer_.fake.submitted.back();
        request->ep = as_endpoint(peer_);
        request->in_call = true;  // it stays until the test has looked at it
        return request;
    }
    /// `count` pieces of `bytes`, each one byte from the next in the memory of the peer.
    proto::RmaList list_of(std::size_t count, std::size_t bytes) {
        buffer_.assign(count * bytes, std::byte{1});
        pieces_.clear();
        pieces_.reserve(count);
        for (std::size_t i = 0; i < count; ++i)
            pieces_.push_back(
                {buffer_.data() + i * bytes, kAddress + i * (bytes + 1), bytes, key_, nullptr});
        return {pieces_.data(), count, nullptr, 0, count * bytes, 0, false, nullptr};
    }
    /// As made(), of a list.
    Request* made(RmaKind kind, const proto::RmaList& list, std::uint32_t flags = 0) {
        tw_op_t op{};
        op.flags = flags;
        const std::size_t before = peer_.fake.submitted.size();
        const tw_status_t status =
            sender_.call({wish(kind), nullptr, list.bytes, nullptr, 0, &op, nullptr, &list});
        if (peer_.fake.submitted.size() == before)
            return nullptr;
        EXPECT_EQ(status, TW_INPROGRESS);
        Request* const request = peer_.fake.submitted.back();
        request->ep = as_endpoint(peer_);
        request->in_call = true;
        return request;
    }
    /// One that has begun and waits for the owner.
    Request& asked(RmaKind kind, std::size_t length, std::uint32_t flags = 0) {
        Request* const request = made(wish(kind), length, flags);
        EXPECT_EQ(sender_.start(*request), UCS_INPROGRESS);
        return *request;
    }
    bool reply(const Request* request, std::int32_t status = UCS_OK, std::uint64_t before = 0) {
        return sender_.on_reply({request == nullptr ? 0 : request->id, status, before},
                                const_cast<Request*>(request));
    }
    bool data(Request& request, std::uint64_t offset, std::size_t bytes) {
        const std::vector<std::byte> sent(bytes, std::byte{7});
        return sender_.on_data({{0, request.id, offset}, sent}, &request);
    }
    /// Takes the steps that operations wait for.
    void go_on() {
        while (!peer_.fake.data.empty()) {
            Request* const request = peer_.fake.data.back();
            peer_.fake.data.pop_back();
            EXPECT_EQ(sender_.resume(*request), UCS_OK);
        }
    }
    /// The only end that was told.
    ucs_status_t end_of(const Request& request) {
        EXPECT_EQ(worker_.ends.size(), 1U);
        return worker_.ends.size() == 1 && worker_.ends[0].request == &request
                   ? worker_.ends[0].status
                   : UCS_ERR_LAST;
    }
    template <class Message>
    Message sent(std::size_t i) const {
        Message message{};
        std::memcpy(&message, uct_.sent[i].bytes.data(), sizeof message);
        return message;
    }
    void TearDown() override {
        for (Request* request : peer_.fake.submitted) {
            worker_.requests.release_id(*request);
            worker_.requests.release(*request);
        }
        EXPECT_EQ(worker_.requests.in_use(), 0U);
        key_->let_go();
    }

    FakeWorker worker_{4};
    FakeMatchPeer peer_{1};
    FakePeer program_;
    FakeUct uct_;
    FakeRail rail_{worker_.options};
    proto::Domain& domain_ = rail_.own_domain;
    proto::LaneState lane_;
    proto::RmaLane rma_lane_;
    proto::SendWindow window_{peer_.fake.port};
    proto::Outstanding outstanding_;
    proto::Closing closing_{peer_.fake.port, program_.port, peer_.hold, 1, 2};
    proto::Flushes flushes_{
        {peer_.fake.port, program_.port, worker_.requests, outstanding_, closing_}};
    proto::RmaOps ops_;
    RmaSender sender_{{worker_.port, ops_, peer_, lane_, rma_lane_, window_, flushes_}};
    proto::RemoteKey* key_ = nullptr;
    std::vector<std::byte> buffer_;
    std::vector<tw_piece_t> pieces_;
};

// ---- Calls

TEST_F(RmaSenderPart, a_lane_that_has_failed_refuses_everything) {
    lane_.failure = UCS_ERR_CONNECTION_RESET;
    EXPECT_EQ(call(wish(RmaKind::kPut), 8), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(peer_.fake.sending, 0U);
    EXPECT_TRUE(peer_.fake.submitted.empty());
}

TEST_F(RmaSenderPart, a_pause_refuses_what_the_target_is_told_of_and_nothing_else) {
    lane_.is_paused = true;
    EXPECT_EQ(call(wish(RmaKind::kPut), 8, TW_OP_IMM), TW_ERR_NO_RESOURCE);
    EXPECT_NE(made(wish(RmaKind::kPut), 8), nullptr);
    EXPECT_EQ(peer_.fake.sending, 1U);
    EXPECT_EQ(peer_.fake.written, 0U);
}

TEST_F(RmaSenderPart, what_the_endpoint_knows_already_is_not_told_again) {
    peer_.hold.has_sent = true;
    rail_.attributes().cap.flags |= TAGWIRE_UCT_IFACE_FLAG_GATHERS;
    EXPECT_NE(made(wish(RmaKind::kPut), 8), nullptr);
    EXPECT_EQ(peer_.fake.sending, 0U);
    EXPECT_EQ(peer_.fake.written, 1U);  // a lane that gathers is written out
}

TEST_F(RmaSenderPart, a_call_without_room_for_its_request_changes_nothing) {
    while (made(wish(RmaKind::kPut), 8) != nullptr)
        continue;
    EXPECT_EQ(peer_.fake.submitted.size(), 4U);
    EXPECT_EQ(call(wish(RmaKind::kPut), 8), TW_ERR_NO_RESOURCE);
}

TEST_F(RmaSenderPart, one_that_the_queue_refuses_is_released) {
    peer_.fake.may_submit = false;
    EXPECT_EQ(call(wish(RmaKind::kPut), 8), TW_ERR_NO_RESOURCE);
    EXPECT_EQ(worker_.requests.in_use(), 0U);
    EXPECT_EQ(peer_.fake.written, 0U);
}

// ---- Lists by messages

TEST_F(RmaSenderPart, a_list_of_puts_is_one_put_in_parts_and_goes_on_where_it_stopped) {
    Request* const request = made(RmaKind::kPut, list_of(5, 10));
    EXPECT_TRUE(sender_.is_asked(*request));
    uct_.room_for = 2;
    EXPECT_EQ(sender_.start(*request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(proto::has_begun(*request));
    uct_.room_for = 100;
    EXPECT_EQ(sender_.start(*request), UCS_OK);
    ASSERT_EQ(uct_.sent.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(uct_.sent[i].id, AmId::kPut);
        EXPECT_EQ(sent<proto::PutPart>(i).to.address, kAddress + 11 * i);
        EXPECT_EQ(sent<proto::PutPart>(i).is_last, i == 4 ? 1U : 0U);
    }
    EXPECT_TRUE(reply(nullptr));
    EXPECT_FALSE(sender_.awaits_replies());
}

TEST_F(RmaSenderPart, a_list_of_gets_is_asked_for_in_portions_and_ends_with_the_last_reply) {
    constexpr std::size_t kCount = 100;
    Request* const request = made(RmaKind::kGet, list_of(kCount, 10));
    EXPECT_EQ(sender_.start(*request), UCS_INPROGRESS);
    EXPECT_EQ(uct_.sent.size(), 64U);
    for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_FALSE(data(*request, 1, 4));   // not where it goes on
        EXPECT_FALSE(data(*request, 0, 11));  // too much
        EXPECT_TRUE(data(*request, 0, 4));
        EXPECT_TRUE(data(*request, 4, 6));
        EXPECT_TRUE(worker_.ends.empty() && reply(request));
        go_on();
    }
    ASSERT_EQ(uct_.sent.size(), kCount);
    for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_EQ(sent<proto::RmaRequest>(i).at.address, kAddress + 11 * i);
    EXPECT_EQ(buffer_, std::vector<std::byte>(10 * kCount, std::byte{7}));
    EXPECT_EQ(end_of(*request), UCS_OK);
    EXPECT_FALSE(sender_.awaits_replies());
    EXPECT_FALSE(reply(request));
}

TEST_F(RmaSenderPart, a_list_of_which_a_get_is_refused_ends_so_when_all_replies_have_come) {
    Request* const request = made(RmaKind::kGet, list_of(3, 10));
    EXPECT_EQ(sender_.start(*request), UCS_INPROGRESS);
    EXPECT_TRUE(reply(request, UCS_ERR_INVALID_ADDR));
    EXPECT_TRUE(data(*request, 0, 10));
    EXPECT_TRUE(reply(request) && worker_.ends.empty());
    EXPECT_TRUE(reply(request));  // without its data
    EXPECT_EQ(end_of(*request), UCS_ERR_INVALID_ADDR);
    EXPECT_FALSE(sender_.awaits_replies());
}

TEST_F(RmaSenderPart, a_list_of_gets_that_is_cancelled_asks_for_no_more) {
    Request* const request = made(RmaKind::kGet, list_of(100, 10));
    EXPECT_EQ(sender_.start(*request), UCS_INPROGRESS);
    request->wants_cancel = true;
    for (std::size_t i = 0; i < 64; ++i) {
        EXPECT_TRUE(data(*request, 0, 10));
        EXPECT_TRUE(reply(request));
        go_on();
    }
    EXPECT_EQ(uct_.sent.size(), 64U);
    EXPECT_EQ(end_of(*request), UCS_ERR_CANCELED);
}

// ---- Puts by messages

TEST_F(RmaSenderPart, a_put_goes_in_parts_and_is_over_when_they_have_gone) {
    Request* const request = made(wish(RmaKind::kPut), 2 * kEach + 1);
    EXPECT_FALSE(proto::has_begun(*request));
    EXPECT_EQ(sender_.start(*request), UCS_OK);
    ASSERT_EQ(uct_.sent.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(uct_.sent[i].id, AmId::kPut);
        EXPECT_EQ(sent<proto::PutPart>(i).to.address, kAddress + i * kEach);
        EXPECT_EQ(sent<proto::PutPart>(i).is_last, i == 2 ? 1U : 0U);
    }
    EXPECT_TRUE(worker_.outstanding.empty());
    EXPECT_TRUE(sender_.awaits_replies());
    EXPECT_TRUE(reply(nullptr));
    EXPECT_FALSE(sender_.awaits_replies());
    EXPECT_EQ(peer_.fake.ended, 1U);
}

TEST_F(RmaSenderPart, a_put_without_room_goes_on_where_it_stopped) {
    Request* const request = made(wish(RmaKind::kPut), 3 * kEach);
    uct_.room_for = 1;
    EXPECT_EQ(sender_.start(*request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(proto::has_begun(*request));
    EXPECT_FALSE(sender_.awaits_replies());
    uct_.room_for = SIZE_MAX;
    EXPECT_EQ(sender_.start(*request), UCS_OK);
    ASSERT_EQ(uct_.sent.size(), 3U);
    EXPECT_EQ(sent<proto::PutPart>(1).to.address, kAddress + kEach);
}

TEST_F(RmaSenderPart, an_acknowledged_put_ends_as_the_owner_says) {
    const std::pair<std::int32_t, ucs_status_t> said[] = {
        {UCS_OK, UCS_OK},
        {UCS_ERR_OUT_OF_RANGE, UCS_ERR_OUT_OF_RANGE},
        {UCS_ERR_LAST - 1, UCS_ERR_IO_ERROR}};
    for (const auto& [status, expected] : said) {
        Request& request = asked(RmaKind::kPut, 8, TW_OP_DELIVERY_COMPLETE);
        EXPECT_TRUE(reply(&request, status));
        go_on();
        EXPECT_EQ(end_of(request), expected);
        EXPECT_FALSE(reply(&request, status));
        worker_.ends.clear();
    }
}

TEST_F(RmaSenderPart, at_level_sent_a_put_waits_for_the_transport_and_for_no_reply) {
    EXPECT_EQ(sender_.start(*made(wish(RmaKind::kPut), 8, TW_OP_SENT_COMPLETE)), UCS_OK);
    EXPECT_EQ(uct_.flush_flags, TAGWIRE_UCT_FLUSH_FLAG_SENT);
    uct_.flush_status = UCS_INPROGRESS;
    Request& request = *made(wish(RmaKind::kPut), 8, TW_OP_SENT_COMPLETE);
    EXPECT_EQ(sender_.start(request), UCS_INPROGRESS);
    EXPECT_EQ(request.id, 0U) << "the owner does not reply to it";
    ASSERT_EQ(uct_.flushes.size(), 1U);
    uct_completion_t* const done = uct_.flushes.back();
    EXPECT_EQ(--done->count, 0);
    done->func(done);
    go_on();
    EXPECT_EQ(end_of(request), UCS_OK);
    EXPECT_TRUE(sender_.awaits_replies()) << "its effect is not sure";
}

TEST_F(RmaSenderPart, the_next_flush_tells_what_was_refused_of_a_put_that_had_ended) {
    EXPECT_EQ(sender_.start(*made(wish(RmaKind::kPut), 8)), UCS_OK);
    std::vector<ucs_status_t> ends;
    peer_.fake.on_finish = [&](Request&, ucs_status_t status) { ends.push_back(status); };
    EXPECT_TRUE(reply(nullptr, UCS_ERR_OUT_OF_RANGE));
    tw_request_h handle = nullptr;
    EXPECT_EQ(flushes_.call(proto::RequestKind::kFlush, TW_FLUSH_DELIVERED, nullptr, &handle),
              TW_INPROGRESS);
    Request& flush = *peer_.fake.pushed.back();
    EXPECT_EQ(flushes_.start(flush), UCS_INPROGRESS);
    flushes_.on_flushed(flush);
    EXPECT_EQ(ends, std::vector{UCS_ERR_OUT_OF_RANGE});
    worker_.requests.release_id(flush);
    worker_.requests.release(flush);
}

TEST_F(RmaSenderPart, only_so_many_are_asked_for_at_a_time) {
    for (std::uint64_t i = 0; i < proto::kAskedMax; ++i) {
        EXPECT_TRUE(sender_.may_ask());
        Request* const request = made(wish(RmaKind::kPut), 8);
        EXPECT_EQ(sender_.start(*request), UCS_OK);
        peer_.fake.submitted.pop_back();
        worker_.requests.release(*request);
    }
    EXPECT_FALSE(sender_.may_ask());
    EXPECT_TRUE(reply(nullptr));
    EXPECT_TRUE(sender_.may_ask());
    sender_.begin_anew();  // another connection owes nothing
    EXPECT_FALSE(reply(nullptr));
}

// ---- Notices

TEST_F(RmaSenderPart, the_notice_of_a_put_follows_its_data_and_is_in_the_window_from_the_start) {
    Request* const request = made(wish(RmaKind::kPut), 8, TW_OP_IMM);
    uct_.room_for = 1;
    EXPECT_EQ(sender_.start(*request), UCS_ERR_NO_RESOURCE);
    EXPECT_NE(request->rma->owes_notice, nullptr);
    EXPECT_EQ(sender_.start(*request), UCS_ERR_NO_RESOURCE);
    uct_.room_for = SIZE_MAX;
    EXPECT_EQ(sender_.start(*request), UCS_OK);
    EXPECT_EQ(request->rma->owes_notice, nullptr);
    ASSERT_EQ(uct_.sent.size(), 2U);
    EXPECT_EQ(uct_.sent[0].id, AmId::kPut);
    EXPECT_EQ(uct_.sent[1].id, AmId::kNotice);
}

TEST_F(RmaSenderPart, a_notice_that_will_not_go_leaves_the_window) {
    while (window_.is_open())
        window_.owe_notice();
    window_.notice_is_off();
    Request* const request = made(wish(RmaKind::kPut), 8, TW_OP_IMM);
    uct_.room_for = 0;
    EXPECT_EQ(sender_.start(*request), UCS_ERR_NO_RESOURCE);
    EXPECT_FALSE(window_.is_open());
    worker_.port.finish(*request, UCS_ERR_CANCELED);
    EXPECT_TRUE(window_.is_open());
}

// ---- Gets and atomics by messages

TEST_F(RmaSenderPart, a_get_takes_its_data_in_order_and_ends_with_the_reply) {
    Request& request = asked(RmaKind::kGet, 100);
    EXPECT_EQ(uct_.sent[0].id, AmId::kRmaRequest);
    EXPECT_EQ(sent<proto::RmaRequest>(0).length, 100U);
    EXPECT_FALSE(data(request, 1, 10));
    EXPECT_FALSE(data(request, 0, 101));
    EXPECT_TRUE(data(request, 0, 60));
    EXPECT_FALSE(data(request, 0, 40));
    EXPECT_TRUE(data(request, 60, 40));
    EXPECT_EQ(buffer_, std::vector<std::byte>(100, std::byte{7}));
    EXPECT_TRUE(worker_.ends.empty());
    EXPECT_TRUE(reply(&request));
    go_on();
    EXPECT_EQ(end_of(request), UCS_OK);
}

TEST_F(RmaSenderPart, a_get_that_is_told_to_be_over_before_its_data_is_here_fails) {
    Request& request = asked(RmaKind::kGet, 100);
    EXPECT_TRUE(data(request, 0, 99));
    EXPECT_TRUE(reply(&request));
    EXPECT_EQ(end_of(request), UCS_ERR_IO_ERROR);
}

TEST_F(RmaSenderPart, data_is_for_gets_alone) {
    Request& request = asked(RmaKind::kPut, 8, TW_OP_DELIVERY_COMPLETE);
    request.offset = 0;
    EXPECT_FALSE(data(request, 0, 8));
}

TEST_F(RmaSenderPart, an_atomic_has_the_number_that_was_there_unless_it_was_refused) {
    for (const bool is_refused : {false, true}) {
        std::uint64_t before = 1;
        proto::RmaWish add = wish(RmaKind::kAtomic);
        add.operation = TW_ATOMIC_ADD;
        add.type = TW_UINT64;
        add.operand = 5;
        add.result = &before;
        Request* const request = made(add, 0);
        EXPECT_EQ(sender_.start(*request), UCS_INPROGRESS);
        EXPECT_EQ(sent<proto::RmaRequest>(uct_.sent.size() - 1).operand, 5U);
        EXPECT_TRUE(reply(request, is_refused ? UCS_ERR_OUT_OF_RANGE : UCS_OK, 42));
        go_on();
        EXPECT_EQ(end_of(*request), is_refused ? UCS_ERR_OUT_OF_RANGE : UCS_OK);
        EXPECT_EQ(before, is_refused ? 1U : 42U);
        worker_.ends.clear();
    }
}

TEST_F(RmaSenderPart, an_operation_of_another_endpoint_is_not_the_owners) {
    FakeMatchPeer other(2);
    Request& request = asked(RmaKind::kGet, 100);
    request.ep = as_endpoint(other);
    EXPECT_FALSE(data(request, 0, 10));
    EXPECT_FALSE(reply(&request));
    EXPECT_TRUE(sender_.awaits_replies());
}

TEST_F(RmaSenderPart, an_operation_that_has_not_gone_by_messages_has_no_reply) {
    EXPECT_EQ(sender_.start(*made(wish(RmaKind::kPut), 8)), UCS_OK);  // one is owed
    Request* const request = made(wish(RmaKind::kGet), 8);
    EXPECT_NE(worker_.requests.assign_id(*request), 0U);
    EXPECT_FALSE(reply(request));
    EXPECT_FALSE(data(*request, 0, 8));
    EXPECT_FALSE(sender_.on_flushed(*request));
    EXPECT_FALSE(sender_.on_flushed(*made(wish(RmaKind::kPut), 8)));
}

/// Whatever it says: an operation ends once, as it says, and no byte beyond the buffer is written.
TEST_F(RmaSenderPart, an_owner_may_say_anything) {
    for_each_seed(100, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        constexpr std::size_t kBytes = 200;
        Request& request = asked(RmaKind::kGet, kBytes);
        std::size_t here = 0;
        for (int i = 0; i < 100 && worker_.ends.empty(); ++i) {
            const std::uint64_t offset = random() % 2 == 0 ? here : random() % (2 * kBytes);
            const std::size_t bytes = 1 + random() % (kBytes / 3);
            switch (random() % 8) {
                case 0:
                    reply(&request,
                          random() % 2 == 0 ? UCS_OK : -static_cast<std::int32_t>(random() % 200));
                    break;
                case 1:
                    sender_.on_flushed(request);
                    break;
                default: {
                    const bool is_next = offset == here && bytes <= kBytes - here;
                    EXPECT_EQ(data(request, offset, bytes), is_next);
                    here += is_next ? bytes : 0;
                }
            }
            go_on();
        }
        EXPECT_LE(worker_.ends.size(), 1U);
        if (!worker_.ends.empty()) {
            EXPECT_TRUE(worker_.ends[0].status != UCS_OK || here == kBytes);
        }
        worker_.ends.clear();
        sender_.begin_anew();
        peer_.fake.submitted.pop_back();
        worker_.requests.release_id(request);
        worker_.requests.release(request);
    });
}

// ---- Memory

/// Its lane reaches the memory of the peer.
struct RmaSenderWorld : RmaSenderPart {
    RmaSenderWorld() {
        domain_ = real_.domain();
        rail_.attributes().cap.flags = UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY;
        rail_.attributes().cap.get.max_bcopy = kBytes / 2;
        uct_.ops.ep_get_bcopy = [](uct_ep_h, uct_unpack_callback_t, void*, std::size_t,
                                   std::uint64_t, uct_rkey_t, uct_completion_t* done) {
            pieces.push_back(done);
            return UCS_INPROGRESS;
        };
        key_->let_go();
        key_ = new proto::RemoteKey(1, real_.message);
        rma_lane_.peer_domain = real_.domain_index;
        pieces.clear();
        pieces.reserve(8);
        peer_.fake.submitted.reserve(8);
        peer_.fake.adopted.reserve(8);
        worker_.outstanding.reserve(8);
        worker_.ends.reserve(8);
        buffer_.reserve(kBytes);
    }
    void TestBody() override {}

    enum class Form { kPlain, kScattered, kPieces };

    /// A call, and its operation if that is not refused; both with that allocation failing.
    Request* begin(unsigned long which, RmaKind kind, Form form) {
        const proto::RmaList pieces_of_it = list_of(2, kBytes / 2);
        const bool is_list = form == Form::kScattered;
        const tw_iov_t list[] = {{buffer_.data(), 100}, {buffer_.data() + 100, kBytes - 100}};
        const proto::RmaCall asked{wish(kind),
                                   form != Form::kPlain ? nullptr : buffer_.data(),
                                   kBytes,
                                   is_list ? list : nullptr,
                                   is_list ? 2U : 0U,
                                   nullptr,
                                   nullptr,
                                   form == Form::kPieces ? &pieces_of_it : nullptr};
        const FailingAllocation failing(which);
        const tw_status_t status = sender_.call(asked);
        if (peer_.fake.submitted.empty()) {
            EXPECT_EQ(status, TW_ERR_NO_RESOURCE);
            return nullptr;
        }
        Request* const request = peer_.fake.submitted.back();
        request->ep = as_endpoint(peer_);
        request->in_call = true;
        started = sender_.start(*request);
        return request;
    }
    void end() {
        for (uct_completion_t* piece : pieces)
            piece->func(piece);
        TearDown();
    }

    static constexpr std::size_t kBytes = 4000;
    static inline std::vector<uct_completion_t*> pieces;
    ucs_status_t started = UCS_OK;
    RealKey real_;

    ucs_status_t start_again(Request& request) { return sender_.start(request); }
    proto::Domain& domain() { return domain_; }
};

TEST(RmaSenderMemory, a_call_that_has_no_memory_is_refused_and_its_steps_wait) {
    ASSERT_TRUE(ucs::reserve_open());
    using Form = RmaSenderWorld::Form;
    for (const Form form : {Form::kPlain, Form::kScattered, Form::kPieces}) {
        for (unsigned long which = 1; which < 10; ++which) {
            RmaSenderWorld world;
            // The buffer is not registered: the data is copied piece by piece.
            world.domain().attr.cap.flags |= UCT_MD_FLAG_NEED_MEMH;
            if (Request* const request = world.begin(which, RmaKind::kGet, form)) {
                if (world.started == UCS_ERR_NO_RESOURCE)
                    world.started = world.start_again(*request);
                EXPECT_EQ(world.started, UCS_INPROGRESS) << which;
                EXPECT_EQ(world.pieces.size(), 2U) << which;
            }
            world.end();
        }
    }
}

TEST(RmaSenderMemory, a_transfer_that_has_no_memory_in_the_heap_begins) {
    ASSERT_TRUE(ucs::reserve_open());
    for (unsigned long which = 1; which < 10; ++which) {
        RmaSenderWorld world;
        if (Request* const request =
                world.begin(which, RmaKind::kGet, RmaSenderWorld::Form::kPlain)) {
            EXPECT_EQ(world.started, UCS_INPROGRESS) << which;
            EXPECT_NE(request->transfer, nullptr) << which;
            end_transfer(*request);
        }
        world.end();
    }
}

}  // namespace
}  // namespace tagwire::test
