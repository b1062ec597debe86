// SPDX-License-Identifier: BSD-3-Clause
// A sender that does nothing wrong, but does not progress while it sends, to a receiver that has
// little room for unexpected messages: the rest waits at the sender, nothing fails or is lost.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kWindowBudget = 65536;
constexpr std::uint64_t kOnItsWay = std::uint64_t{8} << 20;  // and one message
constexpr std::uint64_t kWindowTag = 4;
constexpr unsigned kKeptId = 5;

/// Messages that are numbered from 0 on.
struct InOrder {
    std::uint64_t posted = 0;  // receives
    std::uint64_t next = 0;
    std::uint64_t wrong = 0;

    void add(std::uint64_t number) { wrong += number == next++ ? 0 : 1; }
};

/// A receive that is posted again when it has ended. Each gets the message of its number, which is
/// its first bytes; rendezvous end in any order.
struct Receiving {
    tw_worker_h worker = nullptr;
    Bytes bytes;
    InOrder* order = nullptr;
    std::uint64_t expected = 0;

    void post() {
        expected = order->posted++;
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        how.context = this;
        how.complete = [](const tw_completion_t* done) {
            if (done->status != TW_OK)
                return;
            auto& own = *static_cast<Receiving*>(done->context);
            std::uint64_t number = 0;
            std::memcpy(&number, own.bytes.data(), sizeof number);
            ++own.order->next;
            own.order->wrong += number == own.expected ? 0 : 1;
            own.post();
        };
        EXPECT_EQ(tw_tag_recv(worker, bytes.data(), bytes.size(), kWindowTag, 0, &how, nullptr),
                  TW_INPROGRESS);
    }
};

class WindowTest : private Settings, public RmaTest {
  protected:
    WindowTest()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", std::to_string(kWindowBudget)},
                    {"TAGWIRE_UNEXPECTED_MAX", "100"}}) {}
    void SetUp() override {
        ours_ = connected(node(0), node(1));
        connected(node(1), node(0));
        receives_.resize(32);
        node(1).done.clear();
    }
    void TearDown() override { destroy_nodes(); }

    /// Messages of `length` bytes, without progress of the sender; the receiver progresses once for
    /// `every` so many messages, 0: never.
    void send_all(std::size_t length, std::uint64_t count, unsigned every) {
        data_.resize(count * length);
        for (std::uint64_t i = 0; i < count; ++i) {
            std::byte* const at = data_.data() + i * length;
            std::memcpy(at, &i, sizeof i);
            ASSERT_GE(tw_tag_send(ours_, at, length, kWindowTag, nullptr, nullptr), TW_OK) << i;
            if (every != 0 && i % every == 0)
                tw_worker_progress(node(1).worker());
        }
    }
    void receive_alone() {
        for (int i = 0; i < 5000; ++i)
            tw_worker_progress(node(1).worker());
    }
    void post_receives(std::size_t length) {
        for (Receiving& receive : receives_) {
            receive.worker = node(1).worker();
            receive.bytes.resize(length);
            receive.order = &order_;
            receive.post();
        }
    }
    void expect_within_window(std::size_t length) {
        EXPECT_TRUE(node(0).failures.empty());
        EXPECT_TRUE(node(1).failures.empty());
        // Devices send little without progress.
        if (lane_transport() == "sm" || lane_transport() == "tcp") {
            EXPECT_EQ(node(1).counter("paused"), 1U);
        }
        EXPECT_LE(kept_bytes(), kWindowBudget + kOnItsWay + 2 * (length + 512));
    }
    void expect_all(std::uint64_t count) {
        run_until([&] { return order_.next == count || has_failed(); });
        EXPECT_EQ(order_.next, count);
        EXPECT_EQ(order_.wrong, 0U);
        EXPECT_FALSE(has_failed());
        EXPECT_EQ(kept_bytes(), 0U);
    }
    bool has_failed() { return !node(0).failures.empty() || !node(1).failures.empty(); }
    std::uint64_t kept_bytes() {
        const std::string text = node(1).description();
        const std::size_t at = text.find("unexpected: ");
        std::uint64_t bytes = 0;
        EXPECT_NE(at, std::string::npos);
        EXPECT_EQ(std::sscanf(text.c_str() + at, "unexpected: %*u messages in %" SCNu64, &bytes),
                  1);
        return bytes;
    }

    tw_ep_h ours_ = nullptr;
    Bytes data_;
    InOrder order_;
    std::vector<Receiving> receives_;
};

using MsgLimitsWindow = WindowTest;

constexpr std::size_t kFewBytes = 8, kManyBytes = 4000;
constexpr std::uint64_t kFewCount = 36'000, kManyCount = 6000, kNotices = 22'000;

TEST_F(MsgLimitsWindow, short_messages_that_nobody_receives_yet_wait_at_their_sender) {
    ASSERT_NO_FATAL_FAILURE(send_all(kFewBytes, kFewCount, 8));
    receive_alone();
    expect_within_window(kFewBytes);
    post_receives(kFewBytes);
    expect_all(kFewCount);
}

TEST_F(MsgLimitsWindow, longer_messages_that_nobody_receives_yet_wait_at_their_sender) {
    ASSERT_NO_FATAL_FAILURE(send_all(kManyBytes, kManyCount, 8));
    receive_alone();
    expect_within_window(kManyBytes);
    post_receives(kManyBytes);
    expect_all(kManyCount);
}

TEST_F(MsgLimitsWindow, a_receiver_that_does_not_progress_for_a_while_gets_everything) {
    ASSERT_NO_FATAL_FAILURE(send_all(kFewBytes, kFewCount, 0));
    receive_alone();
    expect_within_window(kFewBytes);
    post_receives(kFewBytes);
    expect_all(kFewCount);
}

TEST_F(MsgLimitsWindow, a_receiver_with_receives_gets_everything) {
    post_receives(kFewBytes);
    ASSERT_NO_FATAL_FAILURE(send_all(kFewBytes, kFewCount, 8));
    EXPECT_EQ(node(1).counter("paused"), 0U);
    expect_all(kFewCount);
}

/// A program that keeps what it gets.
struct Keeper {
    std::vector<tw_message_h> kept;
    InOrder order;
    std::uint64_t refused = 0;
};

TEST_F(MsgLimitsWindow, active_messages_that_a_program_keeps_wait_at_their_sender) {
    Keeper keeper;
    const auto keep = [](void* arg, tw_am_t* am) {
        auto& own = *static_cast<Keeper*>(arg);
        std::uint64_t number = 0;
        std::memcpy(&number, am->data, sizeof number);
        own.order.add(number);
        tw_message_h message = nullptr;
        if (tw_am_keep(am, &message) == TW_OK)
            own.kept.push_back(message);
        else
            ++own.refused;
    };
    ASSERT_EQ(tw_am_register(node(1).worker(), kKeptId, keep, &keeper), TW_OK);
    std::vector<std::uint64_t> numbers(kFewCount);
    std::iota(numbers.begin(), numbers.end(), 0);
    for (const std::uint64_t& number : numbers) {
        ASSERT_GE(tw_am_send(ours_, kKeptId, nullptr, 0, &number, sizeof number, nullptr, nullptr),
                  TW_OK);
        if (number % 8 == 0)
            tw_worker_progress(node(1).worker());
    }
    receive_alone();
    expect_within_window(kFewBytes);
    run_until([&] {
        for (tw_message_h message : keeper.kept)
            EXPECT_EQ(tw_message_drop(node(1).worker(), message), TW_OK);
        keeper.kept.clear();
        return keeper.order.next == kFewCount || has_failed();
    });
    EXPECT_EQ(keeper.order.next, kFewCount);
    EXPECT_EQ(keeper.order.wrong, 0U);
    EXPECT_EQ(keeper.refused, 0U);
    EXPECT_FALSE(has_failed());
}

TEST_F(MsgLimitsWindow, notices_that_nobody_polls_wait_at_their_sender) {
    const Shared memory(context_.get(), 64);
    const tw_key_h key = memory.key_for(node(0));
    run_some();
    node(1).done.clear();
    tw_op_t how{};
    how.flags = TW_OP_IMM | TW_OP_INJECT;
    for (std::uint64_t i = 0; i < kNotices; ++i) {
        how.imm = i;
        ASSERT_GE(tw_put(ours_, &i, sizeof i, memory.address(), key, &how, nullptr), TW_OK);
        if (i % 8 == 0)
            tw_worker_progress(node(1).worker());
    }
    receive_alone();
    expect_within_window(kFewBytes);
    run_until([&] { return node(1).done.size() == kNotices || has_failed(); });
    ASSERT_EQ(node(1).done.size(), kNotices);
    for (const tw_completion_t& done : node(1).done)
        order_.add(done.imm);
    EXPECT_EQ(order_.wrong, 0U);
    EXPECT_FALSE(has_failed());
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
