// SPDX-License-Identifier: BSD-3-Clause
// Commands alone: what they refuse, and with which error.
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_sa.h>

#include "vhca/test/cm/cm_world.hpp"

namespace tagwire::vhca::cm {

namespace {

constexpr std::uint32_t kNobody = 0x7777;

bool is_readable(int fd) {
    pollfd wait{.fd = fd, .events = POLLIN | POLLOUT, .revents = 0};
    EXPECT_GE(::poll(&wait, 1, 0), 0);
    EXPECT_EQ(wait.revents & ~POLLIN, 0);
    return wait.revents != 0;
}

TEST_F(VhcaCm, commands_that_are_none_are_refused) {
    const auto write = [&](const void* bytes, std::size_t count) {
        return client.channel->write(bytes, count, [](int) { return nullptr; }) < 0 ? errno : 0;
    };
    rdma_ucm_cmd_hdr head{.cmd = RDMA_USER_CM_CMD_LISTEN, .in = 0, .out = 0};
    EXPECT_EQ(write(&head, sizeof head - 1), EINVAL);
    head.in = 1;  // more than there is
    EXPECT_EQ(write(&head, sizeof head), EINVAL);
    head = {.cmd = RDMA_USER_CM_CMD_JOIN_MCAST + 1, .in = 0, .out = 0};
    EXPECT_EQ(write(&head, sizeof head), EINVAL);
    head.cmd = RDMA_USER_CM_CMD_GET_OPTION;
    EXPECT_EQ(write(&head, sizeof head), ENOSYS);
}

TEST_F(VhcaCm, an_unknown_number_is_enoent_and_that_of_another_channel_einval) {
    CmProgram other(one);
    const std::uint32_t foreign = other.create();
    const auto expect = [&](std::uint32_t id, int error) {
        EXPECT_EQ(client.bind(id, Address::any(AF_INET)), error);
        EXPECT_EQ(client.listen(id), error);
        EXPECT_EQ(client.resolve(id, CmHost::address(2, 1)), error);
        EXPECT_EQ(client.route(id), error);
        EXPECT_EQ(client.connect(id, CmProgram::param(1)), error);
        EXPECT_EQ(client.accept(id, CmProgram::param(1)), error);
        EXPECT_EQ(client.reject(id), error);
        EXPECT_EQ(client.disconnect(id), error);
        EXPECT_EQ(client.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, std::uint8_t{1}),
                  error);
        EXPECT_EQ(client.destroy(id), error);
    };
    expect(kNobody, ENOENT);
    expect(foreign, EINVAL);
    EXPECT_EQ(other.destroy(foreign), 0);
}

TEST_F(VhcaCm, answers_need_room) {
    const std::uint32_t id = client.create();
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_CREATE_ID, rdma_ucm_create_id{}, 3), ENOSPC);
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{}, 3), ENOSPC);
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, 100), ENOSPC);
    rdma_ucm_query query{};
    query.id = id;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_QUERY_ROUTE, query, 8), ENOSPC);
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_QUERY, query, 8), ENOSPC);
    query.option = 9;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_QUERY, query, 400), ENOSYS);
}

TEST_F(VhcaCm, states_are_gone_through_in_order) {
    const std::uint32_t id = client.create();
    EXPECT_EQ(client.route(id), EINVAL);
    EXPECT_EQ(client.connect(id, CmProgram::param(1)), EINVAL);
    EXPECT_EQ(client.disconnect(id), EINVAL);
    EXPECT_EQ(client.resolve(id, CmHost::address(2, 1)), 0);
    EXPECT_EQ(client.resolve(id, CmHost::address(2, 1)), EINVAL);
    EXPECT_EQ(client.bind(id, Address::any(AF_INET)), EINVAL);
    EXPECT_EQ(client.listen(id), EINVAL);
    EXPECT_EQ(client.connect(id, CmProgram::param(1)), EINVAL);
    EXPECT_EQ(client.disconnect(id), EINVAL);
    EXPECT_EQ(client.accept(id, CmProgram::param(1)), EINVAL);
    EXPECT_EQ(client.route(id), 0);
    EXPECT_EQ(client.route(id), EINVAL);
    EXPECT_EQ(client.connect(id, rdma_ucm_conn_param{}), EINVAL);  // not valid
}

TEST_F(VhcaCm, addresses_of_other_machines_cannot_be_bound) {
    const std::uint32_t id = client.create();
    EXPECT_EQ(client.bind(id, CmHost::address(2, 0)), EADDRNOTAVAIL);
    EXPECT_EQ(client.bind(id, CmHost::address(1, 0)), 0);
    EXPECT_GE(client.source_port(id), 32768);
    EXPECT_EQ(client.addresses(id).port_num, 1);
}

TEST_F(VhcaCm, addresses_of_the_wrong_size_are_refused) {
    const std::uint32_t id = client.create();
    rdma_ucm_bind in{};
    in.id = id;
    in.addr.ss_family = AF_INET;
    in.addr_size = 28;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_BIND, in), EINVAL);
    in.addr.ss_family = AF_UNIX;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_BIND, in), EINVAL);
    rdma_ucm_bind_ip ip{};
    ip.id = id;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_BIND_IP, ip), EINVAL);
    ip.addr.sin6_family = AF_INET6;
    ip.addr.sin6_addr.s6_addr[0] = 0xfe;  // link local, of no link
    ip.addr.sin6_addr.s6_addr[1] = 0x80;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_BIND_IP, ip), EINVAL);
}

TEST_F(VhcaCm, a_host_that_nobody_can_reach_is_told_by_an_event) {
    const std::uint32_t id = client.create();
    EXPECT_EQ(client.resolve(id, CmHost::address(99, 1)), 0);
    client.expect(kAddressError, -EHOSTUNREACH);
    EXPECT_EQ(client.resolve(id, CmHost::address(2, 1)), 0);
    client.expect(kAddressResolved);
}

TEST_F(VhcaCm, a_port_belongs_to_one) {
    const std::uint32_t id = client.create(), second = client.create();
    EXPECT_EQ(client.bind(id, CmHost::address(1, 4000)), 0);
    EXPECT_EQ(client.bind(second, CmHost::address(1, 4000)), EADDRINUSE);
    EXPECT_EQ(client.bind(second, Address::any(AF_INET6)), 0);  // another port
    const std::uint32_t datagrams = client.create(RDMA_PS_UDP);
    EXPECT_EQ(client.bind(datagrams, CmHost::address(1, 4000)), 0);  // another space
    one.taken.insert(0x01060000 + 4001);
    const std::uint32_t third = client.create();
    EXPECT_EQ(client.bind(third, CmHost::address(1, 4001)), EADDRINUSE);
    EXPECT_EQ(client.destroy(id), 0);
    EXPECT_EQ(client.bind(third, CmHost::address(1, 4000)), 0);
    EXPECT_EQ(one.claims.size(), 3U);
    client.channel.reset();
    EXPECT_TRUE(one.claims.empty());
}

TEST_F(VhcaCm, a_port_can_be_shared_until_somebody_listens) {
    const std::uint32_t id = client.create(), second = client.create();
    for (const std::uint32_t each : {id, second}) {
        ASSERT_EQ(client.set_option(each, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1), 0);
        ASSERT_EQ(client.bind(each, CmHost::address(1, 4000)), 0);
    }
    EXPECT_EQ(client.listen(id), EADDRINUSE);
    EXPECT_EQ(client.destroy(second), 0);
    EXPECT_EQ(client.listen(id), 0);
}

TEST_F(VhcaCm, options_are_checked) {
    const std::uint32_t id = client.create(), datagrams = client.create(RDMA_PS_UDP);
    const auto set = [&](std::uint32_t which, std::uint32_t name, auto value) {
        return client.set_option(which, RDMA_OPTION_ID, name, value);
    };
    EXPECT_EQ(set(id, RDMA_OPTION_ID_TOS, std::uint8_t{0x20}), 0);
    EXPECT_EQ(set(id, RDMA_OPTION_ID_TOS, 0x20), EINVAL);
    EXPECT_EQ(set(id, RDMA_OPTION_ID_AFONLY, 1), 0);
    EXPECT_EQ(set(id, RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{14}), 0);
    EXPECT_EQ(set(datagrams, RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{14}), EINVAL);
    EXPECT_EQ(set(id, 99, 1), ENOSYS);
    EXPECT_EQ(client.set_option(id, 2, RDMA_OPTION_ID_TOS, std::uint8_t{1}), ENOSYS);
    EXPECT_EQ(client.set_option(id, RDMA_OPTION_IB, 7, 1), ENOSYS);
    ib_path_rec_data path{};
    EXPECT_EQ(client.set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path), EINVAL);
    rdma_ucm_set_option huge{};
    huge.id = id;
    huge.optlen = 1U << 30;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_SET_OPTION, huge), EINVAL);
    // A path that the program found itself.
    ASSERT_EQ(client.resolve(id, CmHost::address(2, 1)), 0);
    client.expect(kAddressResolved);
    EXPECT_EQ(client.set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path), EINVAL);
    path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    EXPECT_EQ(client.set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path), 0);
    client.expect(kRouteResolved);
}

TEST_F(VhcaCm, queries_tell_addresses_paths_and_gids) {
    const std::uint32_t id = client.routed(CmHost::address(2, 5000));
    rdma_ucm_query in{};
    in.id = id;
    rdma_ucm_query_route_resp route{};
    in.response = reinterpret_cast<std::uint64_t>(&route);
    ASSERT_EQ(client.run(RDMA_USER_CM_CMD_QUERY_ROUTE, in, sizeof route), 0);
    EXPECT_EQ(be64toh(route.node_guid), 1U);
    EXPECT_EQ(route.num_paths, 1U);
    EXPECT_EQ(route.ib_route[0].dgid[15], 2);
    EXPECT_EQ(be16toh(route.ib_route[0].dlid), 2);
    struct {
        std::uint32_t num_paths, reserved;
        ib_path_rec_data path;
    } paths{};
    in.option = RDMA_USER_CM_QUERY_PATH;
    in.response = reinterpret_cast<std::uint64_t>(&paths);
    ASSERT_EQ(client.run(RDMA_USER_CM_CMD_QUERY, in, sizeof paths), 0);
    EXPECT_EQ(paths.num_paths, 1U);
    const auto* record = reinterpret_cast<const std::uint8_t*>(paths.path.path_rec);
    EXPECT_EQ(record[8 + 15], 2);   // to
    EXPECT_EQ(record[24 + 15], 1);  // from
    EXPECT_EQ(record[54] & 0x3f, IBV_MTU_1024);
    rdma_ucm_query_addr_resp gids{};
    in.option = RDMA_USER_CM_QUERY_GID;
    in.response = reinterpret_cast<std::uint64_t>(&gids);
    ASSERT_EQ(client.run(RDMA_USER_CM_CMD_QUERY, in, sizeof gids), 0);
    SockaddrIb to;
    std::memcpy(&to, &gids.dst_addr, sizeof to);
    EXPECT_EQ(to.sib_addr.raw[15], 2);
    EXPECT_EQ(be64toh(to.sib_sid), 0x01060000U + 5000);
}

TEST_F(VhcaCm, there_is_no_multicast) {
    const std::uint32_t id = client.create(RDMA_PS_UDP);
    rdma_ucm_create_id_resp out{};
    rdma_ucm_join_ip_mcast in{};
    in.id = id;
    in.response = reinterpret_cast<std::uint64_t>(&out);
    in.addr.sin6_family = AF_INET6;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, in, sizeof out), EINVAL);
    ASSERT_EQ(client.bind(id, CmHost::address(1, 0)), 0);
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, in, sizeof out), EOPNOTSUPP);
    one.is_ethernet = true;
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, in, sizeof out), ENODEV);
    EXPECT_EQ(client.run(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{}, sizeof out), ENOENT);
}

TEST_F(VhcaCm, the_descriptor_is_readable_while_events_wait) {
    EXPECT_FALSE(is_readable(client.fd.get()));
    const std::uint32_t id = client.create();
    ASSERT_EQ(client.resolve(id, CmHost::address(2, 1)), 0);
    EXPECT_TRUE(is_readable(client.fd.get()));
    client.expect(kAddressResolved);
    EXPECT_FALSE(is_readable(client.fd.get()));
    ASSERT_EQ(client.route(id), 0);
    EXPECT_TRUE(is_readable(client.fd.get()));
    ASSERT_EQ(client.destroy(id), 0);
    EXPECT_FALSE(is_readable(client.fd.get()));
}

TEST_F(VhcaCm, an_identity_moves_to_another_channel_with_its_events) {
    CmProgram other(one);
    const std::uint32_t id = client.create();
    ASSERT_EQ(client.resolve(id, CmHost::address(2, 1)), 0);
    other.peers[client.fd.get()] = client.channel.get();
    rdma_ucm_migrate_resp out{};
    rdma_ucm_migrate_id in{};
    in.response = reinterpret_cast<std::uint64_t>(&out);
    in.id = id;
    in.fd = 12345;
    EXPECT_EQ(other.run(RDMA_USER_CM_CMD_MIGRATE_ID, in, sizeof out), ENOENT);
    in.fd = static_cast<std::uint32_t>(client.fd.get());
    EXPECT_EQ(other.run(RDMA_USER_CM_CMD_MIGRATE_ID, in, sizeof out), 0);
    client.expect_nothing();
    EXPECT_FALSE(is_readable(client.fd.get()));
    EXPECT_EQ(other.expect(kAddressResolved).id, id);
    EXPECT_EQ(client.route(id), EINVAL);
    EXPECT_EQ(other.route(id), 0);
    EXPECT_EQ(other.destroy(id), 0);
}

TEST_F(VhcaCm, the_program_changes_whether_fetching_waits) {
    CmProgram patient(one, O_CLOEXEC);
    EXPECT_EQ(::fcntl(patient.fd.get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(::fcntl(patient.fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ASSERT_TRUE(ucs::make_nonblocking(patient.fd.get()));
    patient.expect_nothing();
}

}  // namespace

}  // namespace tagwire::vhca::cm
