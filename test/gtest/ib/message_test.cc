// SPDX-License-Identifier: BSD-3-Clause
// The head of messages without a tag.
#include "uct/ib/message.hpp"

#include <gtest/gtest.h>

namespace tagwire::ib {
namespace {

TEST(MessagePrefix, has_its_fields_where_the_format_has_them) {
    const Prefix head = Prefix::of(MessageKind::kGrant, 7, 3, 0x01020304);
    EXPECT_EQ(head.opcode, IBV_TMH_NO_TAG);
    EXPECT_EQ(head.kind, MessageKind::kGrant);
    EXPECT_EQ(head.value, 7);
    EXPECT_EQ(head.padding, 3);
    EXPECT_EQ(be32toh(head.released), 0x01020304U);
}

TEST(MessagePrefix, of_an_active_message_with_any_id_and_count_is_plain) {
    for (std::uint8_t id = 0; id < UCT_AM_ID_MAX; ++id)
        for (const std::uint32_t released : {0U, 1U, UINT32_MAX})
            EXPECT_TRUE(Prefix::of(MessageKind::kAm, id, 0, released).is_plain_am());
}

TEST(MessagePrefix, with_padding_an_impossible_id_or_of_another_kind_is_not_plain) {
    EXPECT_FALSE(Prefix::of(MessageKind::kAm, 1, 8, 0).is_plain_am());
    EXPECT_FALSE(Prefix::of(MessageKind::kAm, UCT_AM_ID_MAX, 0, 0).is_plain_am());
    EXPECT_FALSE(Prefix::of(MessageKind::kAm, UINT8_MAX, 0, 0).is_plain_am());
    EXPECT_FALSE(Prefix::of(MessageKind::kCredit, 0, 0, 0).is_plain_am());
    EXPECT_FALSE(Prefix::of(MessageKind{}, 0, 0, 0).is_plain_am());
    Prefix tagged = Prefix::of(MessageKind::kAm, 1, 0, 0);
    tagged.opcode = IBV_TMH_EAGER;
    EXPECT_FALSE(tagged.is_plain_am());
}

}  // namespace
}  // namespace tagwire::ib
