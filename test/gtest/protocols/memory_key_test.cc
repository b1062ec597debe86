// SPDX-License-Identifier: BSD-3-Clause
// Packed keys of memory, and messages of one-sided operations: what is written is read, and what
// nobody writes is refused.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "protocols/wire/memory_key.hpp"
#include "protocols/wire/rma_messages.hpp"

namespace tagwire::proto {
namespace {

using Bytes = std::vector<std::byte>;

constexpr MemoryKey kKey{0x123456789a, 0x7f0000001000, 1 << 20, TW_ACCESS_ALL, false, 0xabcdef};

/// Words, some of which are the address and the length of kKey.
Bytes words(std::initializer_list<std::uint64_t> list) {
    Bytes bytes(list.size() * sizeof(std::uint64_t));
    std::memcpy(bytes.data(), list.begin(), bytes.size());
    return bytes;
}

Bytes four(unsigned char value) {
    return Bytes(4, static_cast<std::byte>(value));
}

struct Packed {
    std::array<std::byte, TW_KEY_BYTES_MAX> bytes{};
    std::size_t length = 0;

    WireBytes all() const { return WireBytes(bytes).first(length); }
};

Packed pack(const MemoryKey& key, const std::vector<std::pair<std::size_t, Bytes>>& domains) {
    MemoryKeyWriter writer(key);
    for (const auto& [domain, bytes] : domains)
        writer.add(domain, bytes);
    Packed packed;
    packed.length = writer.write(packed.bytes.data());
    return packed;
}

void expect_same(const MemoryKey& a, const MemoryKey& b) {
    EXPECT_EQ(a.memory, b.memory);
    EXPECT_EQ(a.address, b.address);
    EXPECT_EQ(a.length, b.length);
    EXPECT_EQ(a.access, b.access);
    EXPECT_EQ(a.by_device, b.by_device);
    EXPECT_EQ(a.owner, b.owner);
}

bool has(const MemoryKeyMessage& message, std::size_t domain, const Bytes& key) {
    const WireBytes found = message.key_of(domain);
    return std::ranges::equal(found, key);
}

TEST(MemoryKey, shared_memory_and_a_device_fit) {
    const Bytes shared = words({1, 2, kKey.address, 4, kKey.length, 6});
    const Packed packed = pack(kKey, {{0, shared}, {1, four(1)}});
    EXPECT_LE(packed.length, std::size_t{TW_KEY_BYTES_MAX});
    MemoryKeyMessage message;
    ASSERT_EQ(decode(packed.all(), &message), nullptr);
    expect_same(message.key, kKey);
    EXPECT_TRUE(has(message, 0, shared));
    EXPECT_TRUE(has(message, 1, four(1)));
    EXPECT_TRUE(message.key_of(2).empty());
    EXPECT_TRUE(message.key_of(1000).empty());
}

TEST(MemoryKey, seven_devices_fit_and_more_are_left_out) {
    std::vector<std::pair<std::size_t, Bytes>> domains;
    for (unsigned char i = 0; i < 20; ++i)
        domains.emplace_back(i, four(static_cast<unsigned char>(i + 1)));
    MemoryKey key = kKey;
    key.by_device = true;
    key.access = TW_ACCESS_WRITE;
    const Packed packed = pack(key, domains);
    MemoryKeyMessage message;
    ASSERT_EQ(decode(packed.all(), &message), nullptr);
    expect_same(message.key, key);
    for (std::size_t i = 0; i < 7; ++i)
        EXPECT_TRUE(has(message, i, domains[i].second)) << i;
    EXPECT_TRUE(message.key_of(7).empty());
}

TEST(MemoryKey, keys_of_any_length_are_found_again) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::pair<std::size_t, Bytes>> domains;
        std::size_t domain = random() % 4;
        for (std::size_t i = random() % 5; i > 0 && domain < kKeyDomainsMax; --i) {
            Bytes bytes(1 + random() % 50);
            for (std::byte& byte : bytes)
                byte = static_cast<std::byte>(random());
            domains.emplace_back(domain, bytes);
            domain += 1 + random() % 12;
        }
        const MemoryKey key{random() >> 24,      random() >> 1,
                            1 + (random() >> 2), static_cast<std::uint32_t>(1 + random() % 7),
                            random() % 2 == 0,   static_cast<std::uint32_t>(random() >> 40)};
        const Packed packed = pack(key, domains);
        ASSERT_LE(packed.length, std::size_t{TW_KEY_BYTES_MAX});
        MemoryKeyMessage message;
        ASSERT_EQ(decode(packed.all(), &message), nullptr);
        expect_same(message.key, key);
        for (const auto& [at, bytes] : domains)
            EXPECT_TRUE(message.key_of(at).empty() || has(message, at, bytes));
    }
}

TEST(MemoryKey, other_bytes_are_refused_or_are_a_key) {
    std::mt19937_64 random(2);
    const Packed good = pack(kKey, {{0, words({kKey.address, kKey.length})}, {3, four(9)}});
    for (int round = 0; round < 200'000; ++round) {
        Packed bad = good;
        for (std::size_t i = 1 + random() % 3; i > 0; --i)
            bad.bytes[random() % bad.length] = static_cast<std::byte>(random());
        bad.length = random() % (good.length + 1);
        MemoryKeyMessage message;
        if (decode(bad.all(), &message) != nullptr)
            continue;
        EXPECT_NE(message.key.access, 0U);
        EXPECT_GE(message.key.address + message.key.length, message.key.address);
        for (std::size_t domain = 0; domain < kKeyDomainsMax; ++domain)
            EXPECT_LE(message.key_of(domain).size(), bad.length);
    }
    MemoryKeyMessage message;
    EXPECT_NE(decode({}, &message), nullptr);
    const Bytes long_bytes(65);
    EXPECT_NE(decode(long_bytes, &message), nullptr);
}

template <class Message>
WireBytes bytes_of(const Message& message) {
    return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}

TEST(RmaMessages, requests_that_nobody_makes_are_refused) {
    RmaRequest get{};
    get.op_id = 1;
    get.length = 8;
    get.kind = RmaKind::kGet;
    RmaRequest read;
    EXPECT_TRUE(decode(bytes_of(get), &read));
    const auto refuses = [&](auto change) {
        RmaRequest bad = get;
        change(bad);
        return !decode(bytes_of(bad), &read);
    };
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.op_id = 0; }));
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.length = 0; }));
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.kind = RmaKind::kPut; }));
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.kind = static_cast<RmaKind>(9); }));
    get.kind = RmaKind::kAtomic;
    get.type = TW_INT64;
    EXPECT_TRUE(decode(bytes_of(get), &read));
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.type = TW_INT32; }));
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.type = TW_INT64 + 1; }));
    EXPECT_TRUE(refuses([](RmaRequest& bad) { bad.operation = TW_ATOMIC_CSWAP + 1; }));
    EXPECT_FALSE(decode(bytes_of(get).first(sizeof get - 1), &read));
}

TEST(RmaMessages, data_is_behind_its_head_and_not_empty) {
    Bytes bytes(sizeof(PutPart) + 3);
    PutMessage put;
    ASSERT_TRUE(decode(bytes, &put));
    EXPECT_EQ(put.data.size(), 3U);
    EXPECT_FALSE(decode(WireBytes(bytes).first(sizeof(PutPart)), &put));
    bytes[offsetof(PutPart, is_last)] = std::byte{2};
    EXPECT_FALSE(decode(bytes, &put));
    Bytes answer(sizeof(GetData) + 1);
    GetMessage get;
    EXPECT_FALSE(decode(answer, &get));  // for no operation
    answer[offsetof(GetData, op_id)] = std::byte{1};
    EXPECT_TRUE(decode(answer, &get));
    EXPECT_FALSE(decode(WireBytes(answer).first(sizeof(GetData)), &get));
    Notice notice{};
    Notice read;
    EXPECT_FALSE(decode(bytes_of(notice), &read));
    notice.kind = RmaKind::kPut;
    EXPECT_TRUE(decode(bytes_of(notice), &read));
}

}  // namespace
}  // namespace tagwire::proto
