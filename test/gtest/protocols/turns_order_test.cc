// SPDX-License-Identifier: BSD-3-Clause
// Work that passes messages which wait, for room or for a peer that has paused them; and fences,
// which nothing passes.
#include <algorithm>
#include <string_view>
#include <thread>

#include "protocols/turns.hpp"

namespace tagwire::test {
namespace {

/// Nothing of the peer is needed, but perhaps the device's own threads.
constexpr int kRoundsAlone = 200'000;
constexpr int kSomeRoundsAlone = 2000;

/// The peer, which does not progress, has been sent more than the transport takes.
class MsgTurnsAhead : public TurnsTest {
  protected:
    void SetUp() override {
        TurnsTest::SetUp();
        tw_rma_explanation_t way{};
        way.struct_bytes = sizeof way;
        EXPECT_EQ(tw_key_explain(ours_, key_, TW_RMA_PUT, TW_ATOMIC_ADD, kShortBytes, 0, &way),
                  TW_OK);
        if (way.needs_peer != 0)
            GTEST_SKIP() << "a put needs the peer's progress: " << way.reason;
        // A device goes on taking some for a while.
        for (bool is_full = false; !is_full;) {
            while (waiting() < 100)
                ASSERT_GE(begin(Work::kShort, kOtherTag, messages_), TW_OK);
            progress_alone(kSomeRoundsAlone, [] { return false; });
            is_full = waiting() == 100;
        }
    }
    std::uint64_t waiting() const { return messages_.begun - messages_.ended; }
    /// This side alone progresses until `is_over`, or for `rounds`.
    template <class Over>
    void progress_alone(int rounds, const Over& is_over) {
        for (int i = 0; i < rounds && !is_over(); ++i) {
            node(0).progress();
            if (i % 64 == 63)
                std::this_thread::yield();
        }
    }
    tw_status_t begin_fenced_put(Stream& stream, std::uint64_t offset, tw_request_h* request_p) {
        const tw_op_t how = counted_by(stream, TW_OP_FENCE);
        ++stream.begun;
        return tw_put(ours_, data_.data(), kShortBytes, memory_.address() + offset, key_, &how,
                      request_p);
    }
    /// Everything ends once the peer progresses.
    void expect_ends(const std::vector<const Stream*>& streams) {
        handle_messages();
        run_until([&] {
            return std::ranges::all_of(
                streams, [](const Stream* stream) { return stream->ended == stream->begun; });
        });
    }

    Stream messages_;
};

TEST_F(MsgTurnsAhead, one_sided_operations_need_no_progress_of_the_peer) {
    for (const Work work :
         {Work::kPut, Work::kLongPut, Work::kGet, Work::kLongGet, Work::kPut, Work::kGet}) {
        SCOPED_TRACE(name_of(work));
        Stream stream;
        ASSERT_GE(begin(work, kOtherTag, stream), TW_OK);
        progress_alone(kRoundsAlone, [&] { return stream.ended == 1; });
        EXPECT_EQ(stream.ended, 1U);
        EXPECT_EQ(stream.failure, TW_OK);
    }
    EXPECT_TRUE(std::equal(got_.begin(), got_.begin() + kShortBytes, data_.begin()));
    EXPECT_EQ(waiting(), 100U);
    expect_ends({&messages_});
}

TEST_F(MsgTurnsAhead, many_operations_wait_in_their_own_line) {
    Stream stream;
    for (int i = 0; i < 3000; ++i)
        ASSERT_GE(begin(i % 2 == 0 ? Work::kPut : Work::kGet, kOtherTag, stream), TW_OK);
    progress_alone(kRoundsAlone, [&] { return stream.ended == stream.begun; });
    EXPECT_EQ(stream.ended, stream.begun);
    EXPECT_EQ(stream.failure, TW_OK);
    expect_ends({&messages_, &stream});
}

TEST_F(MsgTurnsAhead, nothing_passes_a_fence_until_it_is_cancelled) {
    Stream fenced, behind, message;
    tw_request_h request = nullptr;
    ASSERT_EQ(begin_fenced_put(fenced, 64, &request), TW_INPROGRESS);
    ASSERT_EQ(begin(Work::kPut, kOtherTag, behind), TW_INPROGRESS);
    ASSERT_EQ(begin(Work::kShort, kOtherTag, message), TW_INPROGRESS);
    progress_alone(kSomeRoundsAlone, [] { return false; });
    EXPECT_EQ(fenced.ended + behind.ended + message.ended, 0U);
    EXPECT_EQ(memory_.number<std::uint64_t>(), 0U);
    EXPECT_EQ(memory_.number<std::uint64_t>(64), 0U);
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    progress_alone(kRoundsAlone, [&] { return fenced.ended == 1 && behind.ended == 1; });
    EXPECT_EQ(fenced.failure, TW_ERR_CANCELED);
    EXPECT_EQ(behind.ended, 1U);
    expect_ends({&messages_, &fenced, &behind, &message});
    EXPECT_EQ(memory_.number<std::uint64_t>(64), 0U);
    EXPECT_NE(memory_.number<std::uint64_t>(), 0U);
}

TEST_F(MsgTurnsAhead, fences_of_both_lines_begin_in_their_order) {
    Stream first, second, third;
    ASSERT_EQ(begin_fenced_put(first, 0, nullptr), TW_INPROGRESS);
    const tw_op_t how = counted_by(second, TW_OP_FENCE);
    ++second.begun;
    ASSERT_EQ(tw_tag_send(ours_, data_.data(), kShortBytes, kOtherTag, &how, nullptr),
              TW_INPROGRESS);
    ASSERT_EQ(begin(Work::kGet, kOtherTag, third), TW_INPROGRESS);
    progress_alone(kSomeRoundsAlone, [] { return false; });
    EXPECT_EQ(first.ended + second.ended + third.ended, 0U);
    expect_ends({&messages_, &first, &second, &third});
    // The get came behind the put.
    EXPECT_TRUE(std::equal(got_.begin(), got_.begin() + kShortBytes, data_.begin()));
}

TEST_F(MsgTurnsAhead, a_flush_covers_both_lines) {
    Stream put, flushed;
    ASSERT_GE(begin(Work::kLongPut, kOtherTag, put), TW_OK);
    ASSERT_EQ(begin(Work::kFlush, kOtherTag, flushed), TW_INPROGRESS);
    progress_alone(kSomeRoundsAlone, [] { return false; });
    EXPECT_EQ(flushed.ended, 0U);
    handle_messages();
    run_until([&] { return flushed.ended == 1; });
    EXPECT_EQ(put.ended, 1U);
    EXPECT_EQ(messages_.ended, messages_.begun);
    EXPECT_TRUE(std::equal(data_.begin(), data_.end(), memory_.at()));
}

TEST_F(MsgTurnsAhead, cancelled_operations_leave_their_lines_in_any_order) {
    Stream stream;
    std::vector<tw_request_h> requests(3000);
    const tw_op_t how = counted_by(stream);
    for (tw_request_h& request : requests) {
        ++stream.begun;
        ASSERT_EQ(tw_tag_send(ours_, data_.data(), kShortBytes, kOtherTag, &how, &request),
                  TW_INPROGRESS);
    }
    // The newest third backwards, then every second one of the others.
    for (std::size_t i = requests.size(); i > requests.size() * 2 / 3; --i)
        ASSERT_EQ(tw_request_cancel(requests[i - 1]), TW_OK);
    for (std::size_t i = 0; i < requests.size() * 2 / 3; i += 2)
        ASSERT_EQ(tw_request_cancel(requests[i]), TW_OK);
    progress_alone(kSomeRoundsAlone, [&] { return stream.ended == 2000; });
    EXPECT_EQ(stream.ended, 2000U);
    expect_ends({&messages_, &stream});
}

/// The peer has no receive, and wants no more messages.
class MsgTurnsPaused : private Settings, public TurnsTest {
  protected:
    MsgTurnsPaused()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "64k"}, {"TAGWIRE_UNEXPECTED_MAX", "1000"}}) {}
};

TEST_F(MsgTurnsPaused, all_other_work_goes_on) {
    Stream messages;
    run_until([&] {
        tw_status_t status = TW_OK;
        for (int i = 0; i < 50 && status >= TW_OK; ++i)
            status = begin(Work::kShort, kStreamTag, messages);
        EXPECT_TRUE(status >= TW_OK || status == TW_ERR_NO_RESOURCE);
        return status == TW_ERR_NO_RESOURCE && node(1).counter("paused") > 0;
    });
    const std::uint64_t waiting = messages.begun - messages.ended;
    // Data to us is received.
    Standing to_us;
    to_us.worker = node(0).worker();
    to_us.tag = kOtherTag;
    to_us.post();
    for (const Work work : {Work::kRndvToUs, Work::kPut, Work::kLongPut, Work::kGet, Work::kLongGet,
                            Work::kGetFromUs, Work::kAtomic, Work::kConnect, Work::kClose}) {
        SCOPED_TRACE(name_of(work));
        Stream one;
        expect_end_beside(work, one, [] {});
        EXPECT_EQ(one.failure, TW_OK);
    }
    EXPECT_EQ(messages.begun - messages.ended, waiting);
    handle_messages();
    run_until([&] { return messages.ended == messages.begun; });
    EXPECT_EQ(messages.failure, TW_OK);
}

}  // namespace
}  // namespace tagwire::test
