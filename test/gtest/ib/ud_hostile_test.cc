// SPDX-License-Identifier: BSD-3-Clause
// Peers of ud that send what they should not, and many that were invented.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "entity.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr int kHostileStepsMax = 2'000'000;

template <class Done>
bool steps_until(std::initializer_list<Entity*> all, Done&& done) {
    bool is_done = done();
    for (int i = 0; i < kHostileStepsMax && !is_done; ++i, is_done = done())
        for (Entity* each : all)
            each->progress();
    return is_done;
}

/// The byte at `at` makes the sum of all zero.
void set_check(Bytes& address, std::size_t at) {
    address.at(at) = std::byte{0};
    const unsigned sum = std::accumulate(
        address.begin(), address.end(), 0U,
        [](unsigned total, std::byte each) { return total + std::to_integer<unsigned>(each); });
    address.at(at) = static_cast<std::byte>(256 - sum % 256);
}

Bytes with_mtu_of(Bytes interface, const Entity& other) {
    const Bytes theirs = other.iface_address();
    std::copy_n(theirs.begin() + 2, 2, interface.begin() + 2);  // the longest datagram
    set_check(interface, 1);
    return interface;
}

void expect_exchange(Entity& from, uct_ep_h ep, Entity& to) {
    const std::uint64_t before = to.am_count;
    EXPECT_TRUE(steps_until({&from, &to}, [&] {
        return uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0) != UCS_ERR_NO_RESOURCE;
    }));
    EXPECT_TRUE(steps_until({&from, &to}, [&] { return to.am_count == before + 1; }));
}

TEST(UdHostile, a_datagram_longer_than_those_agreed_is_dropped_and_nothing_else_happens) {
    const EntityOptions small{.md_config = {{"IB_MTU", "1024"}}};
    Entity victim(resource_of("ud"), small);
    Entity good(resource_of("ud"), small);
    Entity stranger(resource_of("ud"));
    const Connection there = connect(good, victim);
    const Connection back = connect(victim, good);
    expect_exchange(good, there.forward, victim);
    {
        const Endpoint ep = connect_to_address(stranger, stranger.device_address(),
                                               with_mtu_of(victim.iface_address(), stranger));
        const Bytes message(3000, std::byte{7});
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        EXPECT_TRUE(steps_until({&stranger, &victim}, [&] {
            if (status == UCS_ERR_NO_RESOURCE)
                status = send_am_bytes(ep, Entity::kAmId, message);
            return fact_of(ep, "packets_resent") > 3;
        }));
        EXPECT_EQ(1U, victim.am_count);
    }
    EXPECT_TRUE(victim.errors.empty());
    EXPECT_TRUE(good.errors.empty());
    expect_exchange(good, there.forward, victim);
    expect_exchange(victim, back.forward, good);
}

TEST(UdHostile, address_handles_of_peers_that_are_gone_are_recycled) {
    Entity self(resource_of("ud"));
    Entity good(resource_of("ud"));
    const Connection there = connect(self, good);
    for (unsigned i = 1; i <= 1000; ++i) {
        Bytes port = good.device_address();
        port.at(18) = static_cast<std::byte>(i >> 8);  // within the interface's part of the GID
        port.at(19) = static_cast<std::byte>(i);
        set_check(port, 23);
        const Endpoint ep = connect_to_address(self, port, good.iface_address());
        self.progress();
    }
    EXPECT_TRUE(steps_until({&self, &good}, [&] { return fact_of(self, "endpoints") == 1; }));
    EXPECT_LE(fact_of(self, "address_handles"), 200);
    expect_exchange(self, there.forward, good);
}

}  // namespace
}  // namespace tagwire::test
