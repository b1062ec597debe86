// SPDX-License-Identifier: BSD-3-Clause
// Sleeping in poll(2) until something happens. Threads are used here, each with entities of its
// own, because who sleeps cannot drive the other side.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Event);
TW_CONTRACT_OF_TWO(EventOfTwo);

constexpr int kPatienceMs = 10000;  // a wake-up that takes longer counts as lost

/// Times that a wake-up could be lost, for cases that look for a race: TAGWIRE_TEST_ROUNDS.
std::uint64_t rounds() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr std::uint64_t kRounds = 2000;
#else
    constexpr std::uint64_t kRounds = 5000;
#endif
    const char* text = std::getenv("TAGWIRE_TEST_ROUNDS");
    return text == nullptr ? kRounds : std::strtoull(text, nullptr, 10);
}

int event_fd(Entity& entity) {
    int fd = -1;
    EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(entity.iface(), &fd));
    EXPECT_GE(fd, 0);
    return fd;
}

bool is_readable(int fd, int timeout_ms) {
    pollfd entry = {fd, POLLIN, 0};
    return poll(&entry, 1, timeout_ms) == 1;
}

ucs_status_t arm_until_idle(Entity& entity, unsigned events) {
    for (int i = 0; i < 100000; ++i) {
        while (entity.progress() != 0) {
        }
        const ucs_status_t status = uct_iface_event_arm(entity.iface(), events);
        if (status != UCS_ERR_BUSY)
            return status;
    }
    return UCS_ERR_BUSY;
}

/// Armed and asleep, at the latest after some wake-ups that brought nothing: acknowledgements and
/// timers of a transport may wake whoever armed for messages.
bool falls_asleep(Entity& entity, unsigned events) {
    constexpr int kWakeUpsMax = 100;
    for (int i = 0; i < kWakeUpsMax; ++i) {
        if (arm_until_idle(entity, events) != UCS_OK)
            return false;
        if (!is_readable(event_fd(entity), 1))
            return true;
    }
    return false;
}

/// Progresses, and sleeps whenever there is nothing to do. False: nobody woke it. Another thread
/// may see whether it sleeps.
bool sleep_until(Entity& entity, unsigned events, const std::function<bool()>& done,
                 std::atomic<bool>* is_asleep_p = nullptr) {
    std::atomic<bool> unseen;
    std::atomic<bool>& is_asleep = is_asleep_p == nullptr ? unseen : *is_asleep_p;
    using SteadyClock = std::chrono::steady_clock;
    const int fd = event_fd(entity);
    std::uint64_t arrived = entity.am_count;
    SteadyClock::time_point last = SteadyClock::now();
    while (!done()) {
        if (entity.progress() != 0)
            continue;
        const ucs_status_t status = uct_iface_event_arm(entity.iface(), events);
        if (status == UCS_ERR_BUSY)
            continue;
        // Relaxed: it must not order what the descriptor is to order.
        is_asleep.store(true, std::memory_order_relaxed);
        const bool is_woken = status == UCS_OK && is_readable(fd, kPatienceMs);
        is_asleep.store(false, std::memory_order_relaxed);
        if (!is_woken)
            return false;
        // Wake-ups that bring nothing, such as keepalive's, are no reason to wait for ever.
        const SteadyClock::time_point now = SteadyClock::now();
        if (std::exchange(arrived, entity.am_count) != entity.am_count)
            last = now;
        else if (now - last > std::chrono::milliseconds(kPatienceMs))
            return false;
    }
    return true;
}

/// Drives an entity, in a thread of its own, as long as it lives.
class Driver {
  public:
    explicit Driver(Entity& entity)
        : thread_([this, &entity] {
              while (!stop_.load(std::memory_order_relaxed)) {
                  entity.progress();
                  std::this_thread::yield();
              }
          }) {}
    ~Driver() {
        stop_.store(true, std::memory_order_relaxed);
        thread_.join();
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

  private:
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

#define TW_NEED_EVENT(flags)                               \
    do {                                                   \
        if ((attr().cap.event_flags & (flags)) != (flags)) \
            GTEST_SKIP() << "not offered: " #flags;        \
    } while (false)

TEST_P(Event, without_the_capability_there_is_no_descriptor) {
    if ((attr().cap.event_flags & UCT_IFACE_FLAG_EVENT_FD) != 0) {
        EXPECT_EQ(event_fd(sender()), event_fd(sender())) << "not the same one twice";
        return;
    }
    int fd = -1;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_iface_event_fd_get(sender().iface(), &fd));
}

TEST_P(Event, an_arriving_message_wakes_who_armed) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV);
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    const int fd = event_fd(receiver());
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == 1; }));
    drain();
    for (std::size_t round = 2; round < 20; ++round) {
        ASSERT_TRUE(falls_asleep(receiver(), UCT_EVENT_RECV)) << "awake although nothing happens";
        ASSERT_EQ(UCS_OK, retry_alone(sender(), [&] {
                      return uct_ep_am_short(ep(), kId, round, nullptr, 0);
                  }));
        ASSERT_TRUE(is_readable(fd, kPatienceMs));
        ASSERT_TRUE(until([&] { return receiver().am.size() == round; }));
    }
}

TEST_P(Event, tagged_messages_and_rendezvous_wake_too) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV);
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const int fd = event_fd(receiver());
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), 1, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 1; }));
    ASSERT_EQ(UCS_OK, arm_until_idle(receiver(), UCT_EVENT_RECV));
    ASSERT_EQ(UCS_OK,
              retry_alone(sender(), [&] { return uct_ep_tag_eager_short(ep(), 2, nullptr, 0); }));
    EXPECT_TRUE(is_readable(fd, kPatienceMs));
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 2; }));

    ASSERT_EQ(UCS_OK, arm_until_idle(receiver(), UCT_EVENT_RECV));
    ASSERT_EQ(UCS_OK, retry_alone(sender(),
                                  [&] { return uct_ep_tag_rndv_request(ep(), 3, nullptr, 0, 0); }));
    EXPECT_TRUE(is_readable(fd, kPatienceMs));
    ASSERT_TRUE(until([&] { return receiver().rndv.size() == 1; }));
}

TEST_P(Event, arm_is_busy_while_a_message_waits) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV);
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == 1; }));
    drain();
    ASSERT_EQ(UCS_OK, uct_ep_am_short(ep(), kId, 1, nullptr, 0));
    // Armed all the same is right too, if it is awake then; asleep with a message waiting is not.
    const ucs_status_t status = uct_iface_event_arm(receiver().iface(), UCT_EVENT_RECV);
    if (status == UCS_OK) {
        EXPECT_TRUE(is_readable(event_fd(receiver()), kPatienceMs));
    } else {
        EXPECT_EQ(UCS_ERR_BUSY, status);
    }
    ASSERT_TRUE(until([&] { return receiver().am.size() == 2; }));
}

TEST_P(EventOfTwo, a_send_completion_wakes_who_armed_for_it) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_SEND_COMP);
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    Receive receive(receiver(), 1000000);
    ASSERT_EQ(UCS_OK, receive.post(9));
    const Buffer payload = make_payload(sender(), 1000000, 4);
    const uct_iov_t iov = payload.iov();
    Completion completion;
    ASSERT_EQ(UCS_OK, retry([&] {
                  const auto handle =
                      uct_ep_tag_rndv_zcopy(ep(), 9, nullptr, 0, &iov, 1, 0, &completion);
                  return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
              }));
    {
        const Driver peer(receiver());
        EXPECT_TRUE(sleep_until(sender(), UCT_EVENT_SEND_COMP | UCT_EVENT_RECV,
                                [&] { return completion.calls > 0; }));
    }
    // Where a device carries the data, its owner may hear of it later than the sender.
    EXPECT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_TRUE(has_pattern(receive.received(), 4));
}

// Both sides sleep after every message, so each round trip holds two chances to lose a wake-up.
TEST_P(EventOfTwo, two_sleepers_wake_each_other_every_time) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV);
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    const std::uint64_t rounds_max = rounds();
    sender().keep_record = receiver().keep_record = false;
    uct_ep_h there = ep();
    uct_ep_h back = back_ep();
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(there, kId, 0, nullptr, 0); }));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(back, kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am_count == 1 && sender().am_count == 1; }));

    const auto volley = [this, rounds_max](Entity& entity, uct_ep_h endpoint, bool serves) {
        const auto send = [&](std::uint64_t round) {
            return retry_alone(entity,
                               [&] { return uct_ep_am_short(endpoint, kId, round, nullptr, 0); });
        };
        for (std::uint64_t round = 0; round < rounds_max; ++round) {
            if (serves) {
                EXPECT_EQ(UCS_OK, send(round));
            }
            if (!sleep_until(entity, UCT_EVENT_RECV, [&] { return entity.am_count == round + 2; }))
                return round;
            if (!serves) {
                EXPECT_EQ(UCS_OK, send(round));
            }
        }
        return rounds_max;
    };
    std::uint64_t peer_rounds = 0;
    std::thread peer([&] { peer_rounds = volley(receiver(), back, false); });
    const std::uint64_t own_rounds = volley(sender(), there, true);
    peer.join();
    EXPECT_EQ(rounds_max, own_rounds) << "slept through a message";
    EXPECT_EQ(rounds_max, peer_rounds) << "slept through a message";
}

// The sender runs freely and the ring fills: the receiver sleeps whenever it has caught up, the
// sender whenever it is full.
TEST_P(EventOfTwo, a_sleeping_receiver_and_a_sleeping_sender_lose_no_wake_up) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV);
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    // With little room each message is slept for, over ud each window.
    const Resource& resource = GetParam().resource;
    const std::uint64_t each = knobs_of(resource).has_little_room ? 2
                               : resource.transport == "ud"       ? 4
                                                                  : 15;
    const std::uint64_t messages = each * rounds();
    receiver().keep_record = false;
    bool received = false;
    std::atomic<bool> is_asleep = false;
    std::thread peer([&] {
        received = sleep_until(
            receiver(), UCT_EVENT_RECV, [&] { return receiver().am_count == messages; },
            &is_asleep);
    });
    std::uint64_t sent = 0;
    std::uint64_t refused = 0;
    while (sent < messages && refused < 2'000'000'000) {
        const ucs_status_t status = uct_ep_am_short(ep(), kId, sent, nullptr, 0);
        if (status == UCS_OK) {
            ++sent;
            // Now and then a pause until the other side sleeps.
            if (sent % 1024 == 0)
                for (int i = 0; i < 20000 && !is_asleep.load(std::memory_order_relaxed); ++i) {
                    sender().progress();
                    std::this_thread::yield();
                }
        } else {
            ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
            sender().progress();
            std::this_thread::yield();  // the receiver may lack a processor
            ++refused;
        }
    }
    // Messages that have no room yet go with progress.
    for (std::uint64_t i = 0;
         i < kStepsMax && uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_INPROGRESS; ++i)
        sender().progress();
    peer.join();
    EXPECT_EQ(messages, sent);
    EXPECT_TRUE(received) << "slept through a message after " << receiver().am_count;
}

// Requests that wait for room do not keep their owner awake, and it comes to them when there is
// room.
TEST_P(EventOfTwo, a_sender_whose_requests_wait_for_room_may_sleep) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_SEND_COMP);
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_PENDING);
    struct Waiting : uct_pending_req_t {
        uct_ep_h ep;
        bool sent;
    } request{};
    request.ep = ep();
    request.func = [](uct_pending_req_t* self) {
        auto& mine = *static_cast<Waiting*>(self);
        const ucs_status_t status = uct_ep_am_short(mine.ep, kId, 0, nullptr, 0);
        mine.sent = status == UCS_OK;
        return status;
    };
    // The peer must know us first: connecting keeps both awake.
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == 1; }));
    drain();
    std::uint64_t sent = 1;
    ucs_status_t status = UCS_OK;
    for (; sent < 10'000'000 && (status = uct_ep_am_short(ep(), kId, sent, nullptr, 0)) == UCS_OK;)
        ++sent;
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &request, 0));
    EXPECT_EQ(UCS_OK, arm_until_idle(sender(), UCT_EVENT_SEND_COMP | UCT_EVENT_RECV));
    {
        const Driver peer(receiver());
        EXPECT_TRUE(sleep_until(sender(), UCT_EVENT_SEND_COMP | UCT_EVENT_RECV,
                                [&] { return request.sent; }));
    }
    // Over ud most of the messages are still with the sender, and go by its progress.
    EXPECT_TRUE(until([&] { return receiver().am.size() == sent + 1; }));
}

TEST_P(Event, progress_alone_delivers_to_who_is_armed) {
    TW_NEED_EVENT(UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV);
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == 1; }));
    for (std::size_t round = 2; round < 100; ++round) {
        ASSERT_EQ(UCS_OK, arm_until_idle(receiver(), UCT_EVENT_RECV));
        ASSERT_EQ(UCS_OK, retry_alone(sender(), [&] {
                      return uct_ep_am_short(ep(), kId, round, nullptr, 0);
                  }));
        ASSERT_TRUE(until([&] { return receiver().am.size() == round; }))
            << "needed the descriptor";
    }
}

}  // namespace
}  // namespace tagwire::test
