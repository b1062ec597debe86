// SPDX-License-Identifier: BSD-3-Clause
// Tagged messages when there are too many, and when several kinds of them cross.
#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(TagFlood);

TEST_P(TagFlood, what_nobody_takes_is_refused_in_the_end_and_nothing_is_lost) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    constexpr std::uint64_t kMessagesMax = 1'000'000;
    ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), 0, 1, pattern(8, 0)); }));
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 1; }));
    std::uint64_t sent = 1;
    ucs_status_t status = UCS_OK;
    while (sent < kMessagesMax && status == UCS_OK) {
        status = send_eager_bytes(ep(), sent, 1, pattern(8 + sent % 50, sent));
        sent += status == UCS_OK ? 1 : 0;
    }
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, status) << "after " << sent << " messages";
    ASSERT_TRUE(until([&] { return receiver().eager.size() == sent; }));
    ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), sent, 1, pattern(8, 0)); }));
    ASSERT_TRUE(until([&] { return receiver().eager.size() == sent + 1; }));
    for (std::uint64_t i = 0; i < sent; ++i) {
        ASSERT_EQ(i, receiver().eager[i].tag);
        ASSERT_TRUE(has_pattern(receiver().eager[i].bytes, i)) << i;
    }
    EXPECT_TRUE(sender().errors.empty());
}

// The receiver of long eager messages is a sender of rendezvous to somebody else: what ends them
// comes between the parts of the messages.
TEST_P(TagFlood, rendezvous_may_end_between_the_parts_of_other_messages) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_ZCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    constexpr uct_tag_t kLong = 1, kRndv = 2;
    const std::size_t size = std::min<std::size_t>(attr().cap.tag.eager.max_zcopy, 60000);
    const std::size_t least = attr().cap.tag.recv.min_recv;
    Entity& other = add_entity();
    uct_ep_h to_other = connect_more(receiver(), other);
    for (unsigned steps = 0; steps < 60; ++steps) {
        SCOPED_TRACE(std::to_string(steps) + " steps of progress before the rest");
        receiver().eager.clear();
        const Buffer payload = make_payload(sender(), size, steps);
        const Buffer source = make_payload(receiver(), 10000, steps + 1);
        Receive target(other, std::max<std::size_t>(10000, least));
        Receive receive(receiver(), std::max(size, least));
        Completion sent, ended;
        ASSERT_EQ(UCS_OK, target.post(kRndv));
        if (steps % 2 == 0) {
            ASSERT_EQ(UCS_OK, receive.post(kLong));
        }
        const uct_iov_t iov = source.iov();
        ASSERT_EQ(UCS_OK, retry([&] {
                      const auto handle =
                          uct_ep_tag_rndv_zcopy(to_other, kRndv, nullptr, 0, &iov, 1, 0, &ended);
                      return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
                  }));
        for (unsigned i = 0; i < steps / 4; ++i)
            other.progress();
        const ucs_status_t status =
            retry([&] { return send_eager(ep(), Method::kZcopy, kLong, 0, payload, &sent); });
        ASSERT_GE(status, UCS_OK);
        for (unsigned i = 0; i < steps; ++i)
            (i % 3 == 0 ? other : i % 3 == 1 ? receiver() : sender()).progress();
        ASSERT_TRUE(until([&] {
            return target.completed == 1 && ended.calls == 1 &&
                   (status == UCS_OK || sent.calls == 1) &&
                   (steps % 2 == 0 ? receive.completed == 1 : receiver().eager.size() == 1);
        }));
        ASSERT_EQ(UCS_OK, target.status);
        ASSERT_TRUE(has_pattern(target.received(), steps + 1));
        ASSERT_EQ(UCS_OK, ended.ended);
        if (steps % 2 == 0) {
            ASSERT_EQ(size, first_mismatch(receive.received(), steps));
        } else {
            ASSERT_EQ(size, first_mismatch(receiver().eager[0].bytes, steps));
        }
    }
}

}  // namespace
}  // namespace tagwire::test
