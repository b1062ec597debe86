// SPDX-License-Identifier: BSD-3-Clause
// Remote calls of the C++ wrapper: requests and replies as its handlers have them.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <tagwire_msg.hpp>
#include <vector>

namespace tagwire::test {
namespace {

class MsgWrapperCalls : public ::testing::Test {
  protected:
    static std::span<const std::byte> bytes(std::string_view text) {
        return std::as_bytes(std::span(text));
    }
    template <class IsOver>
    void run_until(const IsOver& is_over) {
        EXPECT_TRUE(msg::progress_until(worker_, is_over, TW_WAIT_YIELD, 30'000'000'000));
    }

    msg::Context context_{"sm"};
    msg::Worker worker_{context_};
    msg::Endpoint self_{worker_, worker_.address()};
};

TEST_F(MsgWrapperCalls, calls_get_replies_now_and_later_and_are_cancelled) {
    std::vector<msg::PendingReply> later;
    const auto serve = [&](const msg::CallRequest& request) {
        EXPECT_EQ(request.method(), 7U);
        EXPECT_EQ(request.source(), request.get().source);
        const auto number = request.data_as<std::uint32_t>();
        if (number) {
            EXPECT_EQ(request.timeout_ns(), 3'600'000'000'000U);
            EXPECT_GE(request.reply(-1, msg::bytes_of(*number + 1)), TW_OK);
            return;
        }
        EXPECT_EQ(request.keep(), TW_OK);
        EXPECT_TRUE(std::ranges::equal(request.data(), bytes("other")));
        later.push_back(request.later());
    };
    ASSERT_EQ(worker_.on_call(7, serve), TW_OK);
    std::vector<tw_call_done_t> ends;
    const auto take = [&](const tw_call_done_t& done) { ends.push_back(done); };
    std::uint32_t answer = 0;
    msg::CallParams params;
    params.on_done(take)
        .timeout(3'600'000'000'000)
        .memory(nullptr, nullptr)
        .reply_into(std::as_writable_bytes(std::span(&answer, 1)));
    const std::uint32_t question = 41;
    ASSERT_EQ(self_.call(7, msg::bytes_of(question), params), TW_OK);
    run_until([&] { return ends.size() == 1; });
    EXPECT_EQ(ends[0].status, TW_OK);
    EXPECT_EQ(ends[0].reply_status, -1);
    EXPECT_EQ(answer, 42U);
    std::uint64_t id = 0;
    ASSERT_EQ(self_.call(7, bytes("other"), msg::CallParams().on_done(take), &id), TW_OK);
    run_until([&] { return later.size() == 1; });
    EXPECT_NE(later[0].id(), 0U);
    ASSERT_GE(later[0].reply(3), TW_OK);
    run_until([&] { return ends.size() == 2; });
    EXPECT_EQ(ends[1].id, id);
    EXPECT_EQ(ends[1].reply_status, 3);
    ASSERT_EQ(self_.call(7, bytes("other"), msg::CallParams().on_done(take), &id), TW_OK);
    EXPECT_EQ(worker_.cancel_call(id), TW_OK);
    run_until([&] { return ends.size() == 3 && later.size() == 2; });
    EXPECT_EQ(ends[2].status, TW_ERR_CANCELED);
    EXPECT_GE(later[1].reply(0), TW_OK);
    ASSERT_EQ(worker_.remove_call(7), TW_OK);
    ASSERT_EQ(self_.call(7, bytes("other"), msg::CallParams().on_done(take)), TW_OK);
    run_until([&] { return ends.size() == 4; });
    EXPECT_EQ(ends[3].status, TW_ERR_NO_ELEM);
}

}  // namespace
}  // namespace tagwire::test
