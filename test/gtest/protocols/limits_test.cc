// SPDX-License-Identifier: BSD-3-Clause
// Every number whose passing ends a connection (docs/internals/limits.md), reached by a peer that
// does nothing wrong, against one that does not progress for a while: nothing fails, and everything
// ends once it progresses.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "protocols/turns.hpp"

namespace tagwire::test {
namespace {

class LimitsTest : public TurnsTest {
  protected:
    /// Nothing has failed, and everything ends.
    void expect_all_well(const Stream& stream) {
        run_until([&] { return stream.ended == stream.begun || !node(0).failures.empty(); });
        EXPECT_EQ(stream.ended, stream.begun);
        EXPECT_EQ(stream.failure, TW_OK);
        EXPECT_TRUE(node(0).failures.empty());
        EXPECT_TRUE(node(1).failures.empty());
    }
};

using MsgLimits = LimitsTest;

/// One-sided operations by messages: those without a reply.
TEST_F(MsgLimits, more_operations_than_may_be_asked_for_at_once_wait) {
    constexpr std::uint64_t kCount = (std::uint64_t{1} << 16) + 1000;
    std::uint32_t one = 1;
    std::uint32_t before = 0;
    Stream stream;
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const tw_op_t how = counted_by(stream);
        tw_status_t status = TW_ERR_NO_RESOURCE;
        while (status == TW_ERR_NO_RESOURCE) {
            // 32 bits: by messages over devices, too. Half of them have no id.
            status = i % 2 == 0 ? tw_atomic(ours_, TW_ATOMIC_ADD, TW_UINT32, &one,
                                            memory_.address(), key_, &how, nullptr)
                                : tw_atomic_fetch(ours_, TW_ATOMIC_ADD, TW_UINT32, &one, &before,
                                                  memory_.address(), key_, &how, nullptr);
            if (status == TW_ERR_NO_RESOURCE)
                progress_all();
        }
        ASSERT_GE(status, TW_OK);
        ++stream.begun;
        if (status == TW_OK)
            stream.add_end(TW_OK);
        // Requests leave, and the owner takes them, but no reply is taken.
        if (i % 64 == 0)
            node(1).progress();
    }
    expect_all_well(stream);
    ASSERT_EQ(flush(ours_), TW_OK);
    EXPECT_EQ(memory_.number<std::uint32_t>(), kCount);
}

/// Gets by messages: their data takes more messages than they.
TEST_F(MsgLimits, more_gets_than_may_be_asked_for_at_once_wait) {
    constexpr std::uint64_t kCount = (std::uint64_t{1} << 16) + 10000;
    constexpr std::size_t kGetBytes = 16384;
    Stream stream;
    const tw_op_t how = counted_by(stream);
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const tw_status_t status =
            tw_get(ours_, got_.data(), kGetBytes, memory_.address(), key_, &how, nullptr);
        ASSERT_GE(status, TW_OK);
        ++stream.begun;
        if (status == TW_OK)
            stream.add_end(TW_OK);
        if (i % 8 == 0)
            progress_all();
    }
    expect_all_well(stream);
}

/// Unexpected messages on their way to a worker that has little room for them.
class MsgLimitsBudget : private Settings, public TurnsTest {
  protected:
    MsgLimitsBudget()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "64k"}, {"TAGWIRE_UNEXPECTED_MAX", "100"}}) {}
    /// As many messages of `work` as the transport takes are on their way.
    void flood(Work work) {
        Stream stream;
        while (stream.begun - stream.ended < 100) {
            const tw_status_t status = begin(work, kOtherTag, stream);
            if (status == TW_ERR_NO_RESOURCE)
                break;
            ASSERT_GE(status, TW_OK);
        }
        run_some();
        EXPECT_TRUE(node(0).failures.empty());
        EXPECT_TRUE(node(1).failures.empty());
        handle_messages();
        run_until([&] { return stream.ended == stream.begun || !node(0).failures.empty(); });
        EXPECT_EQ(stream.failure, TW_OK);
        EXPECT_TRUE(node(0).failures.empty());
    }
};

TEST_F(MsgLimitsBudget, short_messages_that_a_transport_holds_are_taken) {
    flood(Work::kShort);
}

TEST_F(MsgLimitsBudget, messages_of_parts_that_a_transport_holds_are_taken) {
    flood(Work::kParts);
}

/// The receiver has less room for unexpected messages than the sender.
class MsgLimitsLength : public MsgTest {
  protected:
    static constexpr std::size_t kKept = 32768;
    MsgLimitsLength() {
        const Settings less({{"TAGWIRE_UNEXPECTED_BYTES", std::to_string(kKept)}});
        const std::string named = transports();
        tw_context_params_t params{};
        params.transports = named.c_str();
        tw_context_h context = nullptr;
        EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
        small_context_.reset(context);
        small_ = std::make_unique<Node>(context);
    }
    /// Progress of both, until `is_over`.
    void run_both_until(const std::function<bool()>& is_over) {
        run_until([&] {
            small_->progress();
            return is_over();
        });
    }
    void exchange(std::size_t length, const tw_op_t& how, bool is_am) {
        const Bytes data = pattern(length, length);
        const std::uint64_t before = sent_.ended;
        const tw_ep_h ep = node(0).to(*small_);
        const Bytes header(is_am ? TW_AM_HEADER_MAX : 0);
        const tw_status_t status = is_am ? tw_am_send(ep, kHandler, header.data(), header.size(),
                                                      data.data(), length, &how, nullptr)
                                         : tw_tag_send(ep, data.data(), length, 1, &how, nullptr);
        ASSERT_EQ(status, TW_INPROGRESS);
        if (is_am)
            return run_both_until([&] { return sent_.ended > before || !failed().empty(); });
        // It comes before its receive.
        for (int i = 0; i < 200; ++i) {
            node(0).progress();
            small_->progress();
        }
        Bytes received(length);
        Stream receives;
        tw_op_t count{};
        count.flags = TW_OP_COMPLETION;
        count.context = &receives;
        count.complete = how.complete;
        ASSERT_EQ(tw_tag_recv(small_->worker(), received.data(), length, 1, 0, &count, nullptr),
                  TW_INPROGRESS);
        run_both_until(
            [&] { return (receives.ended == 1 && sent_.ended > before) || !failed().empty(); });
        EXPECT_EQ(received, data);
    }
    const std::vector<std::pair<tw_ep_h, tw_status_t>>& failed() { return small_->failures; }

    std::unique_ptr<tw_context, ContextDeleter> small_context_;
    std::unique_ptr<Node> small_;
    Stream sent_;
};

TEST_F(MsgLimitsLength, messages_that_the_receiver_cannot_keep_go_by_rendezvous) {
    EXPECT_EQ(tw_am_register(
                  small_->worker(), kHandler,
                  [](void*, tw_am_t* am) {
                      if ((am->flags & TW_AM_RNDV) != 0) {
                          EXPECT_EQ(tw_message_drop(am->worker, am->message), TW_OK);
                      }
                  },
                  nullptr),
              TW_OK);
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = &sent_;
    how.complete = [](const tw_completion_t* done) {
        static_cast<Stream*>(done->context)->add_end(done->status);
    };
    for (const std::size_t length : {kKept / 8, kKept / 4, kKept - TW_AM_HEADER_MAX, kKept,
                                     kKept + 1, std::size_t{50000}, std::size_t{300000}}) {
        for (const bool is_am : {false, true}) {
            SCOPED_TRACE(testing::Message() << length << " bytes" << (is_am ? ", active" : ""));
            ASSERT_NO_FATAL_FAILURE(exchange(length, how, is_am));
            ASSERT_TRUE(failed().empty());
        }
    }
    EXPECT_EQ(sent_.failure, TW_OK);
    EXPECT_TRUE(node(0).failures.empty());
    tw_explanation_t why{};
    why.struct_bytes = sizeof why;
    ASSERT_EQ(tw_ep_explain(node(0).to(*small_), kKept, TW_BUFFER_PLAIN, &why), TW_OK);
    EXPECT_LE(why.rndv_from, kKept / 4 + 1);
    destroy_nodes();
    small_.reset();
}

/// Requests that a peer has named. It takes 700 MB: TAGWIRE_TEST_LIMITS asks for it.
class MsgLimitsNamed : private Settings, public LimitsTest {
  protected:
    static constexpr std::uint64_t kCount = (std::uint64_t{1} << 20) + 1000;
    MsgLimitsNamed() : Settings({{"TAGWIRE_REQUESTS_MAX", std::to_string(2 * kCount)}}) {}
};

TEST_F(MsgLimitsNamed, more_flushes_than_may_be_named_wait) {
    if (std::getenv("TAGWIRE_TEST_LIMITS") == nullptr)
        GTEST_SKIP() << "TAGWIRE_TEST_LIMITS is not set";
    Stream stream;
    for (std::uint64_t i = 0; i < kCount; ++i) {
        ASSERT_GE(begin(Work::kFlush, kOtherTag, stream), TW_OK);
        node(1).progress();  // it answers, and we do not look
    }
    expect_all_well(stream);
}

}  // namespace
}  // namespace tagwire::test
