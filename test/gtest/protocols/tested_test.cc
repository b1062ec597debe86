// SPDX-License-Identifier: BSD-3-Clause
// Receives whose end the program asks for by their handle, which were posted before their message:
// the fast path says the same as the others, and gives the handle's memory back.
#include <algorithm>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kTestedTag = 0x77, kTestedImm = 0x123456789;

class MsgTested : public MsgTest {
  protected:
    struct Kind {
        bool is_tagged;
        bool has_imm;
        bool has_source;
    };
    struct Posted {
        Bytes buffer;
        tw_request_h request = nullptr;
        tw_completion_t done{};
    };

    void SetUp() override {
        send(node(0), node(1), {}, 1);
        expect_message(node(1), {}, 1);
        send(node(1), node(0), {}, 1);
        expect_message(node(0), {}, 1);
    }
    void post(Posted* posted, Kind kind, std::size_t room) {
        posted->buffer.assign(room, std::byte{0xee});
        tw_op_t how{};
        how.context = posted;
        if (kind.has_source)
            how.source = node(1).to(node(0));
        ASSERT_EQ(kind.is_tagged ? tw_tag_recv(node(1).worker(), posted->buffer.data(), room,
                                               kTestedTag, 0, &how, &posted->request)
                                 : tw_msg_recv(node(1).worker(), posted->buffer.data(), room, &how,
                                               &posted->request),
                  TW_INPROGRESS);
        ASSERT_NE(posted->request, nullptr);
        EXPECT_EQ(tw_request_test(posted->request, &posted->done), TW_INPROGRESS);
    }
    void send_of(Kind kind, const Bytes& data) {
        tw_op_t how{};
        how.flags = kind.has_imm ? std::uint32_t{TW_OP_IMM} : 0U;
        how.imm = kTestedImm;
        tw_ep_h const ep = node(0).to(node(1));
        tw_request_h sent = nullptr;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            status = kind.is_tagged
                         ? tw_tag_send(ep, data.data(), data.size(), kTestedTag, &how, &sent)
                         : tw_msg_send(ep, data.data(), data.size(), &how, &sent);
            return status != TW_ERR_NO_RESOURCE;
        });
        if (status == TW_INPROGRESS) {
            run_until([&] { return tw_request_test(sent, nullptr) != TW_INPROGRESS; });
            tw_request_free(sent);
            status = TW_OK;
        }
        EXPECT_EQ(status, TW_OK);
    }
    tw_status_t end_of_tested(Posted* posted) {
        tw_status_t status = TW_INPROGRESS;
        run_until([&] {
            status = tw_request_test(posted->request, &posted->done);
            return status != TW_INPROGRESS;
        });
        return status;
    }
    void expect(const Posted& posted, Kind kind, const Bytes& data) {
        EXPECT_TRUE(std::equal(data.begin(), data.end(), posted.buffer.begin()));
        EXPECT_TRUE(std::all_of(posted.buffer.begin() + static_cast<std::ptrdiff_t>(data.size()),
                                posted.buffer.end(),
                                [](std::byte one) { return one == std::byte{0xee}; }));
        const tw_completion_t& done = posted.done;
        EXPECT_EQ(done.context, &posted);
        EXPECT_EQ(done.request, posted.request);
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.flags, TW_DONE_RECV | (kind.is_tagged ? std::uint32_t{TW_DONE_TAGGED} : 0U) |
                                  (kind.has_imm ? std::uint32_t{TW_DONE_IMM} : 0U));
        EXPECT_EQ(done.length, data.size());
        EXPECT_EQ(done.message_length, data.size());
        EXPECT_EQ(done.tag, kind.is_tagged ? kTestedTag : 0U);
        EXPECT_EQ(done.imm, kind.has_imm ? kTestedImm : 0U);
        EXPECT_EQ(done.source, node(0).id());
        EXPECT_EQ(done.ep, node(1).to(node(0)));
    }
};

TEST_F(MsgTested, every_kind_says_the_same) {
    for (const bool is_tagged : {true, false}) {
        for (const bool has_imm : {true, false}) {
            for (const bool has_source : {true, false}) {
                for (const std::size_t length :
                     {0U, 1U, 8U, 57U, 112U, 113U, 128U, 256U, 257U, 5000U, 20000U, 100000U}) {
                    const Kind kind{is_tagged, has_imm, has_source};
                    SCOPED_TRACE(testing::Message()
                                 << length << " bytes, tagged " << is_tagged << ", immediate "
                                 << has_imm << ", source " << has_source);
                    const Bytes data = pattern(length, length);
                    Posted posted;
                    post(&posted, kind, length + 5);
                    send_of(kind, data);
                    EXPECT_EQ(end_of_tested(&posted), TW_OK);
                    expect(posted, kind, data);
                    // It is asked as often as the program likes, and cancelling it changes nothing.
                    EXPECT_EQ(tw_request_cancel(posted.request), TW_OK);
                    EXPECT_EQ(tw_request_test(posted.request, nullptr), TW_OK);
                    tw_request_free(posted.request);
                }
            }
        }
    }
}

TEST_F(MsgTested, a_short_buffer_gets_its_part) {
    const Kind kind{true, false, false};
    Posted posted;
    post(&posted, kind, 10);
    send_of(kind, pattern(64, 3));
    EXPECT_EQ(end_of_tested(&posted), TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(posted.done.length, 10U);
    EXPECT_EQ(posted.done.message_length, 64U);
    tw_request_free(posted.request);
}

// Freed before their end, behind it, and never: with a worker that has room for few.
class MsgTestedFew : private Settings, public MsgTested {
  protected:
    MsgTestedFew() : Settings({{"TAGWIRE_REQUESTS_MAX", "64"}}) {}
};

TEST_F(MsgTestedFew, memory_comes_back_whenever_the_handle_is_freed) {
    const Kind kind{true, false, false};
    for (int i = 0; i < 500; ++i) {
        Posted early, late;
        post(&early, kind, 8);
        post(&late, kind, 8);
        tw_request_free(early.request);
        send_of(kind, pattern(8, 1));
        send_of(kind, pattern(8, 2));
        EXPECT_EQ(end_of_tested(&late), TW_OK);
        EXPECT_EQ(early.buffer, pattern(8, 1));
        EXPECT_EQ(late.buffer, pattern(8, 2));
        tw_request_free(late.request);
    }
}

TEST_F(MsgTestedFew, a_worker_goes_with_handles_that_nobody_has_freed) {
    const Kind kind{true, false, false};
    Posted posted[3];
    for (Posted& one : posted)
        post(&one, kind, 8);
    send_of(kind, pattern(8, 1));
    EXPECT_EQ(end_of_tested(&posted[0]), TW_OK);
    node(1).destroy();
}

TEST_F(MsgTested, several_are_waited_for) {
    const Kind kind{true, false, false};
    Posted posted[4];
    for (Posted& one : posted)
        post(&one, kind, 8);
    for (std::uint64_t i = 0; i < 4; ++i)
        send_of(kind, pattern(8, i));
    tw_request_h requests[4];
    for (std::size_t i = 0; i < 4; ++i)
        requests[i] = posted[i].request;
    run_until([&] {
        return std::all_of(requests, requests + 4, [](tw_request_h one) {
            return tw_request_test(one, nullptr) != TW_INPROGRESS;
        });
    });
    EXPECT_EQ(tw_wait_all(requests, 4, TW_WAIT_SPIN, 0), TW_OK);
    for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(posted[i].buffer, pattern(8, i));
        tw_request_free(posted[i].request);
    }
}

}  // namespace
}  // namespace tagwire::test
