// SPDX-License-Identifier: BSD-3-Clause
// Progress that gives the processor away, seen from the program.
#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgAway : private Settings, public MsgTest {
  protected:
    MsgAway() : Settings({{"TAGWIRE_PROGRESS", "polite"}}) {}

    std::uint64_t times_away() { return node(0).counter("yields") + node(0).counter("naps"); }
};

// A wish to give the processor away may be old when the program calls again: each number of calls
// in vain before the message comes is tried, so one of them leaves a wish behind.
TEST_F(MsgAway, a_message_that_is_there_is_taken_first) {
    constexpr unsigned kCallsMax = 600;
    const Bytes data = pattern(10, 1);
    send(node(0), node(1), data, 1);
    send(node(1), node(0), data, 1);
    for (unsigned calls = 0; calls < kCallsMax; ++calls) {
        for (unsigned i = 0; i < calls; ++i)
            node(0).progress();
        Bytes buffer(data.size());
        tw_request_h request = nullptr;
        ASSERT_EQ(
            tw_tag_recv(node(0).worker(), buffer.data(), buffer.size(), 2, 0, nullptr, &request),
            TW_INPROGRESS);
        ASSERT_GE(tw_tag_send(node(1).to(node(0)), data.data(), data.size(), 2, nullptr, nullptr),
                  TW_OK);
        const std::uint64_t away = times_away();
        node(0).progress();
        EXPECT_EQ(tw_request_test(request, nullptr), TW_OK) << "behind " << calls << " calls";
        EXPECT_EQ(times_away(), away) << "behind " << calls << " calls";
        EXPECT_EQ(buffer, data);
        tw_request_free(request);
    }
    EXPECT_GT(times_away(), 0U) << "nothing was tried";
}

}  // namespace
}  // namespace tagwire::test
