// SPDX-License-Identifier: BSD-3-Clause
// First contact, when one of the two is slow.
#include <chrono>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr auto kAlone = std::chrono::milliseconds(40);

// Whoever is alone has time to ask the peer, and to find that it does not answer.
class MsgContact : private Settings, public MsgTest {
  protected:
    MsgContact()
        : Settings({{"TAGWIRE_RC_KEEPALIVE_INTERVAL", "4ms"},
                    {"TAGWIRE_RC_TIMEOUT", "4ms"},
                    {"TAGWIRE_DC_KEEPALIVE_INTERVAL", "4ms"},
                    {"TAGWIRE_UD_KEEPALIVE_INTERVAL", "4ms"}}) {}

    static void run_alone(Node& node) {
        const auto end = std::chrono::steady_clock::now() + kAlone;
        while (std::chrono::steady_clock::now() < end)
            node.progress();
    }
};

TEST_F(MsgContact, a_peer_that_pauses_while_it_connects_is_waited_for) {
    constexpr unsigned kStepsMax = 10;
    for (const bool first_is_alone : {false, true}) {
        for (unsigned steps = 1; steps <= kStepsMax; ++steps) {
            Node& a = node(0);
            Node& b = node(1);
            const Bytes data = pattern(100, steps);
            int mark = 0;
            const tw_op_t how = op(&mark);
            ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), steps, &how, nullptr),
                      TW_INPROGRESS);
            for (unsigned step = 0; step < steps; ++step) {
                b.progress();
                a.progress();
            }
            run_alone(first_is_alone ? a : b);
            EXPECT_EQ(end_of(a, &mark).status, TW_OK) << "after " << steps << " steps";
            expect_message(b, data, steps);
            EXPECT_TRUE(a.failures.empty() && b.failures.empty());
            destroy_nodes();
        }
    }
}

}  // namespace
}  // namespace tagwire::test
