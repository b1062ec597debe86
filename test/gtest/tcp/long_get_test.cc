// SPDX-License-Identifier: BSD-3-Clause
// Gets that are under way when something ends.
#include <gtest/gtest.h>

#include <memory>

#include "buffer.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kBytes = 200000;  // one frame, and more than the sockets hold

// The owner fills the frame up, and the reader does not take that for the data.
TEST(TcpGet, a_key_that_ends_within_the_last_frame_fails_it) {
    EntityOptions options;
    options.iface_config = {{"TCP_SNDBUF", "16k"}, {"TCP_RCVBUF", "16k"}};
    Entity reader(loopback_of_tcp(), options);
    Entity owner(loopback_of_tcp(), options);
    const Connection there = connect(reader, owner);
    expect_exchange(reader, there.forward, owner);
    const Buffer local(reader, kBytes, Backing::kRegistered);
    auto remote = std::make_unique<Buffer>(owner, kBytes, Backing::kRegistered);
    fill_pattern(remote->span(), 1);
    const RemoteKey key(reader, remote->packed_rkey());
    const uct_iov_t iov = local.iov();
    Completion completion;
    ASSERT_EQ(UCS_INPROGRESS,
              uct_ep_get_zcopy(there.forward, &iov, 1, remote->address(), key.get(), &completion));
    ASSERT_TRUE(steps_until({&owner}, [&] { return counter_of(owner, "blocked") > 0; }));
    remote.reset();
    ASSERT_TRUE(steps_until({&reader, &owner}, [&] { return completion.calls > 0; }));
    EXPECT_EQ(1, completion.calls);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, completion.ended);
    expect_exchange(reader, there.forward, owner);
}

}  // namespace
}  // namespace tagwire::test
