// SPDX-License-Identifier: BSD-3-Clause
// More unexpected messages than anybody wants: another tag gets through, nothing is lost, and who
// has sent too many is told to wait.
//
// TAGWIRE_TEST_FLOOD=<n> sets how many there are, at least some thousands.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kFlood = 1, kOther = 2;
constexpr std::size_t kWindow = 64;  // receives of the flood that are posted at a time
constexpr std::size_t kOtherLengths[] = {8, 5000, 300000};

std::uint64_t flood_messages() {
    const char* const named = std::getenv("TAGWIRE_TEST_FLOOD");
    return named == nullptr ? 20000 : std::strtoull(named, nullptr, 10);
}

/// A posted receive of the flood.
struct FloodReceive {
    Bytes bytes;
    tw_completion_t done{};
    bool is_over = false;
};

/// node(0) floods node(1).
class MsgFlood : private Settings, public MsgTest {
  protected:
    static constexpr std::size_t kKept = 600;  // bytes that a message takes at most, generously
    static std::string bytes_for(std::uint64_t messages) {
        return std::to_string(messages * kKept);
    }

    explicit MsgFlood(std::size_t length = 8, std::uint64_t kept_max = 2 * flood_messages() + 16)
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", bytes_for(flood_messages())},
                    {"TAGWIRE_UNEXPECTED_MAX", std::to_string(kept_max)}}),
          length_(length) {}

    void SetUp() override {
        // Connected both ways: who is flooded must be able to say so.
        Bytes nothing;
        send(node(0), node(1), {}, kOther);
        expect(node(1), nothing);
        send(node(1), node(0), {}, kOther);
        expect(node(0), nothing);
        // Each message begins with its number.
        flood_ = pattern(count_ * length_, 1);
        for (std::uint64_t i = 0; i < count_; ++i)
            std::memcpy(flood_.data() + i * length_, &i, sizeof i);
    }

    std::span<const std::byte> message(std::uint64_t i) const {
        return {flood_.data() + i * length_, length_};
    }
    /// Sends until all are sent, or the sender is told to wait.
    void send_some() {
        Node& from = node(0);
        const tw_ep_h ep = from.to(node(1));
        for (; sent_ < count_; ++sent_) {
            const auto data = message(sent_);
            const tw_status_t status =
                tw_tag_send(ep, data.data(), data.size(), kFlood, nullptr, nullptr);
            if (status == TW_ERR_NO_RESOURCE)
                return;
            ASSERT_GE(status, TW_OK);
            if (sent_ % 16 == 0) {
                from.progress();
                node(1).progress();
            }
        }
    }
    void expect(Node& at, Bytes& received) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        ASSERT_EQ(
            tw_tag_recv(at.worker(), received.data(), received.size(), kOther, 0, &how, nullptr),
            TW_INPROGRESS);
        EXPECT_EQ(end_of(at, &mark).status, TW_OK);
    }
    /// Messages of the other tag get through to node(1).
    void expect_others(Node& from) {
        for (const std::size_t length : kOtherLengths) {
            const Bytes data = pattern(length, length);
            Bytes received(length);
            int sent = 0;
            const tw_op_t how = op(&sent, TW_OP_DELIVERY_COMPLETE);
            ASSERT_EQ(tw_tag_send(from.to(node(1)), data.data(), length, kOther, &how, nullptr),
                      TW_INPROGRESS);
            expect(node(1), received);
            EXPECT_EQ(end_of(from, &sent).status, TW_OK);
            EXPECT_EQ(received, data);
        }
    }
    void post(FloodReceive& receive) {
        receive = {.bytes = Bytes(length_)};
        tw_op_t how{};
        how.context = &receive;
        tw_message_info_t info{};
        how.info = &info;
        how.complete = [](const tw_completion_t* done) {
            auto& ended = *static_cast<FloodReceive*>(done->context);
            ended.done = *done;
            ended.is_over = true;
        };
        const tw_status_t status =
            tw_tag_recv(node(1).worker(), receive.bytes.data(), length_, kFlood, 0, &how, nullptr);
        ASSERT_GE(status, TW_OK);
        if (status != TW_OK)
            return;
        receive.done.status = status;
        receive.done.length = info.length;
        receive.is_over = true;
    }
    void check(const FloodReceive& receive, std::uint64_t number) {
        ASSERT_EQ(receive.done.status, TW_OK) << number;
        ASSERT_EQ(receive.done.length, length_) << number;
        ASSERT_TRUE(std::ranges::equal(receive.bytes, message(number))) << number;
    }
    /// Sends what is still to be sent, and receives all of it in its order.
    void receive_all() {
        std::vector<FloodReceive> receives(kWindow);
        std::uint64_t posted = 0, received = 0;
        run_until([&] {
            while (posted < count_ && posted < received + kWindow && !HasFatalFailure())
                post(receives[posted++ % kWindow]);
            while (received < posted && receives[received % kWindow].is_over) {
                check(receives[received % kWindow], received);
                ++received;
            }
            send_some();
            return received == count_ || HasFatalFailure();
        });
        EXPECT_EQ(sent_, count_);
        EXPECT_TRUE(node(0).done.empty()) << "a send has failed";
        run_some();
        EXPECT_EQ(probe(node(1).worker(), kFlood), TW_ERR_NO_MESSAGE);
    }

    const std::uint64_t count_ = flood_messages();
    const std::size_t length_;
    std::uint64_t sent_ = 0;
    Bytes flood_;
};

TEST_F(MsgFlood, another_tag_gets_through_and_everything_is_received_in_order) {
    send_some();
    ASSERT_EQ(sent_, count_) << "the sender was told to wait";
    run_until([&] { return node(1).counter("rx_unexpected") >= count_; });
    expect_others(node(0));
    receive_all();
}

// Most of it stays with the sender.
class MsgFloodOfData : public MsgFlood {
  protected:
    static constexpr std::size_t kBytes = 240;
    MsgFloodOfData() : MsgFlood(kBytes) {}
};

TEST_F(MsgFloodOfData, another_tag_gets_through_and_everything_is_received_in_order) {
    send_some();
    ASSERT_EQ(sent_, count_) << "the sender was told to wait";
    run_until([&] { return node(1).counter("rx_unexpected") >= count_; });
    EXPECT_GT(node(1).counter("paused_eager"), 0U);
    EXPECT_GT(node(0).counter("tx_rndv"), count_ / 4);
    expect_others(node(0));
    receive_all();
}

// More than are kept.
class MsgFloodOfMore : public MsgFlood {
  protected:
    MsgFloodOfMore() : MsgFlood(8, kept_max()) {}
    static std::uint64_t kept_max() { return flood_messages() / 4; }
};

TEST_F(MsgFloodOfMore, the_sender_waits_and_nothing_is_lost) {
    run_until([&] {
        send_some();
        return node(1).counter("paused") > 0;
    });
    run_some();
    EXPECT_LT(sent_, count_);
    EXPECT_EQ(tw_tag_send(node(0).to(node(1)), nullptr, 0, kOther, nullptr, nullptr),
              TW_ERR_NO_RESOURCE);
    EXPECT_LE(node(1).counter("rx_unexpected"), kept_max());
    expect_others(node(2));
    receive_all();
    expect_others(node(0));
}

}  // namespace
}  // namespace tagwire::test
