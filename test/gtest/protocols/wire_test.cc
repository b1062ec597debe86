// SPDX-License-Identifier: BSD-3-Clause
// Decoding of messages from peers: each one valid, cut short at every length, one byte too long,
// and with invalid fields.
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <vector>

#include "protocols/index/id_table.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/wire/am_header.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "protocols/wire/wireup_messages.hpp"

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
    expect_exact<Control>(bytes_of(Control::of(Cts{3, 4, 5}, 2)));
    expect_exact<Placeholder>(bytes_of(Placeholder{1, 2}));
    for (const std::uint32_t op : {0U, 24U, ~0U}) {
        Control message{};
        EXPECT_FALSE(decode(bytes_of(Control{op, 2, {}}), &message)) << op;
    }
}

template <class Body>
void expect_layout(const Body& body, std::uint32_t op, std::uint32_t a, std::int32_t b,
                   std::uint64_t c) {
    const std::uint32_t sender = 9;
    EXPECT_EQ(bytes_of(Control::of(body, sender)), bytes_of(op, sender, a, b, c)) << op;
    const Control control = Control::of(body);
    EXPECT_EQ(bytes_of(Control::of(control.as<Body>())), bytes_of(control)) << op;
}

// docs/internals/formats/messaging.md has them as three numbers.
TEST(Wire, bodies_of_control_messages_lie_where_the_format_has_them) {
    expect_layout(Ack{7}, 1, 7, 0, 0);
    expect_layout(Ats{7, -3}, 2, 7, -3, 0);
    expect_layout(Cts{7, 8, 1ULL << 40}, 3, 7, 8, 1ULL << 40);
    expect_layout(DataEnd{7, -3}, 4, 7, -3, 0);
    expect_layout(Cancel{7}, 5, 7, 0, 0);
    expect_layout(Canceled{7}, 6, 7, 0, 0);
    expect_layout(Flush{7, 1}, 7, 7, 1, 0);
    expect_layout(Flushed{7}, 8, 7, 0, 0);
    expect_layout(PauseEager{}, 9, 0, 0, 0);
    expect_layout(ResumeEager{}, 10, 0, 0, 0);
    expect_layout(Pause{}, 11, 0, 0, 0);
    expect_layout(Resume{}, 12, 0, 0, 0);
    expect_layout(Bye{}, 13, 0, 0, 0);
    expect_layout(Back{}, 14, 0, 0, 0);
    expect_layout(Leave{}, 15, 0, 0, 0);
    expect_layout(Left{1}, 16, 1, 0, 0);
    expect_layout(Lane{2}, 17, 2, 0, 0);
    expect_layout(Reset{0, 1, 5}, 18, 0, 1, 5);
    expect_layout(Down{2, 3}, 19, 2, 3, 0);
    expect_layout(Advice{131072, 2, 3, 1, 4, 55, 70}, 20, 131072, 0x04010302,
                  55 + (std::uint64_t{70} << 32));
    expect_layout(RmaReply{2, -3, 77}, 21, 2, -3, 77);
    expect_layout(Probe{}, 22, 0, 0, 0);
    expect_layout(Probed{}, 23, 0, 0, 0);
}

TEST(Wire, fields_of_an_envelope_lie_in_the_order_of_their_flags) {
    Envelope envelope = Envelope::of(1, true, 9);
    EXPECT_EQ(envelope.bytes, sizeof(Header));
    envelope.add_imm(5);
    envelope.add_ack(kAckDelivery, 6);
    envelope.add_total(100);
    envelope.add_begun(200);
    const Bytes sent = bytes_of(envelope);
    EXPECT_EQ(Bytes(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(envelope.bytes)),
              bytes_of(Header{1, kTagged | kImm | kAckDelivery | kMoreParts | kTimed, 9},
                       std::uint64_t{5}, std::uint64_t{6}, std::uint64_t{100}, std::uint64_t{200}));
    EagerBody body;
    ASSERT_TRUE(decode(envelope.header, WireBytes(sent).subspan(sizeof(Header)), &body));
    EXPECT_EQ(body.begun, 200U);
    EXPECT_EQ(body.length, 100U);
    EXPECT_FALSE(decode({1, kTagged | kTimed, 9}, Bytes(7), &body)) << "less than the field";
    const ShortMessage rest{9, {}};
    const Bytes whole = bytes_of(ShortMessage::head(1, true), rest);
    const Header header{1, kTagged, 9};
    EXPECT_EQ(Bytes(whole.begin(), whole.begin() + sizeof header), bytes_of(header));
}

TEST(Wire, the_immediate_of_a_tagged_message_names_its_sender) {
    for (const bool has_imm : {false, true}) {
        const std::uint64_t imm = has_imm ? TagImm::kImmMax : 0;
        const TagImm told = TagImm::decode(TagImm::encode(~0U, has_imm, imm));
        EXPECT_EQ(told.sender, ~0U);
        EXPECT_EQ(told.has_imm, has_imm);
        EXPECT_EQ(told.imm, imm);
    }
}

TEST(Wire, parts_and_data_have_something_behind_their_heads) {
    Part part{};
    EXPECT_FALSE(decode(bytes_of(Part{1, 0}), &part));
    ASSERT_TRUE(decode(bytes_of(Part{1, 0}) + 5, &part));
    EXPECT_EQ(part.sender, 1U);
    DataMessage data{};
    EXPECT_FALSE(decode(bytes_of(RndvData{0, 1, 2}), &data));
    EXPECT_FALSE(decode(bytes_of(RndvData{0, 0, 2}) + 5, &data)) << "of no receive";
    ASSERT_TRUE(decode(bytes_of(RndvData{0, 1, 2}) + 5, &data));
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
    RtsBody rts{};
    const Bytes request = bytes_of(Rts{1, 2, 3, 0, 0, {}});
    for (const std::uint64_t tag : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
        EXPECT_EQ(decode({1, 0, tag}, Bytes(4), &eager), tag == 0) << tag;
        EXPECT_EQ(decode({1, 0, tag}, request, &rts), tag == 0) << tag;
        EXPECT_TRUE(decode({1, kTagged, tag}, Bytes(4), &eager)) << tag;
        EXPECT_TRUE(decode({1, kTagged, tag}, request, &rts)) << tag;
    }
}

TEST(Wire, the_keys_of_a_rendezvous_are_as_many_as_it_says) {
    const Header header{1, kTagged, 9};
    const Rts rts{100, 4096, 7, 2, 0, {}};
    const Bytes behind = bytes_of(rts, KeyHead{0, 3}, std::uint8_t{1}, std::uint8_t{2},
                                  std::uint8_t{3}, KeyHead{1, 0});
    RtsBody body;
    ASSERT_TRUE(decode(header, behind, &body));
    EXPECT_EQ(body.keys.used, 7U);
    for (std::size_t length = 0; length < behind.size(); ++length) {
        RtsBody cut;
        EXPECT_FALSE(decode(header, WireBytes(behind).first(length), &cut)) << length;
    }
    for (const Rts& wrong :
         {Rts{100, 4096, 0, 0, 0, {}}, Rts{100, 4096, 7, 0, 4, {}}, Rts{100, 4096, 7, 1, 0, {}}}) {
        RtsBody refused;
        EXPECT_FALSE(decode(header, bytes_of(wrong), &refused));
    }
    for (const std::uint32_t flag : {kAckMatch, kAckDelivery, kMoreParts}) {
        RtsBody refused;
        EXPECT_FALSE(decode({1, kTagged | flag, 9}, behind, &refused)) << flag;
    }
    RtsBody too_long;
    EXPECT_FALSE(decode(header, bytes_of(Rts{100, 4096, 7, 0, 0, {}}) + 5000, &too_long));
}

TEST(Wire, a_request_with_a_loan_alone_is_one_of_keys_too) {
    const LentRts sent = LentRts::of({100, 4096, 7, 0, kRtsCanPut, {}}, {5, {6, 7}});
    Bytes bytes(LentRts::kBytes);
    sent.write(bytes.data());
    LentRts lent{};
    ASSERT_TRUE(decode(bytes, &lent));
    EXPECT_EQ(100U, lent.rts.length);
    EXPECT_EQ(5U, lent.loan.key);
    EXPECT_EQ(7U, lent.loan.generation[1]);
    RtsBody body;
    ASSERT_TRUE(decode(Header{1, kTagged, 9}, bytes, &body));
    tagwire_uct_loan_t loan{};
    ASSERT_TRUE(loan_of(body.keys.all(), body.rts, &loan));
    EXPECT_EQ(4096U, loan.place);
    EXPECT_EQ(5U, loan.key);
    EXPECT_EQ(7U, loan.id);
    EXPECT_EQ((std::uint64_t{7} << 32) + 6, loan.generation);
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode(WireBytes(bytes).first(length), &lent)) << length;
    EXPECT_FALSE(decode(bytes + 1, &lent));
    for (const Rts& wrong :
         {Rts{100, 4096, 0, 1, 0, {}}, Rts{100, 4096, 7, 2, 0, {}}, Rts{100, 4096, 7, 1, 4, {}}})
        EXPECT_FALSE(decode(bytes_of(wrong, sent.head, sent.loan), &lent));
    const Rts rts{100, 4096, 7, 1, 0, {}};
    EXPECT_FALSE(decode(bytes_of(rts, KeyHead{0, sizeof(Loan)}, sent.loan), &lent));
    EXPECT_FALSE(decode(bytes_of(rts, KeyHead{kLoanDomain, 11}, sent.loan), &lent));
    const Bytes other = bytes_of(KeyHead{kLoanDomain, 11}, std::uint64_t{1}, std::uint16_t{2});
    EXPECT_FALSE(loan_of(other, rts, &loan)) << "a loan of another length is none";
}

TEST(Wire, an_offer_to_write_has_its_key_and_the_others) {
    const Bytes good =
        bytes_of(Rtr{1, 2, 3, 4, 2, 1, 0, 100, 4096}, std::uint16_t{7}, KeyHead{5, 0});
    expect_exact<RtrMessage>(good);
    RtrMessage message{};
    ASSERT_TRUE(decode(good, &message));
    EXPECT_EQ(message.keys.used, 6U) << "with a head for the first";
    for (const Rtr& wrong :
         {Rtr{1, 0, 3, 4, 0, 0, 0, 100, 4096}, Rtr{1, 2, 0, 4, 0, 0, 0, 100, 4096},
          Rtr{1, 2, 3, 4, 0, 0, 0, 0, 4096}, Rtr{1, 2, 3, 4, 0, 0, 2, 100, 4096}}) {
        RtrMessage refused{};
        EXPECT_FALSE(decode(bytes_of(wrong), &refused));
    }
    RtrMessage too_long{};
    EXPECT_FALSE(decode(bytes_of(Rtr{1, 2, 3, 4, 0, 0, 0, 1, 1}) + 5000, &too_long));
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
    EXPECT_TRUE(decode(bytes_of(Hello{1, 1, 0, 1, 0, 2, 77}, head) + 3, &message));
    for (const Hello& half : {Hello{1, 1, 0, 1, 0, 2, 0}, Hello{1, 1, 0, 1, 0, 0, 77}}) {
        HelloMessage refused{};
        EXPECT_FALSE(decode(bytes_of(half, head) + 3, &refused))
            << "a transmit context of no worker, or none of one";
    }
    EXPECT_TRUE(decode(bytes_of(Hello{1, 1, 0, 1, 0, 0, 0, 1, 77}, head) + 3, &message));
    HelloMessage refused{};
    EXPECT_FALSE(decode(bytes_of(Hello{1, 1, 0, 1, 0, 0, 0, 2, 77}, head) + 3, &refused))
        << "by a rail that it does not tell of";
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
    EXPECT_FALSE(table.is_past(first + 2)) << "nobody had that place";
    EXPECT_FALSE(table.is_past(0));
}

TEST(MsgIdTable, a_number_does_not_come_round_soon) {
    constexpr std::size_t kNumbers = 10'000;
    int object = 0;
    IdTable<int> table;
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i < kNumbers; ++i) {
        const std::uint32_t id = table.add(object);
        EXPECT_TRUE(seen.insert(id).second) << i;
        EXPECT_EQ(table.find(id), &object);
        table.remove(id);
    }
    EXPECT_EQ(table.size(), 0U);
}

TEST(Wire, an_active_message_has_its_header_behind_the_announced_fields) {
    const Header header{1, kAckDelivery | kMoreParts, AmWord::encode(65535, 3)};
    const Bytes bytes = bytes_of(std::uint64_t{9}, std::uint64_t{6}, std::uint32_t{0x04030201});
    AmBody body;
    ASSERT_TRUE(decode(header, bytes, &body));
    EXPECT_EQ(body.word.id(), 65535U);
    EXPECT_EQ(body.eager.send_id, 9U);
    EXPECT_EQ(body.eager.length, 6U);
    EXPECT_EQ(body.header.size(), 3U);
    EXPECT_EQ(body.header.data(), bytes.data() + 16);
    for (std::size_t length = 0; length < 19; ++length)
        EXPECT_FALSE(decode(header, WireBytes(bytes).first(length), &body)) << length;
    EXPECT_FALSE(decode(header, bytes + 2, &body)) << "all of it is here";
}

TEST(Wire, an_active_message_is_for_a_handler_of_the_program_or_of_the_library) {
    AmBody body;
    for (const std::uint32_t id : {0U, 65535U, kFirstOwnAmId, kFirstOwnAmId + 1}) {
        ASSERT_TRUE(decode(Header{1, 0, AmWord::encode(id, 0)}, {}, &body));
        EXPECT_EQ(body.word.id(), id);
        EXPECT_EQ(body.word.is_of_program(), id <= TW_AM_ID_MAX);
        EXPECT_EQ(AmWord::of(id).id(), id);
    }
    EXPECT_FALSE(decode(Header{1, 0, AmWord::encode(2 * kFirstOwnAmId, 0)}, {}, &body));
}

TEST(Wire, a_request_of_an_active_message_has_one_length) {
    const Header header{1, 0, AmWord::encode(2, 5)};
    Bytes bytes(5, std::byte{7});
    for (const std::byte byte : bytes_of(Rts{100, 200, 3, 1, 0, {}}, KeyHead{0, 4}, 0x01020304))
        bytes.push_back(byte);
    AmRtsBody body;
    ASSERT_TRUE(decode(header, bytes, &body));
    EXPECT_EQ(body.header.size(), 5U);
    EXPECT_EQ(body.rndv.rts.length, 100U);
    EXPECT_EQ(body.rndv.keys.used, 6U);
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode(header, WireBytes(bytes).first(length), &body)) << length;
    EXPECT_FALSE(decode(header, bytes + 1, &body));
}

}  // namespace
}  // namespace tagwire::proto
