// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/registrations.hpp"

#include <gtest/gtest.h>
#include <uct/api/uct.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tagwire::tcp {
namespace {

class TcpRegistrations : public ::testing::Test {
  protected:
    TcpRegistrations() {
        registration.address = memory.data();
        registration.length = memory.size();
        registration.flags = UCT_MD_MEM_ACCESS_REMOTE_GET;
        EXPECT_TRUE(table.add(registration));
        start = reinterpret_cast<std::uintptr_t>(memory.data());
    }
    bool is_good(const Key& key, std::uint64_t address, std::uint64_t length,
                 unsigned access = UCT_MD_MEM_ACCESS_REMOTE_GET) {
        return table.pin(key, address, length, access).address() != nullptr;
    }

    std::vector<std::byte> memory = std::vector<std::byte>(1000);
    Registrations table;
    Registration registration;
    std::uint64_t start = 0;
};

TEST_F(TcpRegistrations, a_key_covers_its_range_and_its_rights) {
    const Key key = registration.key;
    EXPECT_TRUE(is_good(key, start, 1000));
    EXPECT_TRUE(is_good(key, start + 1000, 0));
    EXPECT_FALSE(is_good(key, start, 1001));
    EXPECT_FALSE(is_good(key, start - 1, 1));
    EXPECT_FALSE(is_good(key, start + 1, UINT64_MAX));
    EXPECT_FALSE(is_good(key, start, 1, UCT_MD_MEM_ACCESS_REMOTE_PUT));
    EXPECT_FALSE(is_good({key.index + 1, 0, key.generation}, start, 1));
    EXPECT_FALSE(is_good({key.index, 0, key.generation + 1}, start, 1));
    table.remove(registration);
}

TEST_F(TcpRegistrations, a_key_ends_with_its_registration_and_never_comes_back) {
    const Key old = registration.key;
    table.remove(registration);
    EXPECT_FALSE(is_good(old, start, 1));
    ASSERT_TRUE(table.add(registration));
    EXPECT_EQ(old.index, registration.key.index);
    EXPECT_FALSE(is_good(old, start, 1));
    EXPECT_TRUE(is_good(registration.key, start, 1));
    table.remove(registration);
}

TEST_F(TcpRegistrations, a_key_leads_to_no_other_one) {
    std::vector<Registration> others(64);
    for (Registration& each : others) {
        each = registration;
        ASSERT_TRUE(table.add(each));
    }
    for (std::size_t i = 1; i < others.size(); ++i) {
        const std::uint64_t before = others[i - 1].key.generation;
        // Neighbours of a counter would differ by few.
        EXPECT_GT(others[i].key.generation - before + (1U << 20), 1U << 21);
        EXPECT_FALSE(is_good({others[i].key.index, 0, before + 1}, start, 1));
    }
    for (const Registration& each : others)
        table.remove(each);
    table.remove(registration);
}

TEST_F(TcpRegistrations, the_end_waits_for_who_has_it_pinned) {
    Registrations::Pin pin = table.pin(registration.key, start, 1000, UCT_MD_MEM_ACCESS_REMOTE_GET);
    ASSERT_NE(nullptr, pin.address());
    std::atomic<bool> is_removed = false;
    std::thread remover([&] {
        table.remove(registration);
        is_removed.store(true);
    });
    while (is_good(registration.key, start, 1))
        std::this_thread::yield();
    EXPECT_FALSE(is_removed.load());
    pin.release();
    remover.join();
    EXPECT_TRUE(is_removed.load());
}

}  // namespace
}  // namespace tagwire::tcp
