// SPDX-License-Identifier: BSD-3-Clause
// A device that dies, a port that loses its cable, SRQs that fail.
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

TEST(VhcaIncident, is_known_by_its_name) {
    EXPECT_EQ(incident_of("device-fatal"), Incident::kDeviceFatal);
    EXPECT_EQ(incident_of("srq-error"), Incident::kSrqError);
    EXPECT_EQ(incident_of("device"), std::nullopt);
    EXPECT_EQ(incident_of(""), std::nullopt);
    const std::string names = incident_names();
    EXPECT_EQ(names.find("device-fatal, port-down, port-up, "), 0U) << names;
}

TEST(VhcaPort, without_a_cable_carries_nothing_and_says_so) {
    World world;
    ASSERT_EQ(world.a.device.happen(Incident::kPortDown, world.fabric.now()), 0);
    EXPECT_FALSE(world.a.device.is_link_up());
    EXPECT_FALSE(world.a.device.is_dead());
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.send(2, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(world.b.device.counters().packets_received, 0U);
    ASSERT_EQ(world.a.device.happen(Incident::kPortDown, world.fabric.now()), 0);
    const std::vector<std::pair<ibv_event_type, unsigned>> told = {{IBV_EVENT_PORT_ERR, 1U}};
    EXPECT_EQ(world.a.events.of_device, told);
}

TEST(VhcaPort, that_comes_back_in_time_loses_no_message) {
    World world;
    ASSERT_EQ(world.a.device.happen(Incident::kPortDown, world.fabric.now()), 0);
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    world.a.write(0, "survivor");
    ASSERT_EQ(world.send(2, 0, 8), 0);
    ASSERT_TRUE(world.fabric.run([&] { return world.a.device.counters().timeouts == 2; }));
    ASSERT_EQ(world.a.device.happen(Incident::kPortUp, world.fabric.now()), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.text(0, 8), "survivor");
    const std::vector<std::pair<ibv_event_type, unsigned>> told = {{IBV_EVENT_PORT_ERR, 1U},
                                                                   {IBV_EVENT_PORT_ACTIVE, 1U}};
    EXPECT_EQ(world.a.events.of_device, told);
}

TEST(VhcaPort, of_the_receiver_without_a_cable_loses_what_arrives) {
    World world;
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.b.device.happen(Incident::kPortDown, world.fabric.now()), 0);
    ASSERT_EQ(world.send(2, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_TRUE(world.b.cq->is_empty());
}

TEST(VhcaPort, tells_the_changes_that_are_events_alone) {
    World world;
    for (const Incident incident :
         {Incident::kLidChange, Incident::kGidChange, Incident::kPkeyChange, Incident::kSmChange,
          Incident::kClientReregister}) {
        ASSERT_EQ(world.a.device.happen(incident, world.fabric.now()), 0);
    }
    const std::vector<std::pair<ibv_event_type, unsigned>> told = {
        {IBV_EVENT_LID_CHANGE, 1U},
        {IBV_EVENT_GID_CHANGE, 1U},
        {IBV_EVENT_PKEY_CHANGE, 1U},
        {IBV_EVENT_SM_CHANGE, 1U},
        {IBV_EVENT_CLIENT_REREGISTER, 1U}};
    EXPECT_EQ(world.a.events.of_device, told);
}

TEST(VhcaDeath, ends_all_work_without_a_completion) {
    WorldOptions options;
    options.uses_srq = true;
    World world(options);
    world.a.cq->arm(false);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    ASSERT_EQ(world.a.device.happen(Incident::kDeviceFatal, world.fabric.now()), 0);
    ASSERT_EQ(world.receive(2, 0, 8), 0);
    EXPECT_EQ(world.send(3, 0, 8), 0);  // goes into the queue, as with a card
    world.settle();
    EXPECT_TRUE(world.a.device.is_dead());
    EXPECT_TRUE(world.a.cq->is_empty());
    EXPECT_TRUE(world.a.events.cqs.empty());
    EXPECT_TRUE(world.a.events.qps.empty());
    const std::vector<std::pair<ibv_event_type, unsigned>> told = {{IBV_EVENT_DEVICE_FATAL, 0U}};
    EXPECT_EQ(world.a.events.of_device, told);
}

TEST(VhcaDeath, leaves_nothing_to_create_or_modify_and_all_to_destroy) {
    World world;
    Device& device = world.a.device;
    ASSERT_EQ(device.happen(Incident::kDeviceFatal, world.fabric.now()), 0);
    EXPECT_EQ(device.happen(Incident::kPortUp, world.fabric.now()), EIO);
    Pd* pd = nullptr;
    EXPECT_EQ(device.create_pd(nullptr, &pd), EIO);
    Cq* cq = nullptr;
    EXPECT_EQ(device.create_cq({.cqe = 1}, &cq), EIO);
    Mr* mr = nullptr;
    EXPECT_EQ(device.create_mr(*world.a.pd, world.a.memory.data(), 8, 0, 0, &mr), EIO);
    EXPECT_EQ(device.change_mr(*world.a.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
              EIO);
    Srq* srq = nullptr;
    EXPECT_EQ(device.create_srq({.pd = world.a.pd, .wr_max = 1, .sge_max = 1}, &srq), EIO);
    Qp* qp = nullptr;
    EXPECT_EQ(
        device.create_qp({.pd = world.a.pd, .send_cq = world.a.cq, .recv_cq = world.a.cq}, &qp),
        EIO);
    EXPECT_EQ(world.a.cq->resize(8), EIO);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(world.qa->modify(attr, IBV_QP_STATE, {}, world.fabric.now()), EIO);
    EXPECT_EQ(device.destroy_qp(*world.qa), 0);
    EXPECT_EQ(device.destroy_mr(*world.a.mr), 0);
    EXPECT_EQ(device.destroy_cq(*world.a.cq), 0);
    EXPECT_EQ(device.destroy_pd(*world.a.pd), 0);
}

TEST(VhcaDeath, keeps_the_completions_that_were_there_before) {
    World world;
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.send(2, 0, 8), 0);
    ASSERT_TRUE(world.fabric.run([&] { return !world.a.cq->is_empty(); }));
    ASSERT_EQ(world.a.device.happen(Incident::kDeviceFatal, world.fabric.now()), 0);
    EXPECT_EQ(world.a.poll().value().wc.wr_id, 2U);
    EXPECT_FALSE(world.a.poll().has_value());
}

TEST(VhcaDeath, drops_the_completions_that_come_late) {
    WorldOptions options;
    options.node.device.late_ns_max = 1'000'000;
    World world(options);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_ERR), 0);  // flushed, and told later
    ASSERT_TRUE(world.a.cq->is_empty());
    ASSERT_EQ(world.a.device.happen(Incident::kDeviceFatal, world.fabric.now()), 0);
    world.settle();
    EXPECT_TRUE(world.a.cq->is_empty());
}

TEST(VhcaDeath, is_silence_for_the_peer) {
    World world;
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.b.device.happen(Incident::kDeviceFatal, world.fabric.now()), 0);
    ASSERT_EQ(world.send(2, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaSrqError, fails_the_queue_pairs_that_use_it) {
    WorldOptions options;
    options.uses_srq = true;
    World world(options);
    ASSERT_EQ(world.b.device.happen(Incident::kSrqError, world.fabric.now()), 0);
    ASSERT_EQ(world.b.events.srqs.size(), 1U);
    EXPECT_EQ(world.b.events.srqs[0], std::pair(IBV_EVENT_SRQ_ERR, world.srq));
    EXPECT_EQ(world.qb->state(), IBV_QPS_ERR);
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_FATAL), 1U);
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_LAST_WQE_REACHED), 1U);
    ASSERT_EQ(world.a.device.happen(Incident::kSrqError, world.fabric.now()), 0);
    EXPECT_EQ(world.qa->state(), IBV_QPS_RTS);  // it has none
}

}  // namespace

}  // namespace tagwire::vhca
