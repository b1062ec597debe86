// SPDX-License-Identifier: BSD-3-Clause
// Memory that cannot be read or written is an error, not the end of the program.
#include "ucs/sys/checked_copy.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace tagwire::ucs {
namespace {

using CopyFunction = ucs_status_t (*)(void* to, const void* from, std::size_t bytes);

struct CopyWay {
    const char* name;
    CopyFunction read;
    CopyFunction write;
};

/// Four pages, of which a test takes rights away.
class CheckedCopy : public ::testing::TestWithParam<CopyWay> {
  protected:
    void SetUp() override {
        memory_ = static_cast<std::byte*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(MAP_FAILED, memory_);
        std::memset(memory_, 1, bytes_);
    }
    void TearDown() override { ::munmap(memory_, bytes_); }
    void protect(std::size_t page, int rights) const {
        ASSERT_EQ(0, ::mprotect(memory_ + page * page_, page_, rights));
    }
    [[nodiscard]] CopyFunction read() const { return GetParam().read; }
    [[nodiscard]] CopyFunction write() const { return GetParam().write; }

    std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::size_t bytes_ = 4 * page_;
    std::byte* memory_ = nullptr;
    std::vector<std::byte> ours_ = std::vector<std::byte>(bytes_, std::byte{2});
};

TEST_P(CheckedCopy, good_memory_is_copied_whole) {
    EXPECT_EQ(UCS_OK, write()(memory_, ours_.data(), bytes_ - 1));
    EXPECT_EQ(0, std::memcmp(memory_, ours_.data(), bytes_ - 1));
    EXPECT_EQ(std::byte{1}, memory_[bytes_ - 1]);
    EXPECT_EQ(UCS_OK, read()(ours_.data(), memory_ + 1, bytes_ - 1));
    EXPECT_EQ(0, std::memcmp(ours_.data(), memory_ + 1, bytes_ - 1));
    EXPECT_EQ(UCS_OK, read()(ours_.data(), memory_, 0));
}

TEST_P(CheckedCopy, memory_without_rights_is_refused_wherever_it_begins) {
    for (std::size_t page = 0; page < 4; ++page) {
        protect(page, PROT_NONE);
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, read()(ours_.data(), memory_, bytes_));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, write()(memory_, ours_.data(), bytes_));
        protect(page, PROT_READ | PROT_WRITE);
    }
}

TEST_P(CheckedCopy, memory_that_is_only_readable_is_read) {
    protect(3, PROT_READ);
    EXPECT_EQ(UCS_OK, read()(ours_.data(), memory_, bytes_));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, write()(memory_ + 3 * page_, ours_.data(), 8));
}

INSTANTIATE_TEST_SUITE_P(Ways, CheckedCopy,
                         ::testing::Values(CopyWay{"default", read_checked, write_checked},
                                           CopyWay{"pipe", detail::read_by_pipe,
                                                   detail::write_by_pipe}),
                         [](const auto& way) { return way.param.name; });

TEST_F(CheckedCopy, a_word_is_writable_or_not_and_keeps_its_value) {
    std::uint32_t before = 0, after = 0;
    std::memcpy(&before, memory_, sizeof before);
    EXPECT_TRUE(is_writable_word(memory_));
    std::memcpy(&after, memory_, sizeof after);
    EXPECT_EQ(before, after);
    protect(0, PROT_READ);
    EXPECT_FALSE(is_writable_word(memory_));
    protect(0, PROT_NONE);
    EXPECT_FALSE(is_writable_word(memory_ + 8));
}

}  // namespace
}  // namespace tagwire::ucs
