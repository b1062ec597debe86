// SPDX-License-Identifier: BSD-3-Clause
// Programs that were built with other versions of the headers than the library.
#include <gtest/gtest.h>
#include <tagwire.h>

#include <cstring>
#include <string>
#include <tagwire_msg.hpp>

namespace {

namespace msg = tagwire::msg;

// Programs of 0.1 have these compiled in. Fields are added behind these, or in the room.
static_assert(offsetof(tw_op_t, complete) == 24 && offsetof(tw_op_t, request) == 32);
static_assert(offsetof(tw_op_t, source) == 56 && offsetof(tw_op_t, info) == 64);
static_assert(offsetof(tw_completion_t, status) == 16 && offsetof(tw_completion_t, length) == 24);
static_assert(offsetof(tw_completion_t, source) == 64 && offsetof(tw_completion_t, message) == 80);
static_assert(sizeof(tw_completion_t) == 128 && sizeof(tw_iov_t) == 16);
static_assert(sizeof(tw_am_t) == 72 && offsetof(tw_am_t, message) == 56);
static_assert(sizeof(tw_worker_counter_t) == 48 && sizeof(tw_cost_sample_t) == 56);
static_assert(offsetof(tw_op_t, cq) == 72 && offsetof(tw_cq_params_t, capacity) == 8);
static_assert(offsetof(tw_context_params_t, tag_sender_mask) == 16);
static_assert(offsetof(tw_worker_params_t, peer_event_arg) == 40);
static_assert(offsetof(tw_worker_params_t, progress) == 72);
static_assert(offsetof(tw_worker_attr_t, endpoints) == 56);
static_assert(offsetof(tw_worker_limits_t, buffered_bytes_min) == 24);
static_assert(offsetof(tw_ep_params_t, user_data) == 24);
static_assert(offsetof(tw_mem_params_t, device) == 16 && offsetof(tw_mem_params_t, counter) == 24);

/// Calls `refused` and expects that the log has `text`.
void expect_refused(const char* text, auto refused) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(refused(), TW_ERR_INVALID_PARAM);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(text), std::string::npos) << log;
}

struct MsgSizes : ::testing::Test {
    /// Every call that takes a struct with a size, with structs of size() bytes.
    void expect_each_refused(const std::string& why, auto size) {
        tw_context_h context = nullptr;
        tw_worker_h worker = nullptr;
        tw_ep_h ep = nullptr;
        const auto address = worker_.address();
        tw_context_params_t context_params{};
        tw_worker_params_t worker_params{};
        tw_worker_attr_t attr{};
        tw_worker_limits_t limits{};
        tw_explanation_t told{};
        tw_cq_h cq = nullptr;
        tw_cq_params_t cq_params{};
        tw_ep_params_t ep_params{
            .address = address.data(), .address_length = address.size(), .user_data = nullptr};
        context_params.struct_bytes = size(sizeof context_params);
        worker_params.struct_bytes = size(sizeof worker_params);
        attr.struct_bytes = size(sizeof attr);
        limits.struct_bytes = size(sizeof limits);
        told.struct_bytes = size(sizeof told);
        ep_params.struct_bytes = size(sizeof ep_params);
        cq_params.struct_bytes = size(sizeof cq_params);
        tw_message_info_t info{};
        info.struct_bytes = size(sizeof info);
        expect_refused(("tw_tag_probe: info->struct_bytes is " + why).c_str(),
                       [&] { return tw_tag_probe(worker_.get(), 1, 0, nullptr, &info, nullptr); });
        expect_refused(("tw_msg_probe: info->struct_bytes is " + why).c_str(),
                       [&] { return tw_msg_probe(worker_.get(), nullptr, &info, nullptr); });
        tw_op_t op{};
        op.struct_bytes = size(sizeof op);
        expect_each_refused(why, op);
        expect_refused(("tw_cq_create: params->struct_bytes is " + why).c_str(),
                       [&] { return tw_cq_create(context_.get(), &cq_params, &cq); });
        expect_refused(("tw_context_create: params->struct_bytes is " + why).c_str(),
                       [&] { return tw_context_create(&context_params, &context); });
        expect_refused(("tw_worker_create: params->struct_bytes is " + why).c_str(),
                       [&] { return tw_worker_create(context_.get(), &worker_params, &worker); });
        expect_refused(("tw_worker_query: attr->struct_bytes is " + why).c_str(),
                       [&] { return tw_worker_query(worker_.get(), &attr); });
        expect_refused(("tw_worker_set_limits: limits->struct_bytes is " + why).c_str(),
                       [&] { return tw_worker_set_limits(worker_.get(), &limits); });
        expect_refused(("tw_ep_create: params->struct_bytes is " + why).c_str(),
                       [&] { return tw_ep_create(worker_.get(), &ep_params, &ep); });
        expect_refused(("tw_worker_explain: explanation->struct_bytes is " + why).c_str(), [&] {
            return tw_worker_explain(worker_.get(), "sm", 8, TW_BUFFER_PLAIN, &told);
        });
    }

    /// Every call that takes an operation, by each of its paths.
    void expect_each_refused(const std::string& why, const tw_op_t& op) {
        const msg::Endpoint self{worker_, worker_.address()};
        char text[8] = {};
        const tw_iov_t iov = {text, sizeof text};
        std::uint64_t number = 0;
        const msg::Memory memory{context_, std::as_writable_bytes(std::span(&number, 1))};
        const msg::RemoteMemory key{worker_, memory.pack()};
        const std::uint64_t at = memory.address();
        const tw_ep_h ep = self.get();
        const tw_worker_h worker = worker_.get();
        const auto refused = [&](const char* call, auto carry_out) {
            expect_refused((std::string(call) + ": op->struct_bytes is " + why).c_str(), carry_out);
        };
        refused("tw_tag_send", [&] { return tw_tag_send(ep, text, 8, 1, &op, nullptr); });
        refused("tw_tag_sendv", [&] { return tw_tag_sendv(ep, &iov, 1, 1, &op, nullptr); });
        refused("tw_msg_send", [&] { return tw_msg_send(ep, text, 8, &op, nullptr); });
        refused("tw_msg_sendv", [&] { return tw_msg_sendv(ep, &iov, 1, &op, nullptr); });
        refused("tw_am_send", [&] { return tw_am_send(ep, 1, nullptr, 0, text, 8, &op, nullptr); });
        refused("tw_am_sendv",
                [&] { return tw_am_sendv(ep, 1, nullptr, 0, &iov, 1, &op, nullptr); });
        refused("tw_tag_recv", [&] { return tw_tag_recv(worker, text, 8, 1, 0, &op, nullptr); });
        refused("tw_tag_recvv", [&] { return tw_tag_recvv(worker, &iov, 1, 1, 0, &op, nullptr); });
        refused("tw_msg_recv", [&] { return tw_msg_recv(worker, text, 8, &op, nullptr); });
        refused("tw_msg_recvv", [&] { return tw_msg_recvv(worker, &iov, 1, &op, nullptr); });
        refused("tw_msg_recv_multi",
                [&] { return tw_msg_recv_multi(worker, text, 8, &op, nullptr); });
        refused("tw_tag_recv_buffered",
                [&] { return tw_tag_recv_buffered(worker, 1, 0, &op, nullptr); });
        refused("tw_msg_recv_buffered", [&] { return tw_msg_recv_buffered(worker, &op, nullptr); });
        refused("tw_msg_recv_buffered_multi",
                [&] { return tw_msg_recv_buffered_multi(worker, &op, nullptr); });
        refused("tw_put", [&] { return tw_put(ep, text, 8, at, key.key(), &op, nullptr); });
        refused("tw_putv", [&] { return tw_putv(ep, &iov, 1, at, key.key(), &op, nullptr); });
        refused("tw_get", [&] { return tw_get(ep, text, 8, at, key.key(), &op, nullptr); });
        refused("tw_getv", [&] { return tw_getv(ep, &iov, 1, at, key.key(), &op, nullptr); });
        refused("tw_atomic", [&] {
            return tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, text, at, key.key(), &op, nullptr);
        });
        tw_list_t list{};
        tw_prepared_h prepared = nullptr;
        ASSERT_EQ(tw_prepare(worker, TW_RMA_PUT, &list, &prepared), TW_OK);
        refused("tw_put_list", [&] { return tw_put_list(ep, &list, &op, nullptr); });
        refused("tw_get_list", [&] { return tw_get_list(ep, &list, &op, nullptr); });
        refused("tw_run_prepared", [&] { return tw_run_prepared(ep, prepared, &op, nullptr); });
        tw_prepared_free(prepared);
        refused("tw_worker_flush",
                [&] { return tw_worker_flush(worker, TW_FLUSH_SENT, &op, nullptr); });
        refused("tw_ep_flush", [&] { return tw_ep_flush(ep, TW_FLUSH_DELIVERED, &op, nullptr); });
        refused("tw_ep_close", [&] { return tw_ep_close(ep, TW_FLUSH_DELIVERED, &op, nullptr); });
    }

    msg::Context context_{"sm"};
    msg::Worker worker_{context_};
};

TEST_F(MsgSizes, the_library_has_the_version_of_its_headers) {
    EXPECT_EQ(tw_version(), unsigned{TW_VERSION});
    EXPECT_EQ(tw_version_string(), std::to_string(TW_VERSION_MAJOR) + "." +
                                       std::to_string(TW_VERSION_MINOR) + "." +
                                       std::to_string(TW_VERSION_PATCH));
    static_assert(TW_MAKE_VERSION(0, 2, 0) > TW_VERSION && TW_VERSION < TW_MAKE_VERSION(1, 0, 0));
}

TEST_F(MsgSizes, a_struct_that_does_not_tell_its_size_is_refused) {
    expect_each_refused("0, which is not set or not valid",
                        [](std::size_t) { return std::size_t{0}; });
    expect_each_refused("", [](std::size_t bytes) { return bytes - 1; });
}

TEST_F(MsgSizes, a_struct_of_later_headers_is_refused) {
    expect_each_refused("", [](std::size_t bytes) { return bytes + sizeof(void*); });
    tw_worker_attr_t attr{};
    attr.struct_bytes = 4096;
    expect_refused(
        "4096, but this library, 0.1.0, supports 72 bytes: the program was built with newer",
        [&] { return tw_worker_query(worker_.get(), &attr); });
}

TEST_F(MsgSizes, of_older_headers_the_fields_that_they_have_are_read_and_written) {
    tw_context_params_t params{};
    params.transports = "sm";
    params.tag_sender_mask = 0xbad;
    params.struct_bytes = offsetof(tw_context_params_t, tag_sender_mask);
    tw_context_h context = nullptr;
    ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
    tw_context_destroy(context);

    constexpr std::size_t kBeyond = 0x5a5a5a5a;
    tw_worker_attr_t attr{};
    attr.multi_recv_bytes_min = attr.endpoints = kBeyond;
    attr.struct_bytes = offsetof(tw_worker_attr_t, multi_recv_bytes_min);
    ASSERT_EQ(tw_worker_query(worker_.get(), &attr), TW_OK);
    EXPECT_EQ(attr.struct_bytes, offsetof(tw_worker_attr_t, multi_recv_bytes_min));
    EXPECT_NE(attr.id, 0U);
    EXPECT_NE(attr.inject_bytes_max, 0U);
    EXPECT_EQ(attr.multi_recv_bytes_min, kBeyond);
    EXPECT_EQ(attr.endpoints, kBeyond);

    tw_worker_limits_t limits{};
    limits.multi_recv_bytes_min = 77;
    limits.buffered_bytes_limit = limits.buffered_bytes_min = SIZE_MAX;
    limits.struct_bytes = offsetof(tw_worker_limits_t, buffered_bytes_limit);
    ASSERT_EQ(tw_worker_set_limits(worker_.get(), &limits), TW_OK);
    EXPECT_EQ(worker_.attr().multi_recv_bytes_min, 77U);
}

TEST_F(MsgSizes, the_room_of_a_completion_is_not_written) {
    const msg::Endpoint self{worker_, worker_.address()};
    tw_completion_t done[3];
    std::memset(done, 0x5a, sizeof done);
    char text[8] = {};
    tw_request_h tested = nullptr;
    tw_op_t polled{};
    polled.flags = TW_OP_COMPLETION;
    ASSERT_EQ(tw_tag_recv(worker_.get(), text, sizeof text, 1, 0, nullptr, &tested), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_recv(worker_.get(), text, sizeof text, 2, 0, &polled, nullptr), TW_INPROGRESS);
    for (const std::uint64_t tag : {std::uint64_t{1}, std::uint64_t{2}})
        ASSERT_GE(tw_tag_send(self.get(), "hi", 2, tag, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_request_wait(tested, TW_WAIT_YIELD, UINT64_MAX, &done[0]), TW_OK);
    tw_request_free(tested);
    while (tw_worker_poll(worker_.get(), &done[1], 1) == 0)
        tw_worker_progress(worker_.get());
    tw_request_h waiting = nullptr;
    ASSERT_EQ(tw_tag_recv(worker_.get(), text, sizeof text, 3, 0, nullptr, &waiting),
              TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(self.get(), "hi", 2, 3, nullptr, nullptr), TW_OK);
    while (tw_request_test(waiting, &done[2]) == TW_INPROGRESS)
        tw_worker_progress(worker_.get());
    tw_request_free(waiting);
    for (const tw_completion_t& end : done) {
        EXPECT_EQ(end.message_length, 2U);
        for (const std::uint64_t word : end.reserved)
            EXPECT_EQ(word, 0x5a5a5a5a5a5a5a5aU);
    }
}

}  // namespace
