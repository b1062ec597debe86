// SPDX-License-Identifier: BSD-3-Clause
//
// Hostile receivers: peers that cheat in the positions and buffers that they return, in the data
// that they ask of a rendezvous, or in the use of their buffers.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sm/hostile_fixture.hpp"
#include "uct/sm/link.hpp"

namespace tagwire::test {
namespace {

using sm::Kind;

// ---- The peer at the bell, to whose page all peers write ----------------------------------------

TEST_F(HostilePeer, that_clears_the_bell_silences_nobody) {
    RawPeer peer = connected_peer();
    const std::uint64_t before = victim.am_count;
    for (std::uint64_t round = 1; round <= 20; ++round) {
        // No ring is polled when it has slept.
        int fd = -1;
        ASSERT_EQ(uct_iface_event_fd_get(victim.iface(), &fd), UCS_OK);
        ucs_status_t armed = UCS_ERR_BUSY;
        for (int i = 0; i < kHostileSteps && armed != UCS_OK; ++i) {
            victim.progress();
            armed = uct_iface_event_arm(victim.iface(), UCT_EVENT_RECV);
        }
        ASSERT_EQ(armed, UCS_OK);
        peer.clear_their_bell();
        ASSERT_EQ(uct_ep_am_short(to_victim, kAmId, round, nullptr, 0), UCS_OK);
        peer.clear_their_bell();
        if (round % 2 == 0) {
            EXPECT_EQ(uct_iface_event_arm(victim.iface(), UCT_EVENT_RECV), UCS_ERR_BUSY);
        }
        for (int i = 0; i < 100 * kHostileSteps && victim.am_count == before + round - 1; ++i)
            victim.progress();
        ASSERT_EQ(victim.am_count, before + round);
    }
}

// ---- The peer as a receiver ---------------------------------------------------------------------

TEST_F(HostilePeer, whose_position_cannot_be_is_ended_by_the_send_that_sees_it) {
    RawPeer peer = connected_peer();
    const Endpoint ep = back_to(peer);
    ASSERT_EQ(uct_ep_am_short(ep, kAmId, 1, nullptr, 0), UCS_OK);
    ASSERT_NE(peer.their_head(), nullptr);
    peer.their_head()->front.tail.store(1000, std::memory_order_release);
    ucs_status_t status = UCS_OK;
    for (int i = 0; i < 100 && status == UCS_OK; ++i)
        status = uct_ep_am_short(ep, kAmId, 1, nullptr, 0);
    EXPECT_EQ(status, UCS_ERR_CONNECTION_RESET);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(victim.errors.size(), 1U);
    EXPECT_TRUE(others_go_on());
}

/** A rendezvous of the victim, as the peer sees it. */
struct Offered {
    sm::RndvBody body;
    std::unique_ptr<Completion> completion;
};

class HostileReceiver : public HostilePeer {
  protected:
    HostileReceiver() : peer(connected_peer()), ep(back_to(peer)) {}

    Offered offer(const Buffer& payload) {
        Offered offered{{}, std::make_unique<Completion>()};
        const uct_iov_t iov = payload.iov();
        EXPECT_FALSE(UCS_PTR_IS_ERR(
            uct_ep_tag_rndv_zcopy(ep, 1, nullptr, 0, &iov, 1, 0, offered.completion.get())));
        const auto message = answer(peer);
        EXPECT_TRUE(message.is(Kind::kRndv));
        offered.body = message.as<sm::RndvBody>();
        return offered;
    }
    /** Receives messages and keeps their buffers, until there are no more. */
    std::vector<std::uint32_t> take_all_buffers() {
        std::vector<std::uint32_t> held;
        while (send_am_bytes(ep, kAmId, pattern(900, 1)) == UCS_OK)
            held.push_back(answer(peer).as<sm::AmSegBody>().seg);
        return held;
    }
    void pull(const sm::RndvBody& rndv, std::uint64_t address, std::uint64_t length) {
        peer.publish(Kind::kPull, sm::PullBody{address, length, rndv.generation, 0, rndv.op, 99});
    }

    RawPeer peer;
    Endpoint ep;
};

// A peer that reads no packets cannot be told at once that this side leaves; if it were never told,
// the connection would stay for ever.
TEST_F(HostileReceiver, that_reads_no_packets_hears_later_that_we_leave) {
    ucs::Mapping page;
    ASSERT_EQ(ucs::map_shared(peer.bell_fd.get(), ucs::page_bytes(), &page), UCS_OK);
    auto& bell = *reinterpret_cast<sm::Bell<>*>(page.base());
    ASSERT_EQ(uct_ep_am_short(ep, kAmId, 1, nullptr, 0), UCS_OK);
    ASSERT_TRUE(answer(peer).is(Kind::kAm));
    sm::Consumer<>& consumer = peer.their_head()->front;
    std::uint64_t wakeups = 0;
    for (int i = 0; i < kHostileSteps; ++i) {  // each message wakes us, who sleep at once again
        bell.armed.store(1);
        consumer.sleep.store(1);
        consumer.tail.store(static_cast<std::uint64_t>(i) + 1, std::memory_order_release);
        ASSERT_EQ(uct_ep_am_short(ep, kAmId, 1, nullptr, 0), UCS_OK);
        wakeups += bell.armed.load() == 0 ? 1U : 0U;
    }
    ASSERT_GT(wakeups, 1000U) << "that fills no socket";
    ep.reset();
    progress();
    for (int i = 0; i < kHostileSteps && !peer.was_left(); ++i)
        progress(1);
    EXPECT_TRUE(peer.was_left());
}

TEST_F(HostileReceiver, pulls_nothing_but_the_data_of_a_rendezvous) {
    const Buffer payload = make_payload(victim, 3000, 5);
    const Offered offered = offer(payload);
    pull(offered.body, offered.body.address, 500);
    const auto data = answer(peer).as<sm::PullDataBody>();
    EXPECT_EQ(data.status, UCS_OK);
    EXPECT_EQ(data.length, 500U);
    EXPECT_TRUE(has_pattern({peer.their_buffer(data.seg), data.length}, 5));
    pull(offered.body, offered.body.address + 1, 8);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(offered.completion->calls, 1);
    EXPECT_EQ(offered.completion->ended, UCS_ERR_CONNECTION_RESET);
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostileReceiver, cannot_pull_more_than_a_rendezvous_has) {
    const Buffer payload = make_payload(victim, 3000, 5);
    const Offered offered = offer(payload);
    pull(offered.body, offered.body.address, 3001);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(offered.completion->calls, 1);
}

// A request for a rendezvous that comes later is not checked when that one starts: it must not be
// served then, however long the peer holds back the buffers that serving it needs.
TEST_F(HostileReceiver, cannot_pull_other_memory_by_a_request_that_came_too_early) {
    static const Bytes secret = pattern(64, 4711);
    const Buffer payload = make_payload(victim, 3000, 5);
    const Offered first = offer(payload);
    const std::vector<std::uint32_t> held = take_all_buffers();
    sm::RndvBody next = first.body;
    ++next.generation;
    pull(next, reinterpret_cast<std::uintptr_t>(secret.data()), secret.size());
    peer.publish(Kind::kRndvFin, sm::RndvFinBody{first.body.generation, first.body.op, UCS_OK});
    progress();
    EXPECT_EQ(first.completion->calls, 1);

    const Offered second = offer(payload);
    EXPECT_EQ(second.body.op, next.op);
    EXPECT_EQ(second.body.generation, next.generation);
    for (const std::uint32_t seg : held)
        peer.give_back(seg);
    for (int i = 0; i < kHostileSteps; ++i) {
        progress(1);
        const auto message = peer.receive();
        if (!message || !message->is(Kind::kPullData))
            continue;
        const auto data = message->as<sm::PullDataBody>();
        EXPECT_NE(data.status, UCS_OK) << "the peer has read memory that is not its business";
        break;
    }
    EXPECT_TRUE(others_go_on());
    ep.reset();
}

// A peer that keeps to the protocol may do that, too: by operations that it cancels.
TEST_F(HostileReceiver, that_asks_and_does_not_read_waits_until_it_reads) {
    constexpr int kIdleSteps = 100;
    constexpr std::uint64_t kAtOnce = 8;
    std::uint64_t asked = 0;
    for (std::uint64_t before = 0; asked == 0 || counter("delivered") != before;) {
        before = counter("delivered");
        for (std::uint64_t i = 0; i < kAtOnce; ++i, ++asked)
            peer.publish(Kind::kAtomic, sm::AtomicBody{0x1000, 1, 0, 1, 0, 0, 8});
        progress(counter("delivered") != before ? 1 : kIdleSteps);
        ASSERT_LT(asked, 4 * sm::kControlsPause) << "replies are queued without a bound";
    }
    EXPECT_GE(asked, sm::kControlsPause);
    EXPECT_EQ(0U, counter("violations"));
    EXPECT_TRUE(others_go_on());
    std::uint64_t replies = 0;
    for (int i = 0; i < kHostileSteps && replies < asked; ++i) {
        while (const auto message = peer.receive())
            replies += message->is(Kind::kAtomicReply) ? 1 : 0;
        progress(1);
    }
    EXPECT_EQ(asked, replies);
    EXPECT_EQ(0U, counter("violations"));
}

TEST_F(HostileReceiver, that_returns_buffers_it_does_not_have_gains_nothing) {
    const std::vector<std::uint32_t> held = take_all_buffers();
    EXPECT_GT(held.size(), sm::kReserveCount);
    // Blocks that no buffer begins with, beyond all, and one buffer twice.
    const std::uint32_t reserved = held.back();
    EXPECT_NE(reserved & sm::kReserveBit, 0U) << "the pool comes first";
    for (const std::uint32_t seg : {1U, 128U, ~0U, sm::kReserveBit | 8U, reserved, reserved})
        peer.give_back(seg);
    EXPECT_EQ(take_all_buffers().size(), 1U);
    peer.their_head()->returns.count.store(UINT64_MAX / 2, std::memory_order_release);
    EXPECT_EQ(send_am_bytes(ep, kAmId, pattern(900, 1)), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

// The pool is shared, but a part of it is always left, and each connection has a few buffers of its
// own.
TEST_F(HostileReceiver, that_keeps_all_buffers_does_not_starve_others) {
    const std::vector<std::uint32_t> held = take_all_buffers();
    RawPeer other = connected_peer();
    const Endpoint to_other = back_to(other);
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(send_am_bytes(to_other, kAmId, pattern(900, 1)), UCS_OK) << i;
        other.give_back(answer(other).as<sm::AmSegBody>().seg);
    }
    EXPECT_TRUE(others_go_on());
}

// A peer that has our last messages may still read them.
TEST_F(HostileReceiver, that_leaves_with_buffers_has_them_to_itself) {
    const std::vector<std::uint32_t> held = take_all_buffers();
    for (const std::uint32_t seg : held)
        ASSERT_TRUE(has_pattern({peer.their_buffer(seg), 900}, 1)) << seg;
    peer.hang_up();
    progress();
    RawPeer other = connected_peer();
    const Endpoint to_other = back_to(other);
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(send_am_bytes(to_other, kAmId, pattern(900, 2)), UCS_OK) << i;
        other.give_back(answer(other).as<sm::AmSegBody>().seg);
    }
    for (const std::uint32_t seg : held)
        EXPECT_TRUE(has_pattern({peer.their_buffer(seg), 900}, 1)) << seg;
    EXPECT_TRUE(others_go_on());
}

// ---- Buffers larger than our own ----------------------------------------------------------------

class LargeBuffers : public HostilePeer {
  protected:
    LargeBuffers() : HostilePeer(48) {}
};

// With headroom the data is copied into a descriptor of ours: of a size that anybody's buffer fits.
TEST_F(LargeBuffers, do_not_run_over_their_descriptors) {
    constexpr std::uint32_t kLarge = 32768;
    RawPeer peer = make_peer();
    peer.geometry.seg_bytes = kLarge;
    peer.geometry.pool_blocks = 8 * kLarge / sm::kBlockBytes;
    peer.say_hello();
    peer.offer_ring();
    std::vector<std::byte*> kept;
    victim.keep_record = false;
    victim.on_am = [&](const AmMessage& message) {
        if ((message.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || message.bytes.size() != kLarge)
            return UCS_OK;
        kept.push_back(static_cast<std::byte*>(message.data));
        return UCS_INPROGRESS;
    };
    for (std::uint32_t i = 0; i < 8; ++i) {
        const std::uint32_t seg = i * kLarge / sm::kBlockBytes;
        fill_pattern({peer.buffer(seg), kLarge}, i);
        peer.publish(Kind::kAmSeg, in_buffer(seg), kAmId, kLarge);
    }
    progress();
    for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_TRUE(has_pattern({kept[i], kLarge}, i)) << "message " << i << " was overwritten";
        uct_iface_release_desc(kept[i] - victim.rx_headroom());
    }
    EXPECT_TRUE(kept.size() == 8 || peer.is_ended());
    EXPECT_TRUE(others_go_on());
}

}  // namespace
}  // namespace tagwire::test
