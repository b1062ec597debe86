// SPDX-License-Identifier: BSD-3-Clause
// Notices of puts that wait for the program's poll are within the budget of unexpected messages:
// peers are paused, and nothing is lost. Only the public API.
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kNoticesBudget = std::uint64_t{1} << 20;
constexpr std::uint64_t kPutsMax = 200'000;  // of which no budget as small keeps the notices

class MsgRmaNotices : private Settings, public RmaTest {
  protected:
    MsgRmaNotices() : Settings({{"TAGWIRE_UNEXPECTED_BYTES", std::to_string(kNoticesBudget)}}) {}

    static std::uint64_t kept_bytes(const Node& node) {
        const std::string text = node.description();
        const std::size_t at = text.find("unexpected: ");
        std::uint64_t bytes = 0;
        EXPECT_NE(at, std::string::npos);
        EXPECT_EQ(std::sscanf(text.c_str() + at, "unexpected: %*u messages in %" SCNu64, &bytes),
                  1);
        return bytes;
    }
    /// A put with the immediate `number`.
    static tw_status_t try_put(tw_ep_h ep, const Shared& memory, tw_key_h key,
                               std::uint64_t number) {
        tw_op_t how{};
        how.flags = TW_OP_IMM | TW_OP_INJECT;
        how.imm = number;
        return tw_put(ep, &number, sizeof number, memory.address(), key, &how, nullptr);
    }
    /// All progress, and nobody polls.
    void progress_alone() {
        for (std::size_t i = 0; i < 3; ++i)
            tw_worker_progress(node(i).worker());
    }
    /// Puts from number `first` on until the target has paused this peer; returns how many.
    std::uint64_t put_until_paused(tw_ep_h ep, const Shared& memory, tw_key_h key,
                                   std::uint64_t first) {
        constexpr int kRefusals = 20'000;
        std::uint64_t puts = 0;
        for (int refused = 0; refused < kRefusals && puts < kPutsMax;) {
            const tw_status_t status = try_put(ep, memory, key, first + puts);
            EXPECT_TRUE(status >= TW_OK || status == TW_ERR_NO_RESOURCE) << status;
            puts += status >= TW_OK ? 1 : 0;
            refused = status >= TW_OK ? 0 : refused + 1;
            progress_alone();
        }
        return puts;
    }
    /// The target polls until it has so many notices.
    void poll_until(std::size_t number) {
        run_until([&] { return node(0).done.size() >= number; });
    }
    /// Those of one peer come in their order, from 0 on.
    void expect_in_order(const Node& from, std::uint64_t number) {
        std::uint64_t next = 0;
        for (const tw_completion_t& done : node(0).done)
            if (done.source == from.id())
                next += done.imm == next ? 1 : 0;
        EXPECT_EQ(next, number);
    }
};

TEST_F(MsgRmaNotices, a_target_that_does_not_poll_pauses_its_peers_and_nothing_is_lost) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = connected(node(1), node(0)), other = connected(node(2), node(0));
    connected(node(0), node(1));  // who is flooded must be able to say so
    connected(node(0), node(2));
    node(0).done.clear();
    const tw_key_h key = memory.key_for(node(1)), other_key = memory.key_for(node(2));
    std::uint64_t puts = put_until_paused(ep, memory, key, 0);
    ASSERT_LT(puts, kPutsMax);
    EXPECT_GT(node(0).counter("paused"), 0U);
    EXPECT_LE(kept_bytes(node(0)), kNoticesBudget);
    // Puts without a notice go on.
    const std::uint64_t last = ~std::uint64_t{0};
    ASSERT_GE(tw_put(ep, &last, sizeof last, memory.address() + 8, key, nullptr, nullptr), TW_OK);
    const std::uint64_t others = put_until_paused(other, memory, other_key, 0);
    EXPECT_LT(others, 1000U) << "it is paused by its first notices";
    EXPECT_LE(kept_bytes(node(0)), kNoticesBudget);
    poll_until(puts + others);
    EXPECT_EQ(memory.number<std::uint64_t>(8), last);
    EXPECT_EQ(kept_bytes(node(0)), 0U);
    // They go on.
    for (std::uint64_t i = 0; i < 100; ++i, ++puts) {
        run_until([&] { return try_put(ep, memory, key, puts) != TW_ERR_NO_RESOURCE; });
        if (i == 50) {
            run_some();  // a sender that has not heard that it may go on waits for a receive
            send(node(1), node(0), pattern(100, 1), 5);
        }
    }
    poll_until(puts + others);
    run_some();
    EXPECT_EQ(node(0).done.size(), puts + others);
    expect_in_order(node(1), puts);
    expect_in_order(node(2), others);
    expect_message(node(0), pattern(100, 1), 5);
    EXPECT_TRUE(node(0).failures.empty());
    tw_key_free(key);
    tw_key_free(other_key);
}

TEST_F(MsgRmaNotices, a_peer_that_closes_while_it_is_paused_leaves_its_notices) {
    const Shared memory(context_.get(), 64);
    tw_ep_h ep = connected(node(1), node(0));
    connected(node(0), node(1));
    node(0).done.clear();
    tw_key_h key = memory.key_for(node(1));
    const std::uint64_t puts = put_until_paused(ep, memory, key, 0);
    ASSERT_LT(puts, kPutsMax);
    tw_key_free(key);
    forget_last_node();  // the third
    forget_last_node();
    run_some();
    EXPECT_LE(node(0).done.size(), puts);
    EXPECT_GT(node(0).done.size(), 0U);
    EXPECT_EQ(kept_bytes(node(0)), 0U);
    // The next peer is not paused.
    const std::size_t before = node(0).done.size();
    ep = connected(node(1), node(0));
    key = memory.key_for(node(1));
    ASSERT_GE(try_put(ep, memory, key, 1), TW_OK);
    poll_until(before + 1);
    tw_key_free(key);
}

TEST_F(MsgRmaNotices, what_is_counted_takes_no_memory) {
    constexpr std::uint64_t kPuts = 10'000;
    tw_counter_h counter = nullptr;
    ASSERT_EQ(tw_counter_create(&counter), TW_OK);
    {
        const Shared memory(context_.get(), 64, Shared::Kind::kMapped, 0, counter);
        const tw_ep_h ep = connected(node(1), node(0));
        const tw_key_h key = memory.key_for(node(1));
        for (std::uint64_t i = 0; i < kPuts; ++i) {
            run_until([&] {
                const bool is_put = try_put(ep, memory, key, i) >= TW_OK;
                progress_alone();
                return is_put;
            });
        }
        run_until([&] { return tw_counter_wait(counter, kPuts, 0) == TW_OK; });
        EXPECT_EQ(kept_bytes(node(0)), 0U);
        EXPECT_EQ(node(0).counter("paused"), 0U);
        tw_key_free(key);
    }
    tw_counter_destroy(counter);
}

}  // namespace
}  // namespace tagwire::test
