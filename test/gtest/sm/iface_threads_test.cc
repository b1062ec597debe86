// SPDX-License-Identifier: BSD-3-Clause
//
// Interfaces of one process, each owned by a thread of its own, that talk to each other through the
// public API: the state that they share must be thread-safe, and no wake-up may get lost.

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"
#include "resource.hpp"

namespace tagwire::test {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kRounds = 1'000;
#else
constexpr std::uint64_t kRounds = 10'000;
#endif
constexpr std::uint8_t kThreadsId = Entity::kAmId;
constexpr int kPatienceMs = 20'000;  // a wake-up that takes longer counts as lost

/** Data that the threads of a case exchange other than by messages. */
class Meeting {
  public:
    explicit Meeting(std::size_t sides)
        : device(sides),
          iface(sides),
          sides_(sides),
          barrier_(static_cast<std::ptrdiff_t>(sides)) {}
    std::vector<Bytes> device, iface;

    void wait() { barrier_.arrive_and_wait(); }

    /** Keeps serving the others until all are done. */
    void leave(Entity& entity) {
        done_.fetch_add(1);
        while (done_.load() < sides_)
            if (entity.progress() == 0)
                std::this_thread::yield();
        wait();
    }

  private:
    std::size_t sides_;
    std::barrier<> barrier_;
    std::atomic<std::size_t> done_{0};
};

/** A thread's interface with endpoints to all others'. */
struct Side {
    Side(Meeting& meeting, std::size_t self, const EntityOptions& options = {})
        : entity(resource_of("sm"), options) {
        meeting.device[self] = entity.device_address();
        meeting.iface[self] = entity.iface_address();
        meeting.wait();
        for (std::size_t i = 0; i < meeting.iface.size(); ++i) {
            eps.push_back(i == self
                              ? Endpoint()
                              : connect_to_address(entity, meeting.device[i], meeting.iface[i]));
        }
    }
    template <class Call>
    void must(Call&& call) {
        ucs_status_t status;
        while ((status = call()) == UCS_ERR_NO_RESOURCE)
            if (entity.progress() == 0)
                std::this_thread::yield();
        EXPECT_TRUE(status == UCS_OK || status == UCS_INPROGRESS) << ucs_status_string(status);
    }
    template <class Done>
    void until(Done&& done) {
        while (!done())
            if (entity.progress() == 0)
                std::this_thread::yield();
    }
    /** As until(), but sleeps when there is nothing to do. */
    template <class Done>
    void sleep_until(Done&& done) {
        int fd = -1;
        ASSERT_EQ(uct_iface_event_fd_get(entity.iface(), &fd), UCS_OK);
        while (!done()) {
            if (entity.progress() != 0)
                continue;
            const ucs_status_t status =
                uct_iface_event_arm(entity.iface(), UCT_EVENT_RECV | UCT_EVENT_SEND_COMP);
            if (status == UCS_ERR_BUSY)
                continue;
            ASSERT_EQ(status, UCS_OK);
            pollfd entry{fd, POLLIN, 0};
            ASSERT_EQ(::poll(&entry, 1, kPatienceMs), 1) << "a wake-up was lost";
        }
    }

    Entity entity;
    std::vector<Endpoint> eps;
};

template <class Body>
void run_threads(std::size_t count, Body&& body) {
    (void)all_resources();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i)
        threads.emplace_back([&body, i] { body(i); });
    for (auto& thread : threads)
        thread.join();
}

std::size_t size_of_round(std::uint64_t round, std::size_t max) {
    constexpr std::array<std::size_t, 8> kSizes = {8, 9, 56, 120, 121, 500, 2000, 8256};
    return std::min(kSizes[round % kSizes.size()], max);
}

void send_am_round(Side& side, const Endpoint& to, std::uint64_t round) {
    const Bytes bytes = pattern(size_of_round(round, side.entity.attr().cap.am.max_bcopy), round);
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    side.must([&] {
        if (bytes.size() <= side.entity.attr().cap.am.max_short) {
            return uct_ep_am_short(to, kThreadsId, header, bytes.data() + 8,
                                   static_cast<unsigned>(bytes.size() - 8));
        }
        return send_am_bytes(to, kThreadsId, bytes);
    });
}

TEST(IfaceThreads, two_interfaces_answer_each_other) {
    Meeting meeting(2);
    run_threads(2, [&](std::size_t self) {
        Side side(meeting, self);
        std::uint64_t seen = 0;
        side.entity.keep_record = false;
        side.entity.on_am = [&](const AmMessage& message) {
            EXPECT_TRUE(has_pattern(message.bytes, seen)) << "message " << seen;
            ++seen;
            return UCS_OK;
        };
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            if (self == 0)
                send_am_round(side, side.eps[1], round);
            side.until([&] { return seen > round; });
            if (self == 1)
                send_am_round(side, side.eps[0], round);
        }
        meeting.leave(side.entity);
    });
}

TEST(IfaceThreads, three_senders_flood_one_receiver) {
    constexpr std::size_t kSenders = 3;
    Meeting meeting(kSenders + 1);
    run_threads(kSenders + 1, [&](std::size_t self) {
        Side side(meeting, self);
        std::array<std::uint64_t, kSenders> next{};
        side.entity.keep_record = false;
        side.entity.on_am = [&](const AmMessage& message) {
            std::uint64_t word[2];
            EXPECT_GE(message.bytes.size(), sizeof word);
            std::memcpy(word, message.bytes.data(), sizeof word);
            EXPECT_LT(word[0], kSenders);
            EXPECT_EQ(word[1], next[word[0]]++);
            return UCS_OK;
        };
        if (self == kSenders) {
            side.until([&] {
                return std::accumulate(next.begin(), next.end(), std::uint64_t{0}) ==
                       kSenders * kRounds;
            });
        } else {
            for (std::uint64_t round = 0; round < kRounds; ++round) {
                Bytes bytes(std::max<std::size_t>(16, size_of_round(round, 3000)));
                const std::uint64_t word[2] = {self, round};
                std::memcpy(bytes.data(), word, sizeof word);
                side.must([&] { return send_am_bytes(side.eps[kSenders], kThreadsId, bytes); });
            }
        }
        meeting.leave(side.entity);
    });
}

TEST(IfaceThreads, tagged_messages_meet_receives_of_another_thread) {
    Meeting meeting(2);
    run_threads(2, [&](std::size_t self) {
        Side side(meeting, self);
        const uct_ep_h ep = side.eps[1 - self];
        const auto& cap = side.entity.attr().cap.tag.eager;
        const std::array<std::size_t, 6> sizes = {
            0, 1, cap.max_short, 1000, cap.max_bcopy, cap.max_zcopy};
        Receive receives[2] = {{side.entity, cap.max_zcopy}, {side.entity, cap.max_zcopy}};
        const auto post = [&](std::uint64_t round) {
            return receives[round % 2].post(round, round % 3 == 0 ? 0xff : ~std::uint64_t{0});
        };
        ASSERT_EQ(post(0), UCS_OK);
        meeting.wait();
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            const std::size_t size = sizes[round % sizes.size()];
            Receive& receive = receives[round % 2];
            // Before our message, because the next one is the answer to it.
            ASSERT_EQ(post(round + 1), UCS_OK);
            const Buffer payload = make_payload(side.entity, size, round);
            const Method method = size <= cap.max_short   ? Method::kShort
                                  : size <= cap.max_bcopy ? Method::kBcopy
                                                          : Method::kZcopy;
            Completion sent;
            ucs_status_t status;
            while ((status = send_eager(ep, method, round, 0, payload, &sent)) ==
                   UCS_ERR_NO_RESOURCE)
                side.entity.progress();
            ASSERT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
            side.until([&] { return receive.completed == 1; });
            ASSERT_EQ(receive.status, UCS_OK);
            ASSERT_EQ(receive.sender_tag, round);
            ASSERT_EQ(receive.length, size);
            ASSERT_TRUE(has_pattern(receive.received(), round)) << "round " << round;
            side.until([&] { return status == UCS_OK || sent.calls == 1; });
        }
        EXPECT_EQ(side.entity.eager_count, 0U) << "every message was expected";
        EXPECT_EQ(receives[kRounds % 2].cancel(true), UCS_OK);
        meeting.leave(side.entity);
    });
}

// The sanitizer does not see the order that the ring makes, because each side has it at another
// address, and the receiver reads the sender's buffer itself. So the two also tell each other whose
// buffer it is.
TEST(IfaceThreads, rendezvous_reads_the_buffer_of_another_thread) {
    constexpr std::size_t kBytes = 300'000;
    constexpr std::uint64_t kTransfers = kRounds / 20;
    Meeting meeting(2);
    std::atomic<std::uint64_t> offered{0}, received{0};
    run_threads(2, [&](std::size_t self) {
        Side side(meeting, self);
        if (self == 0) {
            Buffer payload = make_payload(side.entity, kBytes, 0);
            for (std::uint64_t round = 0; round < kTransfers; ++round) {
                fill_pattern(payload.span(), round);
                offered.store(round + 1, std::memory_order_release);
                Completion sent;
                const uct_iov_t iov = payload.iov();
                ucs_status_ptr_t op;
                while (UCS_PTR_STATUS(op = uct_ep_tag_rndv_zcopy(side.eps[1], round, nullptr, 0,
                                                                 &iov, 1, 0, &sent)) ==
                       UCS_ERR_NO_RESOURCE)
                    side.entity.progress();
                ASSERT_FALSE(UCS_PTR_IS_ERR(op));
                side.until([&] { return sent.calls == 1 && received.load() > round; });
                ASSERT_EQ(sent.ended, UCS_OK);
            }
        } else {
            Receive receive(side.entity, kBytes);
            for (std::uint64_t round = 0; round < kTransfers; ++round) {
                ASSERT_EQ(receive.post(round), UCS_OK);
                while (offered.load(std::memory_order_acquire) <= round)
                    std::this_thread::yield();
                side.until([&] { return receive.completed == 1; });
                ASSERT_EQ(receive.status, UCS_OK);
                ASSERT_TRUE(has_pattern(receive.received(), round));
                received.store(round + 1, std::memory_order_release);
            }
        }
        meeting.leave(side.entity);
    });
}

class IfaceSleep : public testing::TestWithParam<const char*> {};

TEST_P(IfaceSleep, two_sleepers_wake_each_other_for_every_message) {
    Meeting meeting(2);
    const EntityOptions options{
        .iface_config = {{"SM_FORCE", std::string("wakeup:") + GetParam()}}};
    run_threads(2, [&](std::size_t self) {
        Side side(meeting, self, options);
        side.entity.keep_record = false;
        for (std::uint64_t round = 0; round < kRounds / 2; ++round) {
            if (self == 0)
                side.must(
                    [&] { return uct_ep_am_short(side.eps[1], kThreadsId, round, nullptr, 0); });
            side.sleep_until([&] { return side.entity.am_count > round; });
            if (self == 1)
                side.must(
                    [&] { return uct_ep_am_short(side.eps[0], kThreadsId, round, nullptr, 0); });
        }
        EXPECT_EQ(side.entity.am_count, kRounds / 2);
        meeting.leave(side.entity);
    });
}

TEST_P(IfaceSleep, a_sleeper_with_many_senders_misses_none) {
    constexpr std::size_t kSenders = 6;  // more than stay hot
    constexpr std::uint64_t kEach = kRounds / 10;
    Meeting meeting(kSenders + 1);
    const EntityOptions options{
        .iface_config = {{"SM_FORCE", std::string("wakeup:") + GetParam()}}};
    std::atomic<std::uint64_t> counted{0};
    run_threads(kSenders + 1, [&](std::size_t self) {
        Side side(meeting, self, options);
        side.entity.keep_record = false;
        if (self == kSenders) {
            side.sleep_until([&] {
                counted.store(side.entity.am_count);
                return side.entity.am_count == kSenders * kEach;
            });
        } else {
            for (std::uint64_t i = 0; i < kEach; ++i) {
                side.must(
                    [&] { return uct_ep_am_short(side.eps[kSenders], kThreadsId, i, nullptr, 0); });
                // Often enough the receiver has time to fall asleep.
                if (i % 8 == self)
                    side.until([&] { return counted.load() + kSenders >= i; });
            }
        }
        meeting.leave(side.entity);
    });
}

INSTANTIATE_TEST_SUITE_P(Barrier, IfaceSleep, testing::Values("membarrier", "fence"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(IfaceThreads, atomics_of_many_threads_on_one_word_add_up) {
    constexpr std::size_t kSides = 4;
    Meeting meeting(kSides);
    Bytes key;
    std::uint64_t address = 0;
    run_threads(kSides, [&](std::size_t self) {
        Side side(meeting, self);
        std::unique_ptr<Buffer> word;
        if (self == 0) {
            word = std::make_unique<Buffer>(side.entity, 8, Backing::kAllocated);
            std::memset(word->data(), 0, 8);
            key = word->packed_rkey();
            address = word->address();
        }
        meeting.wait();
        if (self != 0) {
            const RemoteKey remote(side.entity, key);
            for (std::uint64_t i = 0; i < kRounds; ++i) {
                side.must([&] {
                    return uct_ep_atomic64_post(side.eps[0], UCT_ATOMIC_OP_ADD, self, address,
                                                remote.get());
                });
            }
            side.must([&] { return uct_ep_flush(side.eps[0], 0, nullptr); });
        }
        meeting.leave(side.entity);
        if (self == 0) {
            std::uint64_t sum = 0;
            std::memcpy(&sum, word->data(), sizeof sum);
            EXPECT_EQ(sum, kRounds * (1 + 2 + 3));
        }
    });
}

TEST(IfaceThreads, interfaces_come_and_go_in_all_threads) {
    constexpr std::size_t kSides = 3;
    for (int round = 0; round < 10; ++round) {
        Meeting meeting(kSides);
        run_threads(kSides, [&](std::size_t self) {
            Side side(meeting, self);
            for (std::size_t i = 0; i < kSides; ++i)
                if (i != self)
                    send_am_round(side, side.eps[i], 3);
            side.until([&] { return side.entity.am_count == kSides - 1; });
            meeting.leave(side.entity);
        });
    }
}

}  // namespace
}  // namespace tagwire::test
