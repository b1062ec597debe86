// SPDX-License-Identifier: BSD-3-Clause
// Decoding of messages from peers: each one valid, cut short at every length, one byte too long,
// and with invalid fields.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "protocols/id_table.hpp"
#include "protocols/wire.hpp"

namespace tagwire::proto {
namespace {

using Bytes = std::vector<std::byte>;

template <class... T>
Bytes bytes_of(const T&... values) {
    Bytes bytes;
    const auto append = [&](const auto& value) {
        const auto* from = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), from, from + sizeof value);
    };
    (append(values), ...);
    return bytes;
}

Bytes operator+(Bytes bytes, std::size_t more) {
    bytes.resize(bytes.size() + more);
    return bytes;
}

/// No shorter message and no longer one can be; T is what decodes.
template <class T>
void expect_exact(const Bytes& bytes) {
    T message{};
    EXPECT_TRUE(decode(bytes, &message));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        T cut{};
        EXPECT_FALSE(decode(WireBytes(bytes).first(length), &cut)) << length;
    }
    T longer{};
    EXPECT_FALSE(decode(bytes + 1, &longer));
}

TEST(Wire, control_messages_have_one_length_and_a_known_operation) {
    expect_exact<Control>(bytes_of(Control{1, 2, 3, 4, 5}));
    expect_exact<Placeholder>(bytes_of(Placeholder{1, 2}));
    for (const std::uint32_t op : {0U, 20U, ~0U}) {
        Control message{};
        EXPECT_FALSE(decode(bytes_of(Control{op, 2, 3, 4, 5}), &message)) << op;
    }
}

TEST(Wire, parts_and_data_have_something_behind_their_heads) {
    PartMessage part{};
    EXPECT_FALSE(decode(bytes_of(Part{1, 0}), &part));
    ASSERT_TRUE(decode(bytes_of(Part{1, 0}) + 5, &part));
    EXPECT_EQ(part.data.size(), 5U);
    DataMessage data{};
    EXPECT_FALSE(decode(bytes_of(Data{0, 1, 2}), &data));
    EXPECT_FALSE(decode(bytes_of(Data{0, 0, 2}) + 5, &data)) << "of no receive";
    ASSERT_TRUE(decode(bytes_of(Data{0, 1, 2}) + 5, &data));
    EXPECT_EQ(data.data.size(), 5U);
}

TEST(Wire, what_an_eager_message_announces_is_there) {
    const Header all{1, kTagged | kImm | kAckMatch | kMoreParts, 9};
    const Bytes behind = bytes_of(std::uint64_t{5}, std::uint64_t{6}, std::uint64_t{100}) + 10;
    EagerBody body;
    ASSERT_TRUE(decode(all, behind, &body));
    EXPECT_EQ(body.imm, 5U);
    EXPECT_EQ(body.send_id, 6U);
    EXPECT_EQ(body.length, 100U);
    EXPECT_EQ(body.data.size(), 10U);
    for (std::size_t length = 0; length < 24; ++length)
        EXPECT_FALSE(decode(all, WireBytes(behind).first(length), &body)) << length;
    // The rest would be nothing, or less.
    EXPECT_FALSE(decode({1, kMoreParts, 9}, bytes_of(std::uint64_t{10}) + 10, &body));
    EXPECT_FALSE(decode({1, kMoreParts, 9}, bytes_of(std::uint64_t{9}) + 10, &body));
    EXPECT_FALSE(decode({1, kAckMatch, 9}, bytes_of(std::uint64_t{0}), &body)) << "no send id";
    EXPECT_FALSE(decode({1, kAckMatch, 9}, bytes_of(std::uint64_t{1} << 32), &body));
    EXPECT_FALSE(decode({1, kHeaderFlags + 1, 9}, Bytes(64), &body));
    EagerBody empty;
    ASSERT_TRUE(decode({1, kTagged, 9}, {}, &empty));
    EXPECT_EQ(empty.length, 0U);
}

TEST(Wire, an_untagged_message_has_no_tag) {
    EagerBody eager{};
    RndvBody rndv{};
    const Bytes request = bytes_of(Rndv{1, 2, 3, 0, 0, {}});
    for (const std::uint64_t tag : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
        EXPECT_EQ(decode({1, 0, tag}, Bytes(4), &eager), tag == 0) << tag;
        EXPECT_EQ(decode({1, 0, tag}, request, &rndv), tag == 0) << tag;
        EXPECT_TRUE(decode({1, kTagged, tag}, Bytes(4), &eager)) << tag;
        EXPECT_TRUE(decode({1, kTagged, tag}, request, &rndv)) << tag;
    }
}

TEST(Wire, the_keys_of_a_rendezvous_are_as_many_as_it_says) {
    const Header header{1, kTagged, 9};
    const Rndv rndv{100, 4096, 7, 2, 0, {}};
    const Bytes behind = bytes_of(rndv, KeyHead{0, 3}, std::uint8_t{1}, std::uint8_t{2},
                                  std::uint8_t{3}, KeyHead{1, 0});
    RndvBody body;
    ASSERT_TRUE(decode(header, behind, &body));
    EXPECT_EQ(body.keys.used, 7U);
    for (std::size_t length = 0; length < behind.size(); ++length) {
        RndvBody cut;
        EXPECT_FALSE(decode(header, WireBytes(behind).first(length), &cut)) << length;
    }
    for (const Rndv& wrong : {Rndv{100, 4096, 0, 0, 0, {}}, Rndv{100, 4096, 7, 0, 2, {}},
                              Rndv{100, 4096, 7, 1, 0, {}}}) {
        RndvBody refused;
        EXPECT_FALSE(decode(header, bytes_of(wrong), &refused));
    }
    for (const std::uint32_t flag : {kAckMatch, kAckDelivery, kMoreParts}) {
        RndvBody refused;
        EXPECT_FALSE(decode({1, kTagged | flag, 9}, behind, &refused)) << flag;
    }
    RndvBody too_long;
    EXPECT_FALSE(decode(header, bytes_of(Rndv{100, 4096, 7, 0, 0, {}}) + 5000, &too_long));
}

TEST(Wire, an_offer_to_write_has_its_key_and_the_others) {
    const Bytes good =
        bytes_of(PutOffer{1, 2, 3, 4, 2, 1, 0, 100, 4096}, std::uint16_t{7}, KeyHead{5, 0});
    expect_exact<PutMessage>(good);
    PutMessage message{};
    ASSERT_TRUE(decode(good, &message));
    EXPECT_EQ(message.keys.used, 6U) << "with a head for the first";
    for (const PutOffer& wrong :
         {PutOffer{1, 0, 3, 4, 0, 0, 0, 100, 4096}, PutOffer{1, 2, 0, 4, 0, 0, 0, 100, 4096},
          PutOffer{1, 2, 3, 4, 0, 0, 0, 0, 4096}, PutOffer{1, 2, 3, 4, 0, 0, 2, 100, 4096}}) {
        PutMessage refused{};
        EXPECT_FALSE(decode(bytes_of(wrong), &refused));
    }
    PutMessage too_long{};
    EXPECT_FALSE(decode(bytes_of(PutOffer{1, 2, 3, 4, 0, 0, 0, 1, 1}) + 5000, &too_long));
}

TEST(Wire, a_hello_tells_of_each_of_its_rails) {
    RailHead head{{'r', 'c'}, 1, 2, 1, kRailMatchesTags};
    const Bytes good = bytes_of(Hello{1, 2, 0, 1, 0}, head) + 3;
    expect_exact<HelloMessage>([&] {
        Bytes both = good;
        const Bytes second = bytes_of(head) + 3;
        both.insert(both.end(), second.begin(), second.end());
        return both;
    }());
    HelloMessage message{};
    ASSERT_TRUE(decode(bytes_of(Hello{1, 1, 0, 1, 0}, head) + 3, &message));
    EXPECT_EQ(message.rails.front().transport, "rc");
    EXPECT_EQ(message.rails.front().device.size(), 2U);
    EXPECT_EQ(message.rails.front().iface.size(), 1U);
    for (const Hello& wrong :
         {Hello{0, 1, 0, 1, 0}, Hello{1, 0, 0, 1, 0}, Hello{1, 256, 0, 1, 0}}) {
        HelloMessage refused{};
        EXPECT_FALSE(decode(bytes_of(wrong, head) + 3, &refused));
    }
}

TEST(Wire, an_offer_has_the_address_that_it_says) {
    expect_exact<OfferMessage>(bytes_of(Offer{1, 0, 0, 0, 0}));
    expect_exact<OfferMessage>(bytes_of(Offer{1, 0, 0, 0, 3}) + 3);
    Wireup wireup{};
    WireBytes behind;
    EXPECT_TRUE(decode(bytes_of(Wireup{1, 1, 2, 3}) + 4, &wireup, &behind));
    EXPECT_EQ(behind.size(), 4U);
    EXPECT_FALSE(decode(bytes_of(Wireup{0, 1, 2, 3}), &wireup, &behind));
    EXPECT_FALSE(decode(bytes_of(Wireup{8, 1, 2, 3}), &wireup, &behind));
    EXPECT_FALSE(decode(WireBytes(bytes_of(Wireup{1, 1, 2, 3})).first(23), &wireup, &behind));
}

// Late numbers are told from invented ones by the numbers that were in use.
TEST(MsgIdTable, a_number_that_was_in_use_is_past_and_one_that_is_or_will_be_is_not) {
    int object = 0;
    IdTable<int> table;
    const std::uint32_t first = table.add(object);
    EXPECT_FALSE(table.is_past(first));
    table.remove(first);
    EXPECT_TRUE(table.is_past(first));
    const std::uint32_t second = table.add(object);
    ASSERT_NE(second, first);
    EXPECT_TRUE(table.is_past(first));
    EXPECT_FALSE(table.is_past(second));
    constexpr std::uint32_t kStep = 1U << IdTable<int>::kIndexBits;
    EXPECT_FALSE(table.is_past(second + kStep)) << "its generation is still to come";
    EXPECT_FALSE(table.is_past(first + 1)) << "nobody had that place";
    EXPECT_FALSE(table.is_past(0));
}

}  // namespace
}  // namespace tagwire::proto
