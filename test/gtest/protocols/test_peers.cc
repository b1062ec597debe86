// SPDX-License-Identifier: BSD-3-Clause
// Peers that come, leave, and fail: what is under way then, and what is heard of them.
#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgPeers : public MsgTest {
  protected:
    void close(Node& at, tw_ep_h ep) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        if (tw_ep_close(ep, 0, &how, nullptr) == TW_INPROGRESS) {
            EXPECT_EQ(end_of(at, &mark).status, TW_OK);
        }
    }
    void greet(Node& from, Node& to) {
        send(from, to, {}, 9);
        expect_message(to, {}, 9);
    }
};

// The one with the lower id asks whether it may leave, the other one answers that it has.
TEST_F(MsgPeers, a_directed_receive_outlives_the_endpoint_that_it_was_posted_with) {
    Node& b = node(node(0).id() < node(1).id() ? 0 : 1);
    Node& a = node(node(0).id() < node(1).id() ? 1 : 0);
    greet(a, b);
    greet(b, a);
    int mark = 0;
    tw_op_t how = op(&mark);
    how.source = a.to(b);
    Bytes buffer(20000);
    ASSERT_EQ(tw_tag_recv(a.worker(), buffer.data(), buffer.size(), 1, 0, &how, nullptr),
              TW_INPROGRESS);
    close(a, a.to(b));
    close(b, b.to(a));
    run_until([&] { return a.description().find("has left") != std::string::npos; });
    a.to(b);
    run_some();
    const Bytes data = pattern(20000, 1);
    send(b, a, data, 1);
    EXPECT_EQ(end_of(a, &mark).status, TW_OK);
    EXPECT_EQ(buffer, data);
}

// Messages that one worker sends and the other one cannot keep end its endpoint.
class MsgBreach : private Settings, public MsgTest {
  protected:
    static constexpr std::size_t kRead = std::size_t{32} << 20;
    static constexpr std::size_t kTooLong = 600'000;

    MsgBreach()
        : Settings({{"TAGWIRE_RNDV_THRESHOLD", "1m"}, {"TAGWIRE_SM_CMA", "off"}}),
          narrow_({{"TAGWIRE_UNEXPECTED_BYTES", "64k"}, {"TAGWIRE_RNDV_THRESHOLD", "32k"}}) {
        const std::string named = transports();
        tw_context_params_t params{};
        params.transports = named.c_str();
        tw_context_h context = nullptr;
        EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
        strict_.reset(context);
    }

    const Settings narrow_;
    std::unique_ptr<tw_context, ContextDeleter> strict_;
};

TEST_F(MsgBreach, a_read_ends_as_its_endpoint_does) {
    if (transports() != "sm")
        GTEST_SKIP() << "elsewhere a device reads, and the read may end first";
    Node strict(strict_.get());
    Node& sender = node(0);
    const Bytes data = pattern(kRead, 1);
    Bytes buffer(kRead);
    int mark = 0;
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_tag_recv(strict.worker(), buffer.data(), kRead, 1, 0, &how, nullptr),
              TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(sender.to(strict), data.data(), kRead, 1, nullptr, nullptr), TW_OK);
    ASSERT_GE(tw_tag_send(sender.to(strict), data.data(), kTooLong, 2, nullptr, nullptr), TW_OK);
    run_until([&] {
        strict.progress();
        return !strict.done.empty();
    });
    ASSERT_EQ(strict.done.size(), 1U);
    EXPECT_EQ(strict.done[0].status, TW_ERR_EXCEEDS_LIMIT);
    EXPECT_EQ(strict.counter("rndv_get"), 1U);
}

}  // namespace
}  // namespace tagwire::test
