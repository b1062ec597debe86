// SPDX-License-Identifier: BSD-3-Clause
// Two devices in one process: each has its own address, keys and objects, and all reach each other.
#include <cerrno>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

SideOptions on(std::size_t device) {
    SideOptions options;
    options.device = device;
    return options;
}

/// Writes from `from` into `to`, with the key that `owner` has for memory at that place.
ibv_wc_status write(Side& from, const Side& owner) {
    from.buffer[0] = static_cast<unsigned char>(from.buffer[0] + 1);
    EXPECT_EQ(from.post_send(from.remote(IBV_WR_RDMA_WRITE, owner, 64), 0, 4000), 0);
    return from.wait().status;
}

class Devices {
  public:
    Devices() : list_(ibv_get_device_list(&count)) {}
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;
    ~Devices() { ibv_free_device_list(list_); }
    ibv_device* operator[](int i) const { return list_[i]; }
    int count = 0;

  private:
    ibv_device** list_;
};

TEST(VhcaDevices, are_listed_by_their_numbers_and_have_guids_of_their_own) {
    const Devices devices;
    ASSERT_EQ(devices.count, 2);
    EXPECT_EQ(devices[2], nullptr);
    EXPECT_STREQ(ibv_get_device_name(devices[0]), "vhca0");
    EXPECT_STREQ(ibv_get_device_name(devices[1]), "vhca1");
    EXPECT_STREQ(devices[1]->ibdev_path, "/sys/class/infiniband/vhca1");
    EXPECT_EQ(ibv_get_device_index(devices[1]), 1);
    EXPECT_NE(ibv_get_device_guid(devices[0]), ibv_get_device_guid(devices[1]));
}

TEST(VhcaDevices, have_ports_with_addresses_of_their_own) {
    const Devices devices;
    ibv_gid gids[2];
    for (int i = 0; i < 2; ++i) {
        ibv_context* context = ibv_open_device(devices[i]);
        ASSERT_NE(context, nullptr);
        EXPECT_EQ(ibv_query_gid(context, 1, 0, &gids[i]), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    EXPECT_NE(std::memcmp(&gids[0], &gids[1], sizeof gids[0]), 0);
}

TEST(VhcaDevices, carry_messages_each_to_itself_and_one_to_the_other) {
    for (const auto& [first, second] : {std::pair{0, 0}, {1, 1}, {0, 1}}) {
        Side a(on(static_cast<std::size_t>(first))), b(on(static_cast<std::size_t>(second)));
        a.connect(b);
        b.connect(a);
        EXPECT_EQ(write(a, b), IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(b.buffer.data() + 64, a.buffer.data(), 4000), 0);
        ASSERT_EQ(a.post_recv(1, 0, 128), 0);
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        ASSERT_EQ(b.post_send(wr, 0, 128), 0);
        EXPECT_EQ(a.wait().byte_len, 128U);
        EXPECT_EQ(b.wait().status, IBV_WC_SUCCESS);
    }
}

TEST(VhcaDevices, do_not_know_keys_of_each_other) {
    Side a(on(0)), b(on(0)), elsewhere(on(1));
    a.connect(b);
    b.connect(a);
    const auto before = elsewhere.buffer;
    EXPECT_EQ(write(a, elsewhere), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(elsewhere.buffer, before);
}

TEST(VhcaDevices, take_no_objects_of_each_other) {
    Side a(on(0)), b(on(1));
    ibv_qp_init_attr attr{};
    attr.send_cq = a.cq;
    attr.recv_cq = b.cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    EXPECT_EQ(ibv_create_qp(a.pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace tagwire::test
