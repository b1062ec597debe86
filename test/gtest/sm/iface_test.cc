// SPDX-License-Identifier: BSD-3-Clause
//
// Behaviour of interfaces that is specific to sm: connections that end, and remnants that may be
// left behind.

#include <gtest/gtest.h>
#include <poll.h>
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"
#include "resource.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kId = Entity::kAmId;
constexpr int kSteps = 200'000;

class SmIface : public ::testing::Test {
  protected:
    template <class Done>
    bool until(Done&& done) {
        for (int i = 0; i < kSteps; ++i) {
            if (done())
                return true;
            one.progress();
            other.progress();
        }
        return false;
    }
    ucs_status_t send(uct_ep_h ep, std::uint64_t number) {
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        until([&] {
            status = uct_ep_am_short(ep, kId, number, nullptr, 0);
            return status != UCS_ERR_NO_RESOURCE;
        });
        return status;
    }

    Entity one{resource_of("sm")};
    Entity other{resource_of("sm")};
};

std::uint64_t counter(const Entity& entity, std::string_view name) {
    unsigned count = 0;
    tagwire_uct_iface_query_counters(entity.iface(), nullptr, &count);
    std::vector<tagwire_uct_counter_t> counters(count);
    EXPECT_EQ(tagwire_uct_iface_query_counters(entity.iface(), counters.data(), &count), UCS_OK);
    for (const auto& each : counters)
        if (each.name == name)
            return each.value;
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

/** The messages of a head handler, and their heads. */
struct Heads {
    std::vector<Bytes> heads, messages;

    static ucs_status_t take(void* arg, const void* head, void* data, size_t length, unsigned) {
        auto& heads = *static_cast<Heads*>(arg);
        const auto bytes = [](const void* from, std::size_t count) {
            const auto* first = static_cast<const std::byte*>(from);
            return Bytes(first, first + count);
        };
        heads.heads.push_back(
            bytes(head, std::min<std::size_t>(length, TAGWIRE_UCT_AM_HEAD_BYTES)));
        heads.messages.push_back(bytes(data, length));
        return UCS_OK;
    }
};

TEST_F(SmIface, messages_whose_head_comes_first_go_to_the_head_handler) {
    Endpoint ep = std::move(connect(one, other).forward);
    Heads heads;
    ASSERT_EQ(tagwire_uct_iface_set_am_head_handler(other.iface(), kId, Heads::take, &heads),
              UCS_OK);
    const Bytes message = pattern(3000, 1);
    ASSERT_TRUE(until([&] { return send_am_bytes(ep, kId, message) == UCS_OK; }));
    ASSERT_EQ(UCS_OK, send(ep, 7));
    ASSERT_TRUE(until([&] { return other.am_count == 1; })) << "the one in its slot";
    ASSERT_EQ(heads.messages.size(), 1U);
    EXPECT_EQ(heads.messages[0], message);
    EXPECT_EQ(heads.heads[0], Bytes(message.begin(), message.begin() + TAGWIRE_UCT_AM_HEAD_BYTES));
    ASSERT_EQ(tagwire_uct_iface_set_am_head_handler(other.iface(), kId, nullptr, nullptr), UCS_OK);
    ASSERT_TRUE(until([&] { return send_am_bytes(ep, kId, message) == UCS_OK; }));
    ASSERT_TRUE(until([&] { return other.am_count == 2; }));
    EXPECT_EQ(other.am.back().bytes, message);
    EXPECT_EQ(heads.messages.size(), 1U);
}

// The sender goes on in the back ring when the front ring is full, and returns to the front ring
// when the receiver has caught up; nothing changes its order.
TEST_F(SmIface, a_sender_that_runs_ahead_goes_through_the_back_ring_and_returns) {
    Endpoint ep = std::move(connect(one, other).forward);
    std::uint64_t sent = 0;
    ASSERT_EQ(UCS_OK, send(ep, sent++));
    ASSERT_TRUE(until([&] { return other.am_count == sent; }));
    std::uint64_t received = 0;
    other.keep_record = false;
    other.on_am = [&](const AmMessage& message) {
        std::uint64_t number = 0;
        std::memcpy(&number, message.bytes.data(), sizeof number);
        EXPECT_EQ(number, 1 + received++);
        return UCS_OK;
    };
    for (std::uint64_t round = 1; round <= 3; ++round) {
        const std::uint64_t before = sent;
        while (uct_ep_am_short(ep, kId, sent, nullptr, 0) == UCS_OK)
            ++sent;
        EXPECT_GE(sent - before, 256U) << "the ring's size is a promise";
        EXPECT_EQ(counter(one, "ring_changes"), 2 * round - 1);
        ASSERT_TRUE(until([&] { return received == sent - 1; }));
        for (int i = 0; i < 1500; ++i) {
            ASSERT_EQ(UCS_OK, send(ep, sent++));
            ASSERT_TRUE(until([&] { return received == sent - 1; }));
        }
        EXPECT_EQ(counter(one, "ring_changes"), 2 * round) << "a ping-pong stays in the front ring";
    }
}

TEST_F(SmIface, a_sender_that_fills_the_front_ring_soon_again_stays_longer_in_the_back_ring) {
    Endpoint ep = std::move(connect(one, other).forward);
    other.keep_record = false;
    std::uint64_t sent = 0;
    const auto ping_pong = [&](int rounds) {
        for (int i = 0; i < rounds; ++i) {
            ASSERT_EQ(UCS_OK, send(ep, sent++));
            ASSERT_TRUE(until([&] { return other.am_count == sent; }));
        }
    };
    const auto fill = [&] {
        while (uct_ep_am_short(ep, kId, sent, nullptr, 0) == UCS_OK)
            ++sent;
        ASSERT_TRUE(until([&] { return other.am_count == sent; }));
    };
    ping_pong(1);
    fill();
    ping_pong(100);
    EXPECT_EQ(counter(one, "ring_changes"), 2U) << "the first time it returns at once";
    fill();
    ping_pong(100);
    fill();
    ping_pong(100);
    EXPECT_EQ(counter(one, "ring_changes"), 3U) << "it was in the front ring for 131 messages";
    ping_pong(3000);
    EXPECT_EQ(counter(one, "ring_changes"), 4U) << "it returns";
    fill();
    ping_pong(100);
    EXPECT_EQ(counter(one, "ring_changes"), 6U) << "after a long stay it returns at once";
}

// The notice that the peer has no endpoint any more overtakes what it sent: that is delivered
// although we leave, too, before we have looked at it.
TEST_F(SmIface, a_message_of_a_peer_that_left_is_delivered_to_who_leaves_too) {
    Endpoint there = std::move(connect(one, other).forward);
    ASSERT_EQ(UCS_OK, send(there, 1));
    ASSERT_TRUE(until([&] { return other.am_count == 1; }));
    Endpoint back = std::move(connect(other, one).forward);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(back, kId, 2, nullptr, 0));
    back.reset();
    for (int i = 0; i < kSteps && one.progress() == 0; ++i) {
    }
    there.reset();
    EXPECT_TRUE(until([&] { return one.am_count == 1; }));
}

// The kernel tells of its unread packets before it hands out what the peer sent.
TEST_F(SmIface, a_message_of_a_peer_that_never_read_our_greeting_is_delivered) {
    {
        Entity brief(resource_of("sm"));
        const Endpoint there = std::move(connect(brief, one).forward);
        ASSERT_TRUE(until([&] { return fact_of(one, "peers") == 1; }));
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there, kId, 1, nullptr, 0));
    }
    EXPECT_TRUE(until([&] { return one.am_count == 1; }));
}

// The endpoint stays for as long as the program likes; what was shared with the dead does not.
TEST_F(SmIface, a_failed_endpoint_keeps_nothing_of_its_peer) {
    auto brief = std::make_unique<Entity>(resource_of("sm"));
    const Endpoint there = std::move(connect(one, *brief).forward);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(there, kId, 1, nullptr, 0));
    EXPECT_GT(fact_of(there, "ring_bytes"), 0);
    EXPECT_EQ(1, fact_of(there, "fds"));
    brief.reset();
    ASSERT_TRUE(until([&] { return one.errors.size() == 1; }));
    EXPECT_EQ(0, fact_of(there, "ring_bytes"));
    EXPECT_EQ(0, fact_of(there, "fds"));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, uct_ep_am_short(there, kId, 1, nullptr, 0));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, send_am_bytes(there, kId, pattern(1000, 1)));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, uct_ep_flush(there, UCT_FLUSH_FLAG_LOCAL, nullptr));
}

// Its greeting wakes us.
TEST_F(SmIface, a_peer_that_does_not_answer_wakes_nobody) {
    const Endpoint silent = std::move(connect(one, other).forward);  // `other` is not progressed
    for (int i = 0; i < 1000; ++i)
        one.progress();
    ASSERT_EQ(UCS_OK, uct_iface_event_arm(one.iface(), UCT_EVENT_RECV));
    int fd = -1;
    ASSERT_EQ(UCS_OK, uct_iface_event_fd_get(one.iface(), &fd));
    constexpr int kManyRetriesMs = 10;
    pollfd entry = {fd, POLLIN, 0};
    EXPECT_EQ(0, poll(&entry, 1, kManyRetriesMs));
    for (int i = 0; i < kSteps && poll(&entry, 1, 0) == 0; ++i)
        other.progress();
    EXPECT_EQ(1, poll(&entry, 1, 0)) << "the greeting wakes nobody";
}

TEST_F(SmIface, a_cancelled_receive_tells_what_was_posted) {
    Receive receive(one, 3000);
    ASSERT_EQ(UCS_OK, receive.post(77));
    ASSERT_EQ(UCS_OK, receive.cancel(false));
    ASSERT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_EQ(UCS_ERR_CANCELED, receive.status);
    EXPECT_EQ(3000U, receive.length);
    EXPECT_EQ(77U, receive.sender_tag);
}

// The header of a rendezvous request is not in the posted buffer, and the callback is told so.
TEST_F(SmIface, a_matched_rendezvous_request_has_its_header_inline) {
    struct Context : uct_tag_context_t {
        unsigned flags = 0;
        int calls = 0;
    } context;
    context.tag_consumed_cb = [](uct_tag_context_t*) {};
    context.rndv_cb = [](uct_tag_context_t* self, uct_tag_t, const void*, unsigned, ucs_status_t,
                         unsigned flags) {
        auto& mine = *static_cast<Context*>(self);
        mine.flags = flags;
        ++mine.calls;
    };
    Buffer memory(one, 100, Backing::kUnknown);
    const uct_iov_t iov = memory.iov();
    ASSERT_EQ(UCS_OK, uct_iface_tag_recv_zcopy(one.iface(), 5, ~uct_tag_t{0}, &iov, 1, &context));
    const Endpoint there = std::move(connect(other, one).forward);
    ucs_status_t status = UCS_OK;
    ASSERT_TRUE(until([&] {
        return (status = uct_ep_tag_rndv_request(there, 5, "header", 7, 0)) != UCS_ERR_NO_RESOURCE;
    }));
    ASSERT_EQ(UCS_OK, status);
    ASSERT_TRUE(until([&] { return context.calls == 1; }));
    EXPECT_NE(context.flags & UCT_TAG_RECV_CB_INLINE_DATA, 0U);
}

TEST_F(SmIface, nothing_is_put_and_got_without_a_key) {
    const Endpoint there = std::move(connect(one, other).forward);
    EXPECT_EQ(UCS_OK, uct_ep_put_short(there, nullptr, 0, 0, 0));
    EXPECT_EQ(UCS_OK, uct_ep_get_short(there, nullptr, 0, 0, 0));
    EXPECT_EQ(UCS_OK, uct_ep_put_zcopy(there, nullptr, 0, 0, 0, nullptr));
    EXPECT_EQ(UCS_OK, uct_ep_get_zcopy(there, nullptr, 0, 0, 0, nullptr));
}

EntityOptions with_options(std::vector<std::pair<std::string, std::string>> options) {
    EntityOptions all;
    all.iface_config = std::move(options);
    all.md_config = {{"SM_ARENA_BYTES", "16m"}};
    return all;
}

// Nobody would be told of its messages: the sender hears of it, others go on.
TEST_F(SmIface, without_tag_callbacks_refuses_tagged_messages) {
    EntityOptions options;
    options.has_tag_callbacks = false;
    Entity plain(resource_of("sm"), options);
    const Endpoint good = std::move(connect(one, plain).forward);
    const Bytes bytes = pattern(2000, 1);
    Completion done(100);
    Buffer payload = make_payload(other, 100'000, 1);
    const uct_iov_t iov = payload.iov();
    using Send = std::function<ucs_status_t(uct_ep_h)>;
    const Send sends[] = {
        [&](uct_ep_h ep) { return uct_ep_tag_eager_short(ep, 1, nullptr, 0); },
        [&](uct_ep_h ep) { return send_eager_bytes(ep, 1, 2, pattern(8, 1)); },
        [&](uct_ep_h ep) { return send_eager_bytes(ep, 1, 0, bytes); },
        [&](uct_ep_h ep) {
            const auto op = uct_ep_tag_rndv_zcopy(ep, 1, nullptr, 0, &iov, 1, 0, &done);
            return UCS_PTR_IS_ERR(op) ? UCS_PTR_RAW_STATUS(op) : UCS_OK;
        },
        [&](uct_ep_h ep) { return uct_ep_tag_rndv_request(ep, 1, nullptr, 0, 0); }};
    const auto until_plain = [&](const std::function<bool()>& is_done) {
        return until([&] {
            plain.progress();
            return is_done();
        });
    };
    std::size_t failures = 0;
    for (const Send& send_tagged : sends) {
        const Endpoint bad = std::move(connect(other, plain).forward);
        ucs_status_t status = UCS_OK;
        ASSERT_TRUE(
            until_plain([&] { return (status = send_tagged(bad)) != UCS_ERR_NO_RESOURCE; }));
        ASSERT_GE(status, UCS_OK);
        EXPECT_TRUE(until_plain([&] { return other.errors.size() == failures + 1; }));
        ++failures;
    }
    ASSERT_EQ(UCS_OK, send(good, 1));
    EXPECT_TRUE(until_plain([&] { return plain.am_count == 1; }));
}

// The owner sends what its buffers hold; the sides need not agree on their size.
TEST(SmSides, a_get_is_unpacked_once_however_small_the_owners_buffers_are) {
    Entity reader(resource_of("sm"), with_options({{"SM_CMA", "off"}}));
    Entity owner(resource_of("sm"), with_options({{"SM_CMA", "off"}, {"SM_SEG_BYTES", "1k"}}));
    const Endpoint there = std::move(connect(reader, owner).forward);
    const Buffer registered(owner, 5000, Backing::kRegistered);
    fill_pattern(registered.span(), 3);
    const RemoteKey key(reader, registered.packed_rkey());
    struct Unpacked {
        int calls = 0;
        Bytes bytes;
    } unpacked;
    Completion done;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    for (int i = 0; i < kSteps && status == UCS_ERR_NO_RESOURCE; ++i) {
        status = uct_ep_get_bcopy(
            there,
            [](void* arg, const void* data, std::size_t length) {
                auto& to = *static_cast<Unpacked*>(arg);
                ++to.calls;
                const auto* first = static_cast<const std::byte*>(data);
                to.bytes.assign(first, first + length);
            },
            &unpacked, 5000, registered.address(), key.get(), &done);
        reader.progress();
        owner.progress();
    }
    ASSERT_EQ(UCS_INPROGRESS, status);
    for (int i = 0; i < kSteps && done.calls == 0; ++i) {
        reader.progress();
        owner.progress();
    }
    EXPECT_EQ(UCS_OK, done.ended);
    EXPECT_EQ(1, unpacked.calls);
    ASSERT_EQ(5000U, unpacked.bytes.size());
    EXPECT_TRUE(has_pattern(unpacked.bytes, 3));
}

/// A hub and as many peers as fill its tables.
class SmCrowd : public ::testing::Test {
  protected:
    static constexpr std::size_t kPeers = 70;

    explicit SmCrowd(const char* poll = "rings", const char* slots = "16")
        : hub(resource_of("sm"), tiny(poll, slots)) {
        for (std::size_t i = 0; i < kPeers; ++i)
            peers.push_back(std::make_unique<Entity>(resource_of("sm"), tiny(poll, slots)));
    }
    static EntityOptions tiny(const char* poll, const char* slots) {
        return with_options({{"SM_CMA", "off"},
                             {"SM_FORCE", std::string("poll:") + poll},
                             {"SM_RING_SLOTS", slots},
                             {"SM_POOL_BYTES", "64k"},
                             {"SM_SEG_BYTES", "1k"},
                             {"SM_LIVENESS_INTERVAL", "1us"}});
    }
    template <class Done>
    bool until(Done&& done) {
        for (int i = 0; i < kSteps; ++i) {
            if (done())
                return true;
            hub.progress();
            for (const auto& peer : peers)
                peer->progress();
        }
        return false;
    }
    ucs_status_t rendezvous(uct_ep_h ep, uct_tag_t tag, const uct_iov_t& iov,
                            uct_completion_t* completion) {
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        until([&] {
            const auto op = uct_ep_tag_rndv_zcopy(ep, tag, nullptr, 0, &iov, 1, 0, completion);
            status = UCS_PTR_IS_ERR(op) ? UCS_PTR_RAW_STATUS(op) : UCS_OK;
            return status != UCS_ERR_NO_RESOURCE;
        });
        return status;
    }

    Entity hub;
    std::vector<std::unique_ptr<Entity>> peers;
    std::array<std::size_t, kPeers> sent_{};
};

TEST_F(SmCrowd, that_only_receives_gets_everything) {
    constexpr std::uint64_t kEach = 50;
    constexpr uct_tag_t kTag = 9;
    const Buffer payload = make_payload(hub, 5000, 4);
    const uct_iov_t iov = payload.iov();
    std::vector<Endpoint> eps;
    std::vector<std::unique_ptr<Receive>> receives;
    Completion done(kPeers);
    for (const auto& peer : peers) {
        eps.push_back(std::move(connect(hub, *peer).forward));
        receives.push_back(std::make_unique<Receive>(*peer, 5000));
        ASSERT_EQ(UCS_OK, receives.back()->post(kTag));
    }
    for (std::uint64_t number = 0; number < kEach; ++number) {
        for (const Endpoint& ep : eps) {
            ucs_status_t status = UCS_OK;
            const Bytes bytes = pattern(number % 2 == 0 ? 8 : 900, number);
            ASSERT_TRUE(until(
                [&] { return (status = send_am_bytes(ep, kId, bytes)) != UCS_ERR_NO_RESOURCE; }));
            ASSERT_EQ(UCS_OK, status);
        }
    }
    for (const Endpoint& ep : eps)
        ASSERT_EQ(UCS_OK, rendezvous(ep, kTag, iov, &done));
    EXPECT_TRUE(until([&] { return done.calls == 1; }));
    for (std::size_t i = 0; i < kPeers; ++i) {
        EXPECT_TRUE(until([&] { return peers[i]->am_count == kEach; })) << i;
        EXPECT_EQ(UCS_OK, receives[i]->status);
        EXPECT_TRUE(has_pattern(receives[i]->received(), 4));
    }
}

// Rings that nobody writes to are not polled, all of them put to sleep at once; each wakes up.
TEST_F(SmCrowd, that_is_silent_for_a_while_is_heard_again) {
    constexpr long kHotKept = 2;
    std::vector<Endpoint> eps;
    for (const auto& peer : peers) {
        eps.push_back(std::move(connect(*peer, hub).forward));
        ASSERT_EQ(UCS_OK, uct_ep_am_short(eps.back(), kId, 0, nullptr, 0));
    }
    ASSERT_TRUE(until([&] { return hub.am_count == kPeers; }));
    EXPECT_GT(fact_of(hub, "hot_rings"), kHotKept);
    ASSERT_TRUE(until([&] { return fact_of(hub, "hot_rings") == kHotKept; }));
    for (std::uint64_t round = 2; round < 5; ++round) {
        for (const Endpoint& ep : eps)
            ASSERT_EQ(UCS_OK, uct_ep_am_short(ep, kId, 0, nullptr, 0));
        ASSERT_TRUE(until([&] { return hub.am_count == round * kPeers; })) << hub.am_count;
        ASSERT_TRUE(until([&] { return fact_of(hub, "hot_rings") == kHotKept; }));
    }
}

class SmCrowdByBell : public SmCrowd {
  protected:
    SmCrowdByBell() : SmCrowd("bell", "64") {
        for (const auto& peer : peers)
            eps.push_back(std::move(connect(*peer, hub).forward));
    }
    void send(std::size_t peer, std::uint64_t number) {
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        EXPECT_TRUE(until([&] {
            status = uct_ep_am_short(eps[peer], kId, number, nullptr, 0);
            return status != UCS_ERR_NO_RESOURCE;
        }));
        EXPECT_EQ(UCS_OK, status);
    }
    /// Each peer sends one message, and the hub polls no ring again.
    void make_quiet() {
        for (std::size_t i = 0; i < kPeers; ++i)
            send(i, 0);
        ASSERT_TRUE(until([&] { return hub.am_count == kPeers; }));
        ASSERT_TRUE(until([&] { return fact_of(hub, "hot_rings") == 0; }));
    }

    std::vector<Endpoint> eps;
};

// The memory that an idle call looks at does not grow with the number of peers: no ring is polled,
// and none is polled after a message was delivered, either.
TEST_F(SmCrowdByBell, is_heard_although_no_ring_is_polled) {
    make_quiet();
    const long cooled = fact_of(hub, "cooled");
    for (std::uint64_t round = 2; round < 50; ++round) {
        for (std::size_t i = 0; i < kPeers; ++i)
            send(i, round);
        ASSERT_TRUE(until([&] { return hub.am_count == round * kPeers; })) << hub.am_count;
        EXPECT_EQ(0, fact_of(hub, "hot_rings"));
    }
    EXPECT_EQ(cooled, fact_of(hub, "cooled"));
}

// The rest of what one call delivers is in a ring that is polled from then on.
TEST_F(SmCrowdByBell, leaves_no_message_behind_when_many_come_at_once) {
    make_quiet();
    constexpr std::uint64_t kEach = 40;  // more than one call takes from a ring
    for (std::uint64_t i = 0; i < kEach; ++i)
        for (std::size_t peer = 0; peer < kPeers; ++peer)
            ASSERT_EQ(UCS_OK, uct_ep_am_short(eps[peer], kId, i, nullptr, 0));
    EXPECT_TRUE(until([&] { return hub.am_count == kPeers * (kEach + 1); })) << hub.am_count;
}

TEST_F(SmCrowdByBell, polls_the_ring_of_a_stream_until_it_ends) {
    make_quiet();
    for (std::uint64_t i = 0; i < 3000; ++i)
        send(0, i);
    EXPECT_EQ(1, fact_of(hub, "hot_rings"));
    EXPECT_TRUE(until([&] { return fact_of(hub, "hot_rings") == 0; }));
    send(0, 0);
    EXPECT_TRUE(until([&] { return hub.am_count == kPeers + 3001; })) << hub.am_count;
}

TEST_F(SmCrowdByBell, wakes_a_hub_that_sleeps) {
    make_quiet();
    int fd = -1;
    ASSERT_EQ(UCS_OK, uct_iface_event_fd_get(hub.iface(), &fd));
    for (std::size_t peer = 0; peer < 5; ++peer) {
        ASSERT_TRUE(
            until([&] { return uct_iface_event_arm(hub.iface(), UCT_EVENT_RECV) == UCS_OK; }));
        ASSERT_EQ(UCS_OK, uct_ep_am_short(eps[peer], kId, 0, nullptr, 0));
        pollfd readable{fd, POLLIN, 0};
        EXPECT_EQ(1, ::poll(&readable, 1, 5000));
        EXPECT_TRUE(until([&] { return hub.am_count == kPeers + peer + 1; }));
    }
}

// A peer's rendezvous never waits for a free operation: the answer that frees one may come behind
// it.
TEST_F(SmCrowd, has_more_rendezvous_under_way_than_the_hub_has_operations) {
    constexpr std::size_t kEach = 64;
    constexpr uct_tag_t kTag = 9;
    ASSERT_GT(kPeers * kEach, 4096U);
    std::vector<std::unique_ptr<Receive>> receives;
    for (std::size_t i = 0; i < kPeers * kEach; ++i) {
        receives.push_back(std::make_unique<Receive>(hub, 300));
        ASSERT_EQ(UCS_OK, receives.back()->post(kTag));
    }
    std::vector<Endpoint> eps;
    std::vector<Buffer> payloads;
    std::vector<std::unique_ptr<Completion>> done;
    for (const auto& peer : peers) {
        eps.push_back(std::move(connect(*peer, hub).forward));
        payloads.push_back(make_payload(*peer, 300, 4));
        done.push_back(std::make_unique<Completion>(kEach));
    }
    // Only the hub progresses while all are matched: their data comes from the peers' progress.
    std::size_t sent = 0;
    for (int step = 0; step < kSteps && sent < kPeers * kEach; ++step) {
        for (std::size_t i = 0; i < kPeers; ++i) {
            const uct_iov_t from = payloads[i].iov();
            if (sent_[i] == kEach)
                continue;
            const auto op =
                uct_ep_tag_rndv_zcopy(eps[i], kTag, nullptr, 0, &from, 1, 0, done[i].get());
            if (!UCS_PTR_IS_ERR(op)) {
                ++sent_[i];
                ++sent;
            }
        }
        hub.progress();
    }
    ASSERT_EQ(kPeers * kEach, sent);
    EXPECT_TRUE(until([&] {
        return std::all_of(done.begin(), done.end(), [](const auto& c) { return c->calls == 1; });
    }));
    for (const auto& receive : receives) {
        ASSERT_EQ(UCS_OK, receive->status);
        ASSERT_TRUE(has_pattern(receive->received(), 4));
    }
}

}  // namespace
}  // namespace tagwire::test
