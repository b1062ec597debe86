// SPDX-License-Identifier: BSD-3-Clause
// Two processes with an interface of sm each, connected before a test begins.
#pragma once

#include "harness.hpp"

namespace tagwire::test {

/// Two children that are connected both ways: `here` runs as the first, `there` as the second, each
/// given its entity, its endpoint to the other and its channel to the test.
struct Side {
    Entity& self;
    uct_ep_h peer;
    Channel& control;
};
using SideRole = std::function<void(Side)>;

inline Child::Role side(const EntityOptions& options, const SideRole& role) {
    return [options, role](Channel& control) {
        Entity self(resource_of("sm"), options);
        control.send(address_of(self));
        const auto address = control.receive();
        ASSERT_TRUE(address.has_value());
        const Endpoint peer = connect_to(self, *address);
        // Both know each other before anything happens.
        EXPECT_EQ(UCS_OK,
                  retry(self, [&] { return uct_ep_am_short(peer, Entity::kAmId, 0, nullptr, 0); }));
        EXPECT_TRUE(progress_until(self, [&] { return self.am.size() == 1; }));
        self.am.clear();
        self.am_count = 0;
        control.signal();
        ASSERT_TRUE(control.await_signal());
        role({self, peer, control});
    };
}

class Pair {
  public:
    Pair(const EntityOptions& options, const SideRole& here, const SideRole& there)
        : first(side(options, here)), second(side(options, there)) {
        const auto one = first.channel().receive();
        const auto two = second.channel().receive();
        if (!one || !two) {
            ADD_FAILURE() << "a side did not start";
            return;
        }
        first.channel().send(*two);
        second.channel().send(*one);
        EXPECT_TRUE(first.channel().await_signal());
        EXPECT_TRUE(second.channel().await_signal());
        first.channel().signal();
        second.channel().signal();
    }

    Child first;
    Child second;
};

}  // namespace tagwire::test
