// SPDX-License-Identifier: BSD-3-Clause
// Receives that a program posted: in a ring, and in the list of an SRQ.
#include "vhca/test/driver/program.hpp"

namespace tagwire::vhca::driver {

namespace {

std::uint16_t counter_of(const RecvWork& work) {
    return EntryName::unpack(work.wr_id).counter;
}

TEST(VhcaReceiveRing, gives_what_was_posted_in_its_order) {
    PostedReceives posted(4, 2);
    ReceiveRing ring(posted.memory.ring(), posted.record.address());
    RecvWork work;
    EXPECT_FALSE(ring.has_more());
    EXPECT_FALSE(ring.next(&work));
    for (std::uint32_t i = 0; i != 70000; i += 2) {
        const std::array<ibv_sge, 2> sges{ibv_sge{i, 8, 1}, ibv_sge{i + 100, 9, 2}};
        posted.post(std::span(sges).first(1));
        posted.post(sges);
        ASSERT_TRUE(ring.has_more());
        ASSERT_TRUE(ring.next(&work));
        ASSERT_EQ(counter_of(work), static_cast<std::uint16_t>(i));
        ASSERT_EQ(work.sges.size(), 1U);
        ASSERT_EQ(work.sges[0].addr, i);
        ASSERT_TRUE(ring.next(&work));
        ASSERT_EQ(counter_of(work), static_cast<std::uint16_t>(i + 1));
        ASSERT_EQ(work.sges.size(), 2U);
        ASSERT_EQ(work.sges[1].addr, i + 100);
        ASSERT_FALSE(ring.next(&work));
    }
}

TEST(VhcaReceiveRing, begins_anew_when_it_is_reset) {
    PostedReceives posted(4, 1);
    ReceiveRing ring(posted.memory.ring(), posted.record.address());
    const ibv_sge sge{1, 2, 3};
    posted.post({&sge, 1});
    RecvWork work;
    EXPECT_TRUE(ring.next(&work));
    ring.reset();
    posted.posted = 0;
    posted.record.set(0, 0);
    EXPECT_FALSE(ring.has_more());
    posted.post({&sge, 1});
    EXPECT_TRUE(ring.next(&work));
    EXPECT_EQ(counter_of(work), 0);
}

TEST(VhcaReceiveRing, a_counter_from_nowhere_ends) {
    PostedReceives posted(4, 1);
    ReceiveRing ring(posted.memory.ring(), posted.record.address());
    posted.record.set(0, 0xdead1234);  // the upper half is nothing
    RecvWork work;
    unsigned count = 0;
    while (ring.next(&work))
        ++count;
    EXPECT_EQ(count, 0x1234U);
}

TEST(VhcaReceiveList, follows_the_links_whatever_the_order_of_completions) {
    PostedList posted(8);
    ReceiveList list(posted.memory.ring(), posted.record.address());
    RecvWork work;
    EXPECT_FALSE(list.next(&work));
    std::vector<std::uint32_t> in_flight;
    std::uint64_t next = 0;
    for (unsigned round = 0; round != 70000; ++round) {
        while (in_flight.size() != 5) {
            const std::uint32_t index = posted.post({next, 64, 5});
            ASSERT_TRUE(list.next(&work));
            ASSERT_EQ(counter_of(work), index);
            ASSERT_EQ(work.sges.size(), 1U);
            ASSERT_EQ(work.sges[0].addr, next++);
            ASSERT_FALSE(list.next(&work));
            in_flight.push_back(index);
        }
        const auto done = in_flight.begin() + round * 7 % 5;
        posted.release(*done);
        in_flight.erase(done);
    }
}

TEST(VhcaReceiveList, a_link_to_nowhere_ends_it) {
    PostedList posted(8);
    ReceiveList list(posted.memory.ring(), posted.record.address());
    posted.link(0, 8);
    posted.record.set(0, 2);
    RecvWork work;
    EXPECT_TRUE(list.next(&work));
    EXPECT_FALSE(list.is_gone());
    EXPECT_FALSE(list.next(&work));
    EXPECT_TRUE(list.is_gone());
}

}  // namespace

}  // namespace tagwire::vhca::driver
