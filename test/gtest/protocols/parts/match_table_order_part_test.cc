// SPDX-License-Identifier: BSD-3-Clause
// The match table without memory, and with everything in any order.
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/match_table_part.hpp"
#include "protocols/wire/control_message.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using MatchTableOrder = MatchTablePart;

using proto::Arrival;
using proto::Pause;
using proto::Resume;
using proto::Unexpected;

// ---- Memory

TEST_F(MatchTableOrder, a_message_for_which_there_is_no_memory_ends_its_connection) {
    ASSERT_TRUE(ucs::reserve_open());
    FakeMatchPeer& peer = add_peer();
    FakeMatchPeer& other = add_peer();
    keep(other, 1);
    const InUse before = in_use();
    {
        // The reserve has what is short, whatever the heap says.
        const Arrival arrival = eager(2, 10, 10);
        const FailingAllocation failing(1);
        table_.add(peer, arrival);
    }
    EXPECT_TRUE(receive(2));
    EXPECT_TRUE(peer.fake.failures.empty());
    Arrival arrival = eager(3, 0, std::size_t{64} << 20);
    arrival.is_admitted = true;
    {
        const FailingAllocation failing(1);
        table_.add(peer, arrival);
    }
    if (nomem::is_there()) {
        EXPECT_EQ(peer.fake.failures, std::vector{UCS_ERR_NO_MEMORY});
        EXPECT_FALSE(peer.incoming.is_under_way);
        EXPECT_EQ(in_use(), before);
    } else {
        EXPECT_TRUE(receive(3));
    }
    EXPECT_TRUE(receive(1));
}

TEST_F(MatchTableOrder, messages_are_found_and_taken_back_whatever_index_has_no_memory) {
    ASSERT_TRUE(ucs::reserve_open());
    constexpr std::uint64_t kMany = 200;
    FakeMatchPeer& peer = add_peer();
    bytes_.reserve(16);  // the test's own
    for (unsigned long which = 1; which < 60; ++which) {
        {
            const FailingAllocation failing(which);
            for (std::uint64_t tag = 0; tag < kMany; ++tag) {
                Arrival arrival = eager(tag, 8, 8);
                arrival.send_id = static_cast<std::uint32_t>(tag + 1);
                table_.add(peer, arrival);
            }
            for (std::uint64_t tag = 0; tag < kMany; tag += 2) {
                Unexpected* message = taken(tag);
                ASSERT_NE(message, nullptr);
                table_.claim(*message);
                table_.unclaim(*message);
                table_.release(*message);
            }
        }
        for (std::uint64_t tag = 1; tag < kMany; tag += 2)
            EXPECT_TRUE(table_.withdraw(peer, static_cast<std::uint32_t>(tag + 1))) << which;
        EXPECT_EQ(in_use(), InUse{});
        EXPECT_TRUE(peer.fake.failures.empty());
    }
}

// ---- Everything in any order

TEST_F(MatchTableOrder, a_peer_that_comes_back_has_all_of_its_quota) {
    FakeMatchPeer& peer = add_peer();
    for (std::uint64_t tag = 0; tag < 200; ++tag)
        keep(peer, tag);
    go(peer);
    peer.budget.begin_anew();
    peer.id = peers_.add(peer);
    EXPECT_EQ(peer.budget.held_bytes, 0U);
    peer.fake.sent.clear();
    keep(peer, 1000);
    EXPECT_TRUE(peer.fake.sent.empty());
}

TEST_F(MatchTableOrder, what_is_kept_is_counted_and_nobody_waits_for_nothing) {
    for_each_seed(30, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<FakeMatchPeer*> here;
        std::vector<Unexpected*> claimed;
        const auto drop_claimed = [&](std::size_t at) {
            table_.unclaim(*claimed[at]);
            table_.release(*claimed[at]);
            claimed.erase(claimed.begin() + static_cast<std::ptrdiff_t>(at));
        };
        const auto forget_gone = [&] {
            std::erase_if(here, [](const FakeMatchPeer* peer) {
                return peer->fake.state == proto::EpState::kFailed;
            });
        };
        for (int i = 0; i < 3000 && !HasFailure(); ++i) {
            forget_gone();
            if (here.empty() || (here.size() < 4 && random() % 200 == 0))
                here.push_back(&add_peer());
            FakeMatchPeer& peer = *here[random() % here.size()];
            const std::uint64_t tag = random() % 64;
            switch (random() % 16) {
                default: {
                    const std::size_t length =
                        random() % 4 == 0 ? random() % 40'000 : random() % 500;
                    Arrival arrival = eager(tag, length, length);
                    if (random() % 4 == 0)
                        arrival.send_id = static_cast<std::uint32_t>(1 + random() % 5000);
                    arrival.is_rndv = random() % 8 == 0;
                    // A peer that was told to pause does so.
                    const bool has_more = !peer.incoming.is_under_way && random() % 8 == 0;
                    if (has_more && !arrival.is_rndv)
                        arrival.length += 1 + random() % 20'000;
                    if (!peer.budget.told_to_pause)
                        table_.add(peer, arrival);
                    break;
                }
                case 0:
                case 1:
                case 2:
                case 3:
                    receive(tag);
                    break;
                case 4:
                    if (Unexpected* message = taken(tag); message != nullptr) {
                        table_.claim(*message);
                        claimed.push_back(message);
                    }
                    break;
                case 5:
                    if (!claimed.empty())
                        drop_claimed(random() % claimed.size());
                    break;
                case 6:
                    table_.withdraw(peer, static_cast<std::uint32_t>(random() % 5000));
                    break;
                case 7:
                    peer.incoming.end();
                    if (random() % 20 == 0)
                        peer.fake.port.end(UCS_ERR_CONNECTION_RESET);
                    break;
                case 8:
                    // It has left, and its program has come back: the same endpoint goes on.
                    if (random() % 20 == 0) {
                        go(peer);
                        peer.budget.begin_anew();
                        peer.fake.sent.clear();
                        peer.id = peers_.add(peer);
                    }
            }
            std::uint64_t of_peers = 0;
            for (const auto& each : all_) {
                std::uint64_t held = 0;
                for (const Unexpected* at = each->kept.front(); at != nullptr;
                     at = proto::UnexpectedList::next(*at))
                    held += at->held;
                EXPECT_EQ(each->budget.held_bytes, held) << "peer " << each->worker_id;
                of_peers += each->kept.size();
                const Sent& sent = each->fake.sent;
                const bool is_paused = sent.count<Pause>() > sent.count<Resume>();
                EXPECT_TRUE(!each->fake.failures.empty() ||
                            is_paused == each->budget.told_to_pause);
            }
            EXPECT_GE(in_use().messages, of_peers + in_use().orphans);
            EXPECT_EQ(in_use().claimed, claimed.size());
        }
        while (!claimed.empty())
            drop_claimed(0);
        for (std::uint64_t tag = 0; tag < 64; ++tag)
            while (receive(tag)) {
            }
        EXPECT_EQ(in_use(), InUse{});
        for (const FakeMatchPeer* peer : here) {
            if (peer->fake.failures.empty()) {
                EXPECT_FALSE(peer->budget.told_to_pause || peer->budget.told_to_pause_eager);
            }
        }
        for (FakeMatchPeer* peer : here)
            go(*peer);
        all_.clear();
    });
}

}  // namespace
}  // namespace tagwire::test
