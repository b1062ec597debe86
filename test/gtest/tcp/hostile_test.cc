// SPDX-License-Identifier: BSD-3-Clause
// Foreign protocols, impostors, silence and garbage: the connection concerned ends alone.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "stranger.hpp"

namespace tagwire::test {
namespace {

using tcp::Kind;
using tcp::Verdict;

/// An interface with an honest peer, which goes on undisturbed.
class TcpHostile : public ::testing::Test {
  protected:
    TcpHostile() : TcpHostile(EntityOptions{}) {}
    explicit TcpHostile(const EntityOptions& options)
        : victim(loopback_of_tcp(), options), good(loopback_of_tcp(), options) {
        link = connect(good, victim);
        expect_exchange(good, link.forward, victim);
    }
    void TearDown() override {
        expect_exchange(good, link.forward, victim);
        EXPECT_TRUE(victim.errors.empty());
        EXPECT_TRUE(good.errors.empty());
    }

    /// The interface takes offence at the frame.
    template <class Body>
    void expect_violation(Kind kind, std::uint8_t value, const Body& body, std::size_t data = 0) {
        Stranger stranger(victim);
        ASSERT_EQ(Verdict::kWelcome, stranger.greet());
        const std::uint64_t before = counter_of(victim, "violations");
        stranger.send_frame(kind, value, body, Bytes(data));
        EXPECT_TRUE(stranger.is_ended());
        EXPECT_EQ(before + 1, counter_of(victim, "violations"));
    }

    Entity victim;
    Entity good;
    Connection link;
};

TEST_F(TcpHostile, a_request_of_another_protocol_is_refused_at_its_first_bytes) {
    Stranger stranger(victim);
    stranger.send("GET / HTTP/1.1\r\n");
    EXPECT_TRUE(stranger.is_ended());
    EXPECT_EQ(1U, counter_of(victim, "refused"));
}

TEST_F(TcpHostile, a_wrong_cookie_is_refused_and_told) {
    Stranger stranger(victim);
    tcp::Hello hello = stranger.hello();
    hello.wanted[15] ^= 1;
    EXPECT_EQ(Verdict::kCookie, stranger.greet(hello));
    EXPECT_TRUE(stranger.is_ended());
    EXPECT_EQ(1U, counter_of(victim, "refused"));
}

TEST_F(TcpHostile, versions_that_do_not_meet_are_refused_and_told) {
    Stranger newer(victim);
    tcp::Hello hello = newer.hello();
    hello.version_min = tcp::kVersionMax + 1;
    hello.version_max = tcp::kVersionMax + 2;
    EXPECT_EQ(Verdict::kVersion, newer.greet(hello));
    // One that speaks ours, too, is welcome.
    Stranger both(victim);
    hello = both.hello();
    hello.version_max = tcp::kVersionMax + 2;
    EXPECT_EQ(Verdict::kWelcome, both.greet(hello));
}

TEST_F(TcpHostile, nobody_takes_the_place_of_a_known_peer) {
    Stranger impostor(victim);
    tcp::Hello hello = impostor.hello();
    tcp::IfaceAddress known;
    std::memcpy(&known, good.iface_address().data(), sizeof known);
    hello.instance = tcp::instance_of(known);
    EXPECT_EQ(Verdict::kInstance, impostor.greet(hello));
    EXPECT_TRUE(impostor.is_ended());
}

TEST_F(TcpHostile, frames_of_impossible_kinds_and_lengths_end_their_connection_alone) {
    expect_violation(static_cast<Kind>(0), 0, tcp::NoBody{});
    expect_violation(static_cast<Kind>(tcp::kKindMax + 1), 0, tcp::NoBody{});
    expect_violation(Kind::kAm, UCT_AM_ID_MAX, tcp::NoBody{});
    expect_violation(Kind::kAm, 0, tcp::NoBody{}, tcp::kSegBytesMax + 1);
    expect_violation(Kind::kTagEager, 0, tcp::TagRequestBody{1});
    expect_violation(Kind::kPut, 0, tcp::PutBody{}, tcp::kFrameDataMax + 1);
    expect_violation(Kind::kDone, 0, tcp::DoneBody{}, 8);
    expect_violation(Kind::kPing, 0, tcp::NoBody{}, 8);
    expect_violation(Kind::kGetRequest, 0, tcp::GetRequestBody{});
}

TEST_F(TcpHostile, keys_that_are_not_good_move_no_byte) {
    Bytes memory(4096, std::byte{1});
    uct_mem_h memh = nullptr;
    ASSERT_EQ(UCS_OK, uct_md_mem_reg(victim.md(), memory.data(), memory.size(),
                                     UCT_MD_MEM_ACCESS_REMOTE_GET, &memh));
    tcp::PackedRkey packed;
    ASSERT_EQ(UCS_OK, uct_md_mkey_pack(victim.md(), memh, &packed));
    Stranger stranger(victim);
    ASSERT_EQ(Verdict::kWelcome, stranger.greet());
    const Bytes data(64, std::byte{2});
    tcp::Key guessed = packed.key();
    ++guessed.generation;
    // No right to put, a generation of nobody's, behind the end, and around the end of all.
    stranger.send_frame(Kind::kPut, 0, tcp::PutBody{1, packed.address, packed.key()}, data);
    stranger.send_frame(Kind::kPut, 0, tcp::PutBody{1, packed.address, guessed}, data);
    stranger.send_frame(Kind::kGetRequest, 0,
                        tcp::GetRequestBody{1, 0, packed.address + 4095, 2, packed.key()});
    stranger.send_frame(Kind::kGetRequest, 0,
                        tcp::GetRequestBody{1, 0, packed.address, UINT64_MAX, packed.key()});
    std::size_t refusals = 0;
    EXPECT_TRUE(steps_until({&victim}, [&] {
        struct {
            tcp::FrameHead head;
            tcp::DoneBody body;
        } done{};
        if (::recv(stranger.fd(), &done, sizeof done, MSG_DONTWAIT) == ssize_t{sizeof done}) {
            EXPECT_EQ(Kind::kDone, done.head.kind);
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, done.body.status);
            ++refusals;
        }
        return refusals == 4;
    }));
    EXPECT_EQ(Bytes(4096, std::byte{1}), memory);
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(victim.md(), memh));
}

TEST_F(TcpHostile, garbage_behind_a_greeting_crashes_nobody) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 200; ++round) {
        Stranger stranger(victim);
        ASSERT_EQ(Verdict::kWelcome, stranger.greet());
        Bytes bytes(8 + random() % 3000);
        for (std::byte& byte : bytes)
            byte = static_cast<std::byte>(random());
        // Heads that pass the first check reach deeper.
        const auto kind = static_cast<Kind>(1 + random() % tcp::kKindMax);
        const tcp::FrameHead head{static_cast<std::uint32_t>(random() % 200), kind,
                                  static_cast<std::uint8_t>(random() % 40), 0};
        std::memcpy(bytes.data(), &head, sizeof head);
        stranger.send(bytes.data(), bytes.size());
        for (int i = 0; i < 20; ++i)
            victim.progress();
    }
    victim.am.clear();
}

class TcpFewHalfOpen : public TcpHostile {
  protected:
    TcpFewHalfOpen()
        : TcpHostile({.iface_config = {{"TCP_HALF_OPEN", "4"}, {"TCP_HELLO_TIMEOUT", "20ms"}}}) {}
};

TEST_F(TcpFewHalfOpen, silent_connections_make_room_for_others) {
    std::vector<std::unique_ptr<Stranger>> silent;
    for (int i = 0; i < 12; ++i) {
        silent.push_back(std::make_unique<Stranger>(victim));
        for (int step = 0; step < 200; ++step)
            victim.progress();
        EXPECT_LE(fact_of(victim, "half_open"), 4);
    }
    Stranger honest(victim);
    EXPECT_EQ(Verdict::kWelcome, honest.greet());
    EXPECT_TRUE(silent.front()->is_ended());
}

TEST_F(TcpFewHalfOpen, one_that_greets_too_slowly_is_ended) {
    Stranger slow(victim);
    const tcp::Hello hello = slow.hello();
    const auto* bytes = reinterpret_cast<const char*>(&hello);
    slow.send({bytes, 30});
    EXPECT_TRUE(slow.is_ended());
    EXPECT_EQ(0, fact_of(victim, "half_open"));
}

}  // namespace
}  // namespace tagwire::test
