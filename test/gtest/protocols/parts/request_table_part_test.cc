// SPDX-License-Identifier: BSD-3-Clause
// The table of requests alone: every way by which a program hears of an end, and pools that are
// used up.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/completion/completion_counter.hpp"
#include "protocols/parts/request_part.hpp"
#include "protocols/wire/am_part.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::Request;
using proto::RequestKind;

/// Ends that callbacks were told of, in order.
struct ToldEnds {
    FakeRequestWorker* worker = nullptr;
    std::vector<tw_completion_t> all;
    Request* ends_next = nullptr;  // by the first callback
};

void note_end(const tw_completion_t* done) {
    auto& told = *static_cast<ToldEnds*>(done->context);
    told.all.push_back(*done);
    if (told.worker != nullptr && told.ends_next != nullptr)
        told.worker->finish(*std::exchange(told.ends_next, nullptr), UCS_OK);
}

tw_op_t with_callback(ToldEnds& told) {
    tw_op_t op{};
    op.complete = note_end;
    op.context = &told;
    return op;
}

tw_op_t with_flags(std::uint32_t flags) {
    tw_op_t op{};
    op.flags = flags;
    return op;
}

class RequestTablePart : public testing::Test {
  protected:
    /// An operation whose call has returned TW_INPROGRESS.
    Request* begin(const tw_op_t& op, RequestKind kind = RequestKind::kSend,
                   tw_request_h* request_p = nullptr) {
        Request* request = table_.make(kind, &op, request_p);
        EXPECT_NE(request, nullptr);
        EXPECT_EQ(table_.answer(*request, &op, request_p), TW_INPROGRESS);
        return request;
    }

    void TearDown() override {
        table_.clear();
        EXPECT_EQ(table_.in_use(), 0U);
        EXPECT_EQ(worker_.notices, 0U);
    }

    FakeRequestWorker worker_;
    proto::RequestTable& table_ = worker_.table;
};

// ---- Ends

TEST_F(RequestTablePart, one_that_ends_in_its_call_is_answered_by_that) {
    for (const ucs_status_t status : {UCS_OK, UCS_ERR_CANCELED}) {
        tw_op_t op{};
        Request* request = table_.make(RequestKind::kSend, &op, nullptr);
        worker_.finish(*request, status);
        EXPECT_EQ(table_.answer(*request, &op, nullptr), static_cast<tw_status_t>(status));
        EXPECT_EQ(table_.in_use(), 0U);
    }
    EXPECT_FALSE(table_.has_completions());
}

TEST_F(RequestTablePart, a_receive_that_ends_in_its_call_tells_of_its_message) {
    for (const ucs_status_t status : {UCS_OK, UCS_ERR_MESSAGE_TRUNCATED, UCS_ERR_CANCELED}) {
        tw_message_info_t info{};
        tw_op_t op{};
        op.info = &info;
        Request* request = table_.make(RequestKind::kReceive, &op, nullptr);
        request->done.tag = 7;
        request->done.message_length = 100;
        request->done.length = 10;
        worker_.finish(*request, status);
        EXPECT_EQ(table_.answer(*request, &op, nullptr), static_cast<tw_status_t>(status));
        const bool is_told = status != UCS_ERR_CANCELED;
        EXPECT_EQ(info.tag, is_told ? 7U : 0U);
        EXPECT_EQ(info.length, is_told ? 100U : 0U);
        EXPECT_EQ(info.struct_bytes, sizeof info);
    }
}

TEST_F(RequestTablePart, of_an_older_info_the_fields_that_it_has_are_written) {
    tw_message_info_t info{};
    info.struct_bytes = offsetof(tw_message_info_t, imm);
    info.imm = 5;
    tw_op_t op{};
    op.info = &info;
    Request* request = table_.make(RequestKind::kReceive, &op, nullptr);
    request->done.tag = 7;
    request->done.imm = 9;
    worker_.finish(*request, UCS_OK);
    EXPECT_EQ(table_.answer(*request, &op, nullptr), TW_OK);
    EXPECT_EQ(info.tag, 7U);
    EXPECT_EQ(info.imm, 5U);
}

TEST_F(RequestTablePart, a_buffered_receive_is_reported_though_it_ends_in_its_call) {
    const tw_op_t op = with_flags(0);
    tw_request_h handle = nullptr;
    Request* request = table_.make(RequestKind::kReceive, &op, &handle);
    request->flags |= proto::kBufferedReceive;
    worker_.finish(*request, UCS_OK);
    EXPECT_EQ(table_.answer(*request, &op, &handle), TW_INPROGRESS);
    ASSERT_EQ(handle, request);
    tw_completion_t done{};
    EXPECT_EQ(request->test(&done), TW_OK);
    table_.abandon(*request);
}

TEST_F(RequestTablePart, callbacks_are_told_in_the_order_of_the_ends_and_by_tell_ends_alone) {
    ToldEnds told;
    const tw_op_t op = with_callback(told);
    std::array<Request*, 3> requests{};
    for (Request*& each : requests)
        each = begin(op);
    for (const std::size_t i : {2U, 0U, 1U})
        worker_.finish(*requests[i], UCS_OK);
    EXPECT_TRUE(told.all.empty());
    EXPECT_TRUE(worker_.attention.has_deferred());
    EXPECT_EQ(table_.told_and_deferred() - table_.told(), 3U);
    EXPECT_EQ(table_.tell_ends(), 3U);
    EXPECT_FALSE(worker_.attention.has_deferred());
    ASSERT_EQ(told.all.size(), 3U);
    EXPECT_EQ(told.all[0].request, requests[2]);
    EXPECT_EQ(told.all[1].request, requests[0]);
    EXPECT_EQ(told.all[2].request, requests[1]);
    EXPECT_EQ(table_.told(), table_.told_and_deferred());
    EXPECT_EQ(worker_.left + worker_.entered, 0U);  // a worker of one thread has no lock
}

TEST_F(RequestTablePart, an_end_that_a_callback_brings_about_is_told_by_the_next_call) {
    ToldEnds told{.worker = &worker_, .all = {}};
    const tw_op_t op = with_callback(told);
    Request* first = begin(op);
    told.ends_next = begin(op);
    worker_.finish(*first, UCS_OK);
    EXPECT_EQ(table_.tell_ends(), 1U);
    EXPECT_TRUE(worker_.attention.has_deferred());
    EXPECT_EQ(table_.tell_ends(), 1U);
    EXPECT_EQ(told.all.size(), 2U);
}

TEST_F(RequestTablePart, an_end_that_the_library_brings_about_is_told_by_the_call_that_tells_it) {
    ToldEnds own{.worker = &worker_, .all = {}}, told;
    own.ends_next = begin(with_callback(told));
    Request* internal = table_.make_internal(RequestKind::kRma, with_callback(own));
    worker_.finish(*internal, UCS_OK);
    EXPECT_EQ(table_.tell_ends(), 1U);  // the library's own does not count
    EXPECT_EQ(own.all.size(), 1U);
    EXPECT_EQ(told.all.size(), 1U);
}

TEST(RequestTableLock, callbacks_of_the_program_run_without_the_lock_and_others_with_it) {
    FakeRequestWorker worker(true);
    ToldEnds told;
    const tw_op_t op = with_callback(told);
    Request* request = worker.table.make(RequestKind::kSend, &op, nullptr);
    EXPECT_EQ(worker.table.answer(*request, &op, nullptr), TW_INPROGRESS);
    worker.finish(*request, UCS_OK);
    EXPECT_EQ(worker.table.tell_ends(), 1U);
    EXPECT_EQ(worker.left, 1U);
    EXPECT_EQ(worker.entered, 1U);
    worker.finish(*worker.table.make_internal(RequestKind::kRma, op), UCS_OK);
    EXPECT_EQ(worker.table.tell_ends(), 0U);
    EXPECT_EQ(told.all.size(), 2U);
    EXPECT_EQ(worker.left, 1U);
}

TEST(RequestTableLock, the_callback_of_a_kept_operation_has_room_for_what_follows_it) {
    FakeRequestWorker worker(true);
    tw_op_t op = with_flags(TW_OP_QUEUE);
    op.context = &worker;
    op.complete = [](const tw_completion_t* done) {
        auto& own = *static_cast<FakeRequestWorker*>(done->context);
        EXPECT_EQ(own.table.extras(), kTableExtras - 1);
        const tw_op_t next = with_flags(TW_OP_QUEUE);
        Request* request = own.table.make(RequestKind::kSend, &next, nullptr);
        ASSERT_NE(request, nullptr);
        EXPECT_NE(request, done->request);
        own.finish(*request, UCS_OK);
        EXPECT_EQ(own.table.answer(*request, &next, nullptr), TW_OK);
    };
    std::vector<Request*> all;
    for (unsigned i = 0; i < kTableRequests + kTableExtras; ++i) {
        all.push_back(worker.table.make(RequestKind::kSend, &op, nullptr));
        EXPECT_EQ(worker.table.answer(*all.back(), &op, nullptr), TW_INPROGRESS);
    }
    worker.finish(*all.back(), UCS_OK);
    EXPECT_EQ(worker.table.tell_ends(), 1U);
    all.pop_back();
    worker.table.silence();
    for (Request* each : all)
        worker.finish(*each, UCS_OK);
    worker.table.clear();
    EXPECT_EQ(worker.table.in_use(), 0U);
}

TEST_F(RequestTablePart, completions_are_polled_in_order_as_many_as_are_asked_for) {
    const tw_op_t op = with_flags(TW_OP_COMPLETION);
    std::array<Request*, 3> requests{};
    for (Request*& each : requests) {
        each = begin(op);
        worker_.finish(*each, UCS_OK);
    }
    std::array<tw_completion_t, 4> done{};
    EXPECT_EQ(table_.poll(done.data(), 2), 2U);
    EXPECT_EQ(done[0].request, requests[0]);
    EXPECT_EQ(done[1].request, requests[1]);
    EXPECT_TRUE(table_.has_completions());
    EXPECT_EQ(table_.poll(done.data(), 4), 1U);
    EXPECT_FALSE(table_.has_completions());
}

TEST_F(RequestTablePart, without_a_callback_only_failures_are_polled_and_not_those_of_a_close) {
    worker_.finish(*begin(with_flags(0)), UCS_OK);
    worker_.finish(*begin(with_flags(0), RequestKind::kClose), UCS_ERR_CANCELED);
    EXPECT_FALSE(table_.has_completions());
    worker_.finish(*begin(with_flags(0)), UCS_ERR_CANCELED);
    tw_completion_t done{};
    EXPECT_EQ(table_.poll(&done, 1), 1U);
    EXPECT_EQ(done.status, TW_ERR_CANCELED);
}

TEST_F(RequestTablePart, one_that_is_tested_stays_until_the_program_releases_it) {
    tw_request_h handle = nullptr;
    Request* request = begin(with_flags(0), RequestKind::kSend, &handle);
    ASSERT_EQ(handle, request);
    EXPECT_EQ(request->test(nullptr), TW_INPROGRESS);
    worker_.finish(*request, UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(request->test(nullptr), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(table_.in_use(), 1U);
    table_.abandon(*request);
    EXPECT_EQ(table_.in_use(), 0U);
    // The other order.
    request = begin(with_flags(0), RequestKind::kSend, &handle);
    table_.abandon(*request);
    EXPECT_EQ(table_.in_use(), 1U);
    worker_.finish(*request, UCS_OK);
    EXPECT_EQ(table_.in_use(), 0U);
}

TEST_F(RequestTablePart, a_counter_counts_each_end_once_however_it_is_told) {
    proto::CompletionCounter counter;
    tw_op_t op = with_flags(0);
    op.counter = &counter;
    worker_.finish(*begin(op), UCS_OK);
    ToldEnds told;
    tw_op_t with_both = with_callback(told);
    with_both.counter = &counter;
    worker_.finish(*begin(with_both), UCS_ERR_CANCELED);
    EXPECT_EQ(counter.successes(), 1U);
    EXPECT_EQ(counter.failures(), 0U);
    table_.tell_ends();
    EXPECT_EQ(counter.failures(), 1U);
    Request* in_call = table_.make(RequestKind::kSend, &op, nullptr);
    worker_.finish(*in_call, UCS_OK);
    EXPECT_EQ(table_.answer(*in_call, &op, nullptr), TW_OK);
    EXPECT_EQ(counter.successes(), 2U);
}

TEST_F(RequestTablePart, a_silent_table_tells_the_library_alone) {
    ToldEnds own, told;
    Request* request = begin(with_callback(told));
    Request* polled = begin(with_flags(TW_OP_COMPLETION));
    Request* internal = table_.make_internal(RequestKind::kRma, with_callback(own));
    table_.silence();
    for (Request* each : {request, polled, internal})
        worker_.finish(*each, UCS_ERR_CANCELED);
    EXPECT_EQ(own.all.size(), 1U);
    EXPECT_EQ(table_.tell_ends(), 0U);
    EXPECT_TRUE(told.all.empty());
    EXPECT_EQ(table_.in_use(), 0U);
}

TEST_F(RequestTablePart, what_nobody_has_asked_for_goes_with_the_table) {
    ToldEnds told;
    worker_.finish(*begin(with_callback(told)), UCS_OK);
    worker_.finish(*begin(with_flags(TW_OP_COMPLETION)), UCS_OK);
    tw_request_h handle = nullptr;
    worker_.finish(*begin(with_flags(0), RequestKind::kSend, &handle), UCS_OK);
    table_.silence();
    table_.clear();
    EXPECT_EQ(table_.in_use(), 0U);
    EXPECT_TRUE(told.all.empty());
}

TEST_F(RequestTablePart, receives_name_no_endpoint_that_is_closed_and_sends_do) {
    ToldEnds told;
    auto* const ep = reinterpret_cast<tw_ep_h>(&told);
    auto* const other = reinterpret_cast<tw_ep_h>(&worker_);
    for (const RequestKind kind : {RequestKind::kReceive, RequestKind::kSend}) {
        for (const tw_ep_h each : {ep, other}) {
            Request* request = begin(with_callback(told), kind);
            request->done.ep = each;
            worker_.finish(*request, UCS_OK);
        }
    }
    table_.forget(ep);
    std::size_t waiting = 0;
    table_.visit_deferred([&](const Request&) { ++waiting; });
    EXPECT_EQ(waiting, 4U);
    table_.tell_ends();
    ASSERT_EQ(told.all.size(), 4U);
    EXPECT_EQ(told.all[0].ep, nullptr);
    EXPECT_EQ(told.all[1].ep, other);
    EXPECT_EQ(told.all[2].ep, ep);
    EXPECT_EQ(told.all[3].ep, other);
}

// ---- Notices, parts, transmissions

TEST_F(RequestTablePart, a_notice_is_in_the_budget_until_it_is_polled) {
    tw_completion_t notice{};
    notice.length = 77;
    EXPECT_TRUE(table_.add_notice(notice));
    EXPECT_EQ(worker_.notices, 1U);
    tw_completion_t done{};
    EXPECT_EQ(table_.poll(&done, 1), 1U);
    EXPECT_EQ(done.length, 77U);
    EXPECT_EQ(worker_.notices, 0U);
    EXPECT_TRUE(table_.add_notice(notice));  // that goes with the table
}

TEST_F(RequestTablePart, a_part_of_a_multi_receive_has_the_rest_of_the_buffer) {
    std::array<std::byte, 100> buffer{};
    Request* parent = begin(with_flags(TW_OP_COMPLETION), RequestKind::kReceive);
    ASSERT_TRUE(table_.set_buffer(*parent, buffer.data(), buffer.size(), nullptr, 0, nullptr));
    parent->offset = 40;
    Request* part = table_.make_part(*parent);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->buffer.base, buffer.data() + 40);
    EXPECT_EQ(part->buffer.length, 60U);
    EXPECT_EQ(parent->children, 1U);
    worker_.finish(*part, UCS_OK);
    tw_completion_t done{};
    EXPECT_EQ(table_.poll(&done, 1), 1U);
    EXPECT_EQ(done.request, parent);
    EXPECT_EQ(done.buffer, buffer.data() + 40);
    worker_.finish(*parent, UCS_OK);
}

TEST_F(RequestTablePart, a_transmission_outlives_its_request) {
    Request* request = begin(with_flags(0));
    proto::Transmission* transmission = table_.make_transmission(*request);
    ASSERT_NE(transmission, nullptr);
    request->transmission = transmission;
    transmission->status = UCS_ERR_CONNECTION_RESET;
    transmission->func(transmission);
    EXPECT_EQ(request->transmission, nullptr);
    EXPECT_EQ(worker_.transmitted, (std::vector{std::pair{request, UCS_ERR_CONNECTION_RESET}}));
    transmission = table_.make_transmission(*request);
    transmission->request = nullptr;  // that has ended
    worker_.finish(*request, UCS_OK);
    transmission->func(transmission);
    EXPECT_EQ(worker_.transmitted.size(), 1U);
}

TEST_F(RequestTablePart, a_one_sided_operation_lets_go_of_what_it_was_made_with) {
    Request* request = begin(with_flags(0), RequestKind::kRma);
    request->rma = reinterpret_cast<proto::RmaOp*>(this);
    worker_.finish(*request, UCS_OK);
    EXPECT_EQ(worker_.rma_ends, std::vector{request});
}

// ---- Memory

TEST_F(RequestTablePart, a_pool_that_is_used_up_refuses_and_goes_on_behind_that) {
    std::vector<Request*> all;
    for (unsigned i = 0; i < kTableRequests; ++i)
        all.push_back(begin(with_flags(0)));
    EXPECT_FALSE(table_.has_free());
    EXPECT_FALSE(table_.keep_free(1));
    EXPECT_EQ(table_.make(RequestKind::kSend, nullptr, nullptr), nullptr);
    alignas(Request) std::array<std::byte, sizeof(Request)> memory{};
    tw_op_t op{};
    op.request = memory.data();
    Request* foreign = begin(op);
    EXPECT_EQ(static_cast<void*>(foreign), memory.data());
    worker_.finish(*foreign, UCS_OK);
    worker_.finish(*all.back(), UCS_OK);
    EXPECT_TRUE(table_.keep_free(1));
    all.back() = begin(with_flags(0));
    for (Request* each : all)
        worker_.finish(*each, UCS_OK);
}

TEST_F(RequestTablePart, the_flag_queue_keeps_operations_beyond_the_pool_up_to_a_bound) {
    const tw_op_t plain = with_flags(0), kept = with_flags(TW_OP_QUEUE);
    std::vector<Request*> all;
    for (unsigned i = 0; i < kTableRequests; ++i)
        all.push_back(begin(kept));
    EXPECT_EQ(table_.extras(), 0U);  // there was room
    EXPECT_EQ(table_.make(RequestKind::kSend, &plain, nullptr), nullptr);
    for (unsigned i = 0; i < kTableExtras; ++i)
        all.push_back(begin(kept));
    EXPECT_EQ(table_.extras(), kTableExtras);
    EXPECT_EQ(table_.in_use(), kTableRequests + kTableExtras);
    EXPECT_EQ(table_.make(RequestKind::kSend, &kept, nullptr), nullptr);
    EXPECT_EQ(worker_.extras, kTableExtras);
    // One that ends makes room for one.
    worker_.finish(*all.back(), UCS_OK);
    EXPECT_EQ(table_.extras(), kTableExtras - 1);
    all.back() = begin(kept);
    EXPECT_EQ(table_.make(RequestKind::kSend, &kept, nullptr), nullptr);
    for (Request* each : all)
        worker_.finish(*each, UCS_OK);
    EXPECT_EQ(table_.extras(), 0U);
    EXPECT_EQ(worker_.extras, kTableExtras + 1);
    EXPECT_TRUE(table_.has_free());
}

TEST_F(RequestTablePart, an_operation_that_is_refused_for_another_reason_is_kept_likewise) {
    const tw_op_t plain = with_flags(0), kept = with_flags(TW_OP_QUEUE);
    EXPECT_EQ(table_.make(RequestKind::kSend, &plain, nullptr, true), nullptr);
    alignas(Request) std::array<std::byte, sizeof(Request)> memory{};
    tw_op_t foreign = kept;
    foreign.request = memory.data();
    std::vector<Request*> all;
    for (const tw_op_t& op : {kept, kept, foreign}) {
        all.push_back(table_.make(RequestKind::kSend, &op, nullptr, true));
        ASSERT_NE(all.back(), nullptr);
        EXPECT_EQ(table_.answer(*all.back(), &op, nullptr), TW_INPROGRESS);
    }
    EXPECT_EQ(static_cast<void*>(all.back()), memory.data());
    EXPECT_EQ(table_.make(RequestKind::kSend, &foreign, nullptr, true), nullptr);
    for (Request* each : all)
        worker_.finish(*each, UCS_OK);
    EXPECT_EQ(table_.extras(), 0U);
}

TEST_F(RequestTablePart, the_flag_queue_finds_copies_and_headers_beyond_their_pools) {
    std::array<std::byte, 8> data{};
    proto::AmPart am{};
    am.header = data.data();
    am.header_bytes = data.size();
    alignas(Request) static std::array<std::byte[sizeof(Request)], kTableRequests + kTableExtras>
        memory{};
    std::vector<Request*> all;
    for (unsigned i = 0; i < kTableRequests + kTableExtras; ++i) {
        tw_op_t op = with_flags(TW_OP_INJECT | TW_OP_QUEUE);
        op.request = &memory[i];
        data.fill(static_cast<std::byte>(i));
        Request* request = begin(op);
        EXPECT_TRUE(table_.set_buffer(*request, data.data(), data.size(), nullptr, 0, nullptr));
        EXPECT_TRUE(table_.set_am(*request, am));
        EXPECT_NE(table_.copy_of(*request), nullptr);
        all.push_back(request);
    }
    EXPECT_EQ(table_.extras(), kTableExtras);
    for (unsigned i = 0; i < all.size(); ++i) {
        data.fill(static_cast<std::byte>(i));
        EXPECT_EQ(std::memcmp(all[i]->am_header, data.data(), data.size()), 0);
        EXPECT_EQ(std::memcmp(all[i]->copy, data.data(), data.size()), 0);
    }
    alignas(Request) std::array<std::byte, sizeof(Request)> last{};
    tw_op_t op = with_flags(TW_OP_INJECT | TW_OP_QUEUE);
    op.request = last.data();
    all.push_back(begin(op));
    EXPECT_TRUE(table_.set_buffer(*all.back(), data.data(), data.size(), nullptr, 0, nullptr));
    EXPECT_FALSE(table_.set_am(*all.back(), am));
    EXPECT_EQ(table_.copy_of(*all.back()), nullptr);
    for (Request* each : all)
        worker_.finish(*each, UCS_OK);
    EXPECT_EQ(table_.extras(), 0U);
}

TEST_F(RequestTablePart, a_kept_operation_counts_until_it_was_polled_or_released) {
    std::vector<Request*> all;
    for (unsigned i = 0; i < kTableRequests; ++i)
        all.push_back(begin(with_flags(0)));
    tw_request_h handle = nullptr;
    Request* polled = begin(with_flags(TW_OP_QUEUE | TW_OP_COMPLETION));
    Request* tested = begin(with_flags(TW_OP_QUEUE), RequestKind::kSend, &handle);
    worker_.finish(*polled, UCS_OK);
    worker_.finish(*tested, UCS_OK);
    EXPECT_EQ(table_.extras(), 2U);
    tw_completion_t done{};
    EXPECT_EQ(table_.poll(&done, 1), 1U);
    EXPECT_EQ(table_.extras(), 1U);
    EXPECT_EQ(tested->test(&done), TW_OK);
    table_.abandon(*tested);
    EXPECT_EQ(table_.extras(), 0U);
    for (Request* each : all)
        worker_.finish(*each, UCS_OK);
}

TEST_F(RequestTablePart, an_injected_message_has_one_copy_and_what_it_was_copied_from_goes) {
    std::array<std::byte, 8> data{};
    data.fill(std::byte{7});
    const std::array<tw_iov_t, 2> list{{{data.data(), 3}, {data.data() + 3, 5}}};
    std::vector<Request*> all;
    for (unsigned i = 0; i < kTableRequests; ++i) {
        Request* request = begin(with_flags(TW_OP_INJECT));
        ASSERT_TRUE(table_.set_buffer(*request, nullptr, 8, list.data(), list.size(), nullptr));
        ASSERT_NE(table_.copy_of(*request), nullptr);
        EXPECT_EQ(table_.copy_of(*request), request->copy);
        EXPECT_EQ(request->buffer.list, nullptr);
        EXPECT_EQ(std::memcmp(request->buffer.base, data.data(), data.size()), 0);
        all.push_back(request);
    }
    alignas(Request) std::array<std::byte, sizeof(Request)> memory{};
    tw_op_t op{};
    op.request = memory.data();
    Request* foreign = begin(op);
    ASSERT_TRUE(table_.set_buffer(*foreign, data.data(), data.size(), nullptr, 0, nullptr));
    EXPECT_EQ(table_.copy_of(*foreign), nullptr);  // the copies are used up
    EXPECT_EQ(foreign->buffer.base, data.data());
    all.push_back(foreign);
    for (Request* each : all)
        worker_.finish(*each, UCS_OK);
}

TEST_F(RequestTablePart, the_header_of_an_active_message_is_copied) {
    const std::uint32_t header = 0x12345678;
    proto::AmPart am{};
    am.header = &header;
    am.header_bytes = sizeof header;
    Request* request = begin(with_flags(0));
    ASSERT_TRUE(table_.set_am(*request, am));
    EXPECT_TRUE(request->is_am);
    EXPECT_EQ(std::memcmp(request->am_header, &header, sizeof header), 0);
    worker_.finish(*request, UCS_OK);
}

TEST_F(RequestTablePart, a_peer_that_names_any_request_finds_those_alone_that_have_an_id) {
    Request* request = begin(with_flags(0));
    EXPECT_EQ(table_.find(0), nullptr);
    const std::uint32_t id = table_.assign_id(*request);
    ASSERT_NE(id, 0U);
    for (std::uint32_t other : {id + 1, id ^ 0x8000'0000U, UINT32_MAX, 0U})
        EXPECT_EQ(table_.find(other), nullptr);
    EXPECT_EQ(table_.find(id), request);
    worker_.finish(*request, UCS_OK);
    EXPECT_EQ(table_.find(id), nullptr);
}

TEST(RequestTableMemory, whatever_has_no_memory_is_refused_and_nothing_is_lost) {
    ASSERT_TRUE(ucs::reserve_open());
    for (unsigned long which = 1; which < 20; ++which) {
        FakeRequestWorker worker;
        proto::RequestTable& table = worker.table;
        std::array<std::byte, 8> data{};
        const tw_iov_t piece{data.data(), data.size()};
        proto::AmPart am{};
        am.header = data.data();
        am.header_bytes = data.size();
        Request* request = nullptr;
        bool is_noted = false;
        proto::Transmission* transmission = nullptr;
        {
            const FailingAllocation failing(which);
            request = table.make(RequestKind::kSend, nullptr, nullptr);
            if (request != nullptr && table.set_buffer(*request, nullptr, 8, &piece, 1, nullptr) &&
                table.set_am(*request, am) && table.copy_of(*request) != nullptr)
                transmission = table.make_transmission(*request);
            is_noted = table.add_notice({});
        }
        EXPECT_EQ(worker.notices, is_noted ? 1U : 0U) << which;
        if (transmission != nullptr)
            table.release(*transmission);
        if (request != nullptr)
            table.release(*request);
        table.clear();
        EXPECT_EQ(table.in_use(), 0U) << which;
        EXPECT_EQ(worker.notices, 0U);
    }
}

}  // namespace
}  // namespace tagwire::test
