// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(TagCancel);

TEST_P(TagCancel, a_cancelled_receive_completes_once_as_cancelled) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Receive receive(receiver(), attr().cap.tag.recv.min_recv);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    ASSERT_EQ(UCS_OK, receive.cancel(false));
    ASSERT_TRUE(until([&] { return receive.completed > 0; }));
    EXPECT_EQ(UCS_ERR_CANCELED, receive.status);
    EXPECT_EQ(kTag, receive.sender_tag) << "the tag that it was posted with";
    EXPECT_EQ(receive.buffer.size(), receive.length) << "the length that it was posted with";

    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return receiver().eager.size() == 1; }));
    EXPECT_EQ(1, receive.completed);
}

TEST_P(TagCancel, a_receive_cancelled_by_force_is_never_called_back) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Receive receive(receiver(), attr().cap.tag.recv.min_recv);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    ASSERT_EQ(UCS_OK, receive.cancel(true));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 1; }));
    drain();
    EXPECT_EQ(0, receive.endings());
    EXPECT_EQ(0, receive.consumed);
}

// The second receive takes the memory that the first one's record had.
TEST_P(TagCancel, force_after_a_cancel_ends_a_receive_and_touches_no_other) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(2);
    if (device_matches())
        GTEST_SKIP() << "a forced cancel may wait for the device";
    Receive first(receiver(), attr().cap.tag.recv.min_recv);
    Receive second(receiver(), attr().cap.tag.recv.min_recv);
    ASSERT_EQ(UCS_OK, first.post(kTag));
    ASSERT_EQ(UCS_OK, first.cancel(false));
    ASSERT_EQ(UCS_OK, first.cancel(true));
    ASSERT_EQ(UCS_OK, second.post(kTag + 1));
    drain(100);
    EXPECT_EQ(0, first.endings());
    EXPECT_EQ(0, second.endings());
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag + 1, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return second.completed > 0; }));
    EXPECT_EQ(1, second.completed);
    EXPECT_EQ(UCS_OK, second.status);
}

TEST_P(TagCancel, a_cancelled_context_can_be_posted_again) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Receive receive(receiver(), attr().cap.tag.recv.min_recv);
    for (const bool force : {false, true, false, true}) {
        ASSERT_EQ(UCS_OK, post_again(receive, kTag));
        ASSERT_EQ(UCS_OK, receive.cancel(force));
        if (!force) {
            ASSERT_TRUE(until([&] { return receive.completed == 1; }));
        }
    }
    ASSERT_EQ(UCS_OK, post_again(receive, kTag));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_EQ(UCS_OK, receive.status);
}

// n around every power of two that a ring or a list might use; half cancelled, the other half
// matched.
TEST_P(TagCancel, every_receive_of_many_is_called_back_exactly_once) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    for (const std::size_t count : {1u, 2u, 63u, 64u, 127u, 128u, 1000u}) {
        if (count > attr().cap.tag.recv.max_outstanding)
            continue;
        for (const uct_tag_t mask : {~uct_tag_t{0}, uct_tag_t{0xffffffff}}) {
            SCOPED_TRACE(std::to_string(count) + " receives, mask " + std::to_string(mask));
            std::vector<std::unique_ptr<Receive>> receives;
            for (std::size_t i = 0; i < count; ++i) {
                receives.push_back(
                    std::make_unique<Receive>(receiver(), attr().cap.tag.recv.min_recv));
                ASSERT_EQ(UCS_OK, receives.back()->post(i, mask));
            }
            for (std::size_t i = 0; i < count; i += 2)
                ASSERT_EQ(UCS_OK, receives[i]->cancel(false));
            for (std::size_t i = 1; i < count; i += 2) {
                ASSERT_EQ(UCS_OK,
                          retry([&] { return uct_ep_tag_eager_short(ep(), i, nullptr, 0); }));
            }
            ASSERT_TRUE(until([&] {
                return std::all_of(receives.begin(), receives.end(),
                                   [](const auto& receive) { return receive->endings() > 0; });
            }));
            drain(100);
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_EQ(1, receives[i]->endings()) << i;
                ASSERT_EQ(i % 2 == 0 ? UCS_ERR_CANCELED : UCS_OK, receives[i]->status) << i;
            }
        }
    }
    EXPECT_TRUE(receiver().eager.empty());
}

TEST_P(TagCancel, cancelled_receives_give_their_place_back) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    const std::string knob = knobs_of(GetParam().resource).posted_receives_max;
    if (knob.empty())
        GTEST_SKIP() << "the depth of the list is not an option of this transport";
    EntityOptions options;
    options.iface_config = {{knob, "16"}};
    reopen(options);
    std::vector<std::unique_ptr<Receive>> receives;
    for (int round = 0; round < 10; ++round) {
        receives.clear();
        for (uct_tag_t i = 0; i < 16; ++i) {
            receives.push_back(std::make_unique<Receive>(receiver(), attr().cap.tag.recv.min_recv));
            ASSERT_EQ(UCS_OK, receives.back()->post(i, round % 2 == 0 ? ~uct_tag_t{0} : 0xff));
        }
        Receive extra(receiver(), attr().cap.tag.recv.min_recv);
        ASSERT_EQ(UCS_ERR_EXCEEDS_LIMIT, extra.post(99));
        for (std::size_t i = 0; i < 16; ++i)
            ASSERT_EQ(UCS_OK, receives[i]->cancel(i % 2 == 0));
        drain(100);
    }
}

TEST_P(TagCancel, a_callback_may_cancel_other_receives) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(3);
    Receive first(receiver(), attr().cap.tag.recv.min_recv);
    Receive second(receiver(), attr().cap.tag.recv.min_recv);
    Receive third(receiver(), attr().cap.tag.recv.min_recv);
    first.on_done = [&](Receive&) {
        EXPECT_EQ(UCS_OK, second.cancel(false));
        EXPECT_EQ(UCS_OK, third.cancel(true));
    };
    ASSERT_EQ(UCS_OK, first.post(1));
    ASSERT_EQ(UCS_OK, second.post(2));
    ASSERT_EQ(UCS_OK, third.post(3));
    for (uct_tag_t tag = 1; tag <= 3; ++tag)
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), tag, nullptr, 0); }));
    if (device_matches()) {
        // All three were matched when the first callback ran.
        ASSERT_TRUE(until([&] { return first.completed == 1 && second.completed == 1; }));
        drain();
        EXPECT_EQ(1, second.completed);
    } else {
        ASSERT_TRUE(until([&] {
            return first.completed == 1 && second.completed == 1 && receiver().eager.size() == 2;
        }));
        EXPECT_EQ(UCS_ERR_CANCELED, second.status);
    }
    EXPECT_EQ(0, third.endings());
}

TEST_P(TagCancel, a_cancelled_callback_may_post_again) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Receive receive(receiver(), attr().cap.tag.recv.min_recv);
    int rounds = 0;
    receive.on_done = [&](Receive& self) {
        if (++rounds == 1) {
            EXPECT_EQ(UCS_OK, self.post(kTag));
        }
    };
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    ASSERT_EQ(UCS_OK, receive.cancel(false));
    ASSERT_TRUE(until([&] { return rounds == 1; }));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return rounds == 2; }));
    EXPECT_EQ(UCS_OK, receive.status);
}

TEST_P(TagCancel, a_buffer_that_is_posted_is_refused_a_second_time) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(2);
    Receive receive(receiver(), std::max<std::size_t>(attr().cap.tag.recv.min_recv, 64));
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    Receive again(receiver(), 0);
    const uct_iov_t iov = receive.buffer.iov();
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, again.post_iov(kTag + 1, kExact, {&iov, 1}));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_EQ(UCS_OK, post_again(receive, kTag)) << "it is free with its message";
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, again.post_iov(kTag, kExact, {&iov, 1}));
    EXPECT_EQ(UCS_OK, receive.cancel(true));
    EXPECT_EQ(UCS_OK, post_again(receive, kTag)) << "it is free when the cancel by force answers";
    EXPECT_EQ(UCS_OK, receive.cancel(false));
    ASSERT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_EQ(UCS_OK, post_again(receive, kTag)) << "it is free when the end was told";
    EXPECT_EQ(UCS_OK, receive.cancel(true));
    drain();
    EXPECT_EQ(0, again.endings());
}

TEST_P(TagCancel, a_list_whose_first_bytes_are_posted_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(2);
    if (attr().cap.tag.recv.max_iov < 2)
        GTEST_SKIP() << "not offered: lists";
    Receive receive(receiver(), 64);
    Receive other(receiver(), 64);
    const uct_iov_t listed[] = {{nullptr, 0, nullptr, 0, 1},
                                {receive.buffer.data(), 32, receive.buffer.iov().memh, 0, 1},
                                {other.buffer.data(), 32, other.buffer.iov().memh, 0, 1}};
    ASSERT_EQ(UCS_OK, other.post_iov(kTag, kExact, listed));
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, receive.post(kTag));
    Receive again(receiver(), 0);
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, again.post_iov(kTag, kExact, listed));
    EXPECT_EQ(UCS_OK, other.cancel(true));
    EXPECT_EQ(UCS_OK, receive.post(kTag));
    EXPECT_EQ(UCS_OK, receive.cancel(true));
}

TEST_P(TagCancel, receives_of_no_bytes_may_share_an_address) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(4);
    if (attr().cap.tag.recv.min_recv > 0)
        GTEST_SKIP() << "not offered: receives of no bytes";
    Receive holder(receiver(), 64);
    ASSERT_EQ(UCS_OK, holder.post(kTag + 1));
    uct_iov_t nowhere{};
    nowhere.count = 1;
    uct_iov_t there = holder.buffer.iov();
    there.length = 0;
    Receive a(receiver(), 0), b(receiver(), 0), c(receiver(), 0);
    EXPECT_EQ(UCS_OK, a.post_iov(kTag, kExact, {&nowhere, 1}));
    EXPECT_EQ(UCS_OK, b.post_iov(kTag, kExact, {&nowhere, 1}));
    EXPECT_EQ(UCS_OK, c.post_iov(kTag, kExact, {&there, 1}));
    for (const Receive* receive : {&a, &b, &c}) {
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
        ASSERT_TRUE(until([&] { return receive->completed == 1; }));
        EXPECT_EQ(UCS_OK, receive->status);
    }
    EXPECT_EQ(UCS_OK, holder.cancel(true));
}

// After UCS_OK the buffer is the program's; UCS_ERR_BUSY says that it is not yet.
TEST_P(TagCancel, nothing_is_written_after_a_cancel_by_force) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const std::size_t bytes = std::min<std::size_t>(attr().cap.tag.rndv.max_zcopy, 4 << 20);
    const Buffer payload = make_payload(sender(), bytes, 1);
    const uct_iov_t iov = payload.iov();
    for (int steps = 0; steps < 60; ++steps) {
        SCOPED_TRACE("after " + std::to_string(steps));
        Receive receive(receiver(), bytes);
        ASSERT_EQ(UCS_OK, post_again(receive, kTag));
        Completion completion;
        ucs_status_ptr_t send = nullptr;
        ASSERT_EQ(UCS_OK, retry([&] {
                      send = uct_ep_tag_rndv_zcopy(ep(), kTag, nullptr, 0, &iov, 1, 0, &completion);
                      return UCS_PTR_IS_ERR(send) ? UCS_PTR_RAW_STATUS(send) : UCS_OK;
                  }));
        for (int i = 0; i < steps && receive.completed == 0; ++i)
            (i % 2 == 0 ? receiver() : sender()).progress();
        if (receive.completed > 0) {
            ASSERT_TRUE(until([&] { return completion.calls == 1; }));
            continue;
        }
        const ucs_status_t answer = receive.cancel(true);
        ASSERT_TRUE(answer == UCS_OK || answer == UCS_ERR_BUSY) << answer;
        if (answer == UCS_ERR_BUSY) {
            ASSERT_TRUE(until([&] { return receive.completed == 1; }));
        }
        std::ranges::fill(receive.buffer.span(), std::byte{0});
        drain();
        EXPECT_EQ(answer == UCS_OK ? 0 : 1, receive.completed);
        EXPECT_TRUE(std::ranges::all_of(receive.buffer.span(),
                                        [](std::byte byte) { return byte == std::byte{0}; }));
        receiver().rndv.clear();
        // Nobody has taken it: its completion, which goes now, would be told of the endpoint's end.
        if (completion.calls == 0) {
            EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send));
        }
    }
}

struct Race {
    const char* name;
    std::size_t bytes;
    bool by_zcopy;
};

// The cancel comes after k steps of progress. Whoever wins, there is one callback (none when forced
// and won by the cancel), and the message is delivered exactly once: to the receive or as
// unexpected.
TEST_P(TagCancel, cancel_against_arrival_at_every_step) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY | UCT_IFACE_FLAG_TAG_EAGER_ZCOPY);
    const auto& eager = attr().cap.tag.eager;
    const Race races[] = {{"short", 8, false},
                          {"bcopy", std::min<std::size_t>(eager.max_bcopy, 2000), false},
                          {"many fragments", std::min<std::size_t>(eager.max_zcopy, 400000), true}};
    for (const Race& race : races) {
        for (const bool force : {false, true}) {
            for (unsigned steps = 0; steps < 30; ++steps) {
                SCOPED_TRACE(std::string(race.name) + (force ? ", forced" : "") + ", after " +
                             std::to_string(steps));
                receiver().eager.clear();
                Receive receive(receiver(), std::max(race.bytes, attr().cap.tag.recv.min_recv));
                const Buffer payload = make_payload(sender(), race.bytes, steps);
                Completion completion;
                ASSERT_EQ(UCS_OK, receive.post(kTag));
                const ucs_status_t sent = retry([&] {
                    return send_eager(ep(), race.by_zcopy ? Method::kZcopy : Method::kBcopy, kTag,
                                      0, payload, &completion);
                });
                ASSERT_GE(sent, UCS_OK);
                for (unsigned i = 0; i < steps && receive.consumed == 0; ++i)
                    (i % 2 == 0 ? receiver() : sender()).progress();
                const bool was_consumed = receive.consumed > 0;
                // One that was matched but is not complete may still be cancelled.
                const bool is_cancelled = receive.completed == 0;
                const ucs_status_t answer = is_cancelled ? receive.cancel(force) : UCS_OK;
                ASSERT_TRUE(answer == UCS_OK || (answer == UCS_ERR_BUSY && force)) << answer;
                const bool is_silent = is_cancelled && force && answer == UCS_OK;
                const bool may_be_lost = is_silent && device_matches();
                ASSERT_TRUE(until([&] {
                    return (receive.completed > 0 || is_silent) &&
                           (sent == UCS_OK || completion.calls > 0) &&
                           (receive.status == UCS_OK || was_consumed || may_be_lost ||
                            !receiver().eager.empty());
                }));
                drain(50);
                ASSERT_EQ(sent == UCS_OK ? 0 : 1, completion.calls);
                ASSERT_EQ(is_silent ? 0 : 1, receive.completed);
                const bool received = receive.completed == 1 && receive.status == UCS_OK;
                if (received) {
                    ASSERT_TRUE(has_pattern(receive.received(), steps));
                } else if (!was_consumed) {
                    ASSERT_LE(may_be_lost ? 0u : 1u, receiver().eager.size());
                    ASSERT_GE(1u, receiver().eager.size());
                    for (const EagerMessage& message : receiver().eager)
                        ASSERT_TRUE(has_pattern(message.bytes, steps));
                }
                if (received) {
                    ASSERT_TRUE(receiver().eager.empty());
                }
            }
        }
    }
}

}  // namespace
}  // namespace tagwire::test
