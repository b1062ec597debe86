// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/mapping_marks.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/skip.hpp"

namespace tagwire::ucs {
namespace {

class MappingMarksTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        marks_ = MappingMarks::open(&reason);
        if (marks_ == nullptr)
            GTEST_SKIP() << reason;
        memory_ = map(nullptr, kPages);
    }
    void TearDown() override {
        if (memory_ != nullptr)
            ::munmap(memory_, kPages * page_);
    }
    char* map(void* at, std::size_t pages) const {
        void* mapped = ::mmap(at, pages * page_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
        EXPECT_NE(mapped, MAP_FAILED);
        return static_cast<char*>(mapped);
    }
    bool is_set(std::size_t first, std::size_t pages) const {
        return marks_->is_set(memory_ + first * page_, pages * page_);
    }
    static constexpr std::size_t kPages = 16;
    const std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::unique_ptr<MappingMarks> marks_;
    char* memory_ = nullptr;
};

TEST_F(MappingMarksTest, stay_while_the_memory_is_used) {
    EXPECT_FALSE(is_set(0, kPages));
    ASSERT_TRUE(marks_->set(memory_, kPages * page_));
    EXPECT_TRUE(is_set(0, kPages));
    for (std::size_t i = 0; i < kPages; ++i)
        memory_[i * page_] = 1;
    EXPECT_TRUE(is_set(0, kPages));
    EXPECT_TRUE(marks_->set(memory_, kPages * page_)) << "a second time";
    marks_->clear(memory_, page_);
    EXPECT_FALSE(is_set(0, 1));
    EXPECT_TRUE(is_set(1, kPages - 1));
}

TEST_F(MappingMarksTest, are_not_on_what_is_mapped_anew) {
    ASSERT_TRUE(marks_->set(memory_, kPages * page_));
    ASSERT_EQ(::munmap(memory_, kPages * page_), 0);
    ASSERT_EQ(map(memory_, kPages), memory_);
    EXPECT_FALSE(is_set(0, kPages));
    ASSERT_TRUE(marks_->set(memory_, kPages * page_));
    EXPECT_TRUE(is_set(0, kPages));
}

TEST_F(MappingMarksTest, are_not_on_one_page_that_is_replaced) {
    ASSERT_TRUE(marks_->set(memory_, kPages * page_));
    map(memory_ + 5 * page_, 1);
    EXPECT_FALSE(is_set(0, kPages));
    EXPECT_TRUE(is_set(0, 5));
    EXPECT_FALSE(is_set(5, 1));
    EXPECT_TRUE(is_set(6, kPages - 6));
}

TEST_F(MappingMarksTest, do_not_move_with_their_memory) {
    ASSERT_TRUE(marks_->set(memory_, kPages * page_));
    char* other = map(nullptr, kPages);
    ASSERT_EQ(
        ::mremap(memory_, kPages * page_, kPages * page_, MREMAP_MAYMOVE | MREMAP_FIXED, other),
        other);
    EXPECT_FALSE(marks_->is_set(other, kPages * page_));
    memory_ = other;
}

}  // namespace
}  // namespace tagwire::ucs
