// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Memory);

#define TW_NEED_MD(flag)                                  \
    do {                                                  \
        if ((sender().md_attr().cap.flags & (flag)) == 0) \
            GTEST_SKIP() << "not offered: " #flag;        \
    } while (false)

TEST_P(Memory, the_domain_describes_itself) {
    const uct_md_attr_t& md = sender().md_attr();
    EXPECT_STREQ(GetParam().resource.component.c_str(), md.component_name);
    if ((md.cap.flags & UCT_MD_FLAG_NEED_RKEY) != 0) {
        EXPECT_GT(md.rkey_packed_size, 0u);
    }
    if ((md.cap.flags & UCT_MD_FLAG_REG) != 0) {
        EXPECT_NE(0u, md.cap.reg_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST));
        EXPECT_GT(md.cap.max_reg, 0u);
    }
    if ((md.cap.flags & UCT_MD_FLAG_ALLOC) != 0) {
        EXPECT_NE(0u, md.cap.alloc_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST));
        EXPECT_GT(md.cap.max_alloc, 0u);
    }
}

TEST_P(Memory, allocations_do_not_overlap_and_are_reused) {
    TW_NEED_MD(UCT_MD_FLAG_ALLOC);
    std::mt19937_64 random(3);
    std::vector<std::pair<std::unique_ptr<Buffer>, std::uint64_t>> live;
    for (std::uint64_t i = 0; i < 500; ++i) {
        if (live.size() > 20) {
            const std::size_t which = random() % live.size();
            ASSERT_TRUE(has_pattern(live[which].first->span(), live[which].second));
            std::swap(live[which], live.back());
            live.pop_back();
        }
        const std::size_t size = 1 + random() % (i % 10 == 0 ? 1000000 : 10000);
        live.emplace_back(std::make_unique<Buffer>(sender(), size, Backing::kAllocated), i);
        fill_pattern(live.back().first->span(), i);
    }
    for (const auto& [buffer, seed] : live)
        ASSERT_TRUE(has_pattern(buffer->span(), seed));
}

TEST_P(Memory, an_allocation_beyond_the_limit_is_refused) {
    TW_NEED_MD(UCT_MD_FLAG_ALLOC);
    uct_md_h md = sender().md();
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params = {};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE;
    params.flags = UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS;
    params.mem_type = UCS_MEMORY_TYPE_HOST;
    params.mds.mds = &md;
    params.mds.count = 1;
    uct_allocated_memory_t memory = {};
    for (const std::size_t length : {std::size_t{0}, std::size_t{1} << 62, ~std::size_t{0}})
        EXPECT_LT(uct_mem_alloc(length, &method, 1, &params, &memory), UCS_OK) << length;
    const std::uint64_t limit = sender().md_attr().cap.max_alloc;
    if (limit < std::uint64_t{1} << 62) {
        EXPECT_LT(uct_mem_alloc(limit + 1, &method, 1, &params, &memory), UCS_OK);
    }
}

TEST_P(Memory, registering_nothing_is_refused) {
    TW_NEED_MD(UCT_MD_FLAG_REG);
    std::byte byte{};
    uct_mem_h memh = nullptr;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_md_mem_reg(sender().md(), &byte, 0, UCT_MD_MEM_ACCESS_ALL, &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_md_mem_reg(sender().md(), nullptr, 100, UCT_MD_MEM_ACCESS_ALL, &memh));
}

TEST_P(Memory, the_same_bytes_may_be_registered_more_than_once) {
    TW_NEED_MD(UCT_MD_FLAG_REG);
    Bytes bytes(10000);
    uct_mem_h first = nullptr;
    uct_mem_h second = nullptr;
    ASSERT_EQ(UCS_OK,
              uct_md_mem_reg(sender().md(), bytes.data(), 10000, UCT_MD_MEM_ACCESS_ALL, &first));
    ASSERT_EQ(UCS_OK, uct_md_mem_reg(sender().md(), bytes.data() + 50, 100, UCT_MD_MEM_ACCESS_ALL,
                                     &second));
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(sender().md(), first));
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(sender().md(), second));
}

TEST_P(Memory, a_key_that_is_not_one_is_refused) {
    const std::size_t size = sender().md_attr().rkey_packed_size;
    if (size == 0 || remote_backings(sender()).empty())
        GTEST_SKIP() << "not offered: remote keys";
    uct_rkey_bundle_t bundle = {};
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const Bytes garbage = pattern(size, seed);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_rkey_unpack(sender().component(), garbage.data(), &bundle));
    }
}

TEST_P(Memory, keys_are_the_same_each_time_and_outlive_their_packing) {
    for (const Backing backing : remote_backings(receiver())) {
        if (receiver().md_attr().rkey_packed_size == 0)
            continue;
        const Buffer buffer(receiver(), 1000, backing);
        const Bytes packed = buffer.packed_rkey();
        EXPECT_EQ(packed, buffer.packed_rkey());
        for (int i = 0; i < 100; ++i)
            const RemoteKey key(sender(), packed);
    }
}

TEST_P(Memory, remote_access_outside_of_a_key_is_an_error_not_a_crash) {
    TW_NEED(UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM | UCT_IFACE_FLAG_PUT_ZCOPY |
            UCT_IFACE_FLAG_GET_ZCOPY);
    for (const Backing backing : remote_backings(receiver())) {
        SCOPED_TRACE(name_of(backing));
        const Buffer remote(receiver(), 8192, backing);
        const RemoteKey key(sender(), remote.packed_rkey());
        const Buffer local = make_payload(sender(), 8192, 1);
        for (const std::uint64_t at : {remote.address() + 1, remote.address() - 1, std::uint64_t{0},
                                       ~std::uint64_t{0} - 100}) {
            const uct_iov_t iov = local.iov();
            EXPECT_LT(run([&](uct_completion_t* completion) {
                          return uct_ep_put_zcopy(ep(), &iov, 1, at, key.get(), completion);
                      }),
                      UCS_OK);
            EXPECT_LT(run([&](uct_completion_t* completion) {
                          return uct_ep_get_zcopy(ep(), &iov, 1, at, key.get(), completion);
                      }),
                      UCS_OK);
        }
    }
}

TEST_P(Memory, ordinary_memory_is_recognised_as_host_memory) {
    int variable = 0;
    ucs_memory_type_t type = UCS_MEMORY_TYPE_LAST;
    const ucs_status_t status =
        uct_md_detect_memory_type(sender().md(), &variable, sizeof variable, &type);
    if (status == UCS_OK) {
        EXPECT_EQ(UCS_MEMORY_TYPE_HOST, type);
    } else {
        EXPECT_TRUE(status == UCS_ERR_INVALID_ADDR || status == UCS_ERR_UNSUPPORTED);
    }
}

TEST_P(Memory, an_interface_allocates_for_its_own_use) {
    uct_allocated_memory_t memory = {};
    ASSERT_EQ(UCS_OK, uct_iface_mem_alloc(sender().iface(), 10000, UCT_MD_MEM_ACCESS_ALL,
                                          "contract", &memory));
    ASSERT_GE(memory.length, 10000u);
    fill_pattern({static_cast<std::byte*>(memory.address), 10000}, 1);
    uct_iface_mem_free(&memory);
}

// As programs of UCX do, which never looks at it.
TEST_P(Memory, a_key_is_released_whose_type_the_program_has_cleared) {
    for (const Backing backing : remote_backings(receiver())) {
        const Buffer remote(receiver(), 1000, backing);
        uct_rkey_bundle_t key{};
        ASSERT_EQ(UCS_OK, uct_rkey_unpack(sender().component(), remote.packed_rkey().data(), &key));
        key.type = nullptr;
        EXPECT_EQ(UCS_OK, uct_rkey_release(sender().component(), &key));
    }
}

TEST_P(Memory, a_pointer_is_not_given_for_memory_that_is_not_shared) {
    TW_NEED_MD(UCT_MD_FLAG_RKEY_PTR);
    TW_NEED_MD(UCT_MD_FLAG_REG);
    const Buffer remote(receiver(), 1000, Backing::kRegistered);
    RemoteKey key(sender(), remote.packed_rkey());
    void* pointer = nullptr;
    const ucs_status_t status =
        uct_rkey_ptr(sender().component(), key.bundle(), remote.address(), &pointer);
    EXPECT_LT(status, UCS_OK);
}

TEST_P(Memory, without_a_remote_right_is_closed_to_peers) {
    TW_NEED_MD(UCT_MD_FLAG_NEED_RKEY);
    TW_NEED(UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY);
    for (const bool is_get : {true, false}) {
        reopen();
        Bytes remote = pattern(4096, 1);
        uct_mem_h memh = nullptr;
        ASSERT_EQ(UCS_OK, uct_md_mem_reg(
                              receiver().md(), remote.data(), remote.size(),
                              UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE, &memh));
        Bytes packed(receiver().md_attr().rkey_packed_size);
        ASSERT_EQ(UCS_OK, uct_md_mkey_pack(receiver().md(), memh, packed.data()));
        {
            const RemoteKey key(sender(), packed);
            const Buffer local = make_payload(sender(), remote.size(), 2);
            const uct_iov_t iov = local.iov();
            const auto address = reinterpret_cast<std::uint64_t>(remote.data());
            EXPECT_GT(
                UCS_OK, run([&](uct_completion_t* completion) {
                    return is_get ? uct_ep_get_zcopy(ep(), &iov, 1, address, key.get(), completion)
                                  : uct_ep_put_zcopy(ep(), &iov, 1, address, key.get(), completion);
                }));
            EXPECT_EQ(remote.size(), first_mismatch(local.span(), 2));
        }
        EXPECT_EQ(remote.size(), first_mismatch(remote, 1));
        EXPECT_EQ(UCS_OK, uct_md_mem_dereg(receiver().md(), memh));
    }
}

}  // namespace
}  // namespace tagwire::test
