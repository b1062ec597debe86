// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous by get, put and copy: each where it is asked for, and what happens where it cannot be.
#include <algorithm>
#include <cstdlib>
#include <span>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kSchemeBytes = 300000;
constexpr std::size_t kManyBytes = (std::size_t{6} << 20) + 3;

class MsgScheme : private Settings, public MsgTest {
  protected:
    explicit MsgScheme(const char* scheme)
        : Settings({{"TAGWIRE_RNDV_SCHEME", scheme},
                    {"TAGWIRE_RNDV_THRESHOLD", "64k"},
                    {"TAGWIRE_REG_CACHE", "0"}}) {}

    static bool can_put() { return transports() != "ud"; }
    static bool needs_handles() { return lane_transport() != "sm" && lane_transport() != "tcp"; }
    /// A handle for as long as it lives.
    class Mapped {
      public:
        Mapped(tw_context_h context, Bytes& memory) : context_(context) {
            EXPECT_EQ(tw_mem_map(context, memory.data(), memory.size(), nullptr, &mem_), TW_OK);
        }
        Mapped(const Mapped&) = delete;
        Mapped& operator=(const Mapped&) = delete;
        ~Mapped() { EXPECT_EQ(tw_mem_unmap(context_, mem_), TW_OK); }
        operator tw_mem_h() const { return mem_; }

      private:
        tw_context_h context_;
        tw_mem_h mem_ = nullptr;
    };
    Mapped handle(Bytes& memory) { return {context_.get(), memory}; }
    void post(Bytes& to, tw_mem_h mem, int* mark) {
        tw_op_t how = op(mark);
        how.mem = mem;
        ASSERT_EQ(tw_tag_recv(node(1).worker(), to.data(), to.size(), 1, 0, &how, nullptr),
                  TW_INPROGRESS);
    }
    void send_from(Bytes& from, tw_mem_h mem, int* mark, tw_request_h* request_p = nullptr) {
        tw_op_t how = op(mark);
        how.mem = mem;
        ASSERT_EQ(tw_tag_send(node(0).to(node(1)), from.data(), from.size(), 1, &how, request_p),
                  TW_INPROGRESS);
    }
    /// Both buffers have handles.
    void pass(Bytes& from, Bytes& to) {
        int sent = 0, got = 0;
        const Mapped target = handle(to), source = handle(from);
        post(to, target, &got);
        send_from(from, source, &sent);
        EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
        EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
        EXPECT_EQ(from, to);
    }
    /// `list` is of `from`.
    void pass_list(Bytes& from, std::span<const tw_iov_t> list, Bytes& to) {
        int sent = 0, got = 0;
        const Mapped target = handle(to), source = handle(from);
        post(to, target, &got);
        tw_op_t how = op(&sent);
        how.mem = source;
        ASSERT_EQ(tw_tag_sendv(node(0).to(node(1)), list.data(), list.size(), 1, &how, nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
        EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
        EXPECT_EQ(from, to);
    }
    std::uint64_t count(const char* name) { return node(1).counter(name); }
};

class MsgPut : public MsgScheme {
  protected:
    MsgPut() : MsgScheme("put") {}
    void SetUp() override {
        if (!can_put())
            GTEST_SKIP() << "the transport cannot write";
    }
};

TEST_F(MsgPut, the_sender_writes_what_both_have_handles_for) {
    for (const std::size_t length : {std::size_t{70000}, kSchemeBytes, kManyBytes}) {
        Bytes data = pattern(length, length), received(length);
        pass(data, received);
    }
    EXPECT_EQ(count("rndv_put"), 3U);
    EXPECT_EQ(count("rndv_get") + count("rndv_copy"), 0U);
    tw_explanation_t told{};
    ASSERT_EQ(tw_ep_explain(node(0).to(node(1)), kManyBytes, TW_BUFFER_MAPPED, &told), TW_OK);
    const char* rails = std::getenv("TAGWIRE_RNDV_RAILS");
    const bool is_divided = rails != nullptr && std::string(rails) != "1";
    EXPECT_EQ(std::string(told.protocols[told.chosen].name),
              is_divided ? "rndv_striped" : "rndv_put");
    EXPECT_EQ(std::string(told.knob),
              is_divided ? std::string("TAGWIRE_RNDV_RAILS=") + rails : "TAGWIRE_RNDV_SCHEME=put");
}

TEST_F(MsgPut, no_more_is_written_than_there_is_room) {
    constexpr std::size_t kRoom = kSchemeBytes - 1001;
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes, std::byte{7});
    const Mapped target = handle(received), source = handle(data);
    int sent = 0, got = 0;
    tw_op_t how = op(&got);
    how.mem = target;
    ASSERT_EQ(tw_tag_recv(node(1).worker(), received.data(), kRoom, 1, 0, &how, nullptr),
              TW_INPROGRESS);
    send_from(data, source, &sent);
    const tw_completion_t done = end_of(node(1), &got);
    EXPECT_EQ(done.status, TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(done.length, kRoom);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    const auto end = received.begin() + kRoom;
    EXPECT_TRUE(std::equal(received.begin(), end, data.begin()));
    EXPECT_EQ(std::count(end, received.end(), std::byte{7}), received.end() - end);
    EXPECT_EQ(count("rndv_put"), 1U);
}

TEST_F(MsgPut, elements_of_a_list_are_written_one_by_one) {
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    const tw_iov_t list[] = {
        {data.data(), 1000}, {data.data() + 1000, 0}, {data.data() + 1000, kSchemeBytes - 1000}};
    pass_list(data, list, received);
    EXPECT_EQ(count("rndv_put"), 1U);
}

TEST_F(MsgPut, what_cannot_be_written_is_copied_and_counted) {
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    const tw_iov_t list[] = {{received.data(), 1000},
                             {received.data() + 1000, kSchemeBytes - 1000}};
    int sent = 0, got = 0;
    const tw_op_t how = op(&got);
    ASSERT_EQ(tw_tag_recvv(node(1).worker(), list, 2, 1, 0, &how, nullptr), TW_INPROGRESS);
    const Mapped source = handle(data);
    send_from(data, source, &sent);
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_EQ(received, data);
    EXPECT_EQ(count("rndv_copy"), 1U);
    EXPECT_EQ(count("rndv_fallback"), 1U);
    EXPECT_EQ(count("rndv_put"), 0U);
}

TEST_F(MsgPut, buffers_without_handles_are_written_where_none_is_needed) {
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    int sent = 0, got = 0;
    post(received, nullptr, &got);
    send_from(data, nullptr, &sent);
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_EQ(received, data);
    EXPECT_EQ(count("rndv_put"), needs_handles() ? 0U : 1U);
    EXPECT_EQ(count("rndv_fallback"), needs_handles() ? 1U : 0U);
}

TEST_F(MsgPut, a_send_is_cancelled_before_its_match_and_not_after_it) {
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    int sent = 0, got = 0;
    tw_request_h request = nullptr;
    const Mapped target = handle(received), from = handle(data);
    send_from(data, from, &sent, &request);
    run_some();
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_ERR_CANCELED);
    post(received, target, &got);
    send_from(data, from, &sent, &request);
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(received, data);
}

TEST_F(MsgPut, a_forced_close_of_either_side_ends_both) {
    for (const std::size_t closes : {0U, 1U}) {
        Bytes data = pattern(kManyBytes, 1), received(kManyBytes);
        Bytes first = pattern(70000, 2), second(70000);
        pass(first, second);
        int sent = 0, got = 0;
        const Mapped target = handle(received), source = handle(data);
        post(received, target, &got);
        send_from(data, source, &sent);
        for (int round = 0; round < 3; ++round) {
            node(0).progress();
            node(1).progress();
        }
        Node& closing = node(closes);
        Node& other = node(1 - closes);
        EXPECT_EQ(tw_ep_close(closing.to(other), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        // Where there is no connection the other learns of it when it is spoken to again.
        send(closing, other, {}, 9);
        const tw_status_t ends[] = {end_of(node(0), &sent).status, end_of(node(1), &got).status};
        if (needs_handles()) {  // else it may have been written at once
            EXPECT_LT(ends[closes], TW_OK);
            EXPECT_LT(ends[1 - closes], TW_OK);
        }
        expect_message(other, {}, 9);
        for (const auto& [ep, status] : other.failures)
            EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        other.failures.clear();
    }
}

class MsgCopy : public MsgScheme {
  protected:
    MsgCopy() : MsgScheme("copy") {}
};

TEST_F(MsgCopy, nothing_is_read_or_written) {
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    pass(data, received);
    EXPECT_EQ(count("rndv_copy"), 1U);
    EXPECT_EQ(count("rndv_fallback"), 0U);
}

class MsgGet : public MsgScheme {
  protected:
    MsgGet() : MsgScheme("get") {}
};

TEST_F(MsgGet, the_receiver_reads_and_a_transport_that_cannot_is_refused) {
    if (!can_put()) {
        tw_worker_h worker = nullptr;
        EXPECT_EQ(tw_worker_create(context_.get(), nullptr, &worker), TW_ERR_UNSUPPORTED);
        return;
    }
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    pass(data, received);
    EXPECT_EQ(count("rndv_get"), 1U);
}

class MsgAuto : public MsgScheme {
  protected:
    MsgAuto() : MsgScheme("auto") {}
};

TEST_F(MsgAuto, a_list_is_written_where_the_key_ends_with_the_connection) {
    Bytes data = pattern(kSchemeBytes, 1), received(kSchemeBytes);
    const tw_iov_t list[] = {{data.data(), 1000}, {data.data() + 1000, kSchemeBytes - 1000}};
    pass_list(data, list, received);
    EXPECT_EQ(count("rndv_put"), lane_transport() == "rc" ? 1U : 0U);
    EXPECT_EQ(count("rndv_fallback"), 0U);
}

}  // namespace
}  // namespace tagwire::test
