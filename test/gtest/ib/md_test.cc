// SPDX-License-Identifier: BSD-3-Clause
// The memory domain of the virtual HCA through the public API, and what it asks of the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <uct/api/uct.h>

#include <array>
#include <cstring>
#include <string>

#include "loop.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/ib/ib_component.hpp"
#include "uct/ib/options.hpp"

namespace tagwire::ib {
namespace {

using test::Loop;
using test::VhcaMd;
using testing::HasSubstr;

std::string log_of(auto&& action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
}

TEST(IbMd, opens_by_name_through_the_api) {
    const uct_component_h handle = uct::handle_of(component());
    uct_md_config_t* config = nullptr;
    ASSERT_EQ(uct_md_config_read(handle, nullptr, nullptr, &config), UCS_OK);
    uct_md_h md = nullptr;
    ASSERT_EQ(uct_md_open(handle, "vhca0", config, &md), UCS_OK);
    uct_md_attr_t attr{};
    EXPECT_EQ(uct_md_query(md, &attr), UCS_OK);
    EXPECT_STREQ(attr.component_name, "ib");
    EXPECT_EQ(attr.rkey_packed_size, sizeof(PackedRkey));
    EXPECT_EQ(attr.cap.flags, UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_MEMH |
                                  UCT_MD_FLAG_NEED_RKEY | UCT_MD_FLAG_FIXED);
    EXPECT_GT(attr.cap.max_reg, 1U << 30);
    EXPECT_GT(CPU_COUNT(reinterpret_cast<const cpu_set_t*>(&attr.local_cpus)), 0);
    uct_md_close(md);
    EXPECT_THAT(
        log_of([&] { EXPECT_EQ(uct_md_open(handle, "vhca9", config, &md), UCS_ERR_NO_DEVICE); }),
        HasSubstr("vhca9"));
    uct_config_release(config);
}

TEST(IbMd, gives_a_remote_key_that_unpacks_to_the_device_s) {
    const VhcaMd md;
    std::array<char, 4096> memory{};
    uct_mem_h memh = nullptr;
    ASSERT_EQ(md->mem_reg(memory.data(), memory.size(), UCT_MD_MEM_ACCESS_ALL, &memh), UCS_OK);
    std::array<unsigned char, sizeof(PackedRkey)> packed{};
    ASSERT_EQ(md->mkey_pack(memh, packed.data()), UCS_OK);
    uct_rkey_bundle_t bundle{};
    ASSERT_EQ(uct_rkey_unpack(uct::handle_of(component()), packed.data(), &bundle), UCS_OK);
    EXPECT_EQ(bundle.rkey, registration_of(memh).mr->rkey);
    void* local = nullptr;
    EXPECT_EQ(uct_rkey_ptr(uct::handle_of(component()), &bundle, 0, &local), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_rkey_release(uct::handle_of(component()), &bundle), UCS_OK);
    EXPECT_EQ(md->mem_dereg(memh), UCS_OK);
}

TEST(IbMd, refuses_a_remote_key_of_somebody_else) {
    std::array<unsigned char, sizeof(PackedRkey)> packed{1, 2, 3, 4};
    uct_rkey_bundle_t bundle{};
    EXPECT_THAT(log_of([&] {
                    EXPECT_EQ(uct_rkey_unpack(uct::handle_of(component()), packed.data(), &bundle),
                              UCS_ERR_INVALID_PARAM);
                }),
                HasSubstr("its magic is 0x04030201"));
}

TEST(IbMd, allocates_where_it_is_told) {
    const VhcaMd md;
    const std::size_t page = ucs::page_bytes();
    void* hole = ::mmap(nullptr, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(hole, MAP_FAILED);
    void* address = hole;
    std::size_t length = page + 1;
    uct_mem_h memh = nullptr;
    EXPECT_EQ(md->mem_alloc(&length, &address, UCS_MEMORY_TYPE_HOST, UCT_MD_MEM_FLAG_FIXED, "test",
                            &memh),
              UCS_ERR_NO_MEMORY)
        << "something is there";
    ::munmap(hole, 4 * page);
    ASSERT_EQ(md->mem_alloc(&length, &address, UCS_MEMORY_TYPE_HOST, UCT_MD_MEM_FLAG_FIXED, "test",
                            &memh),
              UCS_OK);
    EXPECT_EQ(address, hole);
    EXPECT_EQ(length, 2 * page);
    std::memset(address, 1, length);
    EXPECT_EQ(md->mem_free(memh), UCS_OK);
}

TEST(IbMd, keeps_allocated_and_registered_memory_apart) {
    const VhcaMd md;
    std::array<char, 64> memory{};
    uct_mem_h registered = nullptr;
    uct_mem_h allocated = nullptr;
    void* address = nullptr;
    std::size_t length = 64;
    ASSERT_EQ(md->mem_reg(memory.data(), memory.size(), 0, &registered), UCS_OK);
    ASSERT_EQ(md->mem_alloc(&length, &address, UCS_MEMORY_TYPE_HOST, 0, "test", &allocated),
              UCS_OK);
    EXPECT_NE(log_of([&] { EXPECT_EQ(md->mem_free(registered), UCS_ERR_INVALID_PARAM); }), "");
    EXPECT_NE(log_of([&] { EXPECT_EQ(md->mem_dereg(allocated), UCS_ERR_INVALID_PARAM); }), "");
    EXPECT_EQ(md->mem_dereg(registered), UCS_OK);
    EXPECT_EQ(md->mem_free(allocated), UCS_OK);
}

TEST(IbMd, names_the_memory_that_cannot_be_registered) {
    const VhcaMd md;
    const std::size_t page = ucs::page_bytes();
    // The kernel's half of the address space: nobody can map something there meanwhile.
    void* hole = reinterpret_cast<void*>(0 - 16 * page);
    uct_mem_h memh = nullptr;
    EXPECT_THAT(log_of([&] { EXPECT_EQ(md->mem_reg(hole, page, 0, &memh), UCS_ERR_INVALID_ADDR); }),
                HasSubstr("vhca0: memory at"));
    EXPECT_EQ(log_of([&] {
                  EXPECT_EQ(md->mem_reg(hole, page, UCT_MD_MEM_FLAG_HIDE_ERRORS, &memh),
                            UCS_ERR_INVALID_ADDR);
              }),
              "");
    EXPECT_EQ(memh, nullptr);
}

TEST(IbMd, that_closes_with_memory_registered_says_so_and_lets_go) {
    std::array<char, 64> memory{};
    EXPECT_THAT(log_of([&] {
                    const VhcaMd md;
                    uct_mem_h memh = nullptr;
                    EXPECT_EQ(md->mem_reg(memory.data(), memory.size(), 0, &memh), UCS_OK);
                }),
                HasSubstr("(64 bytes) was still registered"));
}

/// The status of an RDMA write to memory that was registered with `flags`.
ibv_wc_status write_to_memory_with(unsigned flags) {
    Loop loop;
    std::array<char, 64> memory{};
    uct_mem_h memh = nullptr;
    EXPECT_EQ(loop.md->mem_reg(memory.data(), memory.size(), flags, &memh), UCS_OK);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(memory.data()), registration_of(memh).mr->rkey};
    loop.post(&wr, 8);
    const ibv_wc_status status = Loop::wait(loop.source_cq).status;
    EXPECT_EQ(loop.md->mem_dereg(memh), UCS_OK);
    return status;
}

TEST(IbMd, opens_memory_for_what_was_asked_and_no_more) {
    EXPECT_EQ(write_to_memory_with(0), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(write_to_memory_with(UCT_MD_MEM_ACCESS_ALL), IBV_WC_SUCCESS);
    EXPECT_EQ(write_to_memory_with(UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE),
              IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(write_to_memory_with(UCT_MD_MEM_ACCESS_REMOTE_PUT), IBV_WC_SUCCESS);
    EXPECT_EQ(write_to_memory_with(UCT_MD_MEM_ACCESS_REMOTE_GET), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(write_to_memory_with(UCT_MD_MEM_ACCESS_LOCAL_READ), IBV_WC_REM_ACCESS_ERR);
}

TEST(IbMd, opens_with_support_for_fork) {
    const VhcaMd md(true);
    std::array<char, 64> memory{};
    uct_mem_h memh = nullptr;
    ASSERT_EQ(md->mem_reg(memory.data(), memory.size(), 0, &memh), UCS_OK);
    EXPECT_EQ(md->mem_dereg(memh), UCS_OK);
}

TEST(IbMd, refuses_a_gid_index_that_is_no_number) {
    IbMdOptions options;
    ASSERT_EQ(ucs::config_fill(md_options(), &options), UCS_OK);
    for (const char* index : {"", "first", "-1", "1x"}) {
        std::strcpy(options.gid_index.text, index);
        uct::Md* md = nullptr;
        EXPECT_THAT(log_of([&] {
                        EXPECT_EQ(IbMd::open(component(), "vhca0", options, &md),
                                  UCS_ERR_INVALID_PARAM);
                    }),
                    HasSubstr("expected auto or a number"))
            << index;
    }
}

TEST(PortNumber, is_read_from_the_name_of_a_resource) {
    EXPECT_EQ(port_number_of("mlx5_0:1"), 1);
    EXPECT_EQ(port_number_of("vhca0:255"), 255);
    EXPECT_EQ(port_number_of("vhca0"), 0);
    EXPECT_EQ(port_number_of("vhca0:"), 0);
    EXPECT_EQ(port_number_of("vhca0:1x"), 0);
    EXPECT_EQ(port_number_of("vhca0:256"), 0);
}

}  // namespace
}  // namespace tagwire::ib
