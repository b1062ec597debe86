// SPDX-License-Identifier: BSD-3-Clause
// Active messages whose length is about that of a number of packets, where headers decide how many
// packets there are.
#include <algorithm>
#include <cstring>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(ActiveMessagePackets);

/// From `bytes_min` to `bytes_max`, a few bytes more or less than up to two packets.
std::vector<std::size_t> sizes_about_packets(std::size_t packet, const MethodInfo& info) {
    std::vector<std::size_t> sizes;
    for (const std::size_t whole : {packet, 2 * packet})
        for (int more = -18; more <= 2; ++more) {
            const std::size_t size = whole + static_cast<std::size_t>(more);
            if (size >= info.bytes_min && size <= info.bytes_max)
                sizes.push_back(size);
        }
    return sizes;
}

TEST_P(ActiveMessagePackets, arrive_whole_by_every_method) {
    for (const std::size_t alignment : {std::size_t{0}, std::size_t{8}, std::size_t{64}}) {
        EntityOptions options;
        options.am_alignment = alignment;
        reopen(options);
        receiver().on_am = [&](const AmMessage& message) {
            if (alignment != 0 && (message.flags & UCT_CB_PARAM_FLAG_DESC) != 0) {
                EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(message.data) % alignment);
            }
            return UCS_OK;
        };
        for (const MethodInfo& info : am_methods(sender())) {
            for (const std::size_t size : sizes_about_packets(attr().cap.am.align_mtu, info)) {
                SCOPED_TRACE(std::string(name_of(info.method)) + ", " + std::to_string(size));
                receiver().am.clear();
                const Buffer payload = make_payload(sender(), size, size);
                ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                              return send_am(ep(), sender(), info.method, kId, payload, completion);
                          }));
                ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
                ASSERT_EQ(size, receiver().am[0].bytes.size());
                ASSERT_EQ(size, first_mismatch(receiver().am[0].bytes, size));
                ASSERT_TRUE(has_pattern(payload.span(), size)) << "what was sent has changed";
            }
        }
    }
}

// Without a header the first piece may be one byte.
TEST_P(ActiveMessagePackets, are_gathered_from_pieces_of_any_length) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const auto& am = attr().cap.am;
    // A transport without packets says 1.
    const std::size_t packet = am.align_mtu > 1 ? am.align_mtu : am.max_zcopy;
    const std::size_t total = std::min(packet, am.max_zcopy / 2);
    const Buffer payload = make_payload(sender(), total, 3);
    for (const std::size_t header : {0U, 1U, 2U}) {
        for (const std::size_t first : {1U, 2U, 100U}) {
            for (const std::size_t parts : edge_parts(std::min<std::size_t>(am.max_iov, 3))) {
                SCOPED_TRACE(testing::Message() << header << ", " << first << ", " << parts);
                receiver().am.clear();
                std::vector<uct_iov_t> iov;
                for (std::size_t i = 0, offset = header; i < parts; ++i) {
                    const std::size_t length = i + 1 == parts ? total - offset : first;
                    iov.push_back(payload.iov(offset, length));
                    offset += length;
                }
                ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                              return uct_ep_am_zcopy(ep(), kId, payload.data(),
                                                     static_cast<unsigned>(header), iov.data(),
                                                     iov.size(), 0, completion);
                          }));
                ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
                ASSERT_EQ(total, receiver().am[0].bytes.size());
                ASSERT_EQ(total, first_mismatch(receiver().am[0].bytes, 3));
                ASSERT_TRUE(has_pattern(payload.span(), 3)) << "what was sent has changed";
            }
        }
    }
}

// The descriptor begins with the headroom, wherever in its buffer the message lies.
TEST_P(ActiveMessagePackets, kept_descriptors_stay_readable_until_released) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    constexpr std::size_t kHeadroom = 40;
    constexpr unsigned kMessages = 300;
    EntityOptions options;
    options.rx_headroom = kHeadroom;
    reopen(options);
    const std::size_t size = std::min(attr().cap.am.align_mtu, attr().cap.am.max_bcopy);
    const std::size_t held_max = std::min<std::size_t>(knobs_of(GetParam().resource).held_max, 4);
    std::vector<void*> kept;
    unsigned seen = 0;
    receiver().on_am = [&](const AmMessage& message) {
        EXPECT_TRUE(has_pattern(message.bytes, seen++));
        if ((message.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || kept.size() >= held_max)
            return UCS_OK;
        kept.push_back(static_cast<std::byte*>(message.data) - kHeadroom);
        std::memset(kept.back(), 0xee, kHeadroom);
        return UCS_INPROGRESS;
    };
    Bytes bytes(size);
    for (unsigned i = 0; i < kMessages; ++i) {
        fill_pattern(bytes, i);
        ASSERT_EQ(UCS_OK, retry([&] { return send_am_bytes(ep(), kId, bytes); }));
        if (i % 3 == 0 && !kept.empty()) {
            uct_iface_release_desc(kept.back());
            kept.pop_back();
        }
    }
    ASSERT_TRUE(until([&] { return receiver().am_count == kMessages; }));
    for (void* descriptor : kept)
        uct_iface_release_desc(descriptor);
}

}  // namespace
}  // namespace tagwire::test
