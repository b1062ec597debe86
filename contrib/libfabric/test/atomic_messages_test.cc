// SPDX-License-Identifier: BSD-3-Clause
// Requests for atomic operations, as any peer may send them.
#include "../atomic_messages.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <cstring>
#include <random>
#include <vector>

namespace tagwire::fi_test {
namespace {

using fi::AtomicHeader;
using fi::AtomicKind;
using fi::AtomicRequest;
using fi::AtomicSegment;
using Bytes = std::vector<std::byte>;

constexpr auto kWrite = static_cast<std::uint8_t>(AtomicKind::kWrite);
constexpr auto kFetch = static_cast<std::uint8_t>(AtomicKind::kFetch);
constexpr auto kCompare = static_cast<std::uint8_t>(AtomicKind::kCompare);

template <class T>
Bytes bytes_of(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    return {first, first + sizeof value};
}

Bytes data_of(const std::vector<AtomicSegment>& segments, std::size_t elements_bytes) {
    Bytes data;
    for (const AtomicSegment& segment : segments) {
        const Bytes one = bytes_of(segment);
        data.insert(data.end(), one.begin(), one.end());
    }
    data.resize(data.size() + elements_bytes);
    return data;
}

int decode(const AtomicHeader& header, const Bytes& data) {
    AtomicRequest request;
    return fi::decode(bytes_of(header), data, &request);
}

TEST(FiAtomicMessages, a_request_is_read) {
    const AtomicHeader header = {77, 5, kCompare, FI_CSWAP_LE, FI_INT16, 2};
    Bytes data = data_of({{0x1000, 1, 2}, {0x2000, 9, 3}}, 2 * 5 * sizeof(std::int16_t));
    data[48] = std::byte{0xa1};
    data[58] = std::byte{0xb2};
    AtomicRequest request;
    ASSERT_EQ(fi::decode(bytes_of(header), data, &request), 0);
    EXPECT_EQ(request.id, 77U);
    EXPECT_EQ(request.kind, AtomicKind::kCompare);
    EXPECT_TRUE(request.changes);
    EXPECT_EQ(request.apply, fi::find_atomic(AtomicKind::kCompare, FI_CSWAP_LE, FI_INT16));
    EXPECT_EQ(request.element_bytes, 2U);
    EXPECT_EQ(request.bytes, 10U);
    ASSERT_EQ(request.segments.size(), 2U);
    EXPECT_EQ(request.segments[1].address, 0x2000U);
    EXPECT_EQ(request.segments[1].key, 9U);
    EXPECT_EQ(request.segments[1].count, 3U);
    EXPECT_EQ(*request.operands, std::byte{0xa1});
    EXPECT_EQ(*request.compares, std::byte{0xb2});
}

TEST(FiAtomicMessages, a_read_has_no_operands) {
    const AtomicHeader header = {1, 4, kFetch, FI_ATOMIC_READ, FI_DOUBLE, 1};
    AtomicRequest request;
    ASSERT_EQ(fi::decode(bytes_of(header), data_of({{0, 0, 4}}, 0), &request), 0);
    EXPECT_FALSE(request.changes);
    EXPECT_EQ(request.operands, nullptr);
    EXPECT_EQ(request.bytes, 32U);
    EXPECT_EQ(decode(header, data_of({{0, 0, 4}}, 32)), FI_EINVAL);
}

TEST(FiAtomicMessages, nonsense_is_refused) {
    const AtomicHeader good = {1, 2, kWrite, FI_SUM, FI_UINT64, 1};
    const Bytes data = data_of({{0, 0, 2}}, 16);
    ASSERT_EQ(decode(good, data), 0);
    const auto with = [&](auto change) {
        AtomicHeader bad = good;
        change(bad);
        return decode(bad, data);
    };
    EXPECT_EQ(with([](auto& bad) { bad.kind = 3; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.kind = 255; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.op = 255; }), FI_EOPNOTSUPP);
    EXPECT_EQ(with([](auto& bad) { bad.op = FI_CSWAP; }), FI_EOPNOTSUPP);
    EXPECT_EQ(with([](auto& bad) { bad.op = FI_ATOMIC_READ; }), FI_EOPNOTSUPP);
    EXPECT_EQ(with([](auto& bad) { bad.datatype = 255; }), FI_EOPNOTSUPP);
    EXPECT_EQ(with([](auto& bad) { bad.count = 0; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.count = 1; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.count = 3; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.count = UINT32_MAX; }), FI_EMSGSIZE);
    EXPECT_EQ(with([](auto& bad) { bad.segments = 0; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.segments = 2; }), FI_EINVAL);
    EXPECT_EQ(with([](auto& bad) { bad.segments = 255; }), FI_EINVAL);
    // Counts of segments that do not sum up to that of the header, also by an overflow.
    EXPECT_EQ(decode(good, data_of({{0, 0, 3}}, 16)), FI_EINVAL);
    EXPECT_EQ(decode(good, data_of({{0, 0, 1}}, 16)), FI_EINVAL);
    EXPECT_EQ(decode(good, data_of({{0, 0, UINT64_MAX}}, 16)), FI_EINVAL);
    AtomicHeader two = good;
    two.segments = 2;
    EXPECT_EQ(decode(two, data_of({{0, 0, UINT64_MAX}, {0, 0, 3}}, 16)), FI_EINVAL);
    EXPECT_EQ(decode(two, data_of({{0, 0, 2}, {0, 0, 0}}, 16)), FI_EINVAL);
    EXPECT_EQ(decode(two, data_of({{0, 0, 1}, {0, 0, 1}}, 16)), 0);
    // Data that is too short or too long, and a header that is.
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{8}, std::size_t{15}, std::size_t{17}, std::size_t{32}})
        EXPECT_EQ(decode(good, data_of({{0, 0, 2}}, length)), FI_EINVAL) << length;
    EXPECT_EQ(decode(good, {}), FI_EINVAL);
    Bytes header = bytes_of(good);
    AtomicRequest request;
    header.pop_back();
    EXPECT_EQ(fi::decode(header, data, &request), FI_EINVAL);
    header.resize(17);
    EXPECT_EQ(fi::decode(header, data, &request), FI_EINVAL);
}

TEST(FiAtomicMessages, the_greatest_count_is_the_limit) {
    for (unsigned datatype = 0; fi::atomic_bytes_of(datatype) != 0; ++datatype) {
        const std::size_t bytes = fi::atomic_bytes_of(datatype);
        const auto count = static_cast<std::uint32_t>(fi::kAtomicBytesMax / bytes);
        AtomicHeader header = {1, count, kWrite, FI_SUM, static_cast<std::uint8_t>(datatype), 1};
        EXPECT_EQ(decode(header, data_of({{0, 0, count}}, count * bytes)), 0);
        ++header.count;
        EXPECT_EQ(decode(header, data_of({{0, 0, count + 1}}, (count + 1) * bytes)), FI_EMSGSIZE);
    }
}

TEST(FiAtomicMessages, any_bytes_are_refused_or_inside_the_data) {
    std::mt19937 random(1);
    int accepted = 0;
    for (int round = 0; round < 50000; ++round) {
        AtomicHeader header{};
        header.count = static_cast<std::uint32_t>(random() % 5);
        header.kind = static_cast<std::uint8_t>(random() % 4);
        header.op = static_cast<std::uint8_t>(random() % 22);
        header.datatype = static_cast<std::uint8_t>(random() % 18);
        header.segments = static_cast<std::uint8_t>(random() % 4);
        std::vector<AtomicSegment> segments(header.segments);
        for (AtomicSegment& segment : segments)
            segment = {random(), random(), random() % 4};
        const std::size_t bytes = header.count * fi::atomic_bytes_of(header.datatype);
        const std::size_t lengths[] = {0, bytes, 2 * bytes, random() % 130};
        const Bytes data = data_of(segments, lengths[random() % 4]);
        AtomicRequest request;
        if (fi::decode(bytes_of(header), data, &request) != 0)
            continue;
        ++accepted;
        const std::byte* end = data.data() + data.size();
        if (request.operands != nullptr) {
            ASSERT_LE(request.operands + request.bytes, end);
        }
        if (request.compares != nullptr) {
            ASSERT_EQ(request.compares + request.bytes, end);
        }
        std::size_t count = 0;
        for (const AtomicSegment& segment : request.segments)
            count += segment.count;
        ASSERT_EQ(count * request.element_bytes, request.bytes);
    }
    EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace tagwire::fi_test
