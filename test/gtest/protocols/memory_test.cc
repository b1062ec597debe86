// SPDX-License-Identifier: BSD-3-Clause
// Memory that can be made known, and memory that cannot, whatever the transports.
#include <sys/mman.h>
#include <unistd.h>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

using MsgMemory = MsgTest;

TEST_F(MsgMemory, only_mapped_memory_is_taken) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const pages =
        ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    auto* const first = static_cast<std::byte*>(pages);
    ASSERT_EQ(::munmap(first + page, page), 0);
    tw_mem_h memory = nullptr;
    const auto map = [&](std::byte* at, std::size_t length) {
        const tw_status_t status = tw_mem_map(context_.get(), at, length, nullptr, &memory);
        if (status == TW_OK) {
            EXPECT_EQ(tw_mem_unmap(context_.get(), memory), TW_OK);
        }
        return status;
    };
    EXPECT_EQ(map(first, page), TW_OK);
    EXPECT_EQ(map(first + 2 * page + 1, page - 1), TW_OK);
    EXPECT_EQ(map(first, page + 1), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(map(first + page, 1), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(map(first, 3 * page), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(map(first, SIZE_MAX), TW_ERR_INVALID_ADDR);
    ::munmap(first, page);
    ::munmap(first + 2 * page, page);
}

}  // namespace
}  // namespace tagwire::test
