// SPDX-License-Identifier: BSD-3-Clause
// Differences on Ethernet ports (RoCE): there is no LID, every path has a GRH, and drivers make no
// tag-matching SRQ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entity.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

using testing::StartsWith;

TEST(OnEthernet, rc_matches_tags_by_software_and_says_why) {
    const Entity entity(resource_of("rc"));
    EXPECT_THAT(text_of(entity, "tag_matching"), StartsWith("software: the port is on Ethernet"));
    EXPECT_EQ(text_of(entity, "link_layer"), "ethernet");
}

TEST(OnEthernet, dc_opens_and_its_messages_arrive) {
    Entity one(resource_of("dc"));
    Entity other(resource_of("dc"));
    EXPECT_THAT(text_of(one, "tag_matching"), StartsWith("software: the port is on Ethernet"));
    const Connection connection = connect(one, other);
    const Bytes bytes(100, std::byte{5});
    ASSERT_EQ(send_am_bytes(connection.forward, Entity::kAmId, bytes), UCS_OK);
    for (int i = 0; i < 2'000'000 && other.am_count == 0; ++i) {
        one.progress();
        other.progress();
    }
    EXPECT_EQ(other.am_count, 1U);
}

}  // namespace
}  // namespace tagwire::test
