// SPDX-License-Identifier: BSD-3-Clause
// The device as it describes itself, and the layout that clients depend on.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "common/built.hpp"
#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

class VhcaDevice : public testing::Test {
  protected:
    VhcaDevice() {
        ibv_device** list = ibv_get_device_list(&count);
        device = list[0];
        EXPECT_EQ(list[1], nullptr);
        ibv_free_device_list(list);
        context = ibv_open_device(device);
    }
    ~VhcaDevice() override { EXPECT_EQ(ibv_close_device(context), 0); }

    int count = 0;
    ibv_device* device = nullptr;
    ibv_context* context = nullptr;
};

TEST_F(VhcaDevice, is_the_only_one_and_is_called_vhca0) {
    EXPECT_EQ(count, 1);
    EXPECT_STREQ(ibv_get_device_name(device), "vhca0");
    EXPECT_NE(ibv_get_device_guid(device), 0U);
    EXPECT_EQ(device->node_type, IBV_NODE_CA);
    EXPECT_EQ(device->transport_type, IBV_TRANSPORT_IB);
}

TEST_F(VhcaDevice, context_has_the_layout_of_a_provider) {
    EXPECT_EQ(context->abi_compat, __VERBS_ABI_IS_EXTENDED);
    const auto* verbs = verbs_get_ctx(context);
    ASSERT_NE(verbs, nullptr);
    EXPECT_EQ(verbs->sz, sizeof(verbs_context));
    EXPECT_EQ(offsetof(verbs_context, sz) + sizeof(std::size_t), offsetof(verbs_context, context));
    EXPECT_EQ(offsetof(verbs_context, context) + sizeof(ibv_context), sizeof(verbs_context));
    EXPECT_EQ(verbs->open_xrcd, nullptr);
    EXPECT_EQ(verbs->alloc_dm, nullptr);
    EXPECT_EQ(context->ops.alloc_mw, nullptr);
    EXPECT_GE(context->async_fd, 0);
    EXPECT_GE(context->num_comp_vectors, 1);
}

TEST_F(VhcaDevice, says_that_it_is_a_connectx) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(context, &attr), 0);
    EXPECT_EQ(attr.vendor_id, 0x02c9U);
    EXPECT_EQ(attr.vendor_part_id, 4123U);
    EXPECT_EQ(attr.phys_port_cnt, 1);
    EXPECT_EQ(attr.node_guid, ibv_get_device_guid(device));
    EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
}

TEST_F(VhcaDevice, extended_attributes_offer_timestamps_and_no_paging_on_demand) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attr), 0);
    EXPECT_NE(attr.completion_timestamp_mask, 0U);
    EXPECT_EQ(attr.hca_core_clock, 1'000'000U);
    EXPECT_EQ(attr.odp_caps.general_caps, 0U);
}

TEST_F(VhcaDevice, port_is_active_infiniband_with_a_lid) {
    ibv_port_attr attr{};
    ASSERT_EQ(ibv_query_port(context, 1, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_INFINIBAND);
    EXPECT_EQ(attr.active_mtu, IBV_MTU_4096);
    EXPECT_NE(attr.lid, 0);
    EXPECT_EQ(ibv_query_port(context, 2, &attr), EINVAL);
}

TEST_F(VhcaDevice, exported_query_port_leaves_what_old_programs_do_not_have) {
    ibv_port_attr attr;
    std::memset(&attr, 0x5a, sizeof attr);
    ASSERT_EQ((ibv_query_port)(context, 1, reinterpret_cast<_compat_ibv_port_attr*>(&attr)), 0);
    EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(attr.port_cap_flags2, 0x5a5a);
}

TEST_F(VhcaDevice, gid_table_has_one_entry) {
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    EXPECT_NE(gid.global.interface_id, 0U);
    EXPECT_NE(gid.global.subnet_prefix, 0U);
    ibv_gid_entry entry{};
    EXPECT_EQ(ibv_query_gid_table(context, &entry, 1, 0), 1);
    EXPECT_EQ(std::memcmp(&entry.gid, &gid, sizeof gid), 0);
    EXPECT_EQ(ibv_query_gid_table(context, &entry, 0, 0), -EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 1, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid(context, 1, 1000, &gid), -1);
}

TEST_F(VhcaDevice, default_pkey_is_at_index_0) {
    __be16 pkey = 0;
    ASSERT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_EQ(ibv_get_pkey_index(context, 1, pkey), 0);
    EXPECT_EQ(ibv_query_pkey(context, 1, 1, &pkey), -1);
}

TEST_F(VhcaDevice, registration_refuses_what_a_card_refuses) {
    ibv_pd* pd = ibv_alloc_pd(context);
    alignas(8) char bytes[64];
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd, bytes, sizeof bytes, unsigned{IBV_ACCESS_REMOTE_WRITE}), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_reg_mr(pd, bytes, sizeof bytes, unsigned{IBV_ACCESS_ON_DEMAND}), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    void* nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(nowhere, 4096);
    EXPECT_EQ(ibv_reg_mr(pd, nowhere, 64, unsigned{IBV_ACCESS_LOCAL_WRITE}), nullptr);
    EXPECT_EQ(errno, EFAULT);
    ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, unsigned{IBV_ACCESS_LOCAL_WRITE});
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VhcaDevice, reregistration_moves_the_region_and_changes_the_key) {
    ibv_pd* pd = ibv_alloc_pd(context);
    char first[64], second[128];
    ibv_mr* mr = ibv_reg_mr(pd, first, sizeof first, unsigned{IBV_ACCESS_LOCAL_WRITE});
    const std::uint32_t key = mr->rkey;
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second, sizeof second, 0),
              0);
    EXPECT_EQ(mr->addr, second);
    EXPECT_EQ(mr->length, sizeof second);
    EXPECT_NE(mr->rkey, key);
    EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VhcaDevice, what_is_not_offered_fails_as_with_a_provider_that_lacks_it) {
    ibv_pd* pd = ibv_alloc_pd(context);
    errno = 0;
    EXPECT_EQ(ibv_alloc_mw(pd, IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_xrcd_init_attr xrcd{};
    errno = 0;
    EXPECT_EQ(ibv_open_xrcd(context, &xrcd), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_srq_init_attr_ex srq{};
    srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    srq.srq_type = IBV_SRQT_XRC;
    srq.pd = pd;
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(context, &srq), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VhcaDevice, both_drop_in_libraries_share_one_device_library) {
    const std::string file = built("lib/vhca/libmlx5.so.1");
    ASSERT_NE(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
    void* mlx5 = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
    using IsSupported = bool (*)(ibv_device*);
    const auto is_supported = reinterpret_cast<IsSupported>(dlsym(mlx5, "mlx5dv_is_supported"));
    ASSERT_NE(is_supported, nullptr);
    EXPECT_TRUE(is_supported(device));
    void* direct = dlopen(built_vhca().c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(direct, nullptr) << "the library beside the drop-ins is the one that they use";
    using GetName = const char* (*)(ibv_device*);
    const auto name = reinterpret_cast<GetName>(dlsym(direct, "tagwire_vhca_ibv_get_device_name"));
    EXPECT_EQ(name(device), ibv_get_device_name(device));
}

}  // namespace
}  // namespace tagwire::test
