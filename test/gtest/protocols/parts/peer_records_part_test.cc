// SPDX-License-Identifier: BSD-3-Clause
// Records of peers alone: hellos in every order, numbers that wrap around, and peers that are
// forgotten when nothing is left of them.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "common/seeds.hpp"
#include "protocols/connect/peer_records.hpp"

namespace tagwire::test {
namespace {

using proto::Hello;
using proto::PeerRecords;
using proto::UsedSources;

constexpr std::uint64_t kPeer = 7;

class PeerRecordsPart : public testing::Test {
  protected:
    static Hello hello(std::uint32_t id, std::uint32_t number) {
        Hello message{};
        message.id = id;
        message.number = number;
        return message;
    }
    bool admits(std::uint32_t id, std::uint32_t number, bool is_current = false) {
        return records_.admit(kPeer, hello(id, number), is_current);
    }

    std::set<std::uint32_t> in_use_;
    std::size_t messages_ = 0;
    unsigned looks_ = 0;
    PeerRecords records_{this, [](void* owner, UsedSources& used) {
                             auto& test = *static_cast<PeerRecordsPart*>(owner);
                             ++test.looks_;
                             used.sources.insert(test.in_use_.begin(), test.in_use_.end());
                             used.messages = test.messages_;
                         }};
};

// ---- Connections

TEST_F(PeerRecordsPart, each_connection_is_later_than_the_one_before) {
    EXPECT_TRUE(admits(1, 5));
    EXPECT_FALSE(admits(1, 4));
    EXPECT_FALSE(admits(2, 4));
    EXPECT_TRUE(admits(2, 6));
}

TEST_F(PeerRecordsPart, a_hello_that_is_repeated_counts_while_its_connection_is_there) {
    EXPECT_TRUE(admits(1, 5));
    EXPECT_TRUE(admits(1, 5, true));
    EXPECT_FALSE(admits(1, 5, false));
}

TEST_F(PeerRecordsPart, numbers_wrap_around) {
    EXPECT_TRUE(admits(1, 0x7fff'ffff));
    EXPECT_TRUE(admits(2, 0xffff'fffe));
    EXPECT_TRUE(admits(3, 2));
    EXPECT_FALSE(admits(2, 0xffff'fffe));
    EXPECT_TRUE(admits(4, 3));
}

TEST_F(PeerRecordsPart, an_id_that_is_retired_is_that_of_a_later_connection_alone) {
    EXPECT_TRUE(admits(1, 5));
    records_.retire(kPeer, 1);
    EXPECT_EQ(records_.retired_id_of(kPeer), 1U);
    EXPECT_FALSE(admits(1, 5, true));
    EXPECT_TRUE(admits(1, 6));  // the peer has used the id again
}

TEST_F(PeerRecordsPart, a_connection_that_is_over_before_its_hello_has_come_is_not_taken) {
    EXPECT_TRUE(admits(1, 5));
    records_.note_over(kPeer, 6);
    EXPECT_FALSE(admits(2, 6));
    EXPECT_TRUE(admits(3, 7));
    records_.note_over(kPeer, 6);  // that is past
    EXPECT_TRUE(admits(3, 7, true));
}

TEST_F(PeerRecordsPart, the_latest_connection_counts_in_whatever_order_hellos_come) {
    for_each_seed(200, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        PeerRecords records(nullptr, [](void*, UsedSources&) {});
        auto latest = static_cast<std::uint32_t>(random() % 0x7fff'ffff);
        std::uint32_t current = 0;
        records.note_over(kPeer, latest);
        for (int i = 0; i < 200; ++i) {
            const std::uint32_t number = latest + static_cast<std::uint32_t>(random() % 7) - 3;
            const std::uint32_t id = number | 1;
            const bool is_current = current != 0 && number == latest && id == current;
            const bool is_later = static_cast<std::int32_t>(number - latest) > 0;
            EXPECT_EQ(records.admit(kPeer, hello(id, number), is_current), is_later || is_current);
            if (is_later) {
                latest = number;
                current = id;
            }
        }
    });
}

// ---- Sources

TEST_F(PeerRecordsPart, peers_have_sources_of_their_own_and_keep_them) {
    std::map<std::uint64_t, std::uint32_t> known;
    std::set<std::uint32_t> sources;
    EXPECT_EQ(records_.known_source(1), 0U);
    for (std::uint64_t peer = 1; peer <= 50; ++peer)
        sources.insert(known[peer] = records_.source_of(peer));
    EXPECT_EQ(sources.size(), 50U);
    EXPECT_FALSE(sources.contains(0));
    for (const auto& [peer, source] : known)
        EXPECT_EQ(records_.known_source(peer), source);
    EXPECT_EQ(looks_, 0U);
}

TEST_F(PeerRecordsPart, one_is_forgotten_when_a_second_look_finds_it_unused) {
    EXPECT_TRUE(admits(1, 5));
    const std::uint32_t kept = records_.source_of(1000);
    in_use_ = {kept};
    std::uint64_t next = 2000;
    const auto look = [&] {
        for (const unsigned before = looks_; looks_ == before;)
            in_use_.insert(records_.source_of(next++));
    };
    look();
    EXPECT_NE(records_.known_source(kPeer), 0U);
    look();
    EXPECT_EQ(records_.known_source(kPeer), 0U);
    EXPECT_EQ(records_.known_source(1000), kept);
    EXPECT_TRUE(admits(9, 1));  // as of a peer that was never there
}

TEST_F(PeerRecordsPart, one_that_is_used_again_between_two_looks_stays) {
    const std::uint32_t source = records_.source_of(kPeer);
    std::uint64_t next = 2000;
    for (int i = 0; i < 4; ++i) {
        i % 2 == 0 ? void(in_use_.erase(source)) : void(in_use_.insert(source));
        for (const unsigned before = looks_; looks_ == before;)
            in_use_.insert(records_.source_of(next++));
        EXPECT_EQ(records_.known_source(kPeer), source);
    }
}

TEST_F(PeerRecordsPart, peers_that_come_and_go_never_share_a_source) {
    for_each_seed(20, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        in_use_.clear();
        std::map<std::uint64_t, std::uint32_t> here;
        std::uint64_t next = seed << 32;
        for (int i = 0; i < 5000; ++i) {
            if (here.size() < 40 && random() % 2 == 0) {
                const std::uint32_t source = records_.source_of(++next);
                EXPECT_TRUE(in_use_.insert(source).second) << source;
                here.emplace(next, source);
            } else if (!here.empty()) {
                const auto gone = here.begin();
                in_use_.erase(gone->second);
                here.erase(gone);
            }
            for (const auto& [peer, source] : here)
                EXPECT_EQ(records_.known_source(peer), source);
        }
    });
}

TEST_F(PeerRecordsPart, records_are_as_many_as_peers_in_use_however_many_have_gone) {
    constexpr std::size_t kHere = 40, kAtMost = 3 * kHere + 2 * 64;
    std::deque<std::uint32_t> here;
    for (std::uint64_t peer = 1; peer <= 20'000; ++peer) {
        here.push_back(records_.source_of(peer));
        in_use_.insert(here.back());
        if (here.size() > kHere) {
            in_use_.erase(here.front());
            here.pop_front();
        }
        ASSERT_LE(records_.size(), kAtMost);
    }
}

TEST_F(PeerRecordsPart, many_messages_that_are_kept_make_looks_rare) {
    messages_ = 16 * 1000;
    for (std::uint64_t peer = 1; peer <= 1000; ++peer)
        records_.source_of(peer);
    EXPECT_EQ(looks_, 1U);
}

}  // namespace
}  // namespace tagwire::test
