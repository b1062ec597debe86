// SPDX-License-Identifier: BSD-3-Clause
// Rules of a reliable connection that more than one part has a share in.
#include "vhca/core/packet.hpp"
#include "vhca/test/core/tag_world.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

SendWork fetch_and_add(const World& world, std::uint64_t value) {
    SendWork work = world.remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
    work.compare_add = value;
    return work;
}

TEST(VhcaSemantics, receiver_not_ready_begins_anew_after_progress) {
    WorldOptions options;
    options.connection.rnr_retry = 1;
    options.connection.min_rnr_timer = 10;  // 320 us
    World world(options);
    for (std::uint64_t id = 0; id < 5; ++id) {
        ASSERT_EQ(world.send(id, 0, 8), 0);
        world.fabric.run_until(world.fabric.now() + 100'000);
        EXPECT_EQ(world.a.device.counters().rnr_naks, id + 1);
        ASSERT_EQ(world.receive(id, 0, 8), 0);
        EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    }
    ASSERT_EQ(world.send(5, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(VhcaSemantics, device_without_atomics_neither_sends_nor_executes_them) {
    WorldOptions options;
    options.node.device.has_atomics = false;
    World world(options);
    EXPECT_EQ(world.send(1, 0, 8, fetch_and_add(world, 1)), EINVAL);
    std::vector<std::byte> bytes(packet_bytes(Opcode::kRcFetchAdd, 0));
    Packet packet;
    packet.opcode = Opcode::kRcFetchAdd;
    packet.qpn = world.qb->number();
    packet.psn = 0x1000;
    packet.address = world.b.address(0);
    packet.rkey = world.b.mr->key;
    packet.swap_add = 1;
    put_headers(bytes.data(), packet, 0);
    world.fabric.inject(world.a.route(), world.b.route(), bytes);
    world.settle();
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_REQ_ERR), 1U);
    EXPECT_EQ(world.b.word(0), 0U);
}

TEST(VhcaSemantics, atomics_of_several_queue_pairs_on_one_word_all_count) {
    WorldOptions options;
    options.fabric.loss = 0.2;
    options.connection.timeout = 5;
    World world(options);
    Qp& other = world.a.create_qp({.cap = options.cap});
    Qp& target = world.b.create_qp({.cap = options.cap});
    world.connect(other, world.b.route(), target.number(), 1, 2);
    world.connect(target, world.a.route(), other.number(), 2, 1);
    const ibv_sge sge = world.a.sge(1024, 8);
    constexpr std::uint64_t kEach = 30;
    for (std::uint64_t id = 0; id < kEach; ++id) {
        ASSERT_EQ(world.send(id, 8 * id, 8, fetch_and_add(world, 1)), 0);
        SendWork work = fetch_and_add(world, 1000);
        work.flags = IBV_SEND_SIGNALED;
        work.sges = {&sge, 1};
        ASSERT_EQ(other.post_send(work, world.fabric.now()), 0);
    }
    for (std::uint64_t done = 0; done < 2 * kEach; ++done)
        ASSERT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.word(0), kEach * 1001);
}

TEST(VhcaSemantics, data_of_a_write_are_there_when_a_later_send_completes) {
    WorldOptions options;
    options.fabric.loss = 0.1;
    options.fabric.delay_max = 5000;
    options.fabric.reorders_path = true;
    options.connection.timeout = 5;
    World world(options);
    for (std::uint64_t id = 0; id < 20; ++id) {
        const std::string text(5000, static_cast<char>('a' + id));
        world.a.write(0, text);
        ASSERT_EQ(world.receive(id, 40000, 8), 0);
        ASSERT_EQ(world.send(id, 0, 5000, world.remote(IBV_WR_RDMA_WRITE, 8192)), 0);
        ASSERT_EQ(world.send(id, 0, 8), 0);
        ASSERT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(world.b.text(8192, 5000), text);
        ASSERT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    }
}

TEST(VhcaSemantics, reserved_bytes_of_a_tag_header_are_the_programs) {
    TagWorld world;
    world.add(5, 77, 0, 100);
    std::string message = TagWorld::header(TagOpcode::kEager, 5) + "payload";
    message[1] = message[2] = message[3] = 'x';
    ASSERT_EQ(world.send_message(message), 0);
    expect_tagged(world.wait_tags(), 77, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID, 7);
}

}  // namespace

}  // namespace tagwire::vhca
