// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(ActiveMessage);

Bytes numbered(std::uint64_t number, std::size_t length = sizeof(std::uint64_t)) {
    Bytes bytes = pattern(std::max(length, sizeof number), number);
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
}

std::uint64_t number_of(const Bytes& bytes) {
    std::uint64_t number = ~std::uint64_t{0};
    if (bytes.size() >= sizeof number)
        std::memcpy(&number, bytes.data(), sizeof number);
    return number;
}

TEST_P(ActiveMessage, delivers_every_size_by_every_method) {
    for (const MethodInfo& info : am_methods(sender())) {
        for (const std::size_t size : edge_sizes(info.bytes_min, info.bytes_max)) {
            SCOPED_TRACE(std::string(name_of(info.method)) + ", " + std::to_string(size) +
                         " bytes");
            receiver().am.clear();
            const Buffer payload = make_payload(sender(), size, size + 1);

            const ucs_status_t status = run([&](uct_completion_t* completion) {
                return send_am(ep(), sender(), info.method, kId, payload, completion);
            });

            ASSERT_EQ(UCS_OK, status);
            ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
            ASSERT_EQ(1u, receiver().am.size());
            ASSERT_EQ(size, receiver().am[0].bytes.size());
            ASSERT_EQ(size, first_mismatch(receiver().am[0].bytes, size + 1));
        }
    }
}

TEST_P(ActiveMessage, short_puts_the_header_before_the_payload) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    const std::uint32_t payload = 0x55667788;
    ASSERT_EQ(UCS_OK, retry([&] {
                  return uct_ep_am_short(ep(), kId, 0x1122334455667788, &payload, sizeof payload);
              }));

    ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
    const Bytes& got = receiver().am[0].bytes;
    ASSERT_EQ(12u, got.size());
    EXPECT_EQ(0x1122334455667788u, number_of(got));
    EXPECT_EQ(0, std::memcmp(got.data() + 8, &payload, sizeof payload));
}

TEST_P(ActiveMessage, short_of_nothing_is_its_header) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 77, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
    EXPECT_EQ(8u, receiver().am[0].bytes.size());
    EXPECT_EQ(77u, number_of(receiver().am[0].bytes));
}

TEST_P(ActiveMessage, short_iov_joins_its_parts_in_order) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    for (const std::size_t size : edge_sizes(0, attr().cap.am.max_short)) {
        for (const std::size_t parts : edge_parts(attr().cap.am.max_iov)) {
            SCOPED_TRACE(std::to_string(size) + " bytes in " + std::to_string(parts) + " parts");
            receiver().am.clear();
            const Buffer payload = make_payload(sender(), size, 3);
            const auto iov = split(payload, size, parts);

            ASSERT_EQ(UCS_OK, retry([&] {
                          return uct_ep_am_short_iov(ep(), kId, iov.data(), iov.size());
                      }));
            ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
            ASSERT_EQ(size, receiver().am[0].bytes.size());
            ASSERT_TRUE(has_pattern(receiver().am[0].bytes, 3));
        }
    }
}

TEST_P(ActiveMessage, zcopy_joins_header_and_parts_in_order) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const auto& am = attr().cap.am;
    const std::size_t total = std::min({am.max_zcopy, std::size_t{5000}});
    for (const Backing backing : local_backings(sender())) {
        Buffer payload(sender(), total, backing);
        fill_pattern(payload.span(), 9);
        for (const std::size_t header : edge_sizes(0, std::min(am.max_hdr, total))) {
            for (const std::size_t parts : edge_parts(am.max_iov)) {
                SCOPED_TRACE(std::string(name_of(backing)) + ", header " + std::to_string(header) +
                             ", parts " + std::to_string(parts));
                receiver().am.clear();
                std::vector<uct_iov_t> iov;
                std::size_t offset = header;
                for (std::size_t i = 0; i < parts; ++i) {
                    const std::size_t length =
                        i + 1 == parts ? total - offset : (total - header) / parts;
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
                ASSERT_EQ(total, first_mismatch(receiver().am[0].bytes, 9));
            }
        }
    }
}

TEST_P(ActiveMessage, zcopy_header_may_be_overwritten_after_the_call) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    if (attr().cap.am.max_hdr < 8)
        GTEST_SKIP() << "headers of 8 bytes are not offered";
    const Buffer payload =
        make_payload(sender(), std::min<std::size_t>(4096, attr().cap.am.max_zcopy - 8), 4);
    std::uint64_t header = 1234;
    Completion completion;
    const uct_iov_t iov = payload.iov();
    const ucs_status_t status = retry([&] {
        return uct_ep_am_zcopy(ep(), kId, &header, sizeof header, &iov, 1, 0, &completion);
    });
    header = 0;

    ASSERT_GE(status, UCS_OK);
    ASSERT_TRUE(until(
        [&] { return !receiver().am.empty() && (status == UCS_OK || completion.calls == 1); }));
    EXPECT_EQ(1234u, number_of(receiver().am[0].bytes));
}

TEST_P(ActiveMessage, zcopy_without_a_completion_is_delivered) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const Buffer payload =
        make_payload(sender(), std::min<std::size_t>(4000, attr().cap.am.max_zcopy), 5);
    const ucs_status_t status =
        retry([&] { return send_am(ep(), sender(), Method::kZcopy, kId, payload, nullptr); });
    ASSERT_GE(status, UCS_OK);
    ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
    EXPECT_TRUE(has_pattern(receiver().am[0].bytes, 5));
    flush_ep(ep());
}

TEST_P(ActiveMessage, bcopy_packs_once_and_returns_what_was_packed) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    struct Packer {
        int calls = 0;
    } packer;
    const auto pack = [](void* dest, void* arg) -> std::size_t {
        ++static_cast<Packer*>(arg)->calls;
        std::memset(dest, 0x5a, 100);
        return 100;
    };
    ssize_t packed = 0;
    ASSERT_EQ(UCS_OK, retry([&] {
                  packed = uct_ep_am_bcopy(ep(), kId, pack, &packer, 0);
                  return packed < 0 ? static_cast<ucs_status_t>(packed) : UCS_OK;
              }));
    EXPECT_EQ(100, packed);
    EXPECT_EQ(1, packer.calls);
    ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
    EXPECT_EQ(Bytes(100, std::byte{0x5a}), receiver().am[0].bytes);
}

TEST_P(ActiveMessage, order_holds_across_methods_and_sizes) {
    const auto methods = am_methods(sender());
    if (methods.empty())
        GTEST_SKIP() << "not offered: any active message";
    std::mt19937_64 random(20);
    constexpr std::uint64_t kMessages = 3000;
    std::vector<std::unique_ptr<Completion>> completions;
    std::vector<Buffer> payloads;  // zcopy reads them later
    std::size_t in_flight = 0;

    for (std::uint64_t i = 0; i < kMessages; ++i) {
        const MethodInfo& info = methods[random() % methods.size()];
        const std::size_t most = std::min<std::size_t>(info.bytes_max, i % 50 == 0 ? 70000 : 600);
        const std::size_t least = std::max<std::size_t>(info.bytes_min, 8);
        if (most < least)
            continue;
        const std::size_t size = least + random() % (most - least + 1);
        payloads.emplace_back(make_payload(sender(), size, i));
        std::memcpy(payloads.back().data(), &i, sizeof i);
        completions.push_back(std::make_unique<Completion>());
        const ucs_status_t status = retry([&] {
            return send_am(ep(), sender(), info.method, kId, payloads.back(),
                           completions.back().get());
        });
        ASSERT_GE(status, UCS_OK);
        if (status == UCS_INPROGRESS)
            ++in_flight;
        else
            completions.pop_back();
        if (random() % 3 == 0)
            step();
    }

    ASSERT_TRUE(until([&] { return receiver().am.size() == payloads.size(); }));
    ASSERT_EQ(in_flight, completions.size());
    ASSERT_TRUE(until([&] {
        return std::all_of(completions.begin(), completions.end(),
                           [](const auto& completion) { return completion->calls == 1; });
    }));
    for (std::size_t i = 0; i < payloads.size(); ++i) {
        const auto expected = payloads[i].span();
        ASSERT_EQ(Bytes(expected.begin(), expected.end()), receiver().am[i].bytes)
            << "message " << i;
    }
}

TEST_P(ActiveMessage, every_id_has_its_own_handler) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    for (std::uint8_t id = 0; id < UCT_AM_ID_MAX; ++id)
        receiver().record_am(id);
    for (std::uint8_t id = 0; id < UCT_AM_ID_MAX; ++id)
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), id, id, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == UCT_AM_ID_MAX; }));
    for (const auto& message : receiver().am)
        EXPECT_EQ(message.id, number_of(message.bytes));
}

TEST_P(ActiveMessage, an_id_out_of_range_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_iface_set_am_handler(
                  receiver().iface(), UCT_AM_ID_MAX,
                  [](void*, void*, std::size_t, unsigned) { return UCS_OK; }, nullptr, 0));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_ep_am_short(ep(), UCT_AM_ID_MAX, 0, nullptr, 0));
    if (sender().offers(UCT_IFACE_FLAG_AM_BCOPY)) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, send_am_bytes(ep(), UCT_AM_ID_MAX, {}));
    }
}

TEST_P(ActiveMessage, a_message_without_handler_is_dropped_and_the_next_arrives) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId + 1, 1, nullptr, 0); }));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 2, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
    ASSERT_EQ(1u, receiver().am.size());
    EXPECT_EQ(2u, number_of(receiver().am[0].bytes));
}

TEST_P(ActiveMessage, a_removed_handler_hears_nothing_more) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, uct_iface_set_am_handler(receiver().iface(), kId, nullptr, nullptr, 0));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 1, nullptr, 0); }));
    drain();
    EXPECT_TRUE(receiver().am.empty());
}

// A descriptor begins with the headroom: that address is what is released.
TEST_P(ActiveMessage, kept_descriptors_stay_readable_until_released) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    for (const std::size_t headroom : {std::size_t{0}, std::size_t{40}}) {
        EntityOptions options;
        options.rx_headroom = headroom;
        reopen(options);
        const std::size_t held_max = knobs_of(GetParam().resource).held_max;
        std::vector<std::pair<void*, std::uint64_t>> kept;
        receiver().on_am = [&](const AmMessage& message) {
            if ((message.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || kept.size() >= held_max)
                return UCS_OK;
            auto* descriptor = static_cast<std::byte*>(message.data) - headroom;
            std::memset(descriptor, 0xee, headroom);
            kept.emplace_back(descriptor, number_of(message.bytes));
            return UCS_INPROGRESS;
        };
        // Far more than any ring holds, so that descriptors must really leave it. Every 7th is
        // given back at once.
        const std::size_t size = std::min<std::size_t>(2000, attr().cap.am.max_bcopy);
        constexpr std::uint64_t kMessages = 2000;
        std::uint64_t sent = 0;
        for (; sent < kMessages; ++sent) {
            const Bytes bytes = numbered(sent, size);
            const ucs_status_t status = retry([&] { return send_am_bytes(ep(), kId, bytes); });
            ASSERT_EQ(UCS_OK, status);
            if (sent % 7 == 0 && !kept.empty()) {
                uct_iface_release_desc(kept.back().first);
                kept.pop_back();
            }
        }
        ASSERT_TRUE(until([&] { return receiver().am_count == kMessages; }));
        for (const auto& [descriptor, number] : kept) {
            const Bytes expected = numbered(number, size);
            const auto* data = static_cast<const std::byte*>(descriptor) + headroom;
            ASSERT_EQ(0, std::memcmp(data, expected.data(), size)) << "message " << number;
        }
        for (const auto& [descriptor, number] : kept)
            uct_iface_release_desc(descriptor);
    }
}

TEST_P(ActiveMessage, descriptors_are_aligned_as_asked) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    constexpr std::size_t kAlignment = 64;
    constexpr std::size_t kOffset = 8;
    EntityOptions options;
    options.am_alignment = kAlignment;
    options.am_align_offset = kOffset;
    reopen(options);
    receiver().on_am = [&](const AmMessage& message) {
        if ((message.flags & UCT_CB_PARAM_FLAG_DESC) != 0) {
            EXPECT_EQ(0u, (reinterpret_cast<std::uintptr_t>(message.data) + kOffset) % kAlignment);
        }
        return UCS_OK;
    };
    for (std::uint64_t i = 0; i < 100; ++i) {
        const Bytes bytes = numbered(i, 8 + i * 10);
        ASSERT_EQ(UCS_OK, retry([&] { return send_am_bytes(ep(), kId, bytes); }));
    }
    EXPECT_TRUE(until([&] { return receiver().am.size() == 100; }));
}

TEST_P(ActiveMessage, handlers_may_send) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    constexpr std::uint8_t kPing = 1;
    constexpr std::uint8_t kPong = 2;
    constexpr std::uint64_t kRounds = 2000;
    receiver().record_am(kPing);
    sender().record_am(kPong);
    std::uint64_t last = 0;
    uct_ep_h there = ep();
    uct_ep_h back = back_ep();
    const auto handler = [&](const AmMessage& message) {
        const std::uint64_t number = number_of(message.bytes);
        if (message.id == kPong && (last = number) == kRounds)
            return UCS_OK;
        const bool is_ping = message.id == kPing;
        uct_ep_h to = is_ping ? back : there;
        const std::uint8_t id = is_ping ? kPong : kPing;
        send_inside(to, [=] { return uct_ep_am_short(to, id, number + 1, nullptr, 0); });
        return UCS_OK;
    };
    receiver().on_am = handler;
    sender().on_am = handler;
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(there, kPing, 1, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return last == kRounds; })) << "stopped at " << last;
}

TEST_P(ActiveMessage, completion_callbacks_may_send) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY | UCT_IFACE_FLAG_AM_SHORT);
    const Buffer payload =
        make_payload(sender(), std::min<std::size_t>(attr().cap.am.max_zcopy, 8000), 6);
    receiver().record_am(kId + 1);
    Completion completion;
    completion.on_done = [&] {
        send_inside(ep(), [&] { return uct_ep_am_short(ep(), kId + 1, 42, nullptr, 0); });
    };
    const ucs_status_t status =
        retry([&] { return send_am(ep(), sender(), Method::kZcopy, kId, payload, &completion); });
    ASSERT_GE(status, UCS_OK);
    if (status == UCS_OK)
        completion.on_done();
    ASSERT_TRUE(until([&] { return receiver().am.size() == 2; }));
    EXPECT_TRUE(has_pattern(receiver().am[0].bytes, 6) || has_pattern(receiver().am[1].bytes, 6));
}

TEST_P(ActiveMessage, one_completion_may_count_several_operations) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const Buffer payload =
        make_payload(sender(), std::min<std::size_t>(attr().cap.am.max_zcopy, 8000), 7);
    constexpr int kOperations = 20;
    Completion completion(kOperations);
    for (int i = 0; i < kOperations; ++i) {
        const ucs_status_t status = retry(
            [&] { return send_am(ep(), sender(), Method::kZcopy, kId, payload, &completion); });
        ASSERT_GE(status, UCS_OK);
        if (status == UCS_OK && --completion.count == 0)
            ++completion.calls;
    }
    ASSERT_TRUE(until([&] { return completion.calls > 0 && receiver().am.size() == kOperations; }));
    EXPECT_EQ(1, completion.calls);
    EXPECT_EQ(0, completion.count);
}

TEST_P(ActiveMessage, messages_of_two_senders_do_not_mix) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    Entity& other = add_entity();
    uct_ep_h other_ep = connect_more(other, receiver());
    constexpr std::uint64_t kMessages = 500;
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        const std::size_t size = std::min<std::size_t>(attr().cap.am.max_bcopy, 8 + i * 17);
        const Bytes mine = numbered(2 * i, size);
        const Bytes others = numbered(2 * i + 1, size);
        ASSERT_EQ(UCS_OK, retry([&] { return send_am_bytes(ep(), kId, mine); }));
        ASSERT_EQ(UCS_OK, retry([&] { return send_am_bytes(other_ep, kId, others); }));
    }
    ASSERT_TRUE(until([&] { return receiver().am.size() == 2 * kMessages; }));
    std::uint64_t next[2] = {0, 1};
    for (const auto& message : receiver().am) {
        const std::uint64_t number = number_of(message.bytes);
        ASSERT_EQ(next[number % 2], number);
        next[number % 2] += 2;
        ASSERT_EQ(numbered(number, message.bytes.size()), message.bytes);
    }
}

}  // namespace
}  // namespace tagwire::test
