// SPDX-License-Identifier: BSD-3-Clause
// Every kind of copy at every length and alignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "ucs/memory/copy.hpp"

namespace tagwire::ucs {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kGuard = 2 * kLine;  // bytes on each side that stay as they were
constexpr std::size_t kLongest = 16384;
constexpr auto kUntouched = std::byte{0xA5};

class Copy : public ::testing::TestWithParam<CopyKind> {
  protected:
    Copy() {
        std::uint32_t state = 12345;
        for (std::byte& byte : from_) {
            state = state * 1664525 + 1013904223;
            byte = static_cast<std::byte>(state >> 24);
        }
    }

    /// False: a byte is wrong, or a byte beside the target changed.
    bool is_right(std::size_t to_offset, std::size_t from_offset, std::size_t bytes) {
        std::byte* window = to_ + to_offset;
        std::byte* to = window + kGuard;
        const std::byte* from = from_ + from_offset;
        std::memset(window, static_cast<int>(kUntouched), bytes + 2 * kGuard);
        copy_by(GetParam(), to, from, bytes);
        return std::memcmp(to, from, bytes) == 0 && is_guarded(window) && is_guarded(to + bytes);
    }

    static bool is_guarded(const std::byte* guard) {
        return std::all_of(guard, guard + kGuard, [](std::byte at) { return at == kUntouched; });
    }

    alignas(kLine) std::byte from_[kLongest + 2 * kLine];
    alignas(kLine) std::byte to_[kLongest + 2 * kLine + 2 * kGuard];
};

TEST_P(Copy, is_right_at_every_short_length_and_alignment) {
    // Lengths around each multiple of a line meet each pair of alignments; the others meet pairs
    // that differ from length to length.
    for (std::size_t bytes = 0; bytes <= 600; ++bytes) {
        const bool is_edge = (bytes + 1) % kLine <= 2 && bytes <= 3 * kLine + 1;
        for (std::size_t to = 0; to < kLine; ++to) {
            const std::size_t step = is_edge ? 1 : 8;
            for (std::size_t from = is_edge ? 0 : bytes % step; from < kLine; from += step)
                ASSERT_TRUE(is_right(to, from, bytes)) << bytes << " " << to << " " << from;
        }
    }
}

TEST_P(Copy, is_right_around_pages_and_buffers) {
    for (const std::size_t around : {std::size_t{1024}, std::size_t{4096}, std::size_t{8192},
                                     std::size_t{8256}, kLongest - kLine})
        for (std::size_t bytes = around - 3; bytes <= around + 3; ++bytes)
            for (std::size_t to = 0; to < kLine; to += 7)
                for (const std::size_t from : {to, std::size_t{0}, (to * 5 + bytes) % kLine})
                    ASSERT_TRUE(is_right(to, from, bytes)) << bytes << " " << to << " " << from;
}

TEST_P(Copy, in_line_is_the_same) {
    std::memset(to_, 0, sizeof to_);
    copy(GetParam(), to_ + 3, from_ + 5, 5000);
    EXPECT_EQ(std::memcmp(to_ + 3, from_ + 5, 5000), 0);
    EXPECT_EQ(to_[2], std::byte{0});
    EXPECT_EQ(to_[5003], std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(Kinds, Copy, ::testing::ValuesIn(copy_kinds_here()),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

TEST(CopyKinds, have_names_that_lead_back) {
    std::set<std::string> names;
    for (std::size_t i = 0; i < kCopyKinds; ++i) {
        const auto kind = static_cast<CopyKind>(i);
        CopyKind found{};
        ASSERT_TRUE(copy_kind_named(name_of(kind), &found));
        EXPECT_EQ(found, kind);
        names.insert(name_of(kind));
    }
    EXPECT_EQ(names.size(), kCopyKinds);
    CopyKind found{};
    EXPECT_FALSE(copy_kind_named("auto", &found));
    EXPECT_FALSE(copy_kind_named("", &found));
}

TEST(CopyKinds, here_begin_with_libc_and_are_of_the_architecture) {
    const auto here = copy_kinds_here();
    ASSERT_FALSE(here.empty());
    EXPECT_EQ(here.front(), CopyKind::kLibc);
#if defined(__x86_64__)
    EXPECT_EQ(here.size(), kCopyKinds - (__builtin_cpu_supports("avx") != 0 ? 0 : 1));
#else
    EXPECT_EQ(here.size(), 1U);
#endif
    for (const CopyKind kind : here) {
        EXPECT_EQ(std::count(here.begin(), here.end(), kind), 1) << name_of(kind);
        EXPECT_TRUE(has_copy_kind(kind));
    }
}

TEST(CopyKinds, plain_copies_are_of_a_kind_that_is_here_and_right) {
    EXPECT_TRUE(has_copy_kind(plain_copy_kind()));
    EXPECT_NE(plain_copy_kind(), CopyKind::kNonTemporal);
    std::string from(3 * kPlainCopyFrom, 'a'), to(from.size() + 1, 'b');
    for (std::size_t i = 0; i < from.size(); ++i)
        from[i] = static_cast<char>(i * 7);
    for (const std::size_t bytes : {kPlainCopyFrom - 1, kPlainCopyFrom, from.size() - 3}) {
        std::fill(to.begin(), to.end(), 'b');
        copy_plain(to.data(), from.data(), bytes);
        EXPECT_EQ(to.compare(0, bytes, from, 0, bytes), 0) << bytes;
        EXPECT_EQ(to[bytes], 'b');
    }
}

}  // namespace
}  // namespace tagwire::ucs
