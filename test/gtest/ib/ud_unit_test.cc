// SPDX-License-Identifier: BSD-3-Clause
// The parts of the ud protocol one by one: headers, addresses, the sending and the receiving end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "uct/ib/ud/ud_packet.hpp"
#include "uct/ib/ud/ud_receiver.hpp"
#include "uct/ib/ud/ud_sender.hpp"
#include "uct/ib/ud/ud_timers.hpp"

namespace tagwire::ud {
namespace {

using Step = Sender::Step;
using Verdict = Receiver::Verdict;

int token;  // what packets and messages point to
void release_nothing(void*) {}

std::span<const std::byte> bytes_of(const Header& header) {
    return std::as_bytes(std::span(&header, 1));
}

// ---- Headers and addresses

TEST(UdPacket, a_header_survives_packing) {
    Header header;
    header.value = 31;
    header.to_cookie = 0x01020304;
    header.psn = 0xfffffffe;
    header.flags = kWantsAck | kHasGap;
    const auto back = parse_header(bytes_of(pack(header)));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(0, std::memcmp(&header, &*back, sizeof header));
}

TEST(UdPacket, what_is_not_ours_is_refused) {
    const Header good = pack(Header{});
    EXPECT_TRUE(parse_header(bytes_of(good)).has_value());
    EXPECT_FALSE(parse_header(bytes_of(good).first(31)).has_value());
    for (const std::size_t at : {0U, 1U, 2U, 3U, 28U, 29U, 30U, 31U}) {
        Header bad = good;
        reinterpret_cast<std::byte*>(&bad)[at] = std::byte{0xff};
        EXPECT_FALSE(parse_header(bytes_of(bad)).has_value()) << "byte " << at;
    }
    for (const Kind kind : {Kind::kConnect, Kind::kProbe, Kind::kClose}) {
        EXPECT_FALSE(parse_header(bytes_of(pack(Header{.kind = kind}))).has_value())
            << "without a return address";
    }
}

TEST(UdPacket, an_address_is_checked) {
    InterfaceAddress address;
    address.datagram_bytes = 4096;
    address.qp_num = 77;
    address.cookie = 99;
    address.host = 0x0102030405060708;
    const InterfaceAddress packed = pack(address);
    const auto bytes = std::as_bytes(std::span(&packed, 1));
    std::string reason;
    const auto back = parse_interface(bytes, &reason);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(77U, +back->qp_num);  // values: the fields of a packed structure have no reference
    EXPECT_EQ(99U, +back->cookie);
    EXPECT_EQ(0x0102030405060708U, +back->host);
    for (std::size_t at = 0; at < sizeof packed; ++at) {
        InterfaceAddress bad = packed;
        reinterpret_cast<std::uint8_t*>(&bad)[at] ^= 0x40;
        EXPECT_FALSE(parse_interface(std::as_bytes(std::span(&bad, 1)), &reason).has_value());
        EXPECT_FALSE(reason.empty());
    }
    EXPECT_FALSE(parse_interface(bytes.first(5), &reason).has_value());
}

// ---- The sending end

Sender open_sender(std::uint32_t window, std::uint32_t first_psn = 0) {
    Sender sender({.window = window,
                   .first_psn = first_psn,
                   .peer_timeout_ns = 1'000'000'000,
                   .remote_timeout_ns = 3'000'000'000},
                  0);
    sender.did(sender.next(), 0);
    EXPECT_TRUE(sender.accepted(5, window, 0));
    return sender;
}

unsigned send_all(Sender& sender, std::uint64_t now) {
    unsigned count = 0;
    for (auto next = sender.next(); next.step == Step::kData; next = sender.next(), ++count)
        sender.did(next, now);
    return count;
}

void send_what_is_due(Sender& sender, std::uint64_t now) {
    while (sender.next().step != Step::kNothing && sender.next().step != Step::kDead)
        sender.did(sender.next(), now);
}

TEST(UdSender, connects_first_and_again_until_it_is_accepted) {
    Sender sender({.first_psn = 9}, 0);
    sender.push(&token);
    ASSERT_EQ(Step::kConnect, sender.next().step);
    sender.did(sender.next(), 0);
    EXPECT_EQ(Step::kNothing, sender.next().step);
    EXPECT_FALSE(sender.expire(sender.deadline()));
    EXPECT_EQ(Step::kConnect, sender.next().step);
    EXPECT_TRUE(sender.accepted(3, 16, 1));
    EXPECT_FALSE(sender.accepted(4, 16, 1)) << "twice";
    EXPECT_EQ(Step::kData, sender.next().step);
    EXPECT_EQ(9U, sender.next().psn);
    EXPECT_EQ(3U, sender.peer_id());
}

TEST(UdSender, refuses_acknowledgements_of_what_was_not_sent) {
    Sender sender = open_sender(8, 0xfffffffc);
    for (int i = 0; i < 6; ++i)
        sender.push(&token);
    EXPECT_FALSE(sender.acknowledged(0xfffffffd, false, 1, release_nothing)) << "not sent yet";
    EXPECT_EQ(6U, send_all(sender, 1));
    EXPECT_FALSE(sender.acknowledged(3, false, 1, release_nothing));
    EXPECT_FALSE(sender.acknowledged(0xfffffffb, false, 1, release_nothing));
    EXPECT_TRUE(sender.acknowledged(2, false, 1, release_nothing)) << "across the wrap";
    EXPECT_TRUE(sender.is_idle());
}

TEST(UdSender, a_full_window_asks_for_an_answer) {
    Sender sender = open_sender(4);
    while (sender.has_room())
        sender.push(&token);
    Sender::Next last{};
    for (auto next = sender.next(); next.step == Step::kData; next = sender.next()) {
        last = next;
        sender.did(next, 1);
    }
    EXPECT_EQ(3U, last.psn);
    EXPECT_TRUE(last.wants_ack);
}

TEST(UdSender, a_gap_is_repaired_once_at_once) {
    Sender sender = open_sender(16);
    for (int i = 0; i < 10; ++i)
        sender.push(&token);
    send_all(sender, 1);
    EXPECT_TRUE(sender.acknowledged(3, true, 2, release_nothing));
    ASSERT_EQ(Step::kData, sender.next().step);
    EXPECT_EQ(3U, sender.next().psn);
    sender.did(sender.next(), 2);
    EXPECT_TRUE(sender.acknowledged(3, true, 3, release_nothing));
    EXPECT_EQ(Step::kNothing, sender.next().step) << "the same gap again";
    EXPECT_TRUE(sender.acknowledged(7, true, 4, release_nothing));
    EXPECT_EQ(7U, sender.next().psn) << "the next gap";
    EXPECT_EQ(1U, sender.resent());
}

TEST(UdSender, times_out_in_doubling_steps_and_then_is_dead) {
    Sender sender = open_sender(4);
    sender.push(&token);
    send_all(sender, 0);
    std::uint64_t last = 0;
    std::uint64_t step = 0;
    for (int i = 0; i < 5; ++i) {
        const std::uint64_t at = sender.deadline();
        EXPECT_GE(at - last, 2 * step);
        step = at - last;
        last = at;
        EXPECT_FALSE(sender.expire(at));
        while (sender.next().step != Step::kNothing)
            sender.did(sender.next(), at);
    }
    for (int i = 0; i < 100 && !sender.is_dead(); ++i) {
        last = sender.deadline();
        if (sender.expire(last))
            sender.judged(Liveness::kUnknown, last);
        send_what_is_due(sender, last);
    }
    EXPECT_TRUE(sender.is_dead());
    EXPECT_EQ(3'000'000'000U, last);
}

TEST(UdSender, asks_about_a_silent_peer_and_believes_the_answer) {
    Sender sender = open_sender(4);
    sender.push(&token);
    send_all(sender, 0);
    std::uint64_t now = 0;
    const auto next_question = [&] {
        for (int i = 0; i < 100; ++i) {
            now = sender.deadline();
            if (sender.expire(now))
                return true;
            send_what_is_due(sender, now);
        }
        return false;
    };
    ASSERT_TRUE(next_question());
    EXPECT_EQ(1'000'000'000U, now);
    // Stopped for much longer than any bound.
    for (std::uint64_t seconds = 2; seconds < 100; ++seconds) {
        sender.judged(Liveness::kAlive, now);
        ASSERT_FALSE(sender.is_dead());
        send_what_is_due(sender, now);
        ASSERT_TRUE(next_question());
        EXPECT_EQ(seconds * 1'000'000'000, now);
    }
    EXPECT_GT(sender.resent(), 90U) << "is not asked any more";
    sender.judged(Liveness::kDead, now);
    EXPECT_TRUE(sender.is_dead());
    EXPECT_EQ(kNever, sender.deadline());
}

TEST(UdSender, asks_about_a_peer_that_does_not_accept) {
    Sender sender({.peer_timeout_ns = 50'000'000}, 0);
    std::uint64_t now = 0;
    bool was_asked = false;
    for (int i = 0; i < 10 && !was_asked; ++i) {
        send_what_is_due(sender, now);
        now = sender.deadline();
        was_asked = sender.expire(now);
    }
    ASSERT_TRUE(was_asked);
    EXPECT_EQ(50'000'000U, now);
    sender.judged(Liveness::kDead, now);
    EXPECT_TRUE(sender.is_dead());
}

// Whoever was stopped himself for longer than the timeout must not take the peer for dead.
TEST(UdSender, one_long_silence_alone_is_no_death) {
    Sender sender = open_sender(4);
    sender.push(&token);
    send_all(sender, 0);
    if (sender.expire(3'600'000'000'000))
        sender.judged(Liveness::kUnknown, 3'600'000'000'000);
    EXPECT_FALSE(sender.is_dead());
    EXPECT_NE(Step::kNothing, sender.next().step) << "asks";
}

TEST(UdSender, a_probe_is_answered_by_its_number) {
    Sender sender = open_sender(4);
    const std::uint32_t probe = sender.ask();
    ASSERT_EQ(Step::kProbe, sender.next().step);
    EXPECT_EQ(probe, sender.next().psn);
    sender.did(sender.next(), 1);
    sender.answered(probe + 1, 2);
    EXPECT_NE(probe, sender.last_answered()) << "was not asked";
    sender.answered(probe, 2);
    EXPECT_EQ(probe, sender.last_answered());
    EXPECT_EQ(kNever, sender.deadline());
}

// ---- Timers

struct Timed {
    std::uint64_t timer_ns = kNever;
    std::uint32_t timer_index = 0;
};

TEST(UdTimers, give_back_the_earliest_whatever_was_changed_or_removed) {
    std::mt19937_64 random(5);
    std::vector<Timed> items(200);
    TimerHeap<Timed> timers;
    timers.reserve(items.size());
    for (int round = 0; round < 20'000; ++round) {
        Timed& item = items[random() % items.size()];
        switch (random() % 4) {
            case 0:
                timers.remove(item);
                EXPECT_EQ(kNever, item.timer_ns);
                break;
            case 1:
                if (timers.size() > 0) {
                    const std::uint64_t earliest = timers.earliest();
                    for (const Timed& each : items)
                        ASSERT_LE(earliest, each.timer_ns);
                    timers.take();
                }
                break;
            default: {
                const std::uint64_t before = item.timer_ns;
                const std::uint64_t at = random() % 1000;
                timers.no_later_than(item, at);
                EXPECT_EQ(std::min(before, at), item.timer_ns);
            }
        }
        const auto queued = std::count_if(
            items.begin(), items.end(), [](const Timed& each) { return each.timer_ns != kNever; });
        ASSERT_EQ(static_cast<std::size_t>(queued), timers.size());
    }
}

/// A time that counts how often one of its kind is looked at.
struct CountedNs {
    std::uint64_t ns = kNever;
    static inline std::uint64_t looks = 0;

    CountedNs& operator=(std::uint64_t value) {
        ns = value;
        return *this;
    }
    operator std::uint64_t() const {  // NOLINT(google-explicit-constructor): as the number itself
        ++looks;
        return ns;
    }
};

struct CountedItem {
    CountedNs timer_ns;
    std::uint32_t timer_index = 0;
};

// Each deadline of one connection used to look at all of them.
TEST(UdTimers, look_at_few_of_many_connections_for_each_deadline) {
    constexpr std::uint64_t kItems = 10'000;
    constexpr std::uint64_t kLooksMax = 100;  // 14 levels, two below each, some looks per level
    std::mt19937_64 random(6);
    std::vector<CountedItem> items(kItems);
    TimerHeap<CountedItem> timers;
    timers.reserve(items.size());
    for (CountedItem& item : items)
        timers.no_later_than(item, random() % 1'000'000);
    std::uint64_t most = 0;
    std::uint64_t last = 0;
    while (timers.size() > 0) {
        CountedNs::looks = 0;
        const std::uint64_t earliest = timers.earliest();
        timers.take();
        most = std::max(most, CountedNs::looks);
        ASSERT_LE(last, earliest);
        last = earliest;
    }
    EXPECT_LE(most, kLooksMax);
}

// ---- The receiving end

TEST(UdReceiver, sorts_and_drops) {
    Receiver receiver(0xffffffff, 4);
    EXPECT_EQ(Verdict::kNext, receiver.judge(0xffffffff));
    EXPECT_EQ(Verdict::kEarly, receiver.judge(2));
    EXPECT_EQ(Verdict::kBeyond, receiver.judge(3));
    EXPECT_EQ(Verdict::kKnown, receiver.judge(0xfffffffe));
    int one = 1;
    int two = 2;
    receiver.hold(0, {&one, 10});
    receiver.hold(2, {&two, 20});
    EXPECT_EQ(Verdict::kKnown, receiver.judge(0));
    EXPECT_TRUE(receiver.has_gap());
    receiver.took_next();
    EXPECT_EQ(&one, receiver.take_held().message);
    EXPECT_EQ(nullptr, receiver.take_held().message) << "1 has not come";
    EXPECT_EQ(1U, receiver.next());
    receiver.took_next();
    const Receiver::Held held = receiver.take_held();
    EXPECT_EQ(&two, held.message);
    EXPECT_EQ(20U, held.bytes);
    EXPECT_FALSE(receiver.has_gap());
    EXPECT_EQ(4U, receiver.untold());
    EXPECT_EQ(Verdict::kKnown, receiver.judge(2));
}

TEST(UdReceiver, gives_back_what_it_holds) {
    Receiver receiver(0, 8);
    receiver.hold(3, {&token, 1});
    receiver.hold(5, {&token, 1});
    int dropped = 0;
    receiver.drop_all([&](void*) { ++dropped; });
    EXPECT_EQ(2, dropped);
    EXPECT_FALSE(receiver.has_gap());
}

}  // namespace
}  // namespace tagwire::ud
