// SPDX-License-Identifier: BSD-3-Clause
// Invalid active messages of a peer: they are dropped and counted, no handler sees them, and what
// is under way goes on.
#include <cstring>
#include <deque>

#include "protocols/impostor.hpp"
#include "protocols/wire/am_header.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;
using proto::AmWord;

class MsgAmImpostor : public MsgTest {
  protected:
    MsgAmImpostor() : impostor_(contact_of_transports()) {
        EXPECT_EQ(tw_am_register(victim().worker(), 1, &MsgAmImpostor::take, this), TW_OK);
    }

    Node& victim() { return node(0); }
    std::uint64_t garbage() { return victim().counter("garbage"); }
    /// As Impostor::eager(); `header_bytes` of `data` are the program's header.
    Bytes message(std::size_t header_bytes, const Bytes& data, std::uint32_t flags = 0) const {
        return impostor_.eager(flags, AmWord::encode(1, header_bytes), data);
    }
    Bytes request(std::uint32_t send_id, std::uint64_t length, std::size_t header_bytes = 0) const {
        Bytes bytes = message(header_bytes, Bytes(header_bytes));
        append(&bytes, proto::Rts{length, 4096, send_id, 0, 0, {}});
        return bytes;
    }
    void send(AmId am, const Bytes& bytes) { impostor_.send(victim(), am, bytes); }
    void expect_garbage(AmId am, const Bytes& bytes) {
        const std::uint64_t before = garbage();
        send(am, bytes);
        EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + 1; }));
        impostor_.run(victim());
        EXPECT_TRUE(seen_.empty());
        EXPECT_TRUE(victim().failures.empty());
        EXPECT_TRUE(keeps_nothing());
    }
    void expect_seen(std::size_t count) {
        EXPECT_TRUE(impostor_.run_until(victim(), [&] { return seen_.size() == count; }));
    }
    bool keeps_nothing() {
        return victim().description().find("unexpected: 0 messages in 0 bytes") !=
               std::string::npos;
    }
    /// The status of the receive of a message that was kept, into `buffer`.
    tw_status_t receive(tw_message_h message, Bytes* buffer, const std::function<void()>& before) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        EXPECT_EQ(tw_message_recv(victim().worker(), message, buffer->data(), buffer->size(), &how,
                                  nullptr),
                  TW_INPROGRESS);
        before();
        EXPECT_TRUE(impostor_.run_until(victim(), [&] { return !victim().done.empty(); }));
        const tw_status_t status = victim().done.front().status;
        victim().done.clear();
        return status;
    }
    /// The next such message that the victim has sent; earlier ones are skipped.
    template <class Body>
    Body heard() {
        proto::Control said{};
        EXPECT_TRUE(impostor_.run_until(victim(), [&] {
            for (const Bytes& bytes : impostor_.taken(AmId::kControl))
                if (proto::decode(bytes, &said) && said.operation() == Body::kOp)
                    return true;
            return false;
        })) << static_cast<int>(Body::kOp);
        return said.as<Body>();
    }

    struct Seen {
        Bytes header;
        Bytes data;
        std::size_t length;
        tw_message_h message;
        tw_status_t kept;
    };
    Impostor impostor_;
    std::deque<Seen> seen_;

  private:
    static void take(void* arg, tw_am_t* am) {
        const auto bytes_of = [](const void* from, std::size_t length) {
            const auto* bytes = static_cast<const std::byte*>(from);
            return from == nullptr ? Bytes{} : Bytes(bytes, bytes + length);
        };
        Seen seen{bytes_of(am->header, am->header_length), bytes_of(am->data, am->length),
                  am->length, nullptr, TW_OK};
        seen.kept = tw_am_keep(am, &seen.message);
        static_cast<MsgAmImpostor*>(arg)->seen_.push_back(std::move(seen));
    }
};

TEST_F(MsgAmImpostor, malformed_messages_are_dropped) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    const Bytes data = pattern(600, 1);
    expect_garbage(AmId::kAm, message(0, data, proto::kTagged));
    expect_garbage(AmId::kAm, message(0, data, proto::kImm));
    expect_garbage(AmId::kAm, message(0, data, proto::kAnnounced));
    expect_garbage(AmId::kAm, message(0, data, 64));
    expect_garbage(AmId::kAm, message(1, {}));
    expect_garbage(AmId::kAm, message(101, pattern(100, 1)));
    expect_garbage(AmId::kAm, message(TW_AM_HEADER_MAX + 1, data));
    expect_garbage(AmId::kAm, impostor_.eager(0, AmWord::encode(1, 0) | 2ULL << 32, data));
    expect_garbage(AmId::kAm, message(0, {}, proto::kAckMatch));
    Bytes acknowledged = message(0, {}, proto::kAckDelivery);
    append(&acknowledged, std::uint64_t{0});
    expect_garbage(AmId::kAm, acknowledged);
    for (std::size_t length = 0; length < sizeof(proto::Header); ++length) {
        Bytes cut = message(0, {});
        cut.resize(length);
        expect_garbage(AmId::kAm, cut);
    }
    for (const std::uint64_t total : {0U, 1U, 600U}) {
        Bytes parts = message(0, {}, proto::kMoreParts);
        append(&parts, total);
        parts.insert(parts.end(), data.begin(), data.end());
        expect_garbage(AmId::kAm, parts);
    }
    Bytes parts = message(200, {}, proto::kMoreParts);  // the header is not whole in the first part
    append(&parts, std::uint64_t{1000});
    parts.resize(parts.size() + 199);
    expect_garbage(AmId::kAm, parts);
    // One that is right gets through.
    send(AmId::kAm, message(100, data));
    expect_seen(1);
    EXPECT_EQ(seen_[0].header, pattern(100, 1));
    EXPECT_EQ(seen_[0].data, Bytes(data.begin() + 100, data.end()));
}

TEST_F(MsgAmImpostor, malformed_requests_are_dropped) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    const Bytes good = request(7, 100, 20);
    for (std::size_t length = 0; length < good.size(); ++length)
        expect_garbage(AmId::kAmRts, Bytes(good.begin(), good.begin() + std::ptrdiff_t(length)));
    Bytes longer = good;
    longer.push_back({});
    expect_garbage(AmId::kAmRts, longer);
    expect_garbage(AmId::kAmRts, request(0, 100));
    for (const std::uint32_t flag :
         {proto::kTagged, proto::kImm, proto::kAckMatch, proto::kMoreParts, proto::kAnnounced}) {
        Bytes flagged = good;
        std::memcpy(flagged.data() + offsetof(proto::Header, flags), &flag, sizeof flag);
        expect_garbage(AmId::kAmRts, flagged);
    }
    send(AmId::kAmRts, good);
    expect_seen(1);
    EXPECT_EQ(seen_[0].header, Bytes(20));
    EXPECT_EQ(seen_[0].length, 100U);
}

TEST_F(MsgAmImpostor, one_message_in_parts_comes_at_a_time) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    const Bytes data = pattern(3000, 4);
    const auto first = [&](std::size_t header_bytes) {
        Bytes bytes = message(header_bytes, {}, proto::kMoreParts);
        append(&bytes, std::uint64_t{data.size()});
        bytes.insert(bytes.end(), data.begin(), data.begin() + 1000);
        return bytes;
    };
    const auto part = [&](std::size_t from, std::size_t length) {
        Bytes bytes;
        append(&bytes, proto::Part{impostor_.name(), 0});
        bytes.insert(bytes.end(), data.begin() + std::ptrdiff_t(from),
                     data.begin() + std::ptrdiff_t(from + length));
        return bytes;
    };
    send(AmId::kAm, first(30));
    impostor_.run(victim());
    const std::uint64_t before = garbage();
    send(AmId::kAm, first(0));
    send(AmId::kPart, part(0, 2001));
    send(AmId::kPart, part(1000, 1000));
    send(AmId::kPart, part(2000, 1000));
    send(AmId::kPart, part(2000, 1));  // of nothing
    expect_seen(1);
    EXPECT_EQ(seen_[0].header, Bytes(data.begin(), data.begin() + 30));
    EXPECT_EQ(seen_[0].data, Bytes(data.begin() + 30, data.end()));
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + 3; }));
    EXPECT_EQ(tw_message_drop(victim().worker(), seen_[0].message), TW_OK);
    // One whose peer goes is given back.
    send(AmId::kAm, first(30));
    impostor_.run(victim());
    EXPECT_FALSE(keeps_nothing());
    impostor_.control(victim(), proto::Reset{0, 0, 1});
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return keeps_nothing(); }));
    EXPECT_EQ(seen_.size(), 1U);
}

TEST_F(MsgAmImpostor, a_peer_may_take_back_what_has_one_name_and_once) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    for (int i = 0; i < 3; ++i)
        send(AmId::kAmRts, request(7, 100));
    expect_seen(3);
    for (int i = 0; i < 3; ++i) {
        impostor_.control(victim(), proto::Cancel{7});
        EXPECT_EQ(heard<proto::Canceled>().send_id, 7U);
    }
    impostor_.control(victim(), proto::Cancel{7});
    impostor_.control(victim(), proto::Cancel{8});
    impostor_.run(victim());
    Bytes buffer(100);
    for (const Seen& seen : seen_)
        EXPECT_EQ(receive(seen.message, &buffer, [] {}), TW_ERR_CANCELED);
    EXPECT_TRUE(keeps_nothing());
}

TEST_F(MsgAmImpostor, a_length_without_data_behind_it_harms_nobody) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    Bytes buffer(64);
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1} << 60, UINT64_MAX}) {
        send(AmId::kAmRts, request(9, length));
        expect_seen(1);
        EXPECT_EQ(seen_[0].length, length);
        const tw_status_t status = receive(seen_[0].message, &buffer, [&] {
            if (length == 0)
                return;
            const auto cts = heard<proto::Cts>();
            EXPECT_EQ(cts.bytes, buffer.size());
            impostor_.control(victim(), proto::DataEnd{cts.receive_id, UCS_ERR_IO_ERROR});
        });
        EXPECT_EQ(status, length == 0 ? TW_OK : TW_ERR_IO_ERROR);
        seen_.clear();
    }
    EXPECT_TRUE(keeps_nothing());
}

TEST_F(MsgAmImpostor, messages_of_nobody_and_without_a_handler_are_dropped) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    for (const AmId am : {AmId::kAm, AmId::kAmRts}) {
        Bytes from_unknown = request(3, 10);
        const std::uint32_t name = impostor_.name() + 5;
        std::memcpy(from_unknown.data(), &name, sizeof name);
        expect_garbage(am, from_unknown);
    }
    Bytes unknown;
    append(&unknown, proto::Header{impostor_.name(), 0, AmWord::encode(2, 0)});
    append(&unknown, proto::Rts{100, 4096, 5, 0, 0, {}});
    send(AmId::kAmRts, unknown);
    const auto ats = heard<proto::Ats>();
    EXPECT_EQ(ats.send_id, 5U);
    EXPECT_EQ(ats.status, UCS_ERR_NO_ELEM);
    EXPECT_EQ(victim().counter("am_dropped"), 1U);
}

/// The memory for unexpected messages is small.
class MsgAmFlood : private Settings, public MsgAmImpostor {
  protected:
    MsgAmFlood()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "256k"}, {"TAGWIRE_RNDV_THRESHOLD", "64k"}}) {}
};

TEST_F(MsgAmFlood, a_program_may_keep_no_more_of_a_peer_that_sends_on_while_it_is_paused) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    const Bytes data = pattern(4000, 1);
    std::size_t sent = 0;
    EXPECT_TRUE(impostor_.run_until(victim(), [&] {
        for (int i = 0; i < 4; ++i)
            sent += impostor_.try_send(AmId::kAm, message(0, data)) ? 1 : 0;
        return !seen_.empty() && seen_.back().kept != TW_OK;
    }));
    EXPECT_EQ(seen_.back().kept, TW_ERR_EXCEEDS_LIMIT);
    EXPECT_GT(sent * data.size(), 4U << 20);
    EXPECT_TRUE(victim().failures.empty()) << "its messages may have been urgent";
    // All that was kept before is still there.
    for (const Seen& seen : seen_) {
        if (seen.kept != TW_OK)
            break;
        Bytes buffer(data.size());
        EXPECT_EQ(tw_message_recv(victim().worker(), seen.message, buffer.data(), buffer.size(),
                                  nullptr, nullptr),
                  TW_OK);
        EXPECT_EQ(buffer, data);
    }
    EXPECT_TRUE(keeps_nothing());
}

}  // namespace
}  // namespace tagwire::test
