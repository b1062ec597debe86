// SPDX-License-Identifier: BSD-3-Clause
//
// Iteration over the bytes of uct_iov_t arrays, against a list of all their addresses. rapidcheck
// prints its seed first; RC_PARAMS="seed=N" replays.

#include "uct/sm/iov.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

namespace tagwire::sm {
namespace {

// ---- Short copies ------------------------------------------------------------------------------

TEST(CopyShort, copies_every_size_and_nothing_else) {
    constexpr std::size_t kMax = 120;
    for (std::size_t bytes = 0; bytes <= kMax; ++bytes) {
        // Exactly this size, so that AddressSanitizer sees a byte too many on either side.
        const std::unique_ptr<std::byte[]> from(new std::byte[bytes]);
        const std::unique_ptr<std::byte[]> to(new std::byte[bytes]);
        for (std::size_t i = 0; i < bytes; ++i) {
            from[i] = static_cast<std::byte>(i + 1);
            to[i] = std::byte{0};
        }
        copy_short(to.get(), from.get(), bytes);
        EXPECT_EQ(std::memcmp(to.get(), from.get(), bytes), 0) << bytes;

        std::vector<std::byte> guarded(bytes + 32, std::byte{0xee});
        copy_short(guarded.data() + 16, from.get(), bytes);
        for (std::size_t i = 0; i < 16; ++i) {
            EXPECT_EQ(guarded[i], std::byte{0xee}) << bytes;
            EXPECT_EQ(guarded[16 + bytes + i], std::byte{0xee}) << bytes;
        }
    }
}

// ---- The cursor --------------------------------------------------------------------------------

/** Elements in memory of their own, and the address of each of their bytes in order. */
struct Layout {
    struct Element {
        std::size_t length, count, gap;
    };

    explicit Layout(const std::vector<Element>& elements) {
        for (const Element& e : elements) {
            const std::size_t stride = e.length + e.gap;
            memory.emplace_back(std::max<std::size_t>(1, stride * e.count));
            std::byte* base = memory.back().data();
            iov.push_back({base, e.length, nullptr, stride, static_cast<unsigned>(e.count)});
            for (std::size_t repeat = 0; repeat < e.count; ++repeat)
                for (std::size_t i = 0; i < e.length; ++i)
                    addresses.push_back(base + repeat * stride + i);
        }
    }

    std::vector<std::vector<std::byte>> memory;
    std::vector<uct_iov_t> iov;
    std::vector<std::byte*> addresses;
};

rc::Gen<std::vector<Layout::Element>> any_elements() {
    return rc::gen::container<std::vector<Layout::Element>>(rc::gen::map(
        rc::gen::tuple(rc::gen::inRange<std::size_t>(0, 20), rc::gen::inRange<std::size_t>(0, 4),
                       rc::gen::inRange<std::size_t>(0, 5)),
        [](const std::tuple<std::size_t, std::size_t, std::size_t>& parts) {
            const auto& [length, count, gap] = parts;
            return Layout::Element{length, count, gap};
        }));
}

rc::Gen<std::vector<std::size_t>> any_steps() {
    return rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 30));
}

RC_GTEST_PROP(IovCursor, gathers_what_lies_at_the_addresses_in_order, ()) {
    Layout layout(*any_elements());
    for (std::size_t i = 0; i < layout.addresses.size(); ++i)
        *layout.addresses[i] = static_cast<std::byte>(i * 7 + i / 256);
    RC_ASSERT(iov_bytes(layout.iov.data(), layout.iov.size()) == layout.addresses.size());

    IovCursor cursor(layout.iov.data(), layout.iov.size());
    std::size_t at = 0;
    for (const std::size_t step : *any_steps()) {
        const std::size_t expected = std::min(step, layout.addresses.size() - at);
        std::vector<std::byte> got(step, std::byte{0xee});
        if (step % 5 == 4) {
            RC_ASSERT(cursor.skip(step) == expected);
        } else {
            RC_ASSERT(cursor.gather(got.data(), step) == expected);
            for (std::size_t i = 0; i < expected; ++i)
                RC_ASSERT(got[i] == *layout.addresses[at + i]);
            for (std::size_t i = expected; i < step; ++i)
                RC_ASSERT(got[i] == std::byte{0xee});
        }
        at += expected;
    }
}

RC_GTEST_PROP(IovCursor, scatters_to_the_addresses_and_nowhere_else, ()) {
    Layout layout(*any_elements());
    IovCursor cursor(layout.iov.data(), layout.iov.size());
    std::size_t at = 0;
    for (const std::size_t step : *any_steps()) {
        std::vector<std::byte> data(step);
        for (std::size_t i = 0; i < step; ++i)
            data[i] = static_cast<std::byte>(at + i + 1);
        const std::size_t expected = std::min(step, layout.addresses.size() - at);
        RC_ASSERT(cursor.scatter(data.data(), step) == expected);
        at += expected;
    }
    // Every byte that is an address below `at` was written, all others are as they were.
    for (std::size_t i = 0; i < layout.addresses.size(); ++i)
        RC_ASSERT(*layout.addresses[i] == static_cast<std::byte>(i < at ? i + 1 : 0));
    for (std::byte* address : layout.addresses)
        *address = std::byte{0};
    for (const auto& memory : layout.memory)
        for (const std::byte byte : memory)
            RC_ASSERT(byte == std::byte{0});
}

RC_GTEST_PROP(IovCursor, describes_its_bytes_by_pieces, ()) {
    Layout layout(*any_elements());
    IovCursor cursor(layout.iov.data(), layout.iov.size());
    const auto max = *rc::gen::inRange<std::size_t>(1, 5);
    std::size_t at = 0;
    for (const std::size_t step : *any_steps()) {
        iovec out[5];
        std::size_t count = 0;
        const std::size_t got = cursor.pieces(out, max, step, &count);
        RC_ASSERT(count <= max);
        RC_ASSERT(got <= step);
        std::size_t sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            RC_ASSERT(out[i].iov_len > 0U);
            for (std::size_t b = 0; b < out[i].iov_len; ++b) {
                RC_ASSERT(static_cast<std::byte*>(out[i].iov_base) + b ==
                          layout.addresses[at + sum]);
                ++sum;
            }
        }
        RC_ASSERT(sum == got);
        RC_ASSERT(got == std::min(step, layout.addresses.size() - at) || count == max);
        at += got;
    }
}

TEST(IovCursor, of_nothing_is_at_its_end) {
    std::byte byte{};
    EXPECT_EQ(IovCursor().gather(&byte, 1), 0U);
    EXPECT_EQ(IovCursor(nullptr, 0).scatter(&byte, 1), 0U);
    const uct_iov_t empty[3] = {{nullptr, 0, nullptr, 0, 1}, {&byte, 1, nullptr, 0, 0}, {}};
    EXPECT_EQ(IovCursor(empty, 3).gather(&byte, 1), 0U);
}

TEST(IovCursor, of_a_copy_outlives_the_call) {
    std::byte bytes[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    IovCopy copy;
    {
        const uct_iov_t iov{bytes, 1, nullptr, 2, 2};
        copy.assign(&iov, 1);
    }
    std::byte got[2];
    EXPECT_EQ(copy.cursor().gather(got, 2), 2U);
    EXPECT_EQ(got[0], std::byte{1});
    EXPECT_EQ(got[1], std::byte{3});
}

}  // namespace
}  // namespace tagwire::sm
