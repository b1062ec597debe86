// SPDX-License-Identifier: BSD-3-Clause
// Addresses of workers: as they are packed, damaged, cut short, of other versions.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "protocols/wire/address.hpp"

namespace tagwire::proto {
namespace {

using Bytes = std::vector<std::byte>;

ReserveBytes bytes_of(std::size_t count, int value) {
    return ReserveBytes(count, static_cast<std::byte>(value));
}

Address address_with(std::size_t contacts) {
    constexpr const char* kTransports[] = {"sm", "ud", "tcp", "tcp"};
    Address address{0x1122334455667788, {}};
    for (std::size_t i = 0; i < contacts; ++i) {
        const int value = static_cast<int>(i);
        address.contacts.push_back(
            {kTransports[i], bytes_of(22 - i, value), bytes_of(i * 13, 100 + value)});
    }
    return address;
}

std::string reason_of(const Bytes& bytes) {
    std::string reason;
    EXPECT_FALSE(parse(bytes, &reason).has_value());
    return reason;
}

/// As a writer that computes the check itself.
void set_check(Bytes* bytes) {
    unsigned crc = 0xffff;
    for (std::size_t i = 0; i < bytes->size(); ++i) {
        crc ^= (i == 2 || i == 3 ? 0U : std::to_integer<unsigned>((*bytes)[i])) << 8;
        for (int bit = 0; bit < 8; ++bit)
            crc = ((crc << 1) ^ ((crc & 0x8000U) != 0 ? 0x1021U : 0U)) & 0xffffU;
    }
    (*bytes)[2] = static_cast<std::byte>(crc & 0xff);
    (*bytes)[3] = static_cast<std::byte>(crc >> 8);
}

TEST(MsgAddress, comes_back_as_it_was_packed) {
    for (std::size_t contacts = 1; contacts <= kContactsMax; ++contacts) {
        const Address address = address_with(contacts);
        const Bytes packed = pack(address);
        std::size_t expected = kAddressHeadBytes;
        std::string reason;
        const auto parsed = parse(packed, &reason);
        ASSERT_TRUE(parsed.has_value()) << reason;
        EXPECT_EQ(parsed->id, address.id);
        ASSERT_EQ(parsed->contacts.size(), contacts);
        for (std::size_t i = 0; i < contacts; ++i) {
            EXPECT_EQ(parsed->contacts[i].transport, address.contacts[i].transport);
            EXPECT_EQ(parsed->contacts[i].device, address.contacts[i].device);
            EXPECT_EQ(parsed->contacts[i].iface, address.contacts[i].iface);
            expected += address.contacts[i].packed_bytes();
        }
        EXPECT_EQ(packed.size(), expected);
    }
}

TEST(MsgAddress, is_refused_when_it_is_cut_short_or_too_long) {
    const Bytes packed = pack(address_with(kContactsMax));
    for (std::size_t length = 0; length < packed.size(); ++length) {
        Bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(length));
        EXPECT_NE(reason_of(cut).find("too short"), std::string::npos) << length;
    }
    Bytes longer = packed;
    longer.push_back(std::byte{0});
    EXPECT_NE(reason_of(longer).find("follow its contacts"), std::string::npos);
}

TEST(MsgAddress, is_refused_when_one_or_two_bits_have_changed) {
    const Bytes packed = pack(address_with(2));
    for (std::size_t first = 0; first < 8 * packed.size(); ++first) {
        for (std::size_t second = first; second < 8 * packed.size(); second += 37) {
            Bytes damaged = packed;
            damaged[first / 8] ^= std::byte{1} << (first % 8);
            if (second != first)
                damaged[second / 8] ^= std::byte{1} << (second % 8);
            std::string reason;
            EXPECT_FALSE(parse(damaged, &reason).has_value()) << first << " and " << second;
            EXPECT_FALSE(reason.empty());
        }
    }
}

TEST(MsgAddress, of_another_version_is_refused_by_both_versions) {
    Bytes packed = pack(address_with(1));
    for (const int version : {0, 1, 2, 4, 255}) {
        packed[0] = static_cast<std::byte>(version);
        set_check(&packed);
        const std::string reason = reason_of(packed);
        EXPECT_NE(reason.find("version is " + std::to_string(version)), std::string::npos);
        EXPECT_NE(reason.find("supports 3"), std::string::npos);
    }
    EXPECT_NE(reason_of({std::byte{2}}).find("version is 2"), std::string::npos);
}

TEST(MsgAddress, has_one_contact_at_least_and_four_at_most) {
    for (const int contacts : {0, 5, 255}) {
        Bytes packed = pack(address_with(kContactsMax));
        packed.resize(packed.size() + 1024);
        packed[1] = static_cast<std::byte>(contacts);
        set_check(&packed);
        EXPECT_NE(reason_of(packed).find(std::to_string(contacts) + " contacts"),
                  std::string::npos);
    }
}

TEST(MsgAddress, passes_over_transports_that_are_not_known) {
    Bytes packed = pack(address_with(3));
    packed[kAddressHeadBytes] = std::byte{77};  // the rank of the first
    set_check(&packed);
    std::string reason;
    const auto parsed = parse(packed, &reason);
    ASSERT_TRUE(parsed.has_value()) << reason;
    ASSERT_EQ(parsed->contacts.size(), 2U);
    EXPECT_EQ(parsed->contacts[0].transport, "ud");

    Bytes alone = pack(address_with(1));
    alone[kAddressHeadBytes] = std::byte{77};
    set_check(&alone);
    EXPECT_NE(reason_of(alone).find("rank 77"), std::string::npos);
}

TEST(MsgAddress, transports_are_ordered_by_the_ranks_that_they_state) {
    EXPECT_EQ(first_contact_names(), "sm, ud, dc, tcp");
    for (std::size_t i = 1; i < first_contacts().size(); ++i)
        EXPECT_GT(first_contacts()[i - 1].rank, first_contacts()[i].rank);
    EXPECT_EQ(first_contact_rank("rc"), 0);
}

}  // namespace
}  // namespace tagwire::proto
