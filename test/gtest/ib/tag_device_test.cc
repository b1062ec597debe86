// SPDX-License-Identifier: BSD-3-Clause
// The tag list against events of the wire and of the device: unexpected messages and phases,
// rendezvous, foreign messages, completions that nobody waits for, queue pairs that die.
#include <cstring>

#include "ib/tag_receiver.hpp"

namespace tagwire::test {
namespace {

using Kind = ib::TagEvent::Kind;

// ---- Unexpected messages

TEST(TagListPhase, a_receive_posted_past_a_message_on_its_way_takes_the_next_one) {
    for (const unsigned before : {1U, 2U, 40U}) {
        SCOPED_TRACE(before);
        TagPair pair;
        for (unsigned i = 0; i != before; ++i)
            pair.sender.send_eager({.tag = 5}, i % 2 == 0 ? 8 : 3000, i);
        ASSERT_TRUE(pair.arrive());
        TagReceive receive;
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        ASSERT_TRUE(pair.until([&] { return pair.receiver.unexpected.size() == before; }));
        ASSERT_TRUE(pair.drain());
        EXPECT_EQ(0, receive.ended);
        EXPECT_GE(pair.receiver.list.totals().syncs, 1U);
        pair.sender.send_eager({.tag = 5}, 8, 99);
        ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
        EXPECT_TRUE(pair.receiver.has_data(receive, 0, 8, 99));
        EXPECT_EQ(before, pair.receiver.unexpected.size());
    }
}

// The acknowledgement that tells of being out of step comes before the messages that are missing.
TEST(TagListPhase, a_message_of_many_packets_under_way_keeps_a_receive_waiting) {
    TagPair pair;
    TagReceive receive;
    int syncs = 0;
    pair.receiver.on_unexpected = [&](const Unexpected&) {
        if (syncs++ == 0) {
            EXPECT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        }
    };
    for (unsigned i = 0; i != 6; ++i)
        pair.sender.send_eager({.tag = 5}, 12000, i);
    ASSERT_TRUE(pair.drain());
    if (receive.ended == 0)
        pair.sender.send_eager({.tag = 5}, 12000, 6);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    ASSERT_TRUE(pair.drain());
    const auto all = pair.receiver.unexpected.size() + 1;
    EXPECT_TRUE(all == 6 || all == 7) << all;
}

// Whether or not the receives asked for an acknowledgement, which depends on what was before.
TEST(TagListPhase, receives_posted_past_messages_on_their_way_come_into_step) {
    for (unsigned before = 0; before != 45; ++before) {
        SCOPED_TRACE(before);
        TagPair pair({.tags = 4, .ops = ib::TagList::ops_for(4)});
        for (unsigned i = 0; i != before; ++i) {
            TagReceive receive;
            ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
            pair.sender.send_eager({.tag = 5}, 8, i);
            ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
        }
        TagReceive first, second;
        ASSERT_EQ(UCS_OK, pair.receiver.post(first, 7, 0));
        for (unsigned i = 0; i != 3; ++i)
            pair.sender.send_eager({.tag = 6}, 8, i);
        ASSERT_TRUE(pair.arrive());
        ASSERT_EQ(UCS_OK, pair.receiver.post(second, 8, 1));
        ASSERT_TRUE(pair.drain());
        ASSERT_EQ(3U, pair.receiver.unexpected.size());
        pair.sender.send_eager({.tag = 8}, 8, 9);
        pair.sender.send_eager({.tag = 7}, 8, 10);
        ASSERT_TRUE(pair.until([&] { return first.ended + second.ended == 2; }));
        EXPECT_TRUE(pair.receiver.has_data(second, 1, 8, 9));
    }
}

TEST(TagListPhase, no_sync_while_device_and_software_agree) {
    TagPair pair;
    TagReceive never;
    ASSERT_EQ(UCS_OK, pair.receiver.post(never, 999, 0));
    for (unsigned i = 0; i != 200; ++i) {
        pair.sender.send_eager({.tag = 5}, 8, i);
        ASSERT_TRUE(pair.until([&] { return pair.receiver.unexpected.size() == i + 1; }));
    }
    EXPECT_EQ(0U, pair.receiver.list.totals().syncs);
}

// The count has 16 bits, the device wants to hear of it at the latest each 2^14.
TEST(TagListPhase, matching_goes_on_after_the_count_has_wrapped) {
    TagPair pair({.tags = 4, .ops = 2, .depth = 256});
    pair.receiver.keeps_unexpected = false;
    std::uint64_t sent = 0;
    for (const std::uint64_t count : {16382U, 16384U, 16386U, 65535U, 65536U, 65540U, 140000U}) {
        SCOPED_TRACE(count);
        for (; sent != count; ++sent) {
            pair.sender.send_eager({.tag = 5}, 0, 0);
            if (sent % 32 == 0)
                pair.receiver.progress();
        }
        ASSERT_TRUE(pair.until([&] { return pair.receiver.unexpected_count == count; }));
        const std::uint64_t due = count / ib::TagList::kUnsyncedMax;
        EXPECT_GE(pair.receiver.list.totals().syncs + pair.receiver.list.totals().adds, due);
        EXPECT_LE(pair.receiver.list.totals().syncs, due + 1);
        TagReceive receive;
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        pair.sender.send_eager({.tag = 5}, 8, 1);
        ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
        ASSERT_TRUE(pair.drain());
    }
}

TEST(TagListPhase, a_sync_waits_for_an_operation_and_is_not_forgotten) {
    TagPair pair({.tags = 4, .ops = 2});
    ib::TagList& list = pair.receiver.list;
    const auto count = [&](unsigned messages, unsigned wc_flags) {
        for (unsigned i = 0; i != messages; ++i) {
            list.count_unexpected(wc_flags);
            list.sync_if_needed();
        }
    };
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    ASSERT_EQ(1U, list.ops_left());
    count(ib::TagList::kUnsyncedMax / 2 - 1, 0);
    EXPECT_EQ(0U, list.totals().syncs);
    count(1, IBV_WC_TM_SYNC_REQ);
    EXPECT_EQ(1U, list.totals().syncs) << "the device asks";
    EXPECT_EQ(0U, list.ops_left());
    count(ib::TagList::kUnsyncedMax, 0);
    EXPECT_EQ(1U, list.totals().syncs) << "no operation left";
    pair.receiver.progress();
    EXPECT_EQ(2U, list.totals().syncs);
    EXPECT_EQ(2U, list.ops_left());
    list.sync_if_needed();
    EXPECT_EQ(2U, list.totals().syncs);
}

// ---- Rendezvous

TEST(TagListRendezvous, the_device_gets_the_data_and_tells_the_sender) {
    TagPair pair;
    Memory source(*pair.md, 20000);
    source.fill(0, 20000, 3);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{16384}}) {
        TagReceive receive;
        const unsigned fins = pair.sender.fins();
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        pair.sender.send_rendezvous({.tag = 5, .app_ctx = 8}, source, bytes, source.rkey());
        ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
        EXPECT_EQ(Kind::kArrived, receive.kind);
        EXPECT_EQ(1, receive.consumed);
        EXPECT_EQ(8U, receive.result.app_ctx);
        EXPECT_TRUE(pair.receiver.has_data(receive, 0, bytes, 3));
        ASSERT_TRUE(pair.until([&] { return pair.sender.fins() == fins + 1; }));
    }
}

TEST(TagListRendezvous, one_that_does_not_fit_is_left_to_software) {
    TagPair pair;
    Memory source(*pair.md, 2000);
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0, 1000));
    pair.receiver.on_event = [&](const ib::TagEvent& event) {
        ASSERT_EQ(Kind::kIncomplete, event.kind);
        EXPECT_TRUE(event.was_consumed_now);
        EXPECT_EQ(pair.receiver.memory.lkey(), event.entry->lkey);
        EXPECT_EQ(1000U, event.entry->capacity);
        // Its user goes on with it, and it can be cancelled meanwhile.
        EXPECT_EQ(UCS_OK, pair.receiver.list.cancel(event.entry->ctx, false));
        TagReceive other;
        EXPECT_EQ(UCS_ERR_ALREADY_EXISTS, pair.receiver.post(other, 6, 0));
    };
    pair.sender.send_rendezvous({.tag = 5, .app_ctx = 6}, source, 2000, source.rkey());
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(32U, receive.result.byte_len);
    EXPECT_EQ(6U, receive.result.app_ctx);
    EXPECT_EQ(5U, receive.result.tag);
    EXPECT_EQ(pair.sender.far_qp().qp_num, receive.result.qp_num);
    ibv_tmh tmh;
    std::memcpy(&tmh, pair.receiver.buffer(0), sizeof tmh);
    EXPECT_EQ(IBV_TMH_RNDV, tmh.opcode);
    ibv_rvh rvh;
    std::memcpy(&rvh, pair.receiver.buffer(0) + sizeof tmh, sizeof rvh);
    EXPECT_EQ(2000U, be32toh(rvh.len));
    EXPECT_EQ(source.rkey(), be32toh(rvh.rkey));
    EXPECT_EQ(0U, pair.receiver.list.size());
}

TEST(TagListRendezvous, one_left_to_software_may_be_cancelled_by_force) {
    TagPair pair;
    Memory source(*pair.md, 2000);
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0, 1000));
    pair.receiver.on_event = [&](const ib::TagEvent& event) {
        EXPECT_EQ(UCS_OK, pair.receiver.list.cancel(&receive, true));
        EXPECT_TRUE(event.entry->forced);
        event.entry->ctx = &receive;  // for the fixture
    };
    pair.sender.send_rendezvous({.tag = 5}, source, 2000, source.rkey());
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(0U, pair.receiver.list.size());
}

TEST(TagListRendezvous, a_key_that_does_not_let_the_device_read_fails_the_receive) {
    for (const bool forced : {false, true}) {
        TagPair pair;
        Memory source(*pair.md, 2000);
        TagReceive receive, next;
        ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        ASSERT_EQ(UCS_OK, pair.receiver.post(next, 6, 1));
        pair.sender.send_rendezvous({.tag = 5}, source, 2000, source.rkey() ^ 0x5500);
        bool is_silent = false;
        if (forced) {
            ASSERT_TRUE(pair.until([&] { return receive.consumed == 1; }));
            // UCS_OK: that it failed had been polled already.
            is_silent = pair.receiver.list.cancel(&receive, true) == UCS_OK;
        }
        ASSERT_TRUE(pair.until([&] { return pair.receiver.list.size() == 1; }));
        EXPECT_EQ(is_silent ? 0 : 1, receive.ended);
        EXPECT_EQ(is_silent ? Kind::kNone : Kind::kFailed, receive.kind);
        EXPECT_EQ(is_silent ? UCS_OK : UCS_ERR_CONNECTION_RESET, receive.status);
        EXPECT_EQ(0U, pair.sender.fins());
        EXPECT_FALSE(pair.receiver.list.waits_for(pair.sender.far_qp().qp_num));
        // Others go on.
        Sender another(*pair.md, pair.receiver.queue.srq(), pair.receiver.cq.get());
        another.send_eager({.tag = 6}, 8, 1);
        ASSERT_TRUE(pair.until([&] {
            another.progress();
            return next.ended == 1;
        }));
    }
}

/// `pair`'s receive is consumed, and its data never comes. False: the device was faster than the
/// death of the sender, and has read it.
bool consume(TagPair& pair, Memory& source, TagReceive& receive) {
    constexpr int kStepsOfARead = 2000;
    EXPECT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.sender.send_rendezvous({.tag = 5}, source, 2000, source.rkey());
    pair.sender.die();
    EXPECT_TRUE(pair.until([&] { return receive.consumed == 1; }));
    for (int i = 0; i < kStepsOfARead && receive.ended == 0; ++i)
        pair.receiver.step();
    return receive.ended == 0 || receive.kind == Kind::kFailed;
}

/// Calls `test(pair, receive)` with a receive that waits for a dead sender.
template <class Test>
void with_dead_sender(const TagReceiverOptions& options, Test&& test) {
    constexpr int kAttemptsMax = 200;
    for (int i = 0; i < kAttemptsMax; ++i) {
        TagPair pair(options);
        Memory source(*pair.md, 2000);
        TagReceive receive;
        if (consume(pair, source, receive))
            return test(pair, receive);
    }
    FAIL() << "the device was always faster";
}

TEST(TagListRendezvous, a_sender_that_dies_fails_what_it_consumed) {
    for (const bool forced : {false, true}) {
        with_dead_sender({}, [forced](TagPair& pair, TagReceive& receive) {
            TagReceive next;
            ASSERT_EQ(UCS_OK, pair.receiver.post(next, 6, 1));
            const std::uint32_t number = pair.sender.far_qp().qp_num;
            EXPECT_TRUE(pair.receiver.list.waits_for(number));
            EXPECT_FALSE(pair.receiver.list.waits_for(number + 1));
            if (forced) {
                ASSERT_EQ(UCS_ERR_BUSY, pair.receiver.list.cancel(&receive, true));
            }
            pair.sender.destroy_far_qp();
            pair.receiver.progress();
            int ended = 0;
            const auto end = [&](ib::TagEntry& entry) {
                ++ended;
                EXPECT_EQ(&receive, entry.ctx);
                pair.receiver.list.finish(entry);
            };
            pair.receiver.list.fail_consumed(number + 1, end);
            EXPECT_EQ(0, ended);
            pair.receiver.list.fail_consumed(number, end);
            EXPECT_EQ(1, ended);
            EXPECT_FALSE(pair.receiver.list.waits_for(number));
            EXPECT_EQ(1U, pair.receiver.list.size());
            EXPECT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
        });
    }
}

// Without help: the device gives up after its retries.
TEST(TagListRendezvous, the_device_gives_up_on_a_sender_that_is_gone) {
    with_dead_sender({.timeout = 8}, [](TagPair& pair, TagReceive& receive) {
        ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
        EXPECT_EQ(Kind::kFailed, receive.kind);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, receive.status);
        EXPECT_EQ(1, receive.consumed);
        EXPECT_EQ(0U, pair.receiver.list.size());
    });
}

// ---- Foreign and invalid messages

TEST(TagListForeign, messages_without_a_tag_pass_by_the_list) {
    TagPair pair;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 0, 0, 16384, 0));
    pair.sender.send_no_tag(8, 1);
    pair.sender.send_no_tag(3000, 2);
    pair.sender.send_eager({.opcode = IBV_TMH_FIN, .tag = 5}, 8, 3);
    ASSERT_TRUE(pair.until([&] { return pair.receiver.no_tag == 3; }));
    EXPECT_EQ(0, receive.ended);
    pair.sender.send_eager({.tag = 77}, 8, 3);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(77U, receive.result.tag);
}

TEST(TagListForeign, an_eager_message_longer_than_its_buffer_fails_the_receive) {
    TagPair pair;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0, 10));
    pair.sender.send_eager({.tag = 5}, 11, 1);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_EQ(Kind::kFailed, receive.kind);
    EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, receive.status);
    EXPECT_EQ(1, receive.consumed);
}

TEST(TagListForeign, completions_that_nobody_waits_for_are_counted_and_change_nothing) {
    TagPair pair;
    ib::TagList& list = pair.receiver.list;
    std::vector<ib::Completion> seen;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.sender.send_eager({.tag = 5}, 8, 1);
    ASSERT_TRUE(pair.arrive());
    const ib::Completion* completions = nullptr;
    const unsigned count = pair.receiver.cq.poll(&completions);
    seen.assign(completions, completions + count);
    ASSERT_EQ(2U, count);
    const auto handle_all = [&] {
        unsigned events = 0;
        for (ib::Completion completion : seen) {
            for (const ibv_wc_status status :
                 {IBV_WC_SUCCESS, IBV_WC_TM_ERR, IBV_WC_TM_RNDV_INCOMPLETE, IBV_WC_WR_FLUSH_ERR}) {
                completion.status = status;
                events += list.handle(completion).kind != Kind::kNone ? 1U : 0U;
            }
        }
        return events;
    };
    for (const ib::Completion& completion : seen) {
        const ib::TagEvent event = list.handle(completion);
        if (event.kind == Kind::kArrived)
            list.finish(*event.entry);
    }
    EXPECT_EQ(0U, handle_all()) << "told again";
    EXPECT_EQ(8U, list.totals().strays);
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    EXPECT_EQ(0U, handle_all()) << "of an earlier use of the place";
    constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;
    for (const std::uint64_t bits : {0ULL, 1ULL, 0xffffffffULL, ~0ULL, 3ULL << 60, 7ULL << 60}) {
        const std::uint64_t wr_id = kOwn | bits;
        ib::Completion completion{};
        completion.wr_id = wr_id;
        EXPECT_TRUE(ib::TagList::is_own(wr_id));
        EXPECT_EQ(Kind::kNone, list.handle(completion).kind);
    }
    EXPECT_EQ(1U, list.size());
    pair.receiver.progress();
    EXPECT_EQ(34U, list.ops_left());
    pair.sender.send_eager({.tag = 5}, 8, 2);
    ASSERT_TRUE(pair.until([&] { return receive.ended == 1; }));
    EXPECT_TRUE(pair.receiver.has_data(receive, 0, 8, 2));
}

TEST(TagListForeign, an_entry_is_free_only_when_its_late_acknowledgement_came) {
    TagPair pair({.tags = 1});
    ib::TagList& list = pair.receiver.list;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.sender.send_eager({.tag = 5}, 8, 1);
    ASSERT_TRUE(pair.arrive());
    const ib::Completion* completions = nullptr;
    ASSERT_EQ(2U, pair.receiver.cq.poll(&completions));
    const ib::TagEvent event = list.handle(completions[1]);
    ASSERT_EQ(Kind::kArrived, event.kind);
    list.finish(*event.entry);
    EXPECT_EQ(1U, list.size());
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, pair.receiver.post(receive, 5, 0));
    EXPECT_EQ(Kind::kNone, list.handle(completions[0]).kind);
    EXPECT_EQ(0U, list.size());
    EXPECT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
}

// Cards may tell of the match first, and of the headers' arrival later.
TEST(TagListForeign, a_rendezvous_that_does_not_fit_may_be_told_in_two_completions) {
    TagPair pair;
    ib::TagList& list = pair.receiver.list;
    TagReceive receive;
    ASSERT_EQ(UCS_OK, pair.receiver.post(receive, 5, 0));
    pair.receiver.progress();
    pair.sender.send_eager({.tag = 5}, 8, 1);
    ASSERT_TRUE(pair.arrive());
    const ib::Completion* completions = nullptr;
    ASSERT_EQ(1U, pair.receiver.cq.poll(&completions));
    ib::Completion completion = completions[0];
    completion.status = IBV_WC_TM_RNDV_INCOMPLETE;
    completion.flags = IBV_WC_TM_MATCH;
    const ib::TagEvent first = list.handle(completion);
    EXPECT_EQ(Kind::kConsumed, first.kind);
    completion.status = IBV_WC_SUCCESS;
    completion.flags = IBV_WC_TM_DATA_VALID;
    completion.tag = 0;
    const ib::TagEvent second = list.handle(completion);
    EXPECT_EQ(Kind::kIncomplete, second.kind);
    EXPECT_FALSE(second.was_consumed_now);
    EXPECT_EQ(5U, second.entry->tag);
    list.finish(*second.entry);
    EXPECT_EQ(0U, list.size());
}

// ---- Tear-down

TEST(TagListEnd, what_is_posted_or_consumed_is_taken_at_the_end) {
    with_dead_sender({}, [](TagPair& pair, TagReceive& consumed) {
        TagReceive posted, cancelled, silent;
        ASSERT_EQ(UCS_OK, pair.receiver.post(posted, 6, 1));
        ASSERT_EQ(UCS_OK, pair.receiver.post(cancelled, 7, 2));
        ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&cancelled, false));
        ASSERT_EQ(UCS_OK, pair.receiver.post(silent, 8, 3));
        ASSERT_EQ(UCS_OK, pair.receiver.list.cancel(&silent, true));
        pair.sender.destroy_far_qp();
        pair.receiver.queue.close();
        pair.receiver.list.take_all([&](ib::TagEntry& entry) {
            ++static_cast<TagReceive*>(entry.ctx)->ended;
            pair.receiver.list.finish(entry);
        });
        EXPECT_EQ(1, consumed.ended);
        EXPECT_EQ(1, posted.ended);
        EXPECT_EQ(1, cancelled.ended);
        EXPECT_EQ(0, silent.ended);
        EXPECT_EQ(0U, pair.receiver.list.size());
    });
}

}  // namespace
}  // namespace tagwire::test
