// SPDX-License-Identifier: BSD-3-Clause
// Keys of registrations: each is found until it is removed, by whichever thread, and threads do not
// share lines of generations.
#include "uct/sm/key_table.hpp"

#include <gtest/gtest.h>
#include <uct/api/uct.h>

#include <set>
#include <thread>
#include <vector>

namespace tagwire::sm {
namespace {

constexpr unsigned kAccess = UCT_MD_MEM_ACCESS_REMOTE_GET;

class KeyTableTest : public ::testing::Test {
  protected:
    KeyTableTest() : generations_(kKeyIndexMax), table_(generations_.data()) {}

    MemHandle handle() {
        MemHandle made;
        made.address = &bytes_[0];
        made.length = sizeof bytes_;
        made.flags = kAccess;
        return made;
    }
    std::byte* find(const MemHandle& handle) {
        return table_.resolve(handle.key, reinterpret_cast<std::uintptr_t>(&bytes_[1]), 2, kAccess);
    }

    std::byte bytes_[4] = {};
    std::vector<Generation> generations_;
    KeyTable table_;
};

TEST_F(KeyTableTest, a_key_is_good_until_it_is_removed_and_never_again) {
    std::set<std::uint32_t> keys;
    for (int i = 0; i < 100; ++i) {
        MemHandle made = handle();
        ASSERT_TRUE(table_.add(made));
        EXPECT_TRUE(keys.insert(made.key).second);
        EXPECT_EQ(generations_[key_index(made.key)], made.generation);
        EXPECT_EQ(find(made), &bytes_[1]);
        EXPECT_EQ(table_.resolve(made.key, reinterpret_cast<std::uintptr_t>(&bytes_[1]), 2,
                                 UCT_MD_MEM_ACCESS_REMOTE_PUT),
                  nullptr);
        EXPECT_EQ(
            table_.resolve(made.key, reinterpret_cast<std::uintptr_t>(&bytes_[3]), 2, kAccess),
            nullptr);
        table_.remove(made);
        EXPECT_EQ(find(made), nullptr);
        EXPECT_NE(generations_[key_index(made.key)], made.generation);
    }
}

// A forked child has the generations in common with its parent, and a copy of the rest.
TEST_F(KeyTableTest, a_key_that_is_forgotten_ends_for_nobody_else) {
    MemHandle made = handle();
    ASSERT_TRUE(table_.add(made));
    table_.forget(made);
    EXPECT_EQ(find(made), nullptr);
    EXPECT_EQ(generations_[key_index(made.key)], made.generation);
    MemHandle next = handle();
    ASSERT_TRUE(table_.add(next));
    EXPECT_EQ(find(next), &bytes_[1]);
}

TEST_F(KeyTableTest, one_thread_may_have_all_keys) {
    std::vector<MemHandle> handles(kKeyIndexMax, handle());
    std::vector<bool> seen(kKeyIndexMax);
    for (MemHandle& made : handles) {
        ASSERT_TRUE(table_.add(made));
        ASSERT_FALSE(seen[key_index(made.key)]);
        seen[key_index(made.key)] = true;
    }
    MemHandle more = handle();
    EXPECT_FALSE(table_.add(more));
    table_.remove(handles[kKeyIndexMax / 2]);
    EXPECT_TRUE(table_.add(more));
    EXPECT_EQ(key_index(more.key), key_index(handles[kKeyIndexMax / 2].key));
    EXPECT_NE(more.key, handles[kKeyIndexMax / 2].key);
    std::size_t count = 0;
    table_.for_each([&count](MemHandle&) { ++count; });
    EXPECT_EQ(count, kKeyIndexMax);
}

TEST_F(KeyTableTest, threads_take_keys_of_lines_of_their_own) {
    constexpr std::size_t kThreads = 4, kHandles = 100;
    std::vector<MemHandle> handles[kThreads];
    std::vector<std::thread> threads;
    for (std::vector<MemHandle>& own : handles) {
        threads.emplace_back([&own, this] {
            own.assign(kHandles, handle());
            for (MemHandle& made : own)
                EXPECT_TRUE(table_.add(made));
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::set<std::uint32_t> lines;
    for (const std::vector<MemHandle>& own : handles) {
        std::set<std::uint32_t> own_lines;
        for (const MemHandle& made : own) {
            EXPECT_EQ(find(made), &bytes_[1]);
            own_lines.insert(key_index(made.key) / 8);  // generations of 8 bytes
        }
        for (const std::uint32_t line : own_lines)
            EXPECT_TRUE(lines.insert(line).second);
    }
    // Any thread may remove them.
    for (const std::vector<MemHandle>& own : handles)
        for (const MemHandle& made : own)
            table_.remove(made);
    table_.for_each([](MemHandle&) { ADD_FAILURE() << "it was removed"; });
}

}  // namespace
}  // namespace tagwire::sm
