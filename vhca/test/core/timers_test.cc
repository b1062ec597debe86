// SPDX-License-Identifier: BSD-3-Clause
// Timeouts that last longer than requested, as those of cards do.
#include <array>
#include <set>

#include "vhca/core/packet.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::uint32_t kStretch = 4;
constexpr Time kUnit = 4096;

WorldOptions stretched(std::uint64_t seed) {
    WorldOptions options;
    options.node.device.timer_stretch_max = kStretch;
    options.seed = seed;
    return options;
}

/// Time from the send until the retries to a silent peer are exhausted.
Time silence_of(std::uint64_t seed, Connection connection) {
    WorldOptions options = stretched(seed);
    options.connection = connection;
    World world(options);
    world.fabric.set_partitioned(0, 1, true);
    const Time begin = world.fabric.now();
    EXPECT_EQ(world.send(1, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(world.a.device.counters().timeouts, connection.retry_cnt + 1U);
    return world.fabric.now() - begin;
}

TEST(VhcaTimers, silence_takes_between_once_and_four_times_as_long_as_asked_for) {
    const Connection connection{.timeout = 10, .retry_cnt = 3};
    const Time exact = 4 * (kUnit << connection.timeout);
    std::set<Time> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Time silence = silence_of(seed, connection);
        EXPECT_GE(silence, exact) << "seed " << seed;
        EXPECT_LE(silence, kStretch * exact + kUnit) << "seed " << seed;
        seen.insert(silence);
    }
    EXPECT_GT(seen.size(), 10U);
    EXPECT_GT(*seen.rbegin(), 2 * exact);
}

TEST(VhcaTimers, seed_decides_how_long) {
    const Connection connection{.timeout = 10, .retry_cnt = 3};
    EXPECT_EQ(silence_of(7, connection), silence_of(7, connection));
}

TEST(VhcaTimers, wait_for_a_receiver_is_never_shorter_than_it_asked_for) {
    constexpr Time kAsked = 1'280'000;
    std::set<Time> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        WorldOptions options = stretched(seed);
        options.connection.rnr_retry = 1;
        options.connection.min_rnr_timer = 14;
        World world(options);
        const Time begin = world.fabric.now();
        EXPECT_EQ(world.send(1, 0, 8), 0);
        EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
        const Time waited = world.fabric.now() - begin;
        EXPECT_GE(waited, kAsked) << "seed " << seed;
        EXPECT_LE(waited, kStretch * kAsked + kAsked / 10) << "seed " << seed;
        seen.insert(waited);
    }
    EXPECT_GT(*seen.rbegin(), 2 * kAsked);
}

/// A wire to a peer that is given the processor by the test; what is sent is lost.
class SlowPeer final : public Wire {
  public:
    std::byte* claim(Route /*to*/, std::size_t /*bytes*/) override { return lost_.data(); }
    void commit(Route /*to*/, std::size_t /*bytes*/) override { ++sent; }
    Turn turn_of(Route /*to*/) override { return {.packets = sent, .visits = 0}; }
    bool has_had_turn(Route /*to*/, const Turn& /*since*/) override { return is_running; }
    [[nodiscard]] unsigned steps_to_catch_up() const override { return steps; }

    std::uint64_t sent = 0;
    bool is_running = true;
    unsigned steps = 0;

  private:
    std::array<std::byte, kPacketBytesMax> lost_{};
};

/// A connected queue pair with one message under way.
class Lonely {
  public:
    Lonely() : device(DeviceConfig{}, peer, events, 1) {
        EXPECT_EQ(device.create_pd(nullptr, &pd_), 0);
        EXPECT_EQ(device.create_cq({.cqe = 16}, &cq), 0);
        QpConfig config{.pd = pd_, .send_cq = cq, .recv_cq = cq};
        config.cap = {16, 16, 1, 1, 0};
        EXPECT_EQ(device.create_qp(config, &qp_), 0);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        EXPECT_EQ(
            qp_->modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                        {}, 0),
            0);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.ah_attr.port_num = 1;
        attr.dest_qp_num = 7;
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
        EXPECT_EQ(qp_->modify(attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                              kPeer, 0),
                  0);
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 10;
        attr.retry_cnt = 1;
        EXPECT_EQ(qp_->modify(attr,
                              IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                              {}, 0),
                  0);
        SendWork work{};
        work.flags = IBV_SEND_SIGNALED;
        EXPECT_EQ(qp_->post_send(work, now), 0);
    }
    /// Lets the time of one timeout pass.
    void pass() { device.progress(now += kUnit << 10); }
    /// The peer's answer to the message arrives.
    void answer() {
        Packet packet;
        packet.opcode = Opcode::kRcAck;
        packet.qpn = qp_->number();
        packet.syndrome = kAckSyndrome;
        std::array<std::byte, 64> bytes{};
        const std::byte* end = put_headers(bytes.data(), packet, 0);
        device.receive(kPeer, {bytes.data(), static_cast<std::size_t>(end - bytes.data())}, now);
    }
    [[nodiscard]] std::uint64_t timeouts() const { return device.counters().timeouts; }

    static constexpr Route kPeer{9};
    SlowPeer peer;
    Events events;
    Device device;
    Cq* cq = nullptr;
    Time now = 1;

  private:
    Pd* pd_ = nullptr;
    Qp* qp_ = nullptr;
};

TEST(VhcaTimers, time_in_which_the_peer_has_no_processor_is_none_of_the_timeout) {
    Lonely world;
    world.peer.is_running = false;
    for (int i = 0; i < 100; ++i)
        world.pass();
    EXPECT_EQ(world.timeouts(), 0U);
    EXPECT_TRUE(world.cq->is_empty());
    world.peer.is_running = true;
    world.pass();
    EXPECT_EQ(world.timeouts(), 1U);
    world.pass();
    Completion completion;
    ASSERT_TRUE(world.cq->poll(&completion));
    EXPECT_EQ(completion.wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaTimers, what_arrived_before_the_timeout_is_received_first) {
    Lonely world;
    world.peer.steps = 3;
    world.pass();
    for (int i = 0; i < 2; ++i)
        world.device.progress(world.now);  // takes in others
    EXPECT_EQ(world.timeouts(), 0U);
    world.answer();
    for (int i = 0; i < 10; ++i)
        world.pass();
    EXPECT_EQ(world.timeouts(), 0U);
    Completion completion;
    ASSERT_TRUE(world.cq->poll(&completion));
    EXPECT_EQ(completion.wc.status, IBV_WC_SUCCESS);
}

TEST(VhcaTimers, silence_is_a_timeout_once_all_that_arrived_was_received) {
    Lonely world;
    world.peer.steps = 3;
    world.pass();
    for (int i = 0; i < 2; ++i)
        world.device.progress(world.now);
    EXPECT_EQ(world.timeouts(), 0U);
    world.device.progress(world.now);
    EXPECT_EQ(world.timeouts(), 1U);
}

}  // namespace

}  // namespace tagwire::vhca
