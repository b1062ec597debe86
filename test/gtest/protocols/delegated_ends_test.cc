// SPDX-License-Identifier: BSD-3-Clause
// Plain calls that the owner of a worker's lock carries out, and that end other operations: their
// callbacks wait, since the lock is being left.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "protocols/fixture.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kNumberTag = 1, kLongTag = 2, kPingTag = 3;

/// Long messages go in parts; the transport has room for many of them.
class MsgDelegatedEnds : private Settings, public MsgTest {
  protected:
    using Act = std::function<void()>;

    MsgDelegatedEnds()
        : Settings({{"TAGWIRE_RNDV_THRESHOLD", "16m"},
                    {"TAGWIRE_UNEXPECTED_BYTES", "128m"},
                    {"TAGWIRE_SM_RING_SLOTS", "4096"},
                    {"TAGWIRE_SM_POOL_BYTES", "32m"}}) {}

    void SetUp() override {
        ep_ = shared_.to(peer_);
        send_long(Bytes(1));
        parts_before_ = shared_.counter("tx_parts");
    }
    proto::Worker& core() { return proto::worker_of(shared_.worker()); }
    void progress_until(const std::function<bool()>& is_over) {
        while (!is_over()) {
            tw_worker_progress(shared_.worker());
            tw_worker_progress(peer_.worker());
        }
    }
    static tw_op_t counted(std::atomic<int>* ended) {
        tw_op_t how{};
        how.context = ended;
        how.complete = [](const tw_completion_t* done) {
            EXPECT_EQ(done->status, TW_OK);
            ++*static_cast<std::atomic<int>*>(done->context);
        };
        return how;
    }
    /// It is sent and received.
    void send_long(const Bytes& data) {
        std::atomic<int> ended{0};
        const tw_op_t how = counted(&ended);
        tw_op_t deliver = how;
        deliver.flags = TW_OP_DELIVERY_COMPLETE;
        Bytes to(data.size());
        ASSERT_EQ(tw_tag_recv(peer_.worker(), to.data(), to.size(), kLongTag, 0, &how, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(ep_, data.data(), data.size(), kLongTag, &deliver, nullptr),
                  TW_INPROGRESS);
        parts_of_call_ = shared_.counter("tx_parts") - parts_before_;
        progress_until([&] { return ended == 2; });
        EXPECT_EQ(to, data);
    }
    /// In a callback: another thread delegates calls; most of a long message leaves, and its rest
    /// with the first of those calls, which this thread carries out when it leaves the lock.
    void send_long_and_carry_out(const Bytes& data, std::atomic<int>* ended) {
        core().lock.lock();
        core().lock.open();
        std::thread([this] {
            for (std::uint64_t number = 0; number < 3; ++number)
                EXPECT_EQ(send_number(number), TW_OK);
        }).join();
        const tw_op_t how = counted(ended);
        EXPECT_EQ(proto::endpoint_of(ep_).send(
                      {data.data(), data.size(), nullptr, 0, kLongTag, true, &how, nullptr}),
                  TW_INPROGRESS);
        core().leave();
        EXPECT_EQ(*ended, 0) << "callbacks do not nest";
    }
    tw_status_t send_number(std::uint64_t number) {
        tw_op_t inject{};
        inject.flags = TW_OP_INJECT;
        return tw_tag_send(ep_, &number, sizeof number, kNumberTag, &inject, nullptr);
    }
    /// The length of a message that two calls send, the first of them the most that one does.
    std::size_t length_of_two_calls() {
        constexpr std::size_t kProbe = std::size_t{4} << 20;
        send_long(pattern(kProbe, 1));
        const std::uint64_t parts = shared_.counter("tx_parts") - parts_before_;
        return kProbe / parts * (parts_of_call_ + parts_of_call_ / 8);
    }

    Node shared_{context_.get(), TW_THREAD_MULTI};
    Node peer_{context_.get(), TW_THREAD_SINGLE};
    tw_ep_h ep_ = nullptr;
    std::uint64_t parts_before_ = 0, parts_of_call_ = 0;
};

TEST_F(MsgDelegatedEnds, a_delegated_call_that_ends_another_operation_is_carried_out_once) {
    if (offloads())
        GTEST_SKIP() << "where devices match tags no message has parts";
    const Bytes data = pattern(length_of_two_calls(), 2);
    std::atomic<int> long_ended{0};
    Act act = [&] { send_long_and_carry_out(data, &long_ended); };
    tw_op_t ping{};
    ping.context = &act;
    ping.complete = [](const tw_completion_t* done) { (*static_cast<Act*>(done->context))(); };
    char byte = 0;
    ASSERT_EQ(tw_tag_recv(shared_.worker(), &byte, 1, kPingTag, 0, &ping, nullptr), TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(peer_.to(shared_), "p", 1, kPingTag, nullptr, nullptr), TW_OK);
    std::atomic<int> came{0};
    const tw_op_t how = counted(&came);
    Bytes to(data.size());
    ASSERT_EQ(tw_tag_recv(peer_.worker(), to.data(), to.size(), kLongTag, 0, &how, nullptr),
              TW_INPROGRESS);
    std::uint64_t numbers[4] = {9, 9, 9, 9};
    for (std::uint64_t& number : numbers)
        ASSERT_EQ(tw_tag_recv(peer_.worker(), &number, 8, kNumberTag, 0, &how, nullptr),
                  TW_INPROGRESS);
    progress_until([&] { return long_ended == 1 && came >= 4; });
    for (int i = 0; i < 1000; ++i)
        tw_worker_progress(peer_.worker());
    EXPECT_EQ(to, data);
    EXPECT_EQ(came, 4) << "three numbers and the long message";
    for (std::uint64_t i = 0; i < 3; ++i)
        EXPECT_EQ(numbers[i], i);
    EXPECT_EQ(numbers[3], 9U);
}

// The same by chance: one thread progresses and sends long messages in callbacks, another one sends
// numbers.
TEST_F(MsgDelegatedEnds, a_stream_beside_callbacks_that_send_arrives_once_and_in_order) {
    if (offloads())
        GTEST_SKIP() << "where devices match tags no message has parts";
    constexpr std::uint64_t kNumbers = 3000, kUnderWay = 512;
    constexpr auto kLimit = std::chrono::seconds(60);
    struct Stream {
        tw_ep_h ep;
        tw_worker_h at;
        Bytes data;
        char ping;
        std::atomic<int> long_ended{0};
        std::atomic<std::uint64_t> came{0};

        static void on_ping(const tw_completion_t* done) {
            auto& self = *static_cast<Stream*>(done->context);
            if (done->status != TW_OK)
                return;
            self.expect_ping();
            const tw_op_t how = counted(&self.long_ended);
            const tw_status_t status =
                tw_tag_send(self.ep, self.data.data(), self.data.size(), kLongTag, &how, nullptr);
            EXPECT_GE(status, TW_OK);
            if (status == TW_OK)
                ++self.long_ended;
        }
        void expect_ping() {
            tw_op_t how{};
            how.context = this;
            how.complete = on_ping;
            how.flags = TW_OP_COMPLETION;
            EXPECT_EQ(tw_tag_recv(at, &ping, 1, kPingTag, 0, &how, nullptr), TW_INPROGRESS);
        }
    } stream{ep_, shared_.worker(), pattern(length_of_two_calls(), 3), 0};
    stream.expect_ping();
    std::atomic<bool> is_over{false};
    std::thread progresses([&] {
        while (!is_over)
            tw_worker_progress(shared_.worker());
    });
    std::thread sends([&] {
        for (std::uint64_t number = 0; number < kNumbers;) {
            if (number < stream.came + kUnderWay && send_number(number) >= TW_OK)
                ++number;
            else
                std::this_thread::yield();
        }
    });
    // The peer: each number is to come once, each long message is answered by a ping.
    Bytes to(stream.data.size());
    std::uint64_t number = 0;
    std::atomic<int> numbers{0}, longs{0};
    tw_op_t one = counted(&numbers), another = counted(&longs);
    one.flags = another.flags = TW_OP_COMPLETION;  // they may be here already
    const auto expect_number = [&] {
        EXPECT_EQ(tw_tag_recv(peer_.worker(), &number, 8, kNumberTag, 0, &one, nullptr),
                  TW_INPROGRESS);
    };
    const auto expect_long = [&] {
        EXPECT_EQ(tw_tag_recv(peer_.worker(), to.data(), to.size(), kLongTag, 0, &another, nullptr),
                  TW_INPROGRESS);
        EXPECT_GE(tw_tag_send(peer_.to(shared_), "p", 1, kPingTag, nullptr, nullptr), TW_OK);
    };
    expect_number();
    expect_long();
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (stream.came < kNumbers && !HasFailure()) {
        tw_worker_progress(peer_.worker());
        if (numbers > 0) {
            --numbers;
            EXPECT_EQ(number, stream.came) << "each once, in their order";
            ++stream.came;
            expect_number();
        }
        if (longs > 0) {
            --longs;
            EXPECT_EQ(to, stream.data);
            expect_long();
        }
        if (std::chrono::steady_clock::now() > end) {
            std::fprintf(stderr, "it hangs: %lu of %lu numbers have come\n",
                         static_cast<unsigned long>(stream.came),
                         static_cast<unsigned long>(kNumbers));
            std::abort();  // threads that hang in the library cannot be joined
        }
    }
    stream.came = kNumbers;
    sends.join();
    is_over = true;
    progresses.join();
}

}  // namespace
}  // namespace tagwire::test
