// SPDX-License-Identifier: BSD-3-Clause
// The entries of a completion queue, against a list of what was pushed.
#include "../entry_queue.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace tagwire::fi_test {
namespace {

using fi::EntryQueue;

fi_cq_tagged_entry entry_of(std::uintptr_t number) {
    return {reinterpret_cast<void*>(number), 1, number + 2, nullptr, number + 3, number + 4};
}

bool push(EntryQueue& queue, std::uintptr_t number) {
    return queue.push(entry_of(number), [&] { return fi_addr_t{number + 5}; });
}

/// The numbers of up to `count` entries that are taken.
template <class Entry>
std::vector<std::uintptr_t> take(EntryQueue& queue, std::size_t count) {
    std::vector<Entry> entries(count + 1);
    std::vector<std::uintptr_t> numbers(queue.take(entries.data(), count, nullptr));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = reinterpret_cast<std::uintptr_t>(entries[i].op_context);
    EXPECT_EQ(entries[count].op_context, nullptr);
    return numbers;
}

template <class Entry>
void expect_order(std::size_t size, unsigned seed) {
    SCOPED_TRACE(testing::Message() << "size " << size << ", seed " << seed);
    EntryQueue queue(sizeof(Entry), size);
    std::deque<std::uintptr_t> model;
    std::mt19937 random(seed);
    std::uintptr_t number = 0;
    for (int step = 0; step < 2000; ++step) {
        for (auto pushes = random() % 40; pushes > 0; --pushes) {
            ASSERT_TRUE(push(queue, ++number));
            model.push_back(number);
        }
        for (const std::uintptr_t taken : take<Entry>(queue, random() % 45)) {
            ASSERT_FALSE(model.empty());
            ASSERT_EQ(taken, model.front());
            model.pop_front();
        }
        ASSERT_EQ(queue.waiting(), model.size());
        ASSERT_EQ(queue.is_empty(), model.empty());
        ASSERT_TRUE(!queue.has_fast_room() || queue.waiting() < size);
    }
}

TEST(EntryQueue, entries_leave_in_their_order_however_many_wait) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
        for (const std::size_t size : {1U, 3U, 64U, 200U}) {
            expect_order<fi_cq_entry>(size, seed);
            expect_order<fi_cq_msg_entry>(size, seed);
            expect_order<fi_cq_tagged_entry>(size, seed);
        }
    }
}

TEST(EntryQueue, what_comes_goes_into_a_lent_buffer_and_the_rest_waits) {
    EntryQueue queue(sizeof(fi_cq_tagged_entry), 8);
    fi_cq_tagged_entry lent[3] = {};
    queue.lend<fi_cq_tagged_entry>(lent, 2);
    ASSERT_TRUE(queue.has_fast_room());
    queue.push_fast(entry_of(1));
    for (std::uintptr_t number = 2; number <= 4; ++number)
        ASSERT_TRUE(push(queue, number));
    EXPECT_EQ(queue.take_back<fi_cq_tagged_entry>(lent), 2U);
    EXPECT_EQ(lent[0].tag, 5U);
    EXPECT_EQ(lent[1].tag, 6U);
    EXPECT_EQ(lent[2].op_context, nullptr);
    EXPECT_EQ(take<fi_cq_tagged_entry>(queue, 9), (std::vector<std::uintptr_t>{3, 4}));
}

TEST(EntryQueue, a_lent_buffer_that_is_not_filled_is_returned) {
    EntryQueue queue(sizeof(fi_cq_entry), 8);
    fi_cq_entry lent[4] = {};
    for (std::uintptr_t number = 1; number <= 3; ++number) {
        queue.lend<fi_cq_entry>(lent, 4);
        ASSERT_TRUE(push(queue, number));
        EXPECT_EQ(queue.take_back<fi_cq_entry>(lent), 1U);
        EXPECT_EQ(lent[0].op_context, reinterpret_cast<void*>(number));
        EXPECT_TRUE(queue.is_empty());
    }
    queue.lend<fi_cq_entry>(lent, 4);
    EXPECT_EQ(queue.take_back<fi_cq_entry>(lent), 0U);
    ASSERT_TRUE(push(queue, 9));
    EXPECT_EQ(take<fi_cq_entry>(queue, 4), (std::vector<std::uintptr_t>{9}));
}

TEST(EntryQueue, a_loan_that_ends_early_keeps_what_it_has) {
    EntryQueue queue(sizeof(fi_cq_entry), 8);
    fi_cq_entry lent[4] = {};
    queue.lend<fi_cq_entry>(lent, 4);
    ASSERT_TRUE(push(queue, 1));
    queue.end_loan();
    ASSERT_TRUE(push(queue, 2));
    EXPECT_EQ(queue.take_back<fi_cq_entry>(lent), 1U);
    EXPECT_EQ(lent[1].op_context, nullptr);
    EXPECT_EQ(take<fi_cq_entry>(queue, 4), (std::vector<std::uintptr_t>{2}));
}

TEST(EntryQueue, sources_go_with_their_entries) {
    EntryQueue queue(sizeof(fi_cq_tagged_entry), 4);
    ASSERT_TRUE(push(queue, 1));
    queue.keep_sources();
    for (std::uintptr_t number = 2; number <= 300; ++number)
        ASSERT_TRUE(push(queue, number));
    fi_cq_tagged_entry entries[7];
    fi_addr_t sources[7];
    std::uintptr_t seen = 0;
    std::uintptr_t pushed = 300;
    for (std::size_t taken = 0; (taken = queue.take(entries, 7, sources)) > 0;) {
        for (std::size_t i = 0; i < taken; ++i) {
            ++seen;
            EXPECT_EQ(sources[i], seen == 1 ? FI_ADDR_NOTAVAIL : seen + 5);
        }
        ASSERT_TRUE(seen > 200 || push(queue, ++pushed));
    }
    EXPECT_EQ(seen, pushed);
}

TEST(EntryQueue, a_reason_to_be_slow_ends_the_fast_way_until_it_is_gone) {
    EntryQueue queue(sizeof(fi_cq_tagged_entry), 2);
    EXPECT_TRUE(queue.is_fast());
    queue.set_slow(EntryQueue::kMarks, true);
    EXPECT_FALSE(queue.has_fast_room());
    queue.set_slow(EntryQueue::kMarks, false);
    EXPECT_TRUE(queue.has_fast_room());
    // As long as more wait than there is room for.
    for (std::uintptr_t number = 1; number <= 5; ++number)
        ASSERT_TRUE(push(queue, number));
    EXPECT_FALSE(queue.is_fast());
    take<fi_cq_tagged_entry>(queue, 5);
    EXPECT_TRUE(queue.has_fast_room());
    EXPECT_FALSE(EntryQueue(sizeof(fi_cq_data_entry), 2).is_fast());
}

}  // namespace
}  // namespace tagwire::fi_test
