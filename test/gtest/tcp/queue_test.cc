// SPDX-License-Identifier: BSD-3-Clause
// Queues of connections whose kernel takes no more for now.
#include <gtest/gtest.h>

#include <algorithm>

#include "operations.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLong = 256 * 1024;
constexpr std::size_t kOdd = 40'001;  // goes from its place, and needs padding

EntityOptions small_buffers() {
    EntityOptions options;
    options.iface_config = {{"TCP_SNDBUF", "32k"}, {"TCP_RCVBUF", "32k"}};
    return options;
}

// One system call takes 32 pieces of memory at most. The data of the reply was the one behind them.
TEST(TcpQueue, a_reply_to_a_get_may_find_the_room_of_a_system_call_used_up) {
    for (std::size_t puts = 8; puts <= 12; ++puts) {
        Entity full(loopback_of_tcp(), small_buffers());
        Entity peer(loopback_of_tcp(), small_buffers());
        const Connection there = connect(full, peer);
        expect_exchange(full, there.forward, peer);
        const Connection back = connect(peer, full);
        expect_exchange(peer, back.forward, full);

        const Buffer source = make_payload(full, kLong, 1);
        const Buffer target(peer, kLong + puts * kOdd, Backing::kRegistered);
        const Buffer wanted(full, kOdd, Backing::kRegistered);
        const Buffer got(peer, kOdd, Backing::kRegistered);
        std::ranges::copy(source.span().first(kOdd), wanted.data());
        const RemoteKey target_key(full, target.packed_rkey());
        const RemoteKey wanted_key(peer, wanted.packed_rkey());

        Completion written(static_cast<int>(puts) + 1);
        for (std::size_t i = 0; i <= puts; ++i) {
            const uct_iov_t iov = source.iov(0, i == 0 ? kLong : kOdd);
            const std::size_t at = i == 0 ? 0 : kLong + (i - 1) * kOdd;
            ASSERT_EQ(UCS_INPROGRESS,
                      uct_ep_put_zcopy(there.forward, &iov, 1, target.address() + at,
                                       target_key.get(), &written));
        }
        Completion read;
        const uct_iov_t into = got.iov();
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_get_zcopy(back.forward, &into, 1, wanted.address(),
                                                   wanted_key.get(), &read));
        for (int i = 0; i < 1000; ++i)  // the request comes while nobody reads what is queued
            full.progress();
        ASSERT_TRUE(
            steps_until({&full, &peer}, [&] { return written.calls == 1 && read.calls == 1; }));
        EXPECT_EQ(UCS_OK, written.ended);
        EXPECT_EQ(UCS_OK, read.ended);
        EXPECT_TRUE(std::ranges::equal(got.span(), source.span().first(kOdd)));
        EXPECT_TRUE(std::ranges::equal(target.span().first(kLong), source.span()));
        for (std::size_t i = 0; i < puts; ++i)
            EXPECT_TRUE(std::ranges::equal(target.span().subspan(kLong + i * kOdd, kOdd),
                                           source.span().first(kOdd)));
    }
}

// Room in the socket, which completes the flush, and the data of the receive are one event.
TEST(TcpQueue, the_completion_of_a_flush_may_cancel_the_receive_that_is_filled) {
    Entity full(loopback_of_tcp(), small_buffers());
    Entity peer(loopback_of_tcp(), small_buffers());
    const Connection there = connect(full, peer);
    expect_exchange(full, there.forward, peer);
    const Connection back = connect(peer, full);
    expect_exchange(peer, back.forward, full);

    constexpr std::size_t kShortData = 1000;  // one frame, without a Done
    const Buffer data = make_payload(peer, kShortData, 3);
    const uct_iov_t from = data.iov();
    Receive filled(full, kShortData);
    ASSERT_EQ(UCS_OK, filled.post(7));
    Completion sent;
    ASSERT_FALSE(
        UCS_PTR_IS_ERR(uct_ep_tag_rndv_zcopy(back.forward, 7, nullptr, 0, &from, 1, 0, &sent)));
    ASSERT_TRUE(steps_until({&peer, &full}, [&] { return filled.consumed == 1; }));

    const Bytes message(8192);
    ucs_status_t status = UCS_OK;
    while ((status = send_am_bytes(there.forward, Entity::kAmId, message)) == UCS_OK)
        full.progress();
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
    Completion flushed;
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(there.forward, UCT_FLUSH_FLAG_LOCAL, &flushed));
    for (int i = 0; i < 1000; ++i)  // until the connection is not read in each call of progress
        full.progress();
    ucs_status_t cancelled = UCS_INPROGRESS;
    flushed.on_done = [&] { cancelled = filled.cancel(true); };
    ASSERT_TRUE(steps_until({&peer, &full}, [&] { return flushed.calls == 1 && sent.calls == 1; }));
    EXPECT_EQ(cancelled == UCS_OK ? 0 : 1, filled.completed);

    // The record of the receive went back to its pool once: these two have one each.
    Receive first(full, 8), second(full, 8);
    ASSERT_EQ(UCS_OK, first.post(1));
    ASSERT_EQ(UCS_OK, second.post(2));
    for (const uct_tag_t tag : {uct_tag_t{1}, uct_tag_t{2}})
        ASSERT_TRUE(steps_until({&peer, &full}, [&] {
            return uct_ep_tag_eager_short(back.forward, tag, nullptr, 0) == UCS_OK;
        }));
    EXPECT_TRUE(steps_until({&peer, &full}, [&] { return first.completed && second.completed; }));
}

}  // namespace
}  // namespace tagwire::test
