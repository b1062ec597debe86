// SPDX-License-Identifier: BSD-3-Clause
// Messages that take many steps to go: cancelled meanwhile, and no burden for one call of progress.
#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLong = std::size_t{4} << 20;  // more than is on its way at a time

/// Long messages go in parts.
class MsgCancel : private Settings, public MsgTest {
  protected:
    MsgCancel()
        : Settings({{"TAGWIRE_RNDV_THRESHOLD", "8m"}, {"TAGWIRE_UNEXPECTED_BYTES", "256m"}}) {}
};

TEST_F(MsgCancel, a_message_that_has_gone_in_part_is_cancelled_when_all_of_it_has) {
    if (offloads())
        GTEST_SKIP() << "where devices match tags no message has parts";
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 1);
    expect_message(b, {}, 1);
    const Bytes data = pattern(kLong, 1);
    int mark = 0;
    const tw_op_t how = op(&mark, TW_OP_MATCH_COMPLETE);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kLong, 7, &how, &request), TW_INPROGRESS);
    ASSERT_GT(a.counter("tx_parts"), 0U);
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(a, &mark).status, TW_ERR_CANCELED);
    run_some();
    EXPECT_EQ(probe(b.worker(), 7), TW_ERR_NO_MESSAGE);
}

// The transport has room for all of it; a receiver that keeps up would be as good.
class MsgSteps : private Settings, public MsgTest {
  protected:
    MsgSteps()
        : Settings({{"TAGWIRE_RNDV_THRESHOLD", "16m"},
                    {"TAGWIRE_UNEXPECTED_BYTES", "128m"},
                    {"TAGWIRE_SM_RING_SLOTS", "4096"},
                    {"TAGWIRE_SM_POOL_BYTES", "32m"}}) {}
};

TEST_F(MsgSteps, one_call_sends_a_bounded_part_of_a_long_message) {
    constexpr std::uint64_t kPartsOfCall = 128;
    if (offloads())
        GTEST_SKIP() << "where devices match tags no message has parts";
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 1);
    expect_message(b, {}, 1);
    const Bytes data = pattern(2 * kLong, 1);
    int mark = 0;
    const tw_op_t how = op(&mark);
    std::uint64_t before = a.counter("tx_parts");
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 7, &how, nullptr), TW_INPROGRESS);
    EXPECT_LE(a.counter("tx_parts") - before, kPartsOfCall);
    for (int calls = 0; calls < 1000; ++calls) {
        before = a.counter("tx_parts");
        a.progress();
        ASSERT_LE(a.counter("tx_parts") - before, kPartsOfCall);
    }
    expect_message(b, data, 7);
    EXPECT_EQ(end_of(a, &mark).status, TW_OK);
}

}  // namespace
}  // namespace tagwire::test
