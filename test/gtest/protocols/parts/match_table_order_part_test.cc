// SPDX-License-Identifier: BSD-3-Clause
// The match table without memory.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/parts/match_table_part.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using MatchTableOrder = MatchTablePart;

using proto::Arrival;
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

}  // namespace
}  // namespace tagwire::test
