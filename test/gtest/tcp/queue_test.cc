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

}  // namespace
}  // namespace tagwire::test
