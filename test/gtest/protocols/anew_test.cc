// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are closed and made anew while their connections come about: what either side has
// sent of the last one crosses the first words of the next.
#include <array>
#include <random>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgAnew : public MsgTest {
  protected:
    /// Makes an endpoint, unless the close of the last one is under way.
    void open(Node& at, Node& other) {
        const Bytes address = other.address();
        const tw_ep_params_t params{
            .address = address.data(), .address_length = address.size(), .user_data = nullptr};
        tw_ep_h ep = nullptr;
        const tw_status_t status = tw_ep_create(at.worker(), &params, &ep);
        EXPECT_TRUE(status == TW_OK || status == TW_ERR_ALREADY_EXISTS) << status;
    }
    /// After a while, connections neither come nor go.
    void expect_rest(const Node& a, const Node& b) {
        constexpr int kTries = 50;
        for (int i = 0; i < kTries; ++i) {
            const std::size_t told = a.events.size() + b.events.size();
            for (int k = 0; k < 5; ++k)
                run_some();
            if (a.events.size() + b.events.size() == told)
                return;
        }
        FAIL() << a.events.size() + b.events.size() << " events, and there is no end";
    }
};

// The peer's answer to the one that was closed crosses the first words of the next. Taken for an
// answer to those, it made each side end what the other had just made, without end.
TEST_F(MsgAnew, a_late_answer_to_an_endpoint_that_was_closed_does_not_end_the_next_one) {
    constexpr int kLooks = 20000;
    for (const bool is_opened_at_once : {true, false}) {
        for (const bool peer_opens : {false, true}) {
            destroy_nodes();
            Node& a = node(0);
            Node& b = node(1);
            const tw_ep_h early = a.to(b);
            for (int i = 0; i < kLooks; ++i)
                a.progress();
            for (int i = 0; i < kLooks; ++i)
                b.progress();
            EXPECT_EQ(tw_ep_close(early, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
            if (peer_opens)
                b.to(a);
            if (is_opened_at_once)
                a.to(b);
            for (int i = 0; i < kLooks; ++i)
                a.progress();
            expect_rest(a, b);
            // The first words of what was closed wait in the connection of tcp. They reach the
            // peer's endpoint when ours has heard of that one: both end.
            const bool ends_both = peer_opens && transports().find("tcp") != std::string::npos;
            EXPECT_LE(a.failures.size(), ends_both ? 1U : 0U);
            EXPECT_LE(b.failures.size(), peer_opens ? 1U : 0U);  // what it had was closed by force
            const Bytes data = pattern(30, 1);
            send(a, b, data, 1);
            expect_message(b, data, 1);
        }
    }
}

TEST_F(MsgAnew, connections_come_to_rest_whenever_they_are_closed_and_made_anew) {
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
        destroy_nodes();
        const std::array<Node*, 2> nodes = {&node(0), &node(1)};
        std::minstd_rand random(static_cast<unsigned>(seed));
        const auto below = [&](unsigned end) { return random() % end; };
        for (int step = 0; step < 40; ++step) {
            Node& at = *nodes[below(2)];
            Node& other = &at == nodes[0] ? *nodes[1] : *nodes[0];
            const tw_ep_h ep = tw_ep_find(at.worker(), other.id());
            if (ep == nullptr)
                open(at, other);
            else if (below(2) == 0)
                tw_ep_close(ep, below(3) == 0 ? TW_FLUSH_DELIVERED : TW_CLOSE_FORCE, nullptr,
                            nullptr);
            for (const unsigned calls : {1U, 30U, 3000U})
                if (below(3) == 0)
                    for (unsigned i = 0; i < calls; ++i)
                        nodes[below(2)]->progress();
        }
        ASSERT_NO_FATAL_FAILURE(expect_rest(*nodes[0], *nodes[1])) << "seed " << seed;
        for (Node* at : nodes) {
            Node& other = at == nodes[0] ? *nodes[1] : *nodes[0];
            if (const tw_ep_h ep = tw_ep_find(at->worker(), other.id()))
                tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr);
        }
        run_some();
        const Bytes data = pattern(30, seed);
        send(*nodes[0], *nodes[1], data, 1);
        expect_message(*nodes[1], data, 1);
        send(*nodes[1], *nodes[0], data, 2);
        expect_message(*nodes[0], data, 2);
    }
}

}  // namespace
}  // namespace tagwire::test
