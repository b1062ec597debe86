// SPDX-License-Identifier: BSD-3-Clause
// The descriptor of events, as its reader sees it.
#include "vhca/driver/event_pipe.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tagwire::vhca::driver {

namespace {

class VhcaEventPipe : public testing::Test {
  protected:
    VhcaEventPipe() : pipe(EventPipe::create(sizeof(std::uint64_t))), program(pipe->program_fd()) {
        EXPECT_TRUE(ucs::make_nonblocking(program.get()));
    }
    void push(std::uint64_t event) { pipe->push(std::as_bytes(std::span(&event, 1))); }
    /// 0: there is none.
    std::uint64_t read() {
        std::array<std::uint64_t, 4> room{};
        const auto bytes = ::read(program.get(), room.data(), sizeof room);
        EXPECT_TRUE(bytes == sizeof room[0] || (bytes < 0 && errno == EAGAIN)) << bytes;
        return room[0];
    }
    std::size_t take_back(std::uint64_t event) {
        return pipe->take_back([event](std::span<const std::byte> bytes) {
            return std::memcmp(bytes.data(), &event, sizeof event) == 0;
        });
    }

    std::unique_ptr<EventPipe> pipe;
    ucs::UniqueFd program;
};

TEST_F(VhcaEventPipe, a_read_gives_one_event) {
    push(1);
    push(2);
    pollfd readable{program.get(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 1);
    EXPECT_EQ(read(), 1U);
    EXPECT_EQ(read(), 2U);
    EXPECT_EQ(read(), 0U);
    EXPECT_EQ(poll(&readable, 1, 0), 0);
}

TEST_F(VhcaEventPipe, unread_events_are_taken_back_and_the_others_keep_their_order) {
    for (const std::uint64_t event : {7U, 1U, 7U, 2U, 3U, 7U})
        push(event);
    EXPECT_EQ(read(), 7U);
    EXPECT_EQ(take_back(7), 2U);
    EXPECT_EQ(take_back(9), 0U);
    EXPECT_EQ(read(), 1U);
    EXPECT_EQ(read(), 2U);
    EXPECT_EQ(read(), 3U);
    EXPECT_EQ(read(), 0U);
}

TEST_F(VhcaEventPipe, a_program_that_blocks_goes_on_blocking) {
    ASSERT_EQ(fcntl(program.get(), F_SETFL, 0), 0);
    push(1);
    EXPECT_EQ(take_back(1), 1U);
    EXPECT_EQ(fcntl(program.get(), F_GETFL) & O_NONBLOCK, 0);
    push(2);
    EXPECT_EQ(read(), 2U);
}

TEST_F(VhcaEventPipe, nothing_is_lost_when_nobody_reads) {
    constexpr std::uint64_t kMany = 20000;
    for (std::uint64_t event = 1; event <= kMany; ++event)
        push(event);
    EXPECT_TRUE(pipe->has_waiting());
    EXPECT_EQ(take_back(kMany), 1U);
    for (std::uint64_t event = 1; event != kMany; ++event) {
        ASSERT_EQ(read(), event);
        pipe->flush();
    }
    EXPECT_FALSE(pipe->has_waiting());
    EXPECT_EQ(read(), 0U);
}

TEST_F(VhcaEventPipe, a_program_that_closed_its_end_harms_nobody) {
    program.reset();
    push(1);
    EXPECT_EQ(take_back(1), 1U);
}

}  // namespace

}  // namespace tagwire::vhca::driver
