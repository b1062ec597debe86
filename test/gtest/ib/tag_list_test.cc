// SPDX-License-Identifier: BSD-3-Clause
// The life of entries on a device's list: posting, cancelling, limits.
#include <cstring>

#include "ib/tag_receiver.hpp"

namespace tagwire::test {
namespace {

using Kind = ib::TagEvent::Kind;

TEST(TagList, a_message_goes_to_its_receive_with_all_that_its_header_says) {
    TagPair pair;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.sender.send_eager({.tag = 5, .app_ctx = 7, .imm = 9}, 100, 1);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(Kind::kArrived, receive.kind);
    EXPECT_EQ(UCS_OK, receive.status);
    EXPECT_EQ(1, receive.consumed);
    EXPECT_EQ(5U, receive.result.tag);
    EXPECT_EQ(7U, receive.result.app_ctx);
    EXPECT_TRUE(receive.result.has_imm);
    EXPECT_EQ(9U, receive.result.imm);
    EXPECT_EQ(pair.sender.far_qp().qp_num, receive.result.qp_num);
    EXPECT_TRUE(pair.receiver.has_data(receive, 0, 100, 1));
    EXPECT_EQ(0U, pair.receiver.list.size());
}

TEST(TagList, a_zero_immediate_is_told_from_none) {
    TagPair pair;
    TagReceive with, without;
    ASSERT_EQ(UCS_OK, pair.receiver.post(with, 1, 0));
    ASSERT_EQ(UCS_OK, pair.receiver.post(without, 2, 1));
    pair.sender.send_eager({.tag = 1, .imm = 0}, 8, 1);
    pair.sender.send_eager({.tag = 2}, 8, 1);
    ASSERT_TRUE(pair.until([&] { return with.ended + without.ended == 2; }));
    EXPECT_TRUE(with.result.has_imm);
    EXPECT_EQ(0U, with.result.imm);
    EXPECT_FALSE(without.result.has_imm);
}

TEST(TagList, an_eager_message_of_many_packets_is_consumed_first) {
    TagPair pair;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    int events = 0;
    pair.receiver.on_event = [&](const ib::TagEvent& event) {
        EXPECT_EQ(++events == 1 ? Kind::kConsumed : Kind::kArrived, event.kind);
        EXPECT_EQ(5U, event.entry->tag);
        EXPECT_EQ(3U, event.entry->app_ctx);
        EXPECT_EQ(events == 1, pair.receiver.list.waits_for(event.entry->qp_num));
    };
    pair.sender.send_eager({.tag = 5, .app_ctx = 3, .imm = 4}, 9000, 2);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(2, events);
    EXPECT_EQ(1, receive.consumed);
    EXPECT_EQ(4U, receive.result.imm);
    EXPECT_TRUE(pair.receiver.has_data(receive, 0, 9000, 2));
}

TEST(TagList, the_mask_hides_bits_of_the_receive_too) {
    TagPair pair;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 0xff05, 0, 64, 0xff));
    pair.sender.send_eager({.tag = 0x1205}, 8, 1);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(0x1205U, receive.result.tag);
}

// Around every power of two that a ring or a list might use; half cancelled, the rest matched.
TEST(TagList, every_receive_of_many_is_called_back_exactly_once) {
    for (const unsigned count : {1U, 2U, 63U, 64U, 127U, 128U, 1000U}) {
        SCOPED_TRACE(count);
        TagPair pair({.tags = count});
        std::vector<TagReceive> receives(count);
        for (int round = 0; round != 2; ++round) {
            for (unsigned i = 0; i != count; ++i) {
                receives[i] = {};
                ASSERT_EQ(UCS_OK, pair.receiver.post(receives[i], i, i, 64));
            }
            for (unsigned i = 0; i < count; i += 2)
                ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receives[i], false));
            for (unsigned i = 1; i < count; i += 2) {
                pair.sender.send_eager({.tag = i}, 8, i);
                pair.receiver.progress();
            }
            ASSERT_TRUE(pair.drain());
            for (unsigned i = 0; i != count; ++i) {
                ASSERT_EQ(1, receives[i].ended) << i;
                ASSERT_EQ(i % 2 == 0 ? Kind::kCanceled : Kind::kArrived, receives[i].kind) << i;
                ASSERT_EQ(i % 2 == 0 ? UCS_ERR_CANCELED : UCS_OK, receives[i].status) << i;
                ASSERT_EQ(i % 2, receives[i].consumed) << i;
            }
            EXPECT_EQ(0U, pair.receiver.list.size());
            EXPECT_TRUE(pair.receiver.unexpected.empty());
        }
    }
}

TEST(TagList, a_full_list_exceeds_the_limit_until_an_entry_ends) {
    TagPair pair({.tags = 4});
    for (int round = 0; round != 10; ++round) {
        std::vector<TagReceive> receives(5);
        for (unsigned i = 0; i != 4; ++i)
            ASSERT_EQ(UCS_OK, pair.receiver.post(receives[i], i, i, 64));
        EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, pair.receiver.post(receives[4], 4, 4, 64));
        EXPECT_EQ(4U, pair.receiver.list.size());
        for (unsigned i = 0; i != 4; ++i)
            ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receives[i], i % 2 == 0));
        ASSERT_TRUE(pair.until([&] { return pair.receiver.list.size() == 0; }));
    }
}

TEST(TagList, a_callback_may_post_again_on_a_list_of_one) {
    TagPair pair({.tags = 1});
    TagReceive receive;
    receive.on_end = [&](TagReceive& self) {
        if (self.ended < 100) {
            ASSERT_EQ(UCS_OK, pair.receiver.post(self, 5, 0));
        }
    };
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    for (unsigned i = 0; i != 100; ++i) {
        pair.sender.send_eager({.tag = 5}, 64, i);
        ASSERT_TRUE(pair.until([&] { return receive.ended == static_cast<int>(i) + 1; }));
        EXPECT_TRUE(pair.receiver.has_data(receive, 0, 64, i));
    }
}

TEST(TagList, a_buffer_is_in_the_list_once) {
    TagPair pair;
    TagReceive first, again, empty, empty_too;
    ASSERT_EQ(UCS_OK, pair.receiver.post(first, 1, 0));
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, pair.receiver.post(again, 2, 0, 1));
    EXPECT_EQ(UCS_OK, pair.receiver.post(empty, 3, 0, 0));
    EXPECT_EQ(UCS_OK, pair.receiver.post(empty_too, 3, 0, 0));
    pair.sender.send_eager({.tag = 1}, 8, 1);
    ASSERT_TRUE(pair.until([&] { return first.ended == 1; }));
    EXPECT_EQ(UCS_OK, pair.receiver.post(again, 2, 0));
    ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&again, false));
    EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, pair.receiver.post(first, 1, 0)) << "not cancelled yet";
    ASSERT_TRUE(pair.until([&] { return again.ended == 1; }));
    EXPECT_EQ(UCS_OK, pair.receiver.post(again, 2, 0));
}

TEST(TagList, buffers_are_found_whatever_their_addresses) {
    constexpr unsigned kCount = 127;
    for (const std::size_t stride : {1U, 64U, 4096U, 8192U}) {
        SCOPED_TRACE(stride);
        TagPair pair({.tags = kCount + 1});
        std::vector<TagReceive> receives(kCount);
        TagReceive again;
        const auto post = [&](TagReceive& receive, std::size_t n) {
            return pair.receiver.list.add(n, ~std::uint64_t{0},
                                          pair.receiver.buffer(0) + n * stride, 1,
                                          pair.receiver.memory.lkey(), &receive);
        };
        for (unsigned i = 0; i != kCount; ++i)
            ASSERT_EQ(UCS_OK, post(receives[i], i));
        for (unsigned i = 0; i != kCount; ++i) {
            const unsigned one = i * 37 % kCount;
            ASSERT_EQ(UCS_ERR_ALREADY_EXISTS, post(again, one));
            ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receives[one], false));
            ASSERT_TRUE(pair.until([&] { return receives[one].ended == 1; }));
            again = {};
            ASSERT_EQ(UCS_OK, post(again, one));
            ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&again, false));
            ASSERT_TRUE(pair.until([&] { return again.ended == 1; }));
        }
        EXPECT_EQ(0U, pair.receiver.list.size());
    }
}

TEST(TagList, operations_are_never_more_than_the_device_takes) {
    TagPair pair({.tags = 8, .ops = 3});
    std::vector<TagReceive> receives(3);
    ASSERT_EQ(UCS_OK, pair.receiver.post(receives[0], 0, 0));
    ASSERT_EQ(UCS_OK, pair.receiver.post(receives[1], 1, 1));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, pair.receiver.post(receives[2], 2, 2)) << "one is for SYNC";
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, pair.receiver.list.cancel(&receives[0], false));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, pair.receiver.list.cancel(&receives[0], true));
    pair.receiver.progress();
    EXPECT_EQ(3U, pair.receiver.list.ops_left());
    EXPECT_EQ(UCS_OK, pair.receiver.list.cancel(&receives[0], false));
    EXPECT_EQ(UCS_OK, pair.receiver.post(receives[2], 2, 2));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, pair.receiver.list.cancel(&receives[1], false));
    ASSERT_TRUE(pair.until([&] { return receives[0].ended == 1; }));
    EXPECT_EQ(0, receives[1].ended);
    EXPECT_EQ(2U, pair.receiver.list.size());
}

/// `count` messages, one after the other, that are expected.
void pass(TagPair& pair, unsigned count) {
    for (unsigned i = 0; i != count; ++i) {
        TagReceive receive;
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        pair.sender.send_eager({.tag = 5}, 8, i);
        ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
        ASSERT_TRUE(pair.receiver.has_data(receive, 0, 8, i));
    }
}

TEST(TagList, expected_messages_need_few_acknowledgements) {
    TagPair pair({.tags = 4, .ops = ib::TagList::ops_for(4)});
    unsigned acks = 0;
    pair.receiver.on_completion = [&](const ib::Completion& completion) {
        acks += completion.opcode == IBV_WC_TM_ADD ? 1U : 0U;
    };
    pass(pair, 1000);
    EXPECT_EQ(0U, pair.receiver.list.totals().syncs);
    EXPECT_LT(acks, 1000 / ib::TagList::kSignalEvery + 16);
    EXPECT_GE(acks, 1000 / ib::TagList::kSignalEvery);
}

// Whatever is not acknowledged yet, all receives can be posted and cancelled.
TEST(TagList, operations_do_not_run_out_where_there_are_enough) {
    for (const unsigned depth : {1U, 3U, 64U}) {
        SCOPED_TRACE(depth);
        TagPair pair({.tags = depth, .ops = ib::TagList::ops_for(depth)});
        std::vector<TagReceive> receives(depth);
        for (unsigned before = 0; before != 70; ++before) {
            pass(pair, before);
            for (unsigned i = 0; i != depth; ++i)
                ASSERT_EQ(UCS_OK, pair.receiver.post(receives[i], 100 + i, i, 64));
            for (unsigned i = 0; i != depth; ++i)
                ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receives[i], true)) << before;
            ASSERT_TRUE(pair.until([&] { return pair.receiver.list.size() == 0; }));
        }
    }
}

TEST(TagList, limits_that_cannot_work_are_refused) {
    TagPair pair;
    ib::TagList list;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, list.open(pair.receiver.queue.srq(), pair.receiver.cq, 0, 8));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, list.open(pair.receiver.queue.srq(), pair.receiver.cq, 8, 1));
}

// ---- Cancelling

TEST(TagList, what_is_not_in_the_list_cannot_be_cancelled) {
    TagPair pair;
    TagReceive never{}, done;
    std::memset(never.priv, 0xff, sizeof never.priv);
    EXPECT_EQ(UCS_ERR_NO_ELEM, pair.receiver.list.cancel(&never, false));
    std::memset(never.priv, 0, sizeof never.priv);
    EXPECT_EQ(UCS_ERR_NO_ELEM, pair.receiver.list.cancel(&never, true));
    ASSERT_EQ(UCS_OK, pair.receiver.post(done, 5, 0));
    pair.sender.send_eager({.tag = 5}, 8, 1);
    ASSERT_TRUE(pair.until([&] { return done.ended == 1; }));
    EXPECT_EQ(UCS_ERR_NO_ELEM, pair.receiver.list.cancel(&done, false));
    TagReceive next;
    ASSERT_EQ(UCS_OK, pair.receiver.post(next, 5, 0));
    EXPECT_EQ(UCS_ERR_NO_ELEM, pair.receiver.list.cancel(&done, true)) << "the place of another";
}

TEST(TagList, one_cancelled_twice_is_told_once) {
    TagPair pair;
    TagReceive receive, silent;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    ASSERT_EQ(UCS_OK, pair.receiver.post(silent, 6, 1));
    for (int i = 0; i != 3; ++i)
        ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receive, false));
    ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&silent, false));
    ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&silent, true));
    EXPECT_EQ(2U, pair.receiver.list.totals().deletes);
    EXPECT_EQ(UCS_ERR_NO_ELEM, pair.receiver.list.cancel(&silent, true));
    ASSERT_TRUE(pair.until([&] { return pair.receiver.list.size() == 0; }));
    EXPECT_EQ(1, receive.ended);
    EXPECT_EQ(Kind::kCanceled, receive.kind);
    EXPECT_EQ(0, silent.ended);
}

TEST(TagList, one_cancelled_by_force_may_be_posted_again_at_once) {
    TagPair pair;
    TagReceive receive;
    for (int i = 0; i != 10; ++i) {
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receive, true));
    }
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.sender.send_eager({.tag = 5}, 8, 1);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(Kind::kArrived, receive.kind);
    EXPECT_EQ(0U, pair.receiver.list.size());
}

TEST(TagList, one_whose_buffer_is_being_written_is_busy_when_cancelled_by_force) {
    TagPair pair;
    TagReceive receive, next;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.sender.send_eager({.tag = 5}, 9000, 1);
    ASSERT_TRUE(pair.until([&] { return receive.consumed == 1; }));
    ASSERT_EQ(0, receive.ended);
    const ucs_status_t answer = pair.receiver.list.cancel(&receive, true);
    const bool is_busy = answer == UCS_ERR_BUSY;  // else all of it had been polled already
    EXPECT_TRUE(is_busy || answer == UCS_OK);
    if (is_busy) {
        EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, pair.receiver.post(next, 6, 0));
    }
    ASSERT_TRUE(pair.until([&] { return pair.receiver.list.size() == 0; }));
    EXPECT_EQ(is_busy ? 1 : 0, receive.ended);
    EXPECT_EQ(UCS_OK, pair.receiver.post(next, 6, 0));
}

struct Race {
    const char* name;
    std::size_t bytes;
    bool is_rendezvous;
};

/// The cancel comes after `steps` completions. Returns false when there were not so many.
bool race(const Race& race, bool forced, int steps) {
    TagPair pair;
    Memory source(*pair.md, race.bytes);
    source.fill(0, race.bytes, 7);
    TagReceive receive;
    EXPECT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    if (race.is_rendezvous)
        pair.sender.send_rendezvous({.tag = 5}, source, race.bytes, source.rkey());
    else
        pair.sender.send_eager({.tag = 5}, race.bytes, 7);
    int done = 0;
    for (int i = 0; i != 1000 && done != steps; ++i) {
        pair.sender.progress();
        done += pair.receiver.step() ? 1 : 0;
    }
    const bool had_ended = receive.ended != 0;
    const ucs_status_t answer = pair.receiver.list.cancel(&receive, forced);
    // Only while the data of one that was consumed is on its way.
    const bool is_busy = answer == UCS_ERR_BUSY && forced && receive.consumed == 1;
    EXPECT_EQ(had_ended ? UCS_ERR_NO_ELEM : is_busy ? UCS_ERR_BUSY : UCS_OK, answer);
    EXPECT_TRUE(pair.drain());
    EXPECT_EQ(0U, pair.receiver.list.size());
    EXPECT_EQ(forced && !had_ended && !is_busy ? 0 : 1, receive.ended);
    const bool arrived = receive.kind == Kind::kArrived;
    if (arrived) {
        EXPECT_TRUE(pair.receiver.has_data(receive, 0, race.bytes, 7));
        EXPECT_EQ(1, receive.consumed);
    }
    EXPECT_LE(pair.receiver.unexpected.size(), arrived ? 0U : 1U);
    // The list works on.
    TagReceive next;
    EXPECT_EQ(UCS_OK, pair.receiver.post(next, 6, 1));
    pair.sender.send_eager({.tag = 6}, 10, 3);
    EXPECT_TRUE(pair.until([&] { return next.ended == 1; }));
    EXPECT_TRUE(pair.receiver.has_data(next, 1, 10, 3));
    return done == steps && !had_ended;
}

TEST(TagList, cancel_against_arrival_at_every_completion) {
    for (const Race& kind : {Race{"eager", 100, false}, Race{"eager of many packets", 9000, false},
                             Race{"rendezvous", 12000, true}}) {
        for (const bool forced : {false, true}) {
            for (int steps = 0; steps != 10; ++steps) {
                SCOPED_TRACE(std::string(kind.name) + (forced ? ", forced" : "") + ", after " +
                             std::to_string(steps));
                if (!race(kind, forced, steps) || testing::Test::HasFailure())
                    break;
            }
        }
    }
}

// All of these completions are polled at once, so to the device the receives of both messages are
// gone, and it gives their handles to the next ones while the first is delivered.
TEST(TagList, a_cancel_of_what_has_come_spares_what_was_posted_since) {
    for (const bool forced : {false, true}) {
        TagPair pair({.tags = 4});
        TagReceive first, second, third, fourth;
        ASSERT_EQ(UCS_OK, pair.receiver.post(first, 1, 0));
        ASSERT_EQ(UCS_OK, pair.receiver.post(second, 2, 1));
        first.on_end = [&](TagReceive&) {
            EXPECT_EQ(UCS_OK, pair.receiver.post(third, 3, 2));
            EXPECT_EQ(UCS_OK, pair.receiver.post(fourth, 4, 3));
            EXPECT_EQ(UCS_OK, pair.receiver.list.cancel(&second, forced));
        };
        pair.sender.send_eager({.tag = 1}, 8, 1);
        pair.sender.send_eager({.tag = 2}, 8, 2);
        ASSERT_TRUE(pair.arrive());
        ASSERT_TRUE(pair.drain());
        EXPECT_EQ(1, first.ended);
        EXPECT_EQ(forced ? 0 : 1, second.ended);
        EXPECT_EQ(forced ? Kind::kNone : Kind::kArrived, second.kind);
        EXPECT_EQ(2U, pair.receiver.list.size());
        pair.sender.send_eager({.tag = 3}, 8, 3);
        pair.sender.send_eager({.tag = 4}, 8, 4);
        ASSERT_TRUE(pair.until([&] { return third.ended + fourth.ended == 2; }));
        EXPECT_EQ(0U, pair.receiver.list.size());
    }
}

// The message has matched, but nobody has looked.
TEST(TagList, a_cancel_after_the_match_loses) {
    for (const bool forced : {false, true}) {
        TagPair pair;
        TagReceive receive;
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        pair.sender.send_eager({.tag = 5}, 100, 1);
        ASSERT_TRUE(pair.arrive());
        ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&receive, forced));
        ASSERT_TRUE(pair.until([&] { return pair.receiver.list.size() == 0; }));
        EXPECT_EQ(forced ? 0 : 1, receive.ended);
        EXPECT_EQ(forced ? Kind::kNone : Kind::kArrived, receive.kind);
        EXPECT_TRUE(pair.receiver.unexpected.empty());
        EXPECT_EQ(0U, pair.receiver.list.totals().strays);
    }
}

}  // namespace
}  // namespace tagwire::test
