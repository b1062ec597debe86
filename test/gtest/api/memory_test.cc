// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <uct/api/uct.h>

#include <cstring>

#include "api/fake_transport.hpp"
#include "ucs/sys/shm.hpp"

namespace tagwire::test {
namespace {

struct MemAlloc : ::testing::Test {
    MemAlloc() {
        handle = world.md;
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_MDS;
        params.mds.mds = &handle;
        params.mds.count = 1;
    }

    ucs_status_t alloc(std::size_t length, uct_alloc_method_t method) {
        return uct_mem_alloc(length, &method, 1, &params, &memory);
    }

    FakeWorld world;
    uct_md_h handle = nullptr;
    uct_mem_alloc_params_t params{};
    uct_allocated_memory_t memory{};
};

TEST_F(MemAlloc, heap_transparent_huge_and_mapped_memory_can_be_written_and_freed) {
    for (const auto method : {UCT_ALLOC_METHOD_HEAP, UCT_ALLOC_METHOD_THP, UCT_ALLOC_METHOD_MMAP}) {
        ASSERT_EQ(alloc(100000, method), UCS_OK) << uct_alloc_method_names[method];
        EXPECT_EQ(memory.method, method);
        EXPECT_GE(memory.length, 100000u);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.address) % ucs::page_bytes(), 0u);
        std::memset(memory.address, 1, memory.length);
        EXPECT_EQ(uct_mem_free(&memory), UCS_OK);
    }
}

TEST_F(MemAlloc, a_domain_without_allocation_is_passed_over_for_the_next_method) {
    const uct_alloc_method_t methods[] = {UCT_ALLOC_METHOD_MD, UCT_ALLOC_METHOD_HEAP};
    ASSERT_EQ(uct_mem_alloc(10, methods, 2, &params, &memory), UCS_OK);
    EXPECT_EQ(memory.method, UCT_ALLOC_METHOD_HEAP);
    uct_mem_free(&memory);
    world.md->flags = UCT_MD_FLAG_ALLOC;
    ASSERT_EQ(uct_mem_alloc(10, methods, 2, &params, &memory), UCS_OK);
    EXPECT_EQ(memory.method, UCT_ALLOC_METHOD_MD);
    EXPECT_EQ(memory.md, handle);
    EXPECT_EQ(world.md->allocations, 1);
    uct_mem_free(&memory);
    EXPECT_EQ(world.md->allocations, 0);
}

TEST_F(MemAlloc, limits_of_the_domain_hold) {
    world.md->flags = UCT_MD_FLAG_ALLOC;
    EXPECT_EQ(alloc(world.md->max_alloc + 1, UCT_ALLOC_METHOD_MD), UCS_ERR_NO_MEMORY);
    params.field_mask |= UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE;
    params.mem_type = UCS_MEMORY_TYPE_CUDA;
    EXPECT_EQ(alloc(10, UCT_ALLOC_METHOD_MD), UCS_ERR_NO_MEMORY);
    EXPECT_EQ(alloc(10, UCT_ALLOC_METHOD_HEAP), UCS_ERR_NO_MEMORY);
    EXPECT_EQ(world.md->allocations, 0);
}

TEST_F(MemAlloc, bad_arguments_are_refused) {
    EXPECT_EQ(alloc(0, UCT_ALLOC_METHOD_HEAP), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(alloc(1, UCT_ALLOC_METHOD_DEFAULT), UCS_ERR_INVALID_PARAM);
    const auto method = UCT_ALLOC_METHOD_HEAP;
    EXPECT_EQ(uct_mem_alloc(1, &method, 0, &params, &memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_mem_alloc(1, nullptr, 1, &params, &memory), UCS_ERR_INVALID_PARAM);
    params.field_mask |= UCT_MEM_ALLOC_PARAM_FIELD_FLAGS;
    params.flags = UCS_BIT(20);
    EXPECT_EQ(alloc(1, UCT_ALLOC_METHOD_HEAP), UCS_ERR_INVALID_PARAM);
    params.flags = UCT_MD_MEM_FLAG_FIXED;
    EXPECT_EQ(alloc(1, UCT_ALLOC_METHOD_MMAP), UCS_ERR_INVALID_PARAM);  // no address
    memory.method = UCT_ALLOC_METHOD_LAST;
    EXPECT_EQ(uct_mem_free(&memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_mem_free(nullptr), UCS_ERR_INVALID_PARAM);
}

TEST_F(MemAlloc, a_fixed_address_is_met_or_refused) {
    ASSERT_EQ(alloc(4096, UCT_ALLOC_METHOD_MMAP), UCS_OK);
    uct_allocated_memory_t taken = memory;
    params.field_mask |= UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS;
    params.flags = UCT_MD_MEM_FLAG_FIXED | UCT_MD_MEM_ACCESS_ALL;
    params.address = taken.address;
    EXPECT_EQ(alloc(4096, UCT_ALLOC_METHOD_MMAP), UCS_ERR_NO_MEMORY);  // in use
    uct_mem_free(&taken);
    ASSERT_EQ(alloc(4096, UCT_ALLOC_METHOD_MMAP), UCS_OK);
    EXPECT_EQ(memory.address, params.address);
    uct_mem_free(&memory);
}

TEST_F(MemAlloc, an_interface_allocates_from_its_domain_or_else_from_the_heap) {
    ASSERT_EQ(uct_iface_mem_alloc(&world.iface(), 64, UCT_MD_MEM_ACCESS_ALL, "test", &memory),
              UCS_OK);
    EXPECT_NE(memory.method, UCT_ALLOC_METHOD_MD);
    uct_iface_mem_free(&memory);
    world.md->flags = UCT_MD_FLAG_ALLOC;
    ASSERT_EQ(uct_iface_mem_alloc(&world.iface(), 64, UCT_MD_MEM_ACCESS_ALL, "test", &memory),
              UCS_OK);
    EXPECT_EQ(memory.method, UCT_ALLOC_METHOD_MD);
    uct_iface_mem_free(&memory);
    EXPECT_EQ(world.md->allocations, 0);
}

}  // namespace
}  // namespace tagwire::test
