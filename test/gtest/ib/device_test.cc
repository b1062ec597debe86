// SPDX-License-Identifier: BSD-3-Clause
// Conclusions from the answers of a device: its problems, its ports, the GID and the partition that
// are used.
#include "uct/ib/device.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_library.hpp"

namespace tagwire::ib {
namespace {

using test::FakeLibrary;
using testing::HasSubstr;
using testing::StartsWith;

ibv_gid_entry gid_entry(const char* ipv6, std::uint32_t type) {
    ibv_gid_entry entry{};
    inet_pton(AF_INET6, ipv6, entry.gid.raw);
    entry.gid_type = type;
    return entry;
}

struct Opened : FakeLibrary {
    Opened() { EXPECT_EQ(open(&opened, &problem), UCS_OK) << problem; }
    ucs_status_t port(std::uint8_t number, int gid_index, int pkey = -1) {
        return opened->port(number, {gid_index, pkey}, &found, &problem);
    }
    std::string problem;
    Port found;
    std::unique_ptr<Device> opened;
};

struct Ethernet : Opened {
    Ethernet() { ports[0].is_ethernet = true; }
};

TEST(Device, that_may_not_be_opened_names_its_file) {
    FakeLibrary library;
    library.open_error = EACCES;
    std::unique_ptr<Device> device;
    std::string problem;
    EXPECT_EQ(library.open(&device, &problem), UCS_ERR_NO_DEVICE);
    EXPECT_EQ(problem,
              "cannot be opened: Permission denied (is /dev/infiniband/uverbs7 accessible?)");
}

TEST(Device, that_does_not_answer_is_closed_again) {
    FakeLibrary library;
    library.query_error = EIO;
    std::unique_ptr<Device> device;
    std::string problem;
    EXPECT_EQ(library.open(&device, &problem), UCS_ERR_NO_DEVICE);
    EXPECT_THAT(problem, StartsWith("cannot be queried: "));
    EXPECT_EQ(library.closed, 1);
}

TEST(Device, is_closed_once) {
    FakeLibrary library;
    std::unique_ptr<Device> device;
    std::string problem;
    ASSERT_EQ(library.open(&device, &problem), UCS_OK);
    device.reset();
    EXPECT_EQ(library.closed, 1);
}

TEST(Port, that_is_not_active_says_why) {
    Opened device;
    device.ports[0].state = IBV_PORT_DOWN;
    EXPECT_EQ(device.port(1, -1), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(device.problem, "port 1 is down");
    device.ports[0].state = IBV_PORT_INIT;
    EXPECT_EQ(device.port(1, -1), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(device.problem, "port 1 is not active yet (is a subnet manager running?)");
}

TEST(Port, that_does_not_exist_is_refused) {
    Opened device;
    EXPECT_EQ(device.port(0, -1), UCS_ERR_NO_DEVICE);
    EXPECT_EQ(device.port(2, -1), UCS_ERR_NO_DEVICE);
    EXPECT_EQ(device.problem, "port 2 does not exist: there are 1");
}

TEST(Port, on_ethernet_takes_the_gid_of_its_ipv4_address) {
    Ethernet device;
    device.ports[0].gids = {gid_entry("fe80::1", IBV_GID_TYPE_ROCE_V1),
                            gid_entry("fe80::1", IBV_GID_TYPE_ROCE_V2),
                            gid_entry("2001:db8::1", IBV_GID_TYPE_ROCE_V2),
                            gid_entry("::", IBV_GID_TYPE_ROCE_V2),
                            gid_entry("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1),
                            gid_entry("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2),
                            gid_entry("::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V2)};
    ASSERT_EQ(device.port(1, -1), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.gid_index, 5);
    EXPECT_TRUE(device.found.is_ethernet);
    EXPECT_EQ(device.found.gid.raw[15], 1);
}

TEST(Port, on_ethernet_prefers_a_routable_address_to_a_link_local_one) {
    Ethernet device;
    device.ports[0].gids = {gid_entry("fe80::1", IBV_GID_TYPE_ROCE_V1),
                            gid_entry("fe80::1", IBV_GID_TYPE_ROCE_V2)};
    ASSERT_EQ(device.port(1, -1), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.gid_index, 1);
    device.ports[0].gids.push_back(gid_entry("2001:db8::1", IBV_GID_TYPE_ROCE_V2));
    ASSERT_EQ(device.port(1, -1), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.gid_index, 2);
}

TEST(Port, takes_the_gid_that_was_asked_for) {
    Ethernet device;
    device.ports[0].gids = {gid_entry("fe80::1", IBV_GID_TYPE_ROCE_V1),
                            gid_entry("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2)};
    ASSERT_EQ(device.port(1, 0), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.gid_index, 0);
    EXPECT_TRUE(device.found.is_roce_v1);
    ASSERT_EQ(device.port(1, 1), UCS_OK) << device.problem;
    EXPECT_FALSE(device.found.is_roce_v1);
    EXPECT_EQ(device.port(1, 2), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(device.problem, "port 1 has no GID 2, only 0 to 1");
}

TEST(Port, without_an_address_cannot_be_used) {
    Ethernet device;
    device.ports[0].gids = {gid_entry("::", IBV_GID_TYPE_ROCE_V2)};
    EXPECT_EQ(device.port(1, -1), UCS_ERR_UNREACHABLE);
    EXPECT_THAT(device.problem, HasSubstr("give its network interface an address"));
    device.ports[0].gids.clear();
    EXPECT_EQ(device.port(1, -1), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(device.port(1, 0), UCS_ERR_INVALID_PARAM);
}

TEST(Port, takes_the_first_partition_that_it_is_a_full_member_of) {
    Opened device;
    device.ports[0].gids = {gid_entry("fe80::1", IBV_GID_TYPE_IB)};
    device.ports[0].pkeys = {0, 0x7fff, 0x8123, 0xffff};
    ASSERT_EQ(device.port(1, -1), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.pkey_index, 2);
    EXPECT_EQ(device.found.pkey, 0x8123);
}

TEST(Port, takes_the_partition_that_was_asked_for) {
    Opened device;
    device.ports[0].gids = {gid_entry("fe80::1", IBV_GID_TYPE_IB)};
    device.ports[0].pkeys = {0xffff, 0, 0x0042, 0x8123, 0x8042, 0x0007};
    ASSERT_EQ(device.port(1, -1, 0x42), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.pkey_index, 4) << "the full member's entry";
    EXPECT_EQ(device.found.pkey, 0x8042);
    ASSERT_EQ(device.port(1, -1, 7), UCS_OK) << device.problem;
    EXPECT_EQ(device.found.pkey_index, 5) << "a limited member hears full ones";
    EXPECT_EQ(device.found.pkey, 0x0007);
    EXPECT_EQ(device.port(1, -1, 0x1234), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(device.problem,
              "port 1 is no member of partition 0x1234; its partitions: 0x7fff, 0x0042, 0x0123, "
              "0x0042, 0x0007");
}

TEST(Port, is_told_where_its_gid_is_now) {
    Ethernet device;
    auto& gids = device.ports[0].gids;
    gids = {gid_entry("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2),
            gid_entry("::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V2)};
    ASSERT_EQ(device.port(1, -1), UCS_OK) << device.problem;
    EXPECT_EQ(device.opened->index_of_gid(device.found), 0);
    gids = {gid_entry("::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V2),
            gid_entry("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2)};
    EXPECT_EQ(device.opened->index_of_gid(device.found), 1);
    gids[1] = gid_entry("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1);
    EXPECT_EQ(device.opened->index_of_gid(device.found), -1) << "frames that peers do not take";
}

}  // namespace
}  // namespace tagwire::ib
