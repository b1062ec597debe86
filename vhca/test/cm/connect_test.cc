// SPDX-License-Identifier: BSD-3-Clause
// Connections from request to time wait, over a wire that may lose and repeat messages.
#include "vhca/engine/fault_handler.hpp"
#include "vhca/test/cm/cm_world.hpp"

namespace tagwire::vhca::cm {

namespace {

std::string_view data_of(const rdma_ucm_conn_param& param) {
    return {reinterpret_cast<const char*>(param.private_data), param.private_data_len};
}

constexpr std::size_t kReqData = 56, kRepData = 196, kRejData = 148;

TEST_F(VhcaCm, a_connection_is_made_and_tells_each_side_of_the_other) {
    const std::uint32_t listener = server.listening(CmHost::address(2, 7174));
    const std::uint32_t active = client.routed(CmHost::address(2, 7174));
    ASSERT_EQ(client.connect(active, CmProgram::param(0x123456, "hello")), 0);
    settle();

    const rdma_ucm_event_resp request = server.expect(kConnectRequest);
    EXPECT_NE(request.id, listener);
    EXPECT_EQ(data_of(request.param.conn).size(), kReqData);
    EXPECT_EQ(data_of(request.param.conn).substr(0, 6), std::string_view("hello\0", 6));
    EXPECT_EQ(request.param.conn.qp_num, 0x123456U);
    EXPECT_EQ(request.param.conn.responder_resources, 5);  // its initiator depth
    EXPECT_EQ(request.param.conn.initiator_depth, 3);
    EXPECT_EQ(request.param.conn.retry_count, 6);
    EXPECT_EQ(request.param.conn.rnr_retry_count, 7);

    ASSERT_EQ(server.accept(request.id, CmProgram::param(0x654321, "welcome")), 0);
    settle();
    const rdma_ucm_event_resp response = client.expect(kConnectResponse);
    EXPECT_EQ(response.id, active);
    EXPECT_EQ(data_of(response.param.conn).size(), kRepData);
    EXPECT_EQ(data_of(response.param.conn).substr(0, 7), "welcome");
    EXPECT_EQ(response.param.conn.qp_num, 0x654321U);
    server.expect_nothing();

    ASSERT_EQ(client.get_ready(active), 0);
    settle();
    EXPECT_EQ(server.expect(kEstablished).id, request.id);
    client.expect_nothing();

    const Address seen = CmProgram::stored(server.addresses(request.id).dst_addr);
    EXPECT_TRUE(seen.is_same_host(CmHost::address(1, 0)));
    EXPECT_EQ(seen.port(), client.source_port(active));
    EXPECT_EQ(server.source_port(request.id), 7174);
}

TEST_F(VhcaCm, queue_pairs_get_attributes_that_fit_each_other) {
    const Pair pair = connected();
    ib_uverbs_qp_attr mine{}, theirs{};
    ASSERT_EQ(client.attributes(pair.active, IBV_QPS_INIT, &mine), 0);
    EXPECT_EQ(mine.qp_attr_mask, static_cast<unsigned>(IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                                       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    EXPECT_EQ(mine.qp_access_flags,
              static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_ATOMIC));
    ib_uverbs_qp_attr rtr{};
    ASSERT_EQ(client.attributes(pair.active, IBV_QPS_RTR, &rtr), 0);
    ASSERT_EQ(server.attributes(pair.passive, IBV_QPS_RTS, &theirs), 0);
    EXPECT_EQ(rtr.rq_psn, theirs.sq_psn);
    EXPECT_EQ(rtr.dest_qp_num, 0x222U);
    EXPECT_EQ(rtr.path_mtu, static_cast<unsigned>(IBV_MTU_1024));
    EXPECT_EQ(rtr.ah_attr.dlid, 2);
    EXPECT_EQ(rtr.ah_attr.is_global, 0);
    EXPECT_LE(theirs.max_rd_atomic, rtr.max_dest_rd_atomic);
    ib_uverbs_qp_attr their_rtr{};
    ASSERT_EQ(server.attributes(pair.passive, IBV_QPS_RTR, &their_rtr), 0);
    ASSERT_EQ(client.attributes(pair.active, IBV_QPS_RTS, &mine), 0);
    EXPECT_EQ(their_rtr.rq_psn, mine.sq_psn);
    EXPECT_EQ(their_rtr.dest_qp_num, 0x111U);
    EXPECT_EQ(mine.retry_cnt, 6);
    EXPECT_EQ(theirs.retry_cnt, 6);
    EXPECT_EQ(client.attributes(pair.active, IBV_QPS_SQD, &mine), EINVAL);
}

TEST_F(VhcaCm, on_ethernet_the_address_vector_has_a_gid) {
    one.is_ethernet = true;
    const Pair pair = connected();
    ib_uverbs_qp_attr rtr{};
    ASSERT_EQ(client.attributes(pair.active, IBV_QPS_RTR, &rtr), 0);
    EXPECT_EQ(rtr.ah_attr.is_global, 1);
    EXPECT_EQ(rtr.ah_attr.grh.dgid[15], 2);
}

TEST_F(VhcaCm, nobody_listens) {
    const std::uint32_t id = client.routed(CmHost::address(2, 9));
    ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
    const Time start = wire.now;
    ASSERT_TRUE(run([&] { return client.channel->event_count() == 1; }));
    client.expect(kRejected, kRejInvalidServiceId);
    EXPECT_LT(wire.now - start, 400'000'000U);
}

TEST_F(VhcaCm, a_listener_that_comes_a_little_late_is_found) {
    for (const std::uint16_t ps : {std::uint16_t{RDMA_PS_TCP}, std::uint16_t{RDMA_PS_UDP}}) {
        SCOPED_TRACE(ps);
        const std::uint32_t id = client.routed(CmHost::address(2, 9), ps);
        ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
        const Time late = wire.now + 200'000'000;
        ASSERT_TRUE(run([&] { return wire.now > late; }));
        client.expect_nothing();
        server.listening(CmHost::address(2, 9), ps);
        ASSERT_TRUE(run([&] { return server.channel->event_count() == 1; }));
        const std::uint32_t request = server.expect(kConnectRequest).id;
        ASSERT_EQ(server.accept(request, CmProgram::param(2)), 0);
        ASSERT_TRUE(run([&] { return client.channel->event_count() == 1; }));
        client.expect(ps == RDMA_PS_TCP ? kConnectResponse : EventType::kEstablished);
    }
}

TEST_F(VhcaCm, a_listener_of_another_address_or_kind_refuses) {
    const std::uint32_t listener = server.create(RDMA_PS_IB, IBV_QPT_UC);
    ASSERT_EQ(server.bind(listener, CmHost::address(2, 5000)), 0);
    ASSERT_EQ(server.listen(listener), 0);
    const std::uint32_t id = client.create(RDMA_PS_IB, IBV_QPT_RC);
    ASSERT_EQ(client.resolve(id, CmHost::address(2, 5000)), 0);
    client.expect(kAddressResolved);
    ASSERT_EQ(client.route(id), 0);
    client.expect(kRouteResolved);
    ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
    settle();
    client.expect(kRejected, kRejConsumerDefined);
}

TEST_F(VhcaCm, a_program_rejects_with_data_and_reason) {
    const auto [id, request, listener] = requested();
    EXPECT_EQ(server.reject(request, "no", 17), EINVAL);
    EXPECT_EQ(server.reject(request, std::string(kRejData + 1, 'x')), EINVAL);
    ASSERT_EQ(server.reject(request, "no"), 0);
    EXPECT_EQ(server.reject(request, "no"), EINVAL);
    settle();
    const rdma_ucm_event_resp event = client.expect(kRejected, kRejConsumerDefined);
    EXPECT_EQ(data_of(event.param.conn).size(), kRejData);
    EXPECT_EQ(data_of(event.param.conn).substr(0, 2), "no");
}

TEST_F(VhcaCm, a_request_that_is_never_taken_is_rejected_when_its_listener_goes) {
    const std::uint32_t listener = server.listening(CmHost::address(2, 5000));
    const std::uint32_t id = client.routed(CmHost::address(2, 5000));
    ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
    settle();
    ASSERT_EQ(server.destroy(listener), 0);
    settle();
    client.expect(kRejected, kRejConsumerDefined);
    server.expect_nothing();
}

TEST_F(VhcaCm, request_that_the_program_could_not_be_told_of_is_still_part_of_its_event) {
    install_fault_handler();
    const std::uint32_t listener = server.listening(CmHost::address(2, 5000));
    const std::uint32_t id = client.routed(CmHost::address(2, 5000));
    ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
    settle();
    constexpr std::uint64_t kNowhere = 0x1000;
    EXPECT_EQ(server.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{.response = kNowhere},
                         sizeof(rdma_ucm_event_resp)),
              EFAULT);
    for (std::uint32_t number = 0; number < 16; ++number)  // it has none yet
        if (number != listener) {
            EXPECT_EQ(server.destroy(number), ENOENT) << number;
        }
    server.channel.reset();  // listener and request go, whichever is first
    settle();
    client.expect(kRejected, kRejConsumerDefined);
}

TEST_F(VhcaCm, private_data_beyond_the_limit_is_refused) {
    const std::uint32_t id = client.routed(CmHost::address(2, 5000));
    EXPECT_EQ(client.connect(id, CmProgram::param(1, std::string(kReqData + 1, 'x'))), EINVAL);
    EXPECT_EQ(client.connect(id, CmProgram::param(1, std::string(kReqData, 'x'))), 0);
    EXPECT_EQ(client.connect(id, CmProgram::param(1)), EINVAL);  // it is on its way
}

TEST_F(VhcaCm, a_full_backlog_makes_a_request_wait) {
    server.listening(CmHost::address(2, 5000), RDMA_PS_TCP, 1);
    const std::uint32_t first = client.routed(CmHost::address(2, 5000));
    const std::uint32_t second = client.routed(CmHost::address(2, 5000));
    ASSERT_EQ(client.connect(first, CmProgram::param(1)), 0);
    ASSERT_EQ(client.connect(second, CmProgram::param(2)), 0);
    settle();
    EXPECT_EQ(server.channel->event_count(), 1U);
    EXPECT_EQ(server.expect(kConnectRequest).param.conn.qp_num, 1U);
    ASSERT_TRUE(run([&] { return server.channel->event_count() == 1; }));
    EXPECT_EQ(server.expect(kConnectRequest).param.conn.qp_num, 2U);
}

TEST_F(VhcaCm, both_sides_hear_of_a_disconnect_and_of_the_end_of_its_time_wait) {
    const Pair pair = connected();
    ASSERT_EQ(client.disconnect(pair.active), 0);
    settle();
    EXPECT_EQ(server.expect(kDisconnected).id, pair.passive);
    client.expect_nothing();
    ASSERT_EQ(server.disconnect(pair.passive), 0);
    settle();
    EXPECT_EQ(client.expect(kDisconnected).id, pair.active);
    run_out();
    client.expect(kTimeWaitExit);
    server.expect(kTimeWaitExit);
    std::uint32_t reported = 0;
    EXPECT_EQ(client.destroy(pair.active, &reported), 0);
    EXPECT_EQ(reported, 5U);
}

TEST_F(VhcaCm, closing_the_channel_disconnects) {
    const Pair pair = connected();
    client.channel.reset();
    settle();
    EXPECT_EQ(server.expect(kDisconnected).id, pair.passive);
    EXPECT_EQ(server.disconnect(pair.passive), 0);
}

TEST_F(VhcaCm, a_disconnect_of_what_the_peer_forgot_is_answered_all_the_same) {
    const Pair pair = connected();
    wire.loses_next = 1;  // the good-bye of the server
    ASSERT_EQ(server.destroy(pair.passive), 0);
    ASSERT_EQ(client.disconnect(pair.active), 0);
    settle();
    client.expect(kDisconnected);
}

TEST_F(VhcaCm, a_lost_good_bye_of_what_was_destroyed_is_repeated) {
    const Pair pair = connected();
    wire.loses_next = 1;
    ASSERT_EQ(client.destroy(pair.active), 0);
    ASSERT_TRUE(run([&] { return server.channel->event_count() == 1; }));
    server.expect(kDisconnected);
    ASSERT_EQ(server.disconnect(pair.passive), 0);
    const std::uint64_t sent = wire.sent;
    settle();
    EXPECT_TRUE(one.manager->say_farewell());  // nothing is left of it
    EXPECT_LE(wire.sent, sent + 1);
}

TEST_F(VhcaCm, a_good_bye_is_heard_though_the_program_of_the_peer_takes_its_time) {
    const Pair pair = connected();
    ASSERT_EQ(client.destroy(pair.active), 0);
    EXPECT_FALSE(one.manager->say_farewell());
    ASSERT_TRUE(run([&] { return one.manager->say_farewell(); }));
    server.expect(kDisconnected);
    EXPECT_EQ(server.disconnect(pair.passive), 0);
}

TEST_F(VhcaCm, both_sides_may_destroy_a_connection_at_once) {
    const Pair pair = connected();
    ASSERT_EQ(client.destroy(pair.active), 0);
    ASSERT_EQ(server.destroy(pair.passive), 0);
    settle();
    EXPECT_TRUE(one.manager->say_farewell());
    EXPECT_EQ(server.destroy(pair.listener), 0);
    EXPECT_TRUE(two.manager->say_farewell());
}

TEST_F(VhcaCm, the_end_of_a_process_ends_its_connections) {
    const Pair pair = connected();
    two.manager->note_gone({3});
    server.expect_nothing();
    two.manager->note_gone({1});
    server.expect(kDisconnected);
    EXPECT_EQ(server.disconnect(pair.passive), 0);
    two.manager->note_gone({1});
    run_out();
    server.expect(kTimeWaitExit);
    server.expect_nothing();
}

TEST_F(VhcaCm, the_end_of_a_process_rejects_what_it_had_begun) {
    const auto [id, request, listener] = requested();
    ASSERT_EQ(server.accept(request, CmProgram::param(2)), 0);
    settle();
    client.expect(kConnectResponse);
    one.manager->note_gone({2});
    client.expect(kRejected, kRejConsumerDefined);
    two.manager->note_gone({1});
    server.expect(kRejected, kRejConsumerDefined);
    EXPECT_EQ(client.get_ready(id), EINVAL);
}

TEST_F(VhcaCm, the_end_of_a_process_hears_the_good_bye_to_it) {
    const Pair pair = connected();
    ASSERT_EQ(client.disconnect(pair.active), 0);
    one.manager->note_gone({2});
    client.expect(kDisconnected);
    settle();
    server.expect(kDisconnected);
    const Pair other = connected();
    ASSERT_EQ(client.destroy(other.active), 0);
    one.manager->note_gone({2});
    EXPECT_EQ(client.destroy(pair.active), 0);
    EXPECT_TRUE(one.manager->say_farewell());
}

TEST_F(VhcaCm, an_unreachable_peer_is_told_of_in_the_end) {
    const std::uint32_t id = client.routed(CmHost::address(3, 5000));
    ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
    const std::uint64_t sent = wire.sent;
    run_out();
    client.expect(kUnreachable, -ETIMEDOUT);
    EXPECT_EQ(wire.sent - sent, Timing{}.sends_max - 1);
}

TEST_F(VhcaCm, a_program_may_take_its_time_to_accept) {
    server.listening(CmHost::address(2, 5000));
    const std::uint32_t id = client.routed(CmHost::address(2, 5000));
    ASSERT_EQ(client.connect(id, CmProgram::param(1)), 0);
    const Time end = wire.now + 600'000'000'000;
    ASSERT_TRUE(run([&] { return wire.now > end; }));
    client.expect_nothing();
    const std::uint32_t request = server.expect(kConnectRequest).id;
    server.expect_nothing();
    ASSERT_EQ(server.accept(request, CmProgram::param(2)), 0);
    settle();
    client.expect(kConnectResponse);
    const Time later = wire.now + 600'000'000'000;
    ASSERT_TRUE(run([&] { return wire.now > later; }));
    server.expect_nothing();
    ASSERT_EQ(client.get_ready(id), 0);
    settle();
    server.expect(kEstablished);
}

TEST_F(VhcaCm, a_message_of_the_peer_can_stand_for_its_lost_confirmation) {
    const Pair pair = requested();
    const auto notify = [&](std::uint32_t event) {
        return server.run(RDMA_USER_CM_CMD_NOTIFY,
                          rdma_ucm_notify{.id = pair.passive, .event = event});
    };
    EXPECT_EQ(notify(IBV_EVENT_COMM_EST), EINVAL);
    ASSERT_EQ(server.accept(pair.passive, CmProgram::param(2)), 0);
    settle();
    wire.loses_next = 1;
    ASSERT_EQ(client.get_ready(pair.active), 0);
    EXPECT_EQ(notify(IBV_EVENT_PATH_MIG), EINVAL);
    EXPECT_EQ(notify(IBV_EVENT_COMM_EST), 0);
    EXPECT_EQ(notify(IBV_EVENT_COMM_EST), EISCONN);
    server.expect(kEstablished);
}

TEST_F(VhcaCm, a_client_that_gives_up_takes_its_request_back) {
    const auto [id, request, listener] = requested();
    ASSERT_EQ(client.destroy(id), 0);
    settle();
    // The program cannot be told yet; accepting fails.
    server.expect_nothing();
    EXPECT_EQ(server.accept(request, CmProgram::param(2)), EINVAL);
}

TEST_F(VhcaCm, datagrams_find_their_queue_pair) {
    server.listening(CmHost::address(2, 5000), RDMA_PS_UDP);
    const std::uint32_t id = client.routed(CmHost::address(2, 5000), RDMA_PS_UDP);
    ASSERT_EQ(client.connect(id, CmProgram::param(7, "who")), 0);
    settle();
    const rdma_ucm_event_resp request = server.expect(kConnectRequest);
    EXPECT_EQ(request.param.ud.private_data_len, 180);
    EXPECT_EQ(std::memcmp(request.param.ud.private_data, "who", 3), 0);
    ib_uverbs_qp_attr attr{};
    ASSERT_EQ(server.attributes(request.id, IBV_QPS_INIT, &attr), 0);
    EXPECT_EQ(attr.qkey, 0x01234567U);
    wire.loses_next = 1;
    ASSERT_EQ(server.accept(request.id, CmProgram::param(0x777, "me")), 0);
    ASSERT_TRUE(run([&] { return client.channel->event_count() == 1; }));
    const rdma_ucm_event_resp answer = client.expect(EventType::kEstablished);
    EXPECT_EQ(answer.param.ud.qp_num, 0x777U);
    EXPECT_EQ(answer.param.ud.qkey, 0x01234567U);
    EXPECT_EQ(answer.param.ud.ah_attr.dlid, 2);
    EXPECT_EQ(std::memcmp(answer.param.ud.private_data, "me", 2), 0);
    server.expect_nothing();
}

TEST_F(VhcaCm, datagrams_without_a_listener_and_rejected_ones_are_unreachable) {
    const std::uint32_t id = client.routed(CmHost::address(2, 5000), RDMA_PS_UDP);
    ASSERT_EQ(client.connect(id, CmProgram::param(7)), 0);
    ASSERT_TRUE(run([&] { return client.channel->event_count() == 1; }));
    client.expect(kUnreachable, kSidrUnsupported);
    server.listening(CmHost::address(2, 5000), RDMA_PS_UDP);
    const std::uint32_t other = client.routed(CmHost::address(2, 5000), RDMA_PS_UDP);
    ASSERT_EQ(client.connect(other, CmProgram::param(7)), 0);
    settle();
    ASSERT_EQ(server.reject(server.expect(kConnectRequest).id), 0);
    settle();
    client.expect(kUnreachable, kSidrReject);
}

TEST_F(VhcaCm, ipv6_and_ib_addresses_work_too) {
    for (const unsigned family : {unsigned{AF_INET6}, unsigned{AF_IB}}) {
        const std::uint32_t listener = server.create(RDMA_PS_IB, IBV_QPT_RC);
        ASSERT_EQ(server.bind(listener, Address::any(family)), 0) << family;
        ASSERT_EQ(server.listen(listener), 0);
        const std::uint16_t port = server.source_port(listener);
        Address destination = CmHost::address(2, port, family);
        if (family == AF_IB) {
            SockaddrIb ib = destination.ib();
            ib.sib_sid = htobe64(0x013f0000U | port);
            ib.sib_sid_mask = ~std::uint64_t{0};
            destination = Address::of(ib);
        }
        const std::uint32_t id = client.create(RDMA_PS_IB, IBV_QPT_RC);
        ASSERT_EQ(client.resolve(id, destination), 0);
        client.expect(kAddressResolved);
        ASSERT_EQ(client.route(id), 0);
        client.expect(kRouteResolved);
        const std::size_t room = family == AF_IB ? 92 : kReqData;
        ASSERT_EQ(client.connect(id, CmProgram::param(1, std::string(room, 'd'))), 0);
        settle();
        const rdma_ucm_event_resp request = server.expect(kConnectRequest);
        EXPECT_EQ(data_of(request.param.conn), std::string(room, 'd'));
        const Address seen = CmProgram::stored(server.addresses(request.id).dst_addr);
        EXPECT_TRUE(seen.is_same_host(CmHost::address(1, 0, family)));
    }
}

// ---- Any weather -------------------------------------------------------------------------------

TEST_F(VhcaCm, connections_come_and_go_over_a_wire_that_loses_and_repeats) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(seed);
        wire.random = SimRandom(seed);
        wire.loss = 0.3;
        wire.duplication = 0.3;
        CmProgram active(one), passive(two);
        const std::uint32_t listener = passive.listening(Address::any(AF_INET), RDMA_PS_TCP, 4);
        const std::uint32_t id = active.routed(CmHost::address(2, passive.source_port(listener)));
        ASSERT_EQ(active.connect(id, CmProgram::param(1)), 0);
        const auto until_event = [&](CmProgram& program) {
            return run([&] { return program.channel->event_count() != 0; });
        };
        ASSERT_TRUE(until_event(passive));
        const std::uint32_t request = passive.expect(kConnectRequest).id;
        ASSERT_EQ(passive.accept(request, CmProgram::param(2)), 0);
        ASSERT_TRUE(until_event(active));
        active.expect(kConnectResponse);
        ASSERT_EQ(active.get_ready(id), 0);
        ASSERT_TRUE(until_event(passive));
        passive.expect(kEstablished);
        ASSERT_EQ(passive.disconnect(request), 0);
        ASSERT_TRUE(until_event(active));
        active.expect(kDisconnected);
        ASSERT_EQ(active.disconnect(id), 0);
        ASSERT_TRUE(until_event(passive));
        passive.expect(kDisconnected);
        run_out();
        active.expect(kTimeWaitExit);
        passive.expect(kTimeWaitExit);
        active.expect_nothing();
        passive.expect_nothing();
    }
}

TEST_F(VhcaCm, what_a_peer_makes_up_does_no_harm) {
    const Pair pair = connected();
    SimRandom random(7);
    const auto take = [&] {
        rdma_ucm_event_resp event;
        while (server.fetch(&event) == 0)
            if (event.event == kConnectRequest) {
                EXPECT_EQ(server.destroy(event.id), 0);
            }
    };
    for (unsigned i = 0; i < 20000; ++i) {
        Mad mad = wire.last;
        mad[16] = std::byte{0};
        mad[17] = static_cast<std::byte>(0x0f + random.below(12));
        for (std::uint64_t changes = random.below(40); changes > 0; --changes)
            mad[random.below(kMadBytes)] = static_cast<std::byte>(random.next());
        two.manager->receive({1 + random.below(3)},
                             std::span(mad).first(random.chance(0.1) ? random.below(256) : 256));
        take();
        wire.flights.clear();
    }
    EXPECT_EQ(server.destroy(pair.passive), 0);
}

}  // namespace

}  // namespace tagwire::vhca::cm
