// SPDX-License-Identifier: BSD-3-Clause
// The sender of eager messages, alone: one piece, parts, tagged messages of a device, and what a
// message waits for when it has gone.
#include "protocols/eager/eager_sender.hpp"

#include <uct/api/tagwire_uct.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/api/tw_am.h"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/wire/am_header.hpp"
#include "protocols/wire/am_part.hpp"
#include "protocols/wire/eager_header.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;
using proto::EagerBody;
using proto::Header;
using proto::Request;
using proto::RequestKind;
using proto::WorkerCounter;

/// A sender over a rail and a worker that are fakes.
struct EagerBench {
    static constexpr std::uint32_t kPeerNames = 11;
    static constexpr std::uint64_t kTag = 77;

    explicit EagerBench(std::size_t requests_max = 1000) : worker(requests_max) {
        lane.ep = uct.ep();
        lane.over = &rail;
        lane.state = proto::EpState::kReady;
        peer.peer_names = kPeerNames;
        steps.begin();
    }
    ~EagerBench() {
        for (Request* request : all) {
            if (request->transmission != nullptr)
                request->transmission->request = nullptr;
            worker.requests.release_id(*request);
            worker.requests.release(*request);
        }
        EXPECT_EQ(worker.requests.in_use(), 0U);
    }
    EagerBench(const EagerBench&) = delete;
    EagerBench& operator=(const EagerBench&) = delete;

    Request& message(std::size_t length, std::uint32_t flags = 0, std::uint64_t imm = 0) {
        std::vector<std::byte>& buffer = buffers.emplace_back(length);
        for (std::size_t i = 0; i < length; ++i)
            buffer[i] = static_cast<std::byte>(i * 7);
        tw_op_t op{};
        op.flags = flags;
        Request& request = worker.make(RequestKind::kSend, buffer, op);
        request.in_call = true;  // it stays until the test has looked at it
        request.is_tagged = true;
        request.done.tag = kTag;
        request.done.imm = imm;
        all.push_back(&request);
        return request;
    }
    Header header_of(std::size_t i) const {
        Header header{};
        EXPECT_TRUE(proto::decode(proto::WireBytes(uct.sent[i].bytes), &header));
        return header;
    }
    EagerBody body_of(std::size_t i) const {
        Header header = header_of(i);
        if (uct.sent[i].id == AmId::kAm)
            header.tag = 0;  // the word of an active message is there
        EagerBody body;
        EXPECT_TRUE(proto::decode(
            header, proto::WireBytes(uct.sent[i].bytes).subspan(sizeof(Header)), &body));
        return body;
    }
    /// All data that has gone, from the message `i` on.
    std::vector<std::byte> data_from(std::size_t i) const {
        const EagerBody body = body_of(i);
        std::vector<std::byte> data(body.data.begin(), body.data.end());
        for (++i; i < uct.sent.size(); ++i) {
            EXPECT_EQ(uct.sent[i].id, AmId::kPart);
            proto::Part part{};
            EXPECT_TRUE(proto::decode(proto::WireBytes(uct.sent[i].bytes), &part));
            EXPECT_EQ(part.sender, kPeerNames);
            data.insert(data.end(), uct.sent[i].bytes.begin() + sizeof part,
                        uct.sent[i].bytes.end());
        }
        return data;
    }
    std::uint64_t count(WorkerCounter counter) const { return worker.count(counter); }

    FakeWorker worker;
    FakeMatchPeer peer{1};
    FakeUct uct;
    FakeRail rail{worker.options};
    proto::LaneState lane;
    proto::CopyChooser copies;
    proto::Steps steps;
    bool is_timed = false;
    std::deque<std::vector<std::byte>> buffers;
    std::vector<Request*> all;
    proto::EagerSender sender{{worker.port, peer, lane, copies, steps, this,
                               [](void* self, const Request&, std::uint64_t* begun) {
                                   *begun = 5;
                                   return static_cast<EagerBench*>(self)->is_timed;
                               }}};
};

class EagerSenderPart : public testing::Test, protected EagerBench {
  protected:
    static constexpr std::size_t kBuffer = FakeUct::kBufferBytes;
};

// ---- One piece, and parts

TEST_F(EagerSenderPart, a_message_that_fits_a_buffer_is_over_when_it_has_gone) {
    Request& request = message(100, TW_OP_IMM, 9);
    EXPECT_EQ(sender.start(request), UCS_OK);
    ASSERT_EQ(uct.sent.size(), 1U);
    EXPECT_EQ(uct.sent[0].id, AmId::kEager);
    EXPECT_EQ(header_of(0).sender, kPeerNames);
    EXPECT_EQ(header_of(0).tag, kTag);
    EXPECT_EQ(body_of(0).imm, 9U);
    EXPECT_EQ(data_from(0), buffers[0]);
    EXPECT_EQ(count(WorkerCounter::kTxEager), 1U);
    EXPECT_TRUE(worker.outstanding.empty());
}

TEST_F(EagerSenderPart, a_longer_one_goes_in_parts_that_fill_buffers) {
    for (const std::size_t length :
         {kBuffer - sizeof(Header), kBuffer - sizeof(Header) + 1, 3 * kBuffer, std::size_t{0}}) {
        uct.sent.clear();
        Request& request = message(length);
        EXPECT_EQ(sender.start(request), UCS_OK);
        EXPECT_EQ(data_from(0), buffers.back()) << length;
        EXPECT_EQ(body_of(0).length, length);
        EXPECT_EQ(uct.sent.size() > 1, length > kBuffer - sizeof(Header)) << length;
    }
}

TEST_F(EagerSenderPart, without_room_it_goes_on_where_it_stopped) {
    Request& request = message(4 * kBuffer);
    uct.room_for = 0;
    EXPECT_EQ(sender.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(request.offset, 0U);
    EXPECT_FALSE(request.has_gone);
    do {
        uct.room_for = 1;
    } while (sender.start(request) == UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(request.has_gone);
    EXPECT_EQ(data_from(0), buffers[0]);
}

TEST_F(EagerSenderPart, one_call_sends_so_many_parts) {
    Request& request = message(proto::Steps::kMax * kBuffer + 1);
    EXPECT_EQ(sender.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(uct.sent.size(), proto::Steps::kMax);
    steps.begin();
    EXPECT_EQ(sender.start(request), UCS_OK);
    EXPECT_EQ(data_from(0), buffers[0]);
}

TEST_F(EagerSenderPart, a_failure_of_the_transport_is_that_of_the_message) {
    uct.room = UCS_ERR_CONNECTION_RESET;
    for (const std::size_t length : {std::size_t{8}, 2 * kBuffer}) {
        Request& request = message(length);
        EXPECT_EQ(sender.start(request), UCS_ERR_CONNECTION_RESET);
        EXPECT_FALSE(request.has_gone);
    }
}

TEST_F(EagerSenderPart, one_that_is_timed_says_when_it_has_begun_if_that_fits) {
    is_timed = true;
    const std::size_t most = kBuffer - sizeof(Header) - sizeof(std::uint64_t);
    for (const std::size_t length : {most, most + 1, 2 * kBuffer}) {
        uct.sent.clear();
        EXPECT_EQ(sender.start(message(length)), UCS_OK);
        EXPECT_EQ((header_of(0).flags & proto::kTimed) != 0, length != most + 1) << length;
        EXPECT_EQ(data_from(0), buffers.back());
    }
}

TEST_F(EagerSenderPart, the_header_of_an_active_message_goes_before_its_data) {
    const std::uint32_t own = 0x12345678;
    for (const std::size_t length : {std::size_t{10}, 2 * kBuffer}) {
        uct.sent.clear();
        Request& request = message(length);
        request.is_tagged = false;
        proto::AmPart am{3, &own, sizeof own};
        ASSERT_TRUE(worker.requests.set_am(request, am));
        request.done.tag = am.id;
        EXPECT_EQ(sender.start(request), UCS_OK);
        EXPECT_EQ(uct.sent[0].id, AmId::kAm);
        EXPECT_EQ(header_of(0).tag, am.word());
        EXPECT_EQ(body_of(0).length, sizeof own + length);
        const std::vector<std::byte> data = data_from(0);
        ASSERT_EQ(data.size(), sizeof own + length);
        EXPECT_EQ(std::memcmp(data.data(), &own, sizeof own), 0);
        EXPECT_EQ(std::memcmp(data.data() + sizeof own, buffers.back().data(), length), 0);
    }
}

TEST(EagerSenderCopies, parts_of_an_injected_message_go_from_its_copy_or_not_at_all) {
    EagerBench bench(1);
    Request& request = bench.message(200, TW_OP_INJECT);
    bench.rail.bcopy_max = 64;
    bench.uct.room_for = 1;
    EXPECT_EQ(bench.sender.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_NE(request.copy, nullptr);
    EXPECT_EQ(request.offset, 64 - sizeof(Header) - sizeof(std::uint64_t));
    alignas(Request) std::byte memory[sizeof(Request)];
    tw_op_t op{};
    op.request = memory;
    op.flags = TW_OP_INJECT;
    Request& foreign = *bench.worker.requests.make(RequestKind::kSend, &op, nullptr);
    foreign.buffer.base = bench.buffers[0].data();
    foreign.buffer.length = 200;
    bench.uct.room_for = SIZE_MAX;
    EXPECT_EQ(bench.sender.start(foreign), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(foreign.offset, 0U);
    EXPECT_EQ(bench.uct.sent.size(), 1U);
    bench.worker.requests.release(foreign);
}

// ---- Acknowledgements

TEST_F(EagerSenderPart, one_that_wants_an_answer_is_outstanding_and_has_an_id) {
    for (const std::uint32_t flag : {TW_OP_MATCH_COMPLETE, TW_OP_DELIVERY_COMPLETE}) {
        uct.sent.clear();
        Request& request = message(10, flag);
        EXPECT_EQ(sender.start(request), UCS_INPROGRESS);
        EXPECT_NE(request.id, 0U);
        EXPECT_EQ(body_of(0).send_id, request.id);
        const std::uint32_t asked =
            flag == TW_OP_MATCH_COMPLETE ? proto::kAckMatch : proto::kAckDelivery;
        EXPECT_EQ(header_of(0).flags & proto::kAcks, asked);
        EXPECT_EQ(worker.outstanding.back(), &request);
        EXPECT_TRUE(peer.fake.canceled.empty());
    }
}

TEST_F(EagerSenderPart, an_answer_that_came_before_the_last_part_had_gone_is_its_end) {
    Request& request = message(2 * kBuffer, TW_OP_MATCH_COMPLETE);
    uct.room_for = 1;
    EXPECT_EQ(sender.start(request), UCS_ERR_NO_RESOURCE);
    request.is_answered = true;
    uct.room_for = SIZE_MAX;
    EXPECT_EQ(sender.start(request), UCS_OK);
    EXPECT_TRUE(worker.outstanding.empty());
}

TEST_F(EagerSenderPart, one_whose_cancel_has_waited_is_canceled_when_all_of_it_has_gone) {
    Request& request = message(2 * kBuffer, TW_OP_MATCH_COMPLETE);
    uct.room_for = 1;
    EXPECT_EQ(sender.start(request), UCS_ERR_NO_RESOURCE);
    request.wants_cancel = true;
    uct.room_for = SIZE_MAX;
    EXPECT_EQ(sender.start(request), UCS_INPROGRESS);
    EXPECT_EQ(peer.fake.canceled, std::vector{&request});
}

TEST_F(EagerSenderPart, the_transport_tells_when_the_peer_has_it_in_memory) {
    Request& there = message(10, TW_OP_TRANSMIT_COMPLETE);
    EXPECT_EQ(sender.start(there), UCS_OK);
    EXPECT_EQ(there.transmission, nullptr);
    uct.flush_status = UCS_INPROGRESS;
    Request& under_way = message(10, TW_OP_TRANSMIT_COMPLETE);
    EXPECT_EQ(sender.start(under_way), UCS_INPROGRESS);
    ASSERT_EQ(uct.flushes.size(), 1U);
    EXPECT_EQ(uct.flushes[0], under_way.transmission);
    EXPECT_EQ(worker.outstanding, std::vector{&under_way});
    worker.requests.release(*under_way.transmission);
    under_way.transmission = nullptr;
}

TEST_F(EagerSenderPart, the_transport_tells_when_this_process_is_needed_no_longer) {
    Request& there = message(10, TW_OP_SENT_COMPLETE);
    EXPECT_EQ(sender.start(there), UCS_OK);
    EXPECT_EQ(uct.flush_flags, TAGWIRE_UCT_FLUSH_FLAG_SENT);
    uct.flush_status = UCS_INPROGRESS;
    Request& under_way = message(10, TW_OP_SENT_COMPLETE);
    EXPECT_EQ(sender.start(under_way), UCS_INPROGRESS);
    EXPECT_EQ(worker.outstanding, std::vector{&under_way});
    EXPECT_TRUE(under_way.has_gone);
    worker.requests.release(*under_way.transmission);
    under_way.transmission = nullptr;
    uct.flush_status = UCS_OK;
    EXPECT_EQ(sender.start(message(10, TW_OP_SENT_COMPLETE | TW_OP_TRANSMIT_COMPLETE)), UCS_OK);
    EXPECT_EQ(uct.flush_flags, unsigned{UCT_FLUSH_FLAG_LOCAL});
}

TEST_F(EagerSenderPart, a_flush_without_room_is_asked_for_again_and_the_message_is_not) {
    Request& request = message(10, TW_OP_TRANSMIT_COMPLETE);
    uct.flush_status = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(sender.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(request.has_gone);
    uct.flush_status = UCS_OK;
    EXPECT_EQ(sender.start(request), UCS_OK);
    EXPECT_EQ(uct.sent.size(), 1U);
}

// ---- A device that matches tags

TEST_F(EagerSenderPart, on_a_device_that_matches_a_message_goes_with_its_tag_alone) {
    rail.set_matches_tags();
    EXPECT_EQ(sender.start(message(10)), UCS_OK);
    EXPECT_EQ(sender.start(message(10, TW_OP_IMM, proto::TagImm::kImmMax)), UCS_OK);
    ASSERT_EQ(uct.tagged.size(), 2U);
    EXPECT_TRUE(uct.sent.empty());
    EXPECT_EQ(uct.tagged[0].tag, kTag);
    EXPECT_EQ(uct.tagged[0].bytes, buffers[0]);
    const auto imm = proto::TagImm::decode(uct.tagged[1].imm);
    EXPECT_EQ(imm.sender, kPeerNames);
    EXPECT_TRUE(imm.has_imm);
    EXPECT_EQ(imm.imm, proto::TagImm::kImmMax);
    EXPECT_EQ(count(WorkerCounter::kTxTagged), 2U);
    Request& untagged = message(10);
    untagged.is_tagged = false;
    untagged.done.tag = 0;
    EXPECT_EQ(sender.start(untagged), UCS_OK);
    EXPECT_EQ(uct.sent.size(), 1U);
}

TEST_F(EagerSenderPart, one_that_needs_an_envelope_is_announced_and_its_place_follows) {
    rail.set_matches_tags();
    Request& request = message(10, TW_OP_IMM, proto::TagImm::kImmMax + 1);
    uct.room_for = 1;
    EXPECT_EQ(sender.start(request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(request.is_announced);
    EXPECT_NE(header_of(0).flags & proto::kAnnounced, 0U);
    uct.room_for = SIZE_MAX;
    EXPECT_EQ(sender.start(request), UCS_OK);
    EXPECT_EQ(uct.sent.size(), 1U);
    Request& next = message(10, TW_OP_MATCH_COMPLETE);
    EXPECT_EQ(sender.start(next), UCS_INPROGRESS);
    sender.begin_anew();
    EXPECT_EQ(sender.start(message(10, TW_OP_DELIVERY_COMPLETE)), UCS_INPROGRESS);
    ASSERT_EQ(uct.tagged.size(), 3U);
    for (std::uint32_t i = 0; i < 3; ++i) {
        proto::Placeholder place{};
        EXPECT_TRUE(uct.tagged[i].is_place);
        ASSERT_TRUE(proto::decode(proto::WireBytes(uct.tagged[i].bytes), &place));
        EXPECT_EQ(place.sender, kPeerNames);
        EXPECT_EQ(place.number, i % 2) << "a new connection counts anew";
    }
    EXPECT_EQ(count(WorkerCounter::kTxPlaceholders), 3U);
}

TEST_F(EagerSenderPart, a_place_without_room_is_sent_again_with_its_number) {
    rail.set_matches_tags();
    Request& request = message(10);
    uct.room_for = 0;
    EXPECT_EQ(sender.send_placeholder(request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(request.is_announced);
    uct.room_for = 1;
    EXPECT_EQ(sender.send_placeholder(request), UCS_OK);
    EXPECT_FALSE(request.is_announced);
    EXPECT_EQ(count(WorkerCounter::kTxPlaceholders), 1U);
}

// ---- Without memory

TEST(EagerSenderMemory, one_without_memory_for_its_id_or_its_flush_is_not_lost) {
    ASSERT_TRUE(ucs::reserve_open());
    for (unsigned long which = 1; which < 8; ++which) {
        for (const std::uint32_t flag : {TW_OP_MATCH_COMPLETE, TW_OP_TRANSMIT_COMPLETE}) {
            EagerBench bench;
            bench.uct.flush_status = UCS_INPROGRESS;
            Request& request = bench.message(10, flag);
            ucs_status_t status = UCS_OK;
            {
                const FailingAllocation failing(which);
                status = bench.sender.start(request);
            }
            if (status == UCS_ERR_NO_RESOURCE)
                status = bench.sender.start(request);
            EXPECT_TRUE(status == UCS_INPROGRESS || status == UCS_ERR_NO_MEMORY) << which;
            EXPECT_EQ(bench.worker.outstanding.size(), status == UCS_INPROGRESS ? 1U : 0U);
            EXPECT_EQ(bench.uct.sent.size(), status == UCS_INPROGRESS ? 1U : 0U);
            if (proto::Transmission* transmission = request.transmission) {
                bench.worker.requests.release(*transmission);
                request.transmission = nullptr;
            }
        }
    }
}

}  // namespace
}  // namespace tagwire::test
