// SPDX-License-Identifier: BSD-3-Clause
// Events of DEVX through the genuine libmlx5.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/test/driver/devx_queues.hpp"

namespace tagwire::vhca::driver::test {
namespace {

constexpr std::uint16_t kCompletionEvent = 0, kCqErrorEvent = 4, kPortEvent = 9;

class DevxEvents : public DevxObjects {
  protected:
    struct Event {
        std::uint64_t cookie = 0;
        std::array<std::byte, 64> entry{};
        ssize_t bytes = -1;
    };
    Owned<mlx5dv_devx_event_channel> open(bool omits_data) {
        const auto flags = omits_data ? MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA
                                      : mlx5dv_devx_create_event_channel_flags{};
        Owned<mlx5dv_devx_event_channel> channel(
            mlx5dv_devx_create_event_channel(context.get(), flags));
        EXPECT_NE(channel, nullptr);
        ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
        return channel;
    }
    int subscribe(mlx5dv_devx_event_channel& channel, mlx5dv_devx_obj* object, std::uint64_t cookie,
                  std::vector<std::uint16_t> events) {
        return mlx5dv_devx_subscribe_devx_event(
            &channel, object, static_cast<std::uint16_t>(events.size() * 2), events.data(), cookie);
    }
    static Event read(mlx5dv_devx_event_channel& channel) {
        Event event;
        struct {
            std::uint64_t cookie;
            std::array<std::byte, 64> entry;
        } record{};
        event.bytes = mlx5dv_devx_get_event(
            &channel, reinterpret_cast<mlx5dv_devx_async_event_hdr*>(&record), sizeof record);
        event.cookie = record.cookie;
        event.entry = record.entry;
        return event;
    }
    static bool waits_for(int fd) {
        pollfd one{fd, POLLIN, 0};
        return ::poll(&one, 1, 20000) == 1;
    }
    void arm() { std::atomic_ref(completions_record[1]).store(0, std::memory_order_release); }
    /// More completions than there is room for.
    void overrun(ibv_qp& peer) {
        post_receives(16);
        for (int i = 0; i != 5; ++i) {
            ibv_sge sge{address(10 * kPage), 1, mr->lkey};
            ibv_send_wr wr{}, *bad = nullptr;
            wr.sg_list = &sge;
            wr.num_sge = 1;
            wr.opcode = IBV_WR_SEND;
            EXPECT_EQ(ibv_post_send(&peer, &wr, &bad), 0);
        }
    }
    static std::uint32_t word(const Event& event, std::size_t at) {
        std::uint32_t value = 0;
        std::memcpy(&value, &event.entry[at], sizeof value);
        return be32toh(value);
    }
};

TEST_F(DevxEvents, a_completion_is_told_to_who_armed_for_it) {
    make_completions(0, 5);
    make_queue(1);
    const auto peer = make_qp();
    connect(*peer, qpn);
    receive_from(peer->qp_num);
    post_receives(3);
    const auto channel = open(true);
    ASSERT_EQ(subscribe(*channel, completions.get(), 0xc0ffee, {kCompletionEvent}), 0);
    EXPECT_EQ(send(*peer, 1), IBV_WC_SUCCESS);
    EXPECT_EQ(read(*channel).bytes, -1) << "not armed";
    EXPECT_EQ(errno, EAGAIN);
    arm();
    ASSERT_TRUE(waits_for(channel->fd));
    const Event event = read(*channel);
    EXPECT_EQ(event.bytes, 8) << "the cookie alone";
    EXPECT_EQ(event.cookie, 0xc0ffeeU);
    EXPECT_EQ(read(*channel).bytes, -1);
}

TEST_F(DevxEvents, an_overrun_is_told_with_its_entry) {
    make_completions(0, 2);
    make_queue(1);
    const auto peer = make_qp();
    connect(*peer, qpn);
    receive_from(peer->qp_num);
    const auto channel = open(false);
    ASSERT_EQ(subscribe(*channel, completions.get(), 5, {kCqErrorEvent, kCompletionEvent}), 0);
    overrun(*peer);
    ASSERT_TRUE(waits_for(channel->fd));
    const Event event = read(*channel);
    EXPECT_EQ(event.bytes, 72);
    EXPECT_EQ(event.cookie, 5U);
    EXPECT_EQ(event.entry[1], std::byte{kCqErrorEvent});
    EXPECT_EQ(word(event, 32), cqn);
    EXPECT_EQ(event.entry[43], std::byte{1}) << "overrun";
}

TEST_F(DevxEvents, a_counter_may_count_them) {
    make_completions(0, 2);
    make_queue(1);
    const auto peer = make_qp();
    connect(*peer, qpn);
    receive_from(peer->qp_num);
    const auto channel = open(true);
    const int counter = ::eventfd(0, EFD_CLOEXEC);
    ASSERT_EQ(mlx5dv_devx_subscribe_devx_event_fd(channel.get(), counter, completions.get(),
                                                  kCqErrorEvent),
              0);
    overrun(*peer);
    ASSERT_TRUE(waits_for(counter));
    std::uint64_t count = 0;
    EXPECT_EQ(::read(counter, &count, sizeof count), ssize_t{sizeof count});
    EXPECT_EQ(count, 1U);
    EXPECT_EQ(read(*channel).bytes, -1);
    EXPECT_EQ(mlx5dv_devx_subscribe_devx_event_fd(channel.get(), channel->fd, completions.get(),
                                                  kCqErrorEvent),
              EINVAL)
        << "no eventfd";
    EXPECT_EQ(
        mlx5dv_devx_subscribe_devx_event_fd(channel.get(), 9999, completions.get(), kCqErrorEvent),
        EBADF);
    ::close(counter);
}

TEST_F(DevxEvents, subscriptions_to_what_never_happens_are_refused) {
    make_completions(0, 5);
    const auto channel = open(true);
    EXPECT_EQ(subscribe(*channel, completions.get(), 1, {99}), EINVAL);
    EXPECT_EQ(subscribe(*channel, completions.get(), 1, {kPortEvent}), EINVAL) << "of no object";
    EXPECT_EQ(subscribe(*channel, nullptr, 1, {kCqErrorEvent}), EINVAL) << "of an object";
    EXPECT_EQ(subscribe(*channel, nullptr, 1, {kPortEvent}), 0);
    EXPECT_EQ(subscribe(*channel, completions.get(), 1, std::vector<std::uint16_t>(17, 4)), EINVAL);
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
