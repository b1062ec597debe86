// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous of buffers that the sender lends, where the lane's transport can: the data is read
// without a registration, whatever the receive is. Elsewhere the same messages go as ever.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLentLengths[] = {1024,  2048,  4095,   16384,
                                        40000, 65536, 300000, (std::size_t{2} << 20) + 3};
constexpr std::size_t kLentLength = 40000;
constexpr std::size_t kLongMessage = 300000;

class MsgLent : private Settings, public MsgTest {
  protected:
    MsgLent() : Settings({{"TAGWIRE_RNDV_THRESHOLD", "1k"}}) {}

    static bool is_lending() {
        const char* const cma = std::getenv("TAGWIRE_SM_CMA");
        return lane_transport() == "sm" && (cma == nullptr || std::string(cma) != "off");
    }
    void connect() {
        send(node(0), node(1), {}, 9);
        expect_message(node(1), {}, 9);
        send(node(1), node(0), {}, 9);
        expect_message(node(0), {}, 9);
        run_some();
    }
    void expect_lent(std::uint64_t messages) {
        if (is_lending()) {
            EXPECT_EQ(messages, node(1).counter("rndv_lent"));
        }
    }
    /// A receive of nothing but a buffer, whose end is told by a callback.
    struct Plain {
        explicit Plain(std::size_t length) : buffer(length, std::byte{0xee}) {}
        tw_status_t post(Node& at, std::uint64_t tag, bool is_tagged = true) {
            tw_op_t how{};
            how.context = this;
            how.complete = [](const tw_completion_t* told) {
                auto& self = *static_cast<Plain*>(told->context);
                self.done = *told;
                ++self.calls;
            };
            return is_tagged
                       ? tw_tag_recv(at.worker(), buffer.data(), buffer.size(), tag, 0, &how,
                                     nullptr)
                       : tw_msg_recv(at.worker(), buffer.data(), buffer.size(), &how, nullptr);
        }
        Bytes buffer;
        tw_completion_t done{};
        int calls = 0;
    };
    tw_status_t begin(const Bytes& data, std::uint64_t tag, int* mark) {
        const tw_op_t how = op(mark);
        return tw_tag_send(node(0).to(node(1)), data.data(), data.size(), tag, &how, nullptr);
    }
};

TEST_F(MsgLent, plain_receives_get_messages_of_all_lengths) {
    connect();
    for (const std::size_t length : kLentLengths) {
        const Bytes data = pattern(length, length);
        Plain receive(length);
        int sent = 0;
        ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 5));
        ASSERT_EQ(TW_INPROGRESS, begin(data, 5, &sent));
        run_until([&] { return receive.calls == 1; });
        EXPECT_EQ(TW_OK, receive.done.status);
        EXPECT_EQ(length, receive.done.length);
        EXPECT_EQ(length, receive.done.message_length);
        EXPECT_EQ(5U, receive.done.tag);
        EXPECT_EQ(node(0).id(), receive.done.source);
        EXPECT_EQ(unsigned{TW_DONE_RECV | TW_DONE_TAGGED}, receive.done.flags);
        EXPECT_EQ(data, receive.buffer);
        const tw_completion_t done = end_of(node(0), &sent);
        EXPECT_EQ(TW_OK, done.status);
        EXPECT_EQ(length, done.length);
        EXPECT_EQ(unsigned{TW_DONE_SEND | TW_DONE_TAGGED}, done.flags);
    }
    expect_lent(std::size(kLentLengths));
}

TEST_F(MsgLent, untagged_messages_with_an_immediate_arrive) {
    connect();
    const Bytes data = pattern(kLentLength, 1);
    for (const bool has_imm : {false, true}) {
        Plain receive(data.size());
        int sent = 0;
        tw_op_t how = op(&sent, has_imm ? TW_OP_IMM : 0);
        how.imm = 77;
        ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 0, false));
        ASSERT_EQ(TW_INPROGRESS,
                  tw_msg_send(node(0).to(node(1)), data.data(), data.size(), &how, nullptr));
        run_until([&] { return receive.calls == 1; });
        EXPECT_EQ(TW_OK, receive.done.status);
        EXPECT_EQ(has_imm ? 77U : 0U, receive.done.imm);
        EXPECT_EQ(data, receive.buffer);
        EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
    }
    expect_lent(2);
}

TEST_F(MsgLent, a_message_that_waited_is_read_when_it_is_received) {
    connect();
    const Bytes data = pattern(kLentLength, 2);
    int sent = 0;
    send_unexpected(node(0), node(1), data, 5, op(&sent));
    expect_message(node(1), data, 5);
    EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
    expect_lent(1);
}

TEST_F(MsgLent, a_shorter_receive_gets_the_start) {
    connect();
    const Bytes data = pattern(kLentLength, 3);
    Plain receive(1000);
    int sent = 0;
    ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 5));
    ASSERT_EQ(TW_INPROGRESS, begin(data, 5, &sent));
    run_until([&] { return receive.calls == 1; });
    EXPECT_EQ(TW_ERR_MESSAGE_TRUNCATED, receive.done.status);
    EXPECT_EQ(data.size(), receive.done.message_length);
    EXPECT_TRUE(std::equal(receive.buffer.begin(), receive.buffer.end(), data.begin()));
    EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
    expect_lent(1);
}

TEST_F(MsgLent, a_list_gets_its_pieces) {
    connect();
    for (const std::size_t piece : {std::size_t{2500}, std::size_t{100'000}}) {
        const Bytes data = pattern(piece * TW_IOV_MAX, piece);
        Bytes received(data.size());
        tw_iov_t list[TW_IOV_MAX];
        for (std::size_t i = 0; i < TW_IOV_MAX; ++i)
            list[i] = {received.data() + i * piece, piece};
        int sent = 0, got = 0;
        const tw_op_t at = op(&got);
        ASSERT_EQ(TW_INPROGRESS,
                  tw_tag_recvv(node(1).worker(), list, TW_IOV_MAX, 5, 0, &at, nullptr));
        ASSERT_EQ(TW_INPROGRESS, begin(data, 5, &sent));
        EXPECT_EQ(TW_OK, end_of(node(1), &got).status);
        EXPECT_EQ(data, received);
        EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
    }
    expect_lent(2);
}

TEST_F(MsgLent, memory_that_both_sides_map_is_read_by_loads) {
    connect();
    tw_mem_h memory = nullptr;
    void* at = nullptr;
    ASSERT_EQ(TW_OK, tw_mem_alloc(context_.get(), kLentLength, nullptr, &at, &memory));
    const Bytes data = pattern(kLentLength, 5);
    std::ranges::copy(data, static_cast<std::byte*>(at));
    Plain receive(data.size());
    int sent = 0;
    const tw_op_t how = op(&sent);
    ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 5));
    ASSERT_EQ(TW_INPROGRESS, tw_tag_send(node(0).to(node(1)), at, kLentLength, 5, &how, nullptr));
    run_until([&] { return receive.calls == 1; });
    EXPECT_EQ(data, receive.buffer);
    EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
    EXPECT_EQ(TW_OK, tw_mem_unmap(context_.get(), memory));
}

// More than the transport reads in one call of progress: the rest waits its turn.
TEST_F(MsgLent, a_flood_of_requests_is_read_in_several_calls) {
    constexpr std::size_t kMessages = 32;
    connect();
    std::vector<Bytes> data;
    std::vector<std::unique_ptr<Plain>> receives;
    int sent[kMessages] = {};
    for (std::size_t i = 0; i < kMessages; ++i) {
        data.push_back(pattern(kLentLength, i));
        receives.push_back(std::make_unique<Plain>(kLentLength));
        ASSERT_EQ(TW_INPROGRESS, receives.back()->post(node(1), i));
    }
    for (std::size_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(TW_INPROGRESS, begin(data[i], i, &sent[i]));
    if (is_lending()) {
        tw_worker_progress(node(1).worker());
        const auto ended = static_cast<std::size_t>(
            std::ranges::count_if(receives, [](const auto& each) { return each->calls != 0; }));
        EXPECT_LE(ended * kLentLength, std::size_t{512} << 10);
    }
    run_until([&] {
        return std::ranges::all_of(receives, [](const auto& each) { return each->calls == 1; });
    });
    for (std::size_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(TW_OK, receives[i]->done.status);
        EXPECT_EQ(data[i], receives[i]->buffer) << i;
        EXPECT_EQ(TW_OK, end_of(node(0), &sent[i]).status);
    }
    expect_lent(kMessages);
}

// A peer of the same process, and memory that both map: no system call limits the length.
TEST_F(MsgLent, a_long_message_that_is_read_by_loads_takes_several_calls) {
    constexpr std::size_t kLength = std::size_t{16} << 20, kCalls = 4;
    connect();
    tw_mem_h memory = nullptr;
    void* at = nullptr;
    ASSERT_EQ(TW_OK, tw_mem_alloc(context_.get(), kLength, nullptr, &at, &memory));
    const Bytes data = pattern(kLength, 9);
    std::ranges::copy(data, static_cast<std::byte*>(at));
    for (const void* from : {static_cast<const void*>(data.data()), const_cast<const void*>(at)}) {
        for (const bool is_early : {true, false}) {
            Plain receive(kLength);
            int sent = 0;
            const tw_op_t how = op(&sent);
            if (is_early) {
                ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 5));
            }
            const std::uint64_t before = node(1).counter("rx_unexpected");
            ASSERT_EQ(TW_INPROGRESS,
                      tw_tag_send(node(0).to(node(1)), from, kLength, 5, &how, nullptr));
            if (!is_early) {
                run_until([&] { return node(1).counter("rx_unexpected") > before; });
                ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 5));
            }
            for (std::size_t i = 0; i < kCalls; ++i)
                tw_worker_progress(node(1).worker());
            if (is_lending()) {
                EXPECT_EQ(0, receive.calls);
            }
            run_until([&] { return receive.calls == 1; });
            EXPECT_EQ(TW_OK, receive.done.status);
            EXPECT_EQ(data, receive.buffer);
            EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
        }
    }
    EXPECT_EQ(TW_OK, tw_mem_unmap(context_.get(), memory));
}

TEST_F(MsgLent, messages_of_all_kinds_are_matched_in_order) {
    connect();
    const std::size_t lengths[] = {10, 2000, 40000, kLongMessage, 10, 5000, 0, 16384};
    std::vector<Bytes> data;
    std::vector<std::unique_ptr<Plain>> receives;
    int sent[std::size(lengths)] = {};
    for (const std::size_t length : lengths) {
        data.push_back(pattern(length, data.size()));
        receives.push_back(std::make_unique<Plain>(length));
        ASSERT_EQ(TW_INPROGRESS, receives.back()->post(node(1), 5));
    }
    for (std::size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(TW_INPROGRESS, begin(data[i], 5, &sent[i]));
    run_until([&] {
        return std::ranges::all_of(receives, [](const auto& each) { return each->calls == 1; });
    });
    for (std::size_t i = 0; i < data.size(); ++i)
        EXPECT_EQ(data[i], receives[i]->buffer) << i;
    for (int& mark : sent)
        EXPECT_EQ(TW_OK, end_of(node(0), &mark).status);
}

TEST_F(MsgLent, a_message_that_nobody_has_received_is_cancelled) {
    connect();
    Bytes data = pattern(kLentLength, 6);
    int sent = 0;
    const tw_op_t how = op(&sent);
    tw_request_h request = nullptr;
    ASSERT_EQ(TW_INPROGRESS,
              tw_tag_send(node(0).to(node(1)), data.data(), data.size(), 5, &how, &request));
    run_until([&] { return node(1).counter("rx_unexpected") > 0; });
    tw_request_cancel(request);
    EXPECT_EQ(TW_ERR_CANCELED, end_of(node(0), &sent).status);
    std::ranges::fill(data, std::byte{0xaa});
    Plain receive(data.size());
    ASSERT_EQ(TW_INPROGRESS, receive.post(node(1), 5));
    run_some();
    EXPECT_EQ(0, receive.calls);
    const Bytes next = pattern(kLentLength, 7);
    ASSERT_EQ(TW_INPROGRESS, begin(next, 5, &sent));
    run_until([&] { return receive.calls == 1; });
    EXPECT_EQ(next, receive.buffer);
    EXPECT_EQ(TW_OK, end_of(node(0), &sent).status);
}

TEST_F(MsgLent, a_forced_close_ends_what_was_lent) {
    connect();
    Bytes data = pattern(kLentLength, 8);
    int sent = 0, got = 0;
    send_unexpected(node(0), node(1), data, 5, op(&sent));
    EXPECT_EQ(TW_OK, tw_ep_close(node(0).to(node(1)), TW_CLOSE_FORCE, nullptr, nullptr));
    std::ranges::fill(data, std::byte{0xaa});
    Bytes received(data.size());
    const tw_op_t at = op(&got);
    const tw_status_t status =
        tw_tag_recv(node(1).worker(), received.data(), received.size(), 5, 0, &at, nullptr);
    if (status == TW_INPROGRESS && is_lending()) {
        run_some();
        const auto found = std::ranges::find_if(
            node(1).done, [&](const tw_completion_t& done) { return done.context == &got; });
        if (found != node(1).done.end()) {
            EXPECT_NE(TW_OK, found->status);
        }
    }
    EXPECT_EQ(0U, node(1).counter("rndv_lent"));
}

}  // namespace
}  // namespace tagwire::test
