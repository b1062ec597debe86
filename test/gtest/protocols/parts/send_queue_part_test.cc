// SPDX-License-Identifier: BSD-3-Clause
// The send queue alone, over protocols and a transport that are fakes: what begins at once, what
// waits and why, and whose turn it is.
#include "protocols/transfer/send_queue.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/send_queue_part.hpp"

namespace tagwire::test {
namespace {

using proto::Ack;
using proto::Control;
using proto::EpState;
using proto::Line;
using proto::Request;
using proto::RequestKind;
using proto::RmaKind;
using proto::Steps;

class SendQueuePart : public testing::Test, protected QueueBench {};

// ---- New operations

TEST_F(SendQueuePart, an_operation_begins_in_its_call_where_nothing_waits) {
    Request& ended = send();
    EXPECT_EQ(end_of(ended), UCS_OK);
    Request& under_way = begun();
    EXPECT_EQ(end_of(under_way), UCS_INPROGRESS);
    EXPECT_EQ(begun_calls, std::vector{&under_way});
    Request& failing = make();
    answer(failing, UCS_ERR_IO_ERROR);
    EXPECT_EQ(end_of(submit(failing)), UCS_ERR_IO_ERROR);
    EXPECT_TRUE(queue.has_nothing());
    EXPECT_EQ(worker.count(proto::WorkerCounter::kTxQueued), 0U);
}

TEST_F(SendQueuePart, before_there_is_a_lane_operations_wait_in_the_order_of_their_calls) {
    lane.state = EpState::kConnecting;
    lane.ep = nullptr;
    const std::vector<Request*> sent{&send(), &send(), &submit(make(RequestKind::kFlush))};
    EXPECT_TRUE(started.empty());
    EXPECT_EQ(queue.operations(), 3U);
    EXPECT_FALSE(queue.is_empty());
    lane.state = EpState::kReady;
    lane.ep = uct.ep();
    queue.run();
    EXPECT_EQ(started, sent);
    EXPECT_TRUE(queue.has_nothing());
    EXPECT_EQ(worker.count(proto::WorkerCounter::kTxQueued), 3U);
}

TEST_F(SendQueuePart, one_without_room_goes_on_when_the_transport_has_some) {
    Request& first = make();
    answer(first, UCS_ERR_NO_RESOURCE);
    submit(first);
    Request& second = send();
    EXPECT_TRUE(started.empty());
    EXPECT_FALSE(queue.may_pass());
    ASSERT_EQ(uct.waiting.size(), 1U);
    EXPECT_FALSE(uct.tell_room());
    EXPECT_EQ(uct.waiting.size(), 1U);
    answers.clear();
    EXPECT_TRUE(uct.tell_room());
    EXPECT_EQ(started, (std::vector{&first, &second}));
    EXPECT_EQ(end_of(second), UCS_OK);
    EXPECT_TRUE(queue.may_pass());
}

TEST_F(SendQueuePart, a_transport_that_has_nothing_to_wait_for_is_asked_again_in_progress) {
    Request& first = make();
    answer(first, UCS_ERR_NO_RESOURCE);
    uct.wait_status = UCS_ERR_BUSY;
    submit(first);
    EXPECT_TRUE(table.wants_wireup);
    EXPECT_TRUE(queue.is_stalled());
    EXPECT_FALSE(queue.has_nothing());
    answers.clear();
    EXPECT_TRUE(queue.take_stall());
    EXPECT_FALSE(queue.take_stall());
    queue.run();
    EXPECT_TRUE(has_started(first));
}

TEST_F(SendQueuePart, an_injected_message_that_waits_has_its_own_copy) {
    Request& first = make(RequestKind::kSend, TW_OP_INJECT);
    answer(first, UCS_ERR_NO_RESOURCE);
    submit(first);
    EXPECT_NE(first.copy, nullptr);
    EXPECT_EQ(first.buffer.base, first.copy);
}

TEST(SendQueueCopies, without_a_copy_of_what_it_injects_an_operation_is_refused) {
    QueueBench bench(1);
    alignas(Request) std::byte memory[sizeof(Request)];
    tw_op_t op{};
    op.request = memory;
    op.flags = TW_OP_INJECT;
    Request& foreign = *bench.worker.requests.make(RequestKind::kSend, &op, nullptr);
    foreign.buffer.base = bench.buffer.data();
    foreign.buffer.length = bench.buffer.size();
    Request& holder = bench.make(RequestKind::kSend, TW_OP_INJECT);
    ASSERT_NE(bench.worker.requests.copy_of(holder), nullptr);
    bench.answer(foreign, UCS_ERR_NO_RESOURCE);
    EXPECT_FALSE(bench.queue.submit(foreign));
    EXPECT_TRUE(bench.queue.has_nothing());
    EXPECT_TRUE(bench.worker.ends.empty());
    EXPECT_FALSE(foreign.is_queued);
    bench.worker.requests.release(foreign);
}

// ---- Order

TEST_F(SendQueuePart, an_urgent_message_passes_others_but_no_parts_and_nothing_passes_it) {
    Request& parts = make();
    answer(parts, UCS_ERR_NO_RESOURCE);
    submit(parts);
    Request& urgent = make(RequestKind::kSend, TW_OP_URGENT);
    answer(urgent, UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(queue.may_pass_urgently());
    submit(urgent);
    EXPECT_FALSE(queue.may_pass_urgently());
    Request& later = send();
    parts.offset = 1;
    answers.erase(&urgent);
    uct.tell_room();
    EXPECT_TRUE(started.empty());
    EXPECT_FALSE(queue.may_start(urgent));
    answers.clear();
    uct.tell_room();
    EXPECT_EQ(started, (std::vector{&parts, &urgent, &later}));
}

TEST_F(SendQueuePart, a_message_waits_behind_an_earlier_urgent_one) {
    Request& urgent = make(RequestKind::kSend, TW_OP_URGENT);
    answer(urgent, UCS_ERR_NO_RESOURCE);
    submit(urgent);
    Request& message = send();
    EXPECT_FALSE(queue.may_start(message));
    EXPECT_FALSE(has_started(message));
    answers.clear();
    uct.tell_room();
    EXPECT_EQ(started, (std::vector{&urgent, &message}));
}

TEST_F(SendQueuePart, a_pause_holds_back_messages_and_what_the_target_is_told_of) {
    lane.is_paused = true;
    const Request& message = send();
    const Request& notice = submit(make_rma(TW_OP_IMM));
    const Request& put = submit(make_rma());
    const Request& urgent = send(TW_OP_URGENT);
    EXPECT_EQ(started, (std::vector<Request*>{all[2], all[3]}));
    EXPECT_EQ(end_of(put), UCS_OK);
    EXPECT_EQ(end_of(urgent), UCS_OK);
    lane.is_paused = false;
    queue.run();
    EXPECT_EQ(end_of(message), UCS_OK);
    EXPECT_EQ(end_of(notice), UCS_OK);
}

TEST_F(SendQueuePart, a_window_that_is_closed_holds_back_as_a_pause_does) {
    window.add_message(proto::kWindowBytes);
    ASSERT_FALSE(window.is_open());
    const Request& message = send();
    EXPECT_EQ(end_of(message), UCS_INPROGRESS);
    EXPECT_EQ(end_of(send(TW_OP_URGENT)), UCS_OK);
    ASSERT_TRUE(window.on_probed());
    queue.run();
    EXPECT_EQ(end_of(message), UCS_OK);
}

TEST_F(SendQueuePart, a_fence_waits_for_all_before_it_and_holds_back_all_behind_it) {
    Request& earlier = begun();
    Request& fence = send(TW_OP_FENCE);
    Request& message = send();
    Request& put = submit(make_rma());
    Request& urgent = send(TW_OP_URGENT);
    EXPECT_EQ(started, (std::vector{&earlier, &urgent}));
    EXPECT_FALSE(queue.may_pass());
    EXPECT_FALSE(queue.may_pass_directly());
    finish(earlier);
    awaits_replies = true;
    queue.run();
    EXPECT_FALSE(has_started(fence));
    awaits_replies = false;
    answer(fence, UCS_ERR_NO_RESOURCE);
    queue.run();
    EXPECT_FALSE(has_started(message) || has_started(put));
    answers.clear();
    uct.tell_room();
    queue.run();
    EXPECT_EQ(started[2], &fence);
    EXPECT_TRUE(has_started(message) && has_started(put));
    EXPECT_TRUE(queue.may_pass_directly());
}

TEST_F(SendQueuePart, a_flush_begins_when_all_earlier_ones_have_begun) {
    Request& put = make_rma();
    answer(put, UCS_ERR_NO_RESOURCE);
    submit(put);
    Request& flush = submit(make(RequestKind::kFlush));
    EXPECT_TRUE(started.empty());
    answer(put, UCS_INPROGRESS);
    uct.tell_room();
    EXPECT_EQ(started, (std::vector{&put, &flush}));
}

TEST_F(SendQueuePart, one_that_a_fence_waits_for_may_be_taken_back) {
    lane.state = EpState::kConnecting;
    Request& first = send(TW_OP_FENCE);
    Request& second = send(TW_OP_FENCE | TW_OP_URGENT);
    Request& third = submit(make_rma());
    queue.remove(first);
    EXPECT_EQ(queue.operations(), 2U);
    EXPECT_FALSE(queue.may_pass_directly());
    EXPECT_EQ(queue.pop(), &second);
    EXPECT_EQ(queue.pop(), &third);
    EXPECT_EQ(queue.pop(), nullptr);
    EXPECT_TRUE(queue.may_pass_directly());
    EXPECT_TRUE(queue.has_nothing());
}

TEST_F(SendQueuePart, operations_are_taken_back_in_the_order_of_their_calls) {
    lane.state = EpState::kConnecting;
    std::vector<Request*> order;
    for (unsigned i = 0; i < 4; ++i) {
        order.push_back(&send());
        order.push_back(&submit(make_rma()));
        order.push_back(&send(TW_OP_URGENT));
    }
    for (Request* expected : order)
        EXPECT_EQ(queue.pop(), expected);
    EXPECT_EQ(queue.pop(), nullptr);
}

// ---- One-sided operations that the owner carries out

TEST_F(SendQueuePart, one_whose_way_was_not_known_changes_to_the_line_of_those_that_are_asked_for) {
    lane.state = EpState::kConnecting;
    Request& put = submit(make_rma());
    EXPECT_EQ(put.stream, Line::kDirect);
    lane.state = EpState::kReady;
    is_asked = true;
    may_ask = false;
    queue.run();
    EXPECT_EQ(put.stream, Line::kAsked);
    EXPECT_FALSE(has_started(put));
    may_ask = true;
    queue.run();
    EXPECT_TRUE(has_started(put));
}

TEST_F(SendQueuePart, too_many_without_a_reply_hold_back_those_that_are_asked_for_alone) {
    is_asked = true;
    may_ask = false;
    const Request& asked = submit(make_rma());
    EXPECT_EQ(end_of(asked), UCS_INPROGRESS);
    EXPECT_EQ(end_of(send()), UCS_OK);
    is_asked = false;
    EXPECT_EQ(end_of(submit(make_rma())), UCS_OK);
}

TEST_F(SendQueuePart, a_put_in_parts_holds_back_other_puts_by_messages) {
    Request& parts = make_rma(TW_OP_IMM);
    answer(parts, UCS_ERR_NO_RESOURCE);
    is_asked = true;
    submit(parts);
    ops[0].by_messages = true;
    Request& asked = submit(make_rma());
    EXPECT_FALSE(queue.may_start(asked));
    parts.offset = parts.buffer.length;
    EXPECT_TRUE(queue.may_start(asked));
}

// ---- Turns

TEST_F(SendQueuePart, each_line_gets_its_turn_whatever_waits_in_another) {
    std::vector<Request*> messages, puts;
    lane.state = EpState::kConnecting;
    for (unsigned i = 0; i < 5; ++i)
        messages.push_back(&send());
    for (unsigned i = 0; i < 5; ++i)
        puts.push_back(&submit(make_rma()));
    for (unsigned i = 0; i < 3; ++i)
        queue.add_data(make());
    gets = 3;
    lane.state = EpState::kReady;
    queue.run();
    ASSERT_EQ(started.size(), 10U);
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(started[2 * i], messages[i]);
        EXPECT_EQ(started[2 * i + 1], puts[i]);
    }
    EXPECT_EQ(steps.size(), 3U);
    EXPECT_EQ(gets, 0U);
}

TEST_F(SendQueuePart, a_line_without_room_holds_back_no_other) {
    Request& full = make();
    answer(full, UCS_ERR_NO_RESOURCE);
    submit(full);
    Request& put = submit(make_rma());
    EXPECT_EQ(end_of(put), UCS_OK);
    step_status = UCS_ERR_NO_RESOURCE;
    Request& data = make();
    queue.push_data(data);
    Request& move = transfer(100);
    queue.push_data(move);
    EXPECT_EQ(uct.pieces.size(), 1U);
    EXPECT_FALSE(move.is_queued);
    EXPECT_TRUE(data.is_queued);
    step_status = UCS_OK;
    answers.clear();
    uct.tell_room();
    EXPECT_TRUE(has_started(full));
    EXPECT_EQ(steps, std::vector{&data});
    uct.end_piece(0);
}

TEST_F(SendQueuePart, steps_go_to_the_lines_of_their_kind) {
    lane.state = EpState::kConnecting;
    const auto line_of = [this](Request& request) {
        queue.add_data(request);
        return request.line;
    };
    EXPECT_EQ(line_of(make()), Line::kData);
    EXPECT_EQ(line_of(make(RequestKind::kReceive)), Line::kReplies);
    EXPECT_EQ(line_of(make_rma()), Line::kSteps);
    EXPECT_EQ(line_of(make_rma(TW_OP_IMM)), Line::kReplies);
    EXPECT_EQ(line_of(transfer(1)), Line::kMoves);
    EXPECT_TRUE(queue.is_empty());  // of operations
    EXPECT_FALSE(queue.has_nothing());
    queue.clear_data();
    EXPECT_TRUE(queue.has_nothing());
}

TEST_F(SendQueuePart, a_piece_of_a_transfer_without_room_waits) {
    uct.pieces_max = 0;
    Request& move = transfer(250);
    queue.push_data(move);
    EXPECT_TRUE(move.is_queued);
    uct.pieces_max = SIZE_MAX;
    uct.tell_room();
    EXPECT_FALSE(move.is_queued);
    EXPECT_EQ(uct.pieces.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i)
        uct.end_piece(i);
}

TEST_F(SendQueuePart, one_call_takes_so_many_steps_and_progress_takes_the_others) {
    lane.state = EpState::kConnecting;
    for (unsigned i = 0; i < 3 * Steps::kMax / 2; ++i)
        send();
    lane.state = EpState::kReady;
    queue.run();
    EXPECT_EQ(started.size(), Steps::kMax);
    EXPECT_TRUE(queue.take_stall());
    EXPECT_TRUE(table.wants_wireup);
    queue.run();
    EXPECT_EQ(started.size(), 3 * Steps::kMax / 2);
    EXPECT_FALSE(queue.take_stall());
}

TEST_F(SendQueuePart, gets_of_the_peer_without_room_wait) {
    gets = 2;
    get_status = UCS_ERR_NO_RESOURCE;
    queue.run();
    EXPECT_EQ(gets, 2U);
    get_status = UCS_OK;
    uct.tell_room();
    EXPECT_EQ(gets, 0U);
}

TEST_F(SendQueuePart, what_needs_no_room_goes_although_the_transport_waits_for_some) {
    Request& full = make();
    answer(full, UCS_ERR_NO_RESOURCE);
    submit(full);
    ASSERT_EQ(uct.waiting.size(), 1U);
    Request& move = transfer(100);
    queue.push_data(move);
    EXPECT_EQ(uct.pieces.size(), 1U);
    uct.end_piece(0);
}

// ---- Control messages

TEST_F(SendQueuePart, control_messages_name_this_side_and_go_first_but_not_for_ever) {
    lane.state = EpState::kConnecting;
    std::size_t sent_before = SIZE_MAX;
    on_start = [&](Request&) { sent_before = uct.sent.size(); };
    send();
    for (std::uint32_t i = 0; i < 20; ++i)
        queue.push_control(Control::of(Ack{i}));
    EXPECT_EQ(queue.controls(), 20U);
    EXPECT_EQ(queue.replies(), 20U);
    EXPECT_FALSE(queue.may_pass());
    lane.state = EpState::kReady;
    queue.run();
    EXPECT_EQ(sent_before, 16U);  // the turn of the first line is the second
    ASSERT_EQ(uct.sent.size(), 20U);
    for (std::uint32_t i = 0; i < 20; ++i) {
        Control message;
        ASSERT_TRUE(proto::decode(proto::WireBytes(uct.sent[i].bytes), &message));
        EXPECT_EQ(message.sender, 11U);
        EXPECT_EQ(message.as<Ack>().send_id, i);
    }
    EXPECT_EQ(queue.replies(), 0U);
}

TEST_F(SendQueuePart, control_messages_without_room_hold_back_messages_and_no_moves) {
    uct.room_for = 0;
    queue.push_control(Control::of(proto::Probe{}));
    Request& message = send();
    EXPECT_FALSE(has_started(message));
    Request& move = transfer(100);
    queue.push_data(move);
    EXPECT_EQ(uct.pieces.size(), 1U);
    uct.end_piece(0);
    give_room();
    EXPECT_TRUE(has_started(message));
    EXPECT_EQ(uct.sent.size(), 1U);
}

TEST_F(SendQueuePart, a_control_message_that_is_added_goes_with_the_next_call_that_sends) {
    queue.add_control(Control::of(proto::Probe{}));
    EXPECT_TRUE(uct.sent.empty());
    EXPECT_TRUE(table.wants_wireup);
    Request& message = send();
    EXPECT_EQ(uct.sent.size(), 1U);
    EXPECT_TRUE(has_started(message));
}

TEST_F(SendQueuePart, a_reply_to_a_one_sided_operation_is_told_when_it_has_gone) {
    uct.room_for = 0;
    queue.push_control(Control::of(proto::RmaReply{}));
    EXPECT_EQ(gone_replies, 0U);
    give_room();
    EXPECT_EQ(gone_replies, 1U);
}

TEST_F(SendQueuePart, on_a_lane_that_has_failed_nothing_is_queued) {
    lane.state = EpState::kFailed;
    queue.push_control(Control::of(proto::Probe{}));
    queue.add_control(Control::of(proto::Probe{}));
    EXPECT_TRUE(queue.has_nothing());
}

TEST_F(SendQueuePart, once_this_side_has_asked_to_leave_control_messages_alone_go) {
    closing.open(nullptr);
    closing.begin();
    closing.closed();
    closing.on_bye();
    closing.leave();
    ASSERT_TRUE(closing.has_asked());
    Request& message = send();
    Request& move = transfer(100);
    queue.push_data(move);
    queue.push_control(Control::of(proto::Probe{}));
    EXPECT_FALSE(has_started(message));
    EXPECT_TRUE(uct.pieces.empty());
    EXPECT_EQ(uct.sent.size(), 1U);
    EXPECT_FALSE(queue.may_pass_urgently());
    closing.on_left(false);
    queue.run();
    EXPECT_TRUE(has_started(message));
    EXPECT_EQ(uct.pieces.size(), 1U);
    uct.end_piece(0);
}

// ---- Ends and failures amid a turn

TEST_F(SendQueuePart, an_operation_that_ends_may_queue_more_and_is_not_entered_twice) {
    lane.state = EpState::kConnecting;
    send();
    send();
    lane.state = EpState::kReady;
    bool is_in_message = false;
    on_start = [&](Request& request) {
        if (request.stream == Line::kUrgent)
            return;
        EXPECT_FALSE(std::exchange(is_in_message, true));
        send(TW_OP_URGENT);  // begins in its call, for it may pass
        queue.run();
        is_in_message = false;
    };
    queue.run();
    EXPECT_EQ(started, (std::vector{all[0], all[2], all[1], all[3]}));
    EXPECT_TRUE(queue.has_nothing());
}

TEST_F(SendQueuePart, a_lane_that_fails_amid_a_turn_sends_no_more) {
    lane.state = EpState::kConnecting;
    for (unsigned i = 0; i < 4; ++i)
        send();
    lane.state = EpState::kReady;
    on_start = [&](Request&) {
        lane.state = EpState::kFailed;
        lane.ep = nullptr;
    };
    queue.run();
    EXPECT_EQ(started.size(), 1U);
    EXPECT_EQ(queue.operations(), 3U);
    EXPECT_TRUE(uct.waiting.empty());
}

TEST_F(SendQueuePart, pending_requests_that_were_purged_are_made_anew) {
    Request& first = make();
    answer(first, UCS_ERR_NO_RESOURCE);
    submit(first);
    uct.waiting.clear();
    queue.disarm();
    queue.run();
    EXPECT_EQ(uct.waiting.size(), 1U);
}

TEST_F(SendQueuePart, every_change_tells_whether_the_fast_path_is_open) {
    unsigned updates = 0;
    peer.fake.on_update = [&] { ++updates; };
    lane.is_paused = true;
    send();
    EXPECT_GE(updates, 1U);
    updates = 0;
    lane.is_paused = false;
    queue.run();
    EXPECT_GE(updates, 1U);
}

}  // namespace
}  // namespace tagwire::test
