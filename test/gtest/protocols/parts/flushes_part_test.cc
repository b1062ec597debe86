// SPDX-License-Identifier: BSD-3-Clause
// Flushes and closes of an endpoint, alone: what each waits for, in every order in which that ends,
// and what refuses it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/fakes.hpp"
#include "protocols/parts/request_part.hpp"
#include "protocols/transfer/flushes.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::test {
namespace {

using proto::EpState;
using proto::Flush;
using proto::Line;
using proto::Request;
using proto::RequestKind;

class FlushesPart : public testing::Test {
  protected:
    FlushesPart() {
        lane_.on_finish = [this](Request& request, ucs_status_t status) {
            ends_.push_back({RequestKind{request.kind}, status});
            if (request.is_outstanding)
                outstanding_[static_cast<std::size_t>(request.stream)].erase(request);
            worker_.finish(request, status);
        };
    }

    tw_status_t flush_sent(RequestKind kind = RequestKind::kFlush) {
        return flushes_.call(kind, TW_FLUSH_SENT, &op_, nullptr);
    }
    /// The transport has let go of what it had when it was asked first.
    void end_transmission(ucs_status_t status = UCS_OK) {
        uct_completion_t* const done = lane_.transmissions.front();
        lane_.transmissions.erase(lane_.transmissions.begin());
        if (status != UCS_OK)
            uct_completion_update_status(done, status);
        if (--done->count == 0)
            done->func(done);
        for (const auto& [request, how] : std::exchange(worker_.transmitted, {}))
            flushes_.on_transmitted(*request, how);
    }
    tw_status_t flush(RequestKind kind = RequestKind::kFlush) {
        return flushes_.call(kind, TW_FLUSH_DELIVERED, &op_, nullptr);
    }
    /// Its turn has come: the last one that was called.
    Request& start() {
        Request& request = *lane_.pushed.back();
        EXPECT_EQ(flushes_.start(request), UCS_INPROGRESS);
        return request;
    }
    /// An operation that has begun, numbered behind those that were called.
    Request& send(Line line = Line::kMessages) {
        Request* request = worker_.table.make(RequestKind::kSend, nullptr, nullptr);
        request->in_call = false;
        request->order = flushes_.next_order();
        request->stream = line;
        request->is_outstanding = true;
        outstanding_[static_cast<std::size_t>(line)].push_back(*request);
        return *request;
    }
    void end(Request& request) {
        lane_.on_finish(request, UCS_OK);
        flushes_.check();
    }
    std::size_t ends_of(RequestKind kind) const {
        return static_cast<std::size_t>(
            std::ranges::count(ends_, kind, [](const auto& one) { return one.first; }));
    }

    FakeLane lane_;
    FakePeer peer_;
    FakeRequestWorker worker_;
    proto::Outstanding outstanding_;
    proto::EpHold hold_;
    proto::Closing closing_{lane_.port, peer_.port, hold_, 1, 2};
    proto::Flushes flushes_{{lane_.port, peer_.port, worker_.table, outstanding_, closing_}};
    tw_op_t op_{};
    std::vector<std::pair<RequestKind, ucs_status_t>> ends_;

    void TearDown() override {
        for (proto::RequestList& line : outstanding_)
            while (Request* request = line.pop_front())
                worker_.table.release(*request);
        while (Request* request = flushes_.pop())
            worker_.table.release(*request);
        worker_.table.clear();
    }
};

TEST_F(FlushesPart, before_anything_was_sent_there_is_nothing_to_wait_for) {
    lane_.state = EpState::kConnecting;
    EXPECT_EQ(flush(), TW_OK);
    closing_.open(nullptr);
    EXPECT_EQ(flush(RequestKind::kClose), TW_OK);
    EXPECT_FALSE(closing_.is_open());
    EXPECT_TRUE(lane_.pushed.empty());
    EXPECT_EQ(worker_.table.in_use(), 0U);
}

TEST_F(FlushesPart, it_waits_in_the_queue_behind_what_was_sent_before_the_lane_was_there) {
    lane_.state = EpState::kConnecting;
    Request& sent = send();
    EXPECT_EQ(flush(), TW_INPROGRESS);
    ASSERT_EQ(lane_.pushed.size(), 1U);
    EXPECT_EQ(lane_.adopted, lane_.pushed);
    EXPECT_EQ(lane_.pushed[0]->order, sent.order + 1);
    EXPECT_EQ(lane_.pushed[0]->done.flags, TW_DONE_FLUSH);
    EXPECT_TRUE(ends_.empty());
    worker_.table.release(*lane_.pushed[0]);
}

TEST_F(FlushesPart, a_ready_lane_is_asked_in_any_case) {
    op_.flags = TW_OP_FENCE;
    EXPECT_EQ(flush(), TW_INPROGRESS);
    Request& request = start();
    EXPECT_EQ(request.flags & TW_OP_FENCE, 0U);
    EXPECT_EQ(lane_.sent.back().as<Flush>().flush_id, request.id);
    EXPECT_EQ(lane_.sent.back().as<Flush>().is_close, 0U);
    EXPECT_EQ(worker_.table.find(request.id), &request);
    flushes_.on_flushed(request);
    EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
    EXPECT_TRUE(flushes_.is_empty());
}

TEST_F(FlushesPart, a_full_lane_is_asked_again_with_the_same_id) {
    EXPECT_EQ(flush(), TW_INPROGRESS);
    Request& request = *lane_.pushed.back();
    lane_.room = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(flushes_.start(request), UCS_ERR_NO_RESOURCE);
    const std::uint32_t id = request.id;
    EXPECT_TRUE(flushes_.is_empty());
    lane_.room = UCS_OK;
    EXPECT_EQ(flushes_.start(request), UCS_INPROGRESS);
    EXPECT_EQ(request.id, id);
    EXPECT_EQ(flushes_.size(), 1U);
}

TEST_F(FlushesPart, each_order_of_the_answer_and_the_ends_of_what_was_sent_before_ends_it_once) {
    // The answer, two earlier operations of different streams, the flush of transmit contexts.
    std::array<unsigned, 4> order{0, 1, 2, 3};
    do {
        ends_.clear();
        Request& message = send(Line::kMessages);
        Request& put = send(Line::kDirect);
        EXPECT_EQ(flush(), TW_INPROGRESS);
        Request& request = start();
        Request& later = send(Line::kUrgent);
        peer_.awaits_contexts = true;
        for (const unsigned event : order) {
            EXPECT_EQ(ends_of(RequestKind::kFlush), 0U);
            if (event == 0) {
                flushes_.on_flushed(request);
            } else if (event == 3) {
                peer_.awaits_contexts = false;
                flushes_.check();
            } else {
                end(event == 1 ? message : put);
            }
        }
        EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
        end(later);
        EXPECT_EQ(worker_.table.in_use(), 0U);
    } while (std::ranges::next_permutation(order).found);
}

TEST_F(FlushesPart, flushes_end_in_their_order_whatever_is_answered_first) {
    EXPECT_EQ(flush(), TW_INPROGRESS);
    Request& first = start();
    EXPECT_EQ(flush(), TW_INPROGRESS);
    Request& second = start();
    flushes_.on_flushed(second);
    EXPECT_TRUE(ends_.empty());
    flushes_.on_flushed(first);
    EXPECT_EQ(ends_.size(), 2U);
    EXPECT_TRUE(flushes_.is_empty());
}

TEST_F(FlushesPart, a_peer_that_answers_twice_ends_nothing_twice) {
    Request& sent = send();
    EXPECT_EQ(flush(), TW_INPROGRESS);
    Request& request = start();
    flushes_.on_flushed(request);
    flushes_.on_flushed(request);
    EXPECT_TRUE(ends_.empty());
    end(sent);
    EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
}

TEST_F(FlushesPart, a_close_tells_the_peer_and_closes_when_it_has_ended) {
    closing_.open(nullptr);
    EXPECT_EQ(flush(RequestKind::kClose), TW_INPROGRESS);
    EXPECT_TRUE(closing_.is_closing());
    EXPECT_TRUE(closing_.is_open());
    Request& request = start();
    EXPECT_EQ(lane_.sent.back().as<Flush>().is_close, 1U);
    flushes_.on_flushed(request);
    EXPECT_FALSE(closing_.is_open());
    EXPECT_EQ(lane_.sent.count<proto::Bye>(), 1U);
    EXPECT_EQ(peer_.context_closes, 1U);
}

TEST_F(FlushesPart, a_refused_operation_fails_the_next_flush_alone) {
    flushes_.note_refusal(UCS_ERR_UNREACHABLE);
    for (const ucs_status_t status : {UCS_ERR_UNREACHABLE, UCS_OK}) {
        EXPECT_EQ(flush(), TW_INPROGRESS);
        flushes_.on_flushed(start());
        EXPECT_EQ(ends_.back().second, status);
    }
}

TEST_F(FlushesPart, an_endpoint_that_has_failed_refuses_a_flush_and_takes_a_close) {
    closing_.open(nullptr);
    lane_.port.fail(UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(flush(), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(peer_.context_flushes, 0U);
    EXPECT_EQ(worker_.table.in_use(), 0U);
    EXPECT_EQ(flush(RequestKind::kClose), TW_OK);
}

TEST_F(FlushesPart, contexts_that_have_no_room_refuse_it_and_nothing_has_happened) {
    closing_.open(nullptr);
    peer_.contexts = TW_ERR_NO_RESOURCE;
    EXPECT_EQ(flush(RequestKind::kClose), TW_ERR_NO_RESOURCE);
    EXPECT_FALSE(closing_.is_closing());
    EXPECT_EQ(flushes_.order(), 0U);
    EXPECT_EQ(worker_.table.in_use(), 0U);
}

TEST_F(FlushesPart, without_a_request_it_is_refused_and_the_endpoint_stays_open) {
    closing_.open(nullptr);
    while (worker_.table.in_use() < kTableRequests)
        send();
    const std::uint64_t order = flushes_.order();
    EXPECT_EQ(flush(RequestKind::kClose), TW_ERR_NO_RESOURCE);
    EXPECT_FALSE(closing_.is_closing());
    EXPECT_EQ(flushes_.order(), order);
}

// ---- At level sent

TEST_F(FlushesPart, at_level_sent_nothing_under_way_is_nothing_to_wait_for) {
    for (const EpState state : {EpState::kConnecting, EpState::kReady}) {
        lane_.state = state;
        flushes_.next_order();
        EXPECT_TRUE(flushes_.is_flushed(TW_FLUSH_SENT));
        EXPECT_EQ(flush_sent(), TW_OK);
    }
    EXPECT_TRUE(lane_.pushed.empty());
    EXPECT_TRUE(lane_.sent.empty());
    EXPECT_EQ(worker_.table.in_use(), 0U);
}

TEST_F(FlushesPart, at_level_sent_what_waits_in_the_queue_is_waited_for) {
    lane_.has_waiting = true;
    for (const EpState state : {EpState::kConnecting, EpState::kReady}) {
        lane_.state = state;
        EXPECT_FALSE(flushes_.is_flushed(TW_FLUSH_SENT));
        EXPECT_EQ(flush_sent(), TW_INPROGRESS);
        worker_.table.release(*lane_.pushed.back());
    }
    EXPECT_EQ(lane_.sent_flushes, 0U);
}

TEST_F(FlushesPart, at_level_sent_data_that_is_here_is_waited_for_and_a_reply_is_not) {
    Request& acked = send();
    acked.has_gone = true;
    EXPECT_EQ(flush_sent(), TW_OK);
    Request& rendezvous = send();
    rendezvous.is_rndv = true;
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    EXPECT_EQ(start().kind, RequestKind::kFlush);
    Request& later = send();
    EXPECT_EQ(flushes_.size(), 1U);
    ends_.clear();
    lane_.on_finish(acked, UCS_OK);
    flushes_.check(&acked);
    EXPECT_EQ(ends_of(RequestKind::kFlush), 0U);
    lane_.on_finish(rendezvous, UCS_OK);
    flushes_.check(&rendezvous);
    EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
    EXPECT_TRUE(lane_.sent.empty()) << "the peer is not asked";
    lane_.on_finish(later, UCS_OK);
}

TEST_F(FlushesPart, at_level_sent_control_messages_that_wait_go_first) {
    lane_.has_waiting = lane_.has_controls = true;
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    start();
    EXPECT_EQ(lane_.sent_flushes, 0U);
    lane_.has_controls = false;
    flushes_.check();
    EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
}

TEST_F(FlushesPart, at_level_sent_the_transport_lets_go_in_its_time) {
    lane_.left = UCS_INPROGRESS;
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    Request& first = start();
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    start();
    ASSERT_EQ(lane_.transmissions.size(), 1U) << "the second waits for the first";
    flushes_.check();
    EXPECT_EQ(lane_.transmissions.size(), 1U);
    EXPECT_NE(first.transmission, nullptr);
    lane_.left = UCS_OK;
    end_transmission();
    EXPECT_EQ(ends_.size(), 2U);
    EXPECT_TRUE(flushes_.is_empty());
}

TEST_F(FlushesPart, at_level_sent_a_transport_without_room_is_asked_again) {
    lane_.left = UCS_INPROGRESS;
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    lane_.left = UCS_ERR_NO_RESOURCE;
    start();
    EXPECT_EQ(lane_.stalls, 1U);
    EXPECT_TRUE(ends_.empty());
    lane_.left = UCS_OK;
    flushes_.check();
    EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
}

// The lane may have failed: the transport says that next, and the status of that counts.
TEST_F(FlushesPart, at_level_sent_a_failure_of_the_transport_is_told_in_the_next_turn) {
    for (const bool is_asked : {true, false}) {
        ends_.clear();
        lane_.left = is_asked ? UCS_INPROGRESS : UCS_ERR_INVALID_ADDR;
        EXPECT_EQ(flush_sent(), TW_INPROGRESS);
        const unsigned stalls = lane_.stalls;
        start();
        if (is_asked)
            end_transmission(UCS_ERR_INVALID_ADDR);
        EXPECT_TRUE(ends_.empty());
        EXPECT_EQ(lane_.stalls, stalls + 1);
        flushes_.check_room();
        ASSERT_EQ(ends_.size(), 1U);
        EXPECT_EQ(ends_[0].second, UCS_ERR_INVALID_ADDR);
    }
}

TEST_F(FlushesPart, a_close_at_level_sent_says_bye_before_it_asks_the_transport) {
    closing_.open(nullptr);
    lane_.room = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(flush_sent(RequestKind::kClose), TW_INPROGRESS);
    start();
    EXPECT_EQ(lane_.sent_flushes, 0U);
    EXPECT_EQ(lane_.stalls, 1U);
    lane_.room = UCS_OK;
    lane_.left = UCS_INPROGRESS;
    flushes_.check();
    EXPECT_EQ(lane_.sent.count<proto::Bye>(), 1U);
    EXPECT_TRUE(closing_.is_open());
    end_transmission();
    EXPECT_FALSE(closing_.is_open());
    EXPECT_EQ(ends_of(RequestKind::kClose), 1U);
    EXPECT_EQ(lane_.sent.count<proto::Bye>(), 1U);
    EXPECT_EQ(lane_.sent.count<Flush>(), 0U);
}

TEST_F(FlushesPart, a_close_at_level_sent_of_a_lane_with_room_ends_at_once) {
    closing_.open(nullptr);
    EXPECT_EQ(flush_sent(RequestKind::kClose), TW_OK);
    EXPECT_FALSE(closing_.is_open());
    EXPECT_EQ(lane_.sent.count<proto::Bye>(), 1U);
    EXPECT_EQ(lane_.sent_flushes, 1U);
}

TEST_F(FlushesPart, at_level_sent_contexts_are_waited_for) {
    peer_.awaits_contexts = true;
    EXPECT_FALSE(flushes_.is_flushed(TW_FLUSH_SENT));
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    start();
    EXPECT_TRUE(ends_.empty());
    peer_.awaits_contexts = false;
    flushes_.check();
    EXPECT_EQ(ends_of(RequestKind::kFlush), 1U);
}

TEST_F(FlushesPart, at_level_sent_a_refused_operation_is_told_once) {
    flushes_.note_refusal(UCS_ERR_UNREACHABLE);
    EXPECT_FALSE(flushes_.is_flushed(TW_FLUSH_SENT));
    EXPECT_EQ(flush_sent(), TW_INPROGRESS);
    EXPECT_EQ(flushes_.start(*lane_.pushed.back()), UCS_ERR_UNREACHABLE);
    worker_.finish(*lane_.pushed.back(), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(flush_sent(), TW_OK);
}

TEST_F(FlushesPart, those_that_were_sent_are_given_up_in_their_order) {
    EXPECT_EQ(flush(), TW_INPROGRESS);
    Request& first = start();
    EXPECT_EQ(flush(RequestKind::kClose), TW_INPROGRESS);
    Request& second = start();
    EXPECT_EQ(flushes_.pop(), &first);
    EXPECT_EQ(flushes_.pop(), &second);
    EXPECT_EQ(flushes_.pop(), nullptr);
    for (Request* each : {&first, &second})
        lane_.on_finish(*each, UCS_ERR_CONNECTION_RESET);
}

}  // namespace
}  // namespace tagwire::test
