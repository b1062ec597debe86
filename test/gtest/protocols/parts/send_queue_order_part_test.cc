// SPDX-License-Identifier: BSD-3-Clause
// The send queue without memory, and with everything in any order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/send_queue_part.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::Ack;
using proto::Control;
using proto::Line;
using proto::Request;
using proto::RequestKind;

/// Without memory of the heap control messages are queued in the reserve, and none is lost.
TEST(SendQueueMemory, control_messages_wait_without_memory) {
    ASSERT_TRUE(ucs::reserve_open());
    for (unsigned long which = 1; which < 4; ++which) {
        QueueBench bench;
        bench.uct.room_for = 0;
        constexpr std::uint32_t kMessages = 1000;
        {
            const FailingAllocation failing(which);
            for (std::uint32_t i = 0; i < kMessages; ++i)
                bench.queue.push_control(Control::of(Ack{i}));
        }
        EXPECT_EQ(bench.queue.controls(), kMessages);
        while (bench.queue.controls() > 0) {
            bench.give_room();
            bench.queue.run();
        }
        ASSERT_EQ(bench.uct.sent.size(), kMessages);
        for (std::uint32_t i = 0; i < kMessages; ++i) {
            Control message;
            ASSERT_TRUE(proto::decode(proto::WireBytes(bench.uct.sent[i].bytes), &message));
            EXPECT_EQ(message.as<Ack>().send_id, i);
        }
    }
}

// ---- Everything in any order

/// An operation before which another one must have begun, or ended.
void expect_order(const QueueBench& bench, const std::vector<const Request*>& order) {
    std::map<const Request*, std::size_t> begun;
    for (std::size_t i = 0; i < bench.started.size(); ++i)
        EXPECT_TRUE(begun.emplace(bench.started[i], i).second) << "it has begun twice";
    EXPECT_EQ(begun.size(), order.size());
    std::map<Line, std::size_t> last;  // of each stream
    std::size_t last_fence = 0, newest = 0;
    for (const Request* request : order) {
        const std::size_t at = begun.at(request);
        const bool is_urgent = request->stream == Line::kUrgent;
        const auto [before, is_first] = last.emplace(request->stream, at);
        EXPECT_TRUE(is_first || before->second < at) << "one of its line has passed it";
        before->second = at;
        if (!is_urgent) {
            EXPECT_GE(at, last_fence) << "it has passed a fence";
        }
        if ((request->flags & TW_OP_FENCE) != 0) {
            EXPECT_GE(at, newest) << "a fence has passed one";
            last_fence = std::max(last_fence, at);
        }
        newest = std::max(newest, at);
    }
}

TEST(SendQueueRandom, everything_begins_once_and_in_its_order) {
    for_each_seed(60, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        QueueBench bench;
        std::vector<const Request*> order;
        std::vector<Request*> under_way;
        const auto end_one = [&] {
            if (under_way.empty())
                return;
            const std::size_t i = random() % under_way.size();
            bench.finish(*under_way[i]);
            under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
            bench.queue.run();
        };
        bench.on_start = [&](Request& request) {
            if (bench.answers[&request] == UCS_INPROGRESS)
                under_way.push_back(&request);
        };
        for (unsigned i = 0; i < 200; ++i) {
            for (const auto& [request, status] : bench.answers)
                if (status == UCS_ERR_NO_RESOURCE)
                    bench.answers[request] = random() % 2 == 0 ? UCS_INPROGRESS : status;
            bench.lane.is_paused = random() % 4 == 0;
            bench.awaits_replies = random() % 4 == 0;
            switch (random() % 6) {
                case 0:
                    bench.uct.tell_room();
                    break;
                case 1:
                    end_one();
                    break;
                case 2:
                    bench.queue.push_control(Control::of(proto::Probe{}));
                    break;
                default: {
                    std::uint32_t flags = random() % 6 == 0 ? TW_OP_FENCE : 0;
                    const bool is_rma = random() % 3 == 0;
                    if (random() % 5 == 0)
                        flags |= is_rma ? TW_OP_IMM : TW_OP_URGENT;
                    Request& request =
                        is_rma ? bench.make_rma(flags) : bench.make(RequestKind::kSend, flags);
                    constexpr ucs_status_t kAnswers[] = {UCS_OK, UCS_INPROGRESS,
                                                         UCS_ERR_NO_RESOURCE};
                    bench.answer(request, kAnswers[random() % 3]);
                    order.push_back(&request);
                    EXPECT_TRUE(bench.queue.submit(request));
                }
            }
            if (bench.queue.take_stall())
                bench.queue.run();
        }
        bench.answers.clear();
        bench.lane.is_paused = bench.awaits_replies = false;
        for (unsigned i = 0; i < 1000 && (bench.queue.has_operations() || !under_way.empty());
             ++i) {
            bench.uct.tell_room();
            bench.queue.take_stall();
            bench.queue.run();
            end_one();
        }
        EXPECT_TRUE(bench.queue.is_empty());
        expect_order(bench, order);
        for (const Request* request : order) {
            const bool was_under_way =
                std::ranges::find(bench.begun_calls, request) != bench.begun_calls.end();
            EXPECT_EQ(bench.end_of(*request), was_under_way ? UCS_INPROGRESS : UCS_OK);
        }
    });
}

}  // namespace
}  // namespace tagwire::test
