// SPDX-License-Identifier: BSD-3-Clause
// Tag receives that software matches, from posting to their only completion.
#include "uct/soft_tags.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

namespace tagwire::uct {
namespace {

constexpr std::size_t kDepth = 4;

class SoftTagsTest : public ::testing::Test {
  protected:
    struct Context : uct_tag_context_t {
        std::vector<ucs_status_t> completions;
        unsigned consumed = 0;
        std::size_t length = 0;
        uct_tag_t tag = 0;
    };

    void SetUp() override {
        ASSERT_EQ(tags_.open(kDepth, "test receives"), UCS_OK);
        for (Context& each : contexts_) {
            each.tag_consumed_cb = [](uct_tag_context_t* self) {
                ++static_cast<Context*>(self)->consumed;
            };
            each.completed_cb = [](uct_tag_context_t* self, uct_tag_t tag, std::uint64_t,
                                   std::size_t length, void*, ucs_status_t status) {
                static_cast<Context*>(self)->completions.push_back(status);
                static_cast<Context*>(self)->tag = tag;
                static_cast<Context*>(self)->length = length;
            };
        }
    }
    void TearDown() override { tags_.destroy_all(); }

    ucs_status_t post(Context& context, uct_tag_t tag, std::byte* buffer, std::size_t bytes) {
        SoftReceive* receive = nullptr;
        const ucs_status_t status =
            tags_.create(tag, ~uct_tag_t{0}, &context, buffer, bytes, &receive);
        if (status == UCS_OK)
            tags_.post(*receive);
        return status;
    }
    ucs_status_t cancel(Context& context, bool forced) {
        return tags_.cancel(context, forced, [this](SoftReceive& receive) {
            tags_.detach(receive);
            return UCS_OK;
        });
    }

    static inline std::function<void()> next_;
    SoftTags<SoftReceive> tags_;
    std::array<Context, kDepth + 1> contexts_{};
    std::array<std::byte, 64> memory_{};
};

TEST_F(SoftTagsTest, a_buffer_is_posted_once_at_a_time_and_again_when_it_is_done) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    EXPECT_EQ(post(contexts_[1], 2, memory_.data(), 8), UCS_ERR_ALREADY_EXISTS);
    EXPECT_EQ(post(contexts_[1], 2, memory_.data(), 0), UCS_OK) << "an empty one holds no buffer";
    SoftReceive* receive = tags_.match(1);
    ASSERT_NE(receive, nullptr);
    tags_.complete(*receive, 1, 0, 8, UCS_OK);
    EXPECT_EQ(contexts_[0].completions, std::vector{UCS_OK});
    EXPECT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
}

TEST_F(SoftTagsTest, no_more_than_the_depth_are_posted) {
    for (std::size_t i = 0; i < kDepth; ++i)
        ASSERT_EQ(post(contexts_[i], i, &memory_[i], 1), UCS_OK);
    EXPECT_EQ(post(contexts_[kDepth], 9, &memory_[kDepth], 1), UCS_ERR_EXCEEDS_LIMIT);
    EXPECT_EQ(tags_.posted(), kDepth);
}

TEST_F(SoftTagsTest, a_message_longer_than_the_buffer_is_truncated) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    tags_.complete(*tags_.consume(1), 1, 0, 9, UCS_OK);
    EXPECT_EQ(contexts_[0].consumed, 1U);
    EXPECT_EQ(contexts_[0].completions, std::vector{UCS_ERR_MESSAGE_TRUNCATED});
}

TEST_F(SoftTagsTest, a_cancelled_receive_is_reported_later_with_the_length_posted) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    EXPECT_EQ(cancel(contexts_[0], false), UCS_OK);
    EXPECT_TRUE(contexts_[0].completions.empty());
    EXPECT_EQ(tags_.match(1), nullptr);
    EXPECT_TRUE(tags_.has_cancelled());
    EXPECT_EQ(tags_.report_cancelled(), 1U);
    EXPECT_EQ(contexts_[0].completions, std::vector{UCS_ERR_CANCELED});
    EXPECT_EQ(contexts_[0].length, 8U);
    EXPECT_EQ(cancel(contexts_[0], false), UCS_ERR_NO_ELEM);
}

TEST_F(SoftTagsTest, a_cancelled_wildcard_is_reported_with_the_bits_of_its_mask) {
    SoftReceive* receive = nullptr;
    ASSERT_EQ(tags_.create(0x123, 0xff, &contexts_[0], memory_.data(), 8, &receive), UCS_OK);
    tags_.post(*receive);
    ASSERT_EQ(cancel(contexts_[0], false), UCS_OK);
    EXPECT_EQ(tags_.report_cancelled(), 1U);
    EXPECT_EQ(contexts_[0].tag, 0x23U);
}

TEST_F(SoftTagsTest, a_forced_cancel_is_never_reported) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    ASSERT_EQ(cancel(contexts_[0], true), UCS_OK);
    EXPECT_FALSE(tags_.has_cancelled());
    ASSERT_EQ(post(contexts_[1], 2, memory_.data(), 8), UCS_OK);
    ASSERT_EQ(cancel(contexts_[1], false), UCS_OK);
    EXPECT_EQ(cancel(contexts_[1], true), UCS_OK) << "in place of the report";
    EXPECT_EQ(tags_.report_cancelled(), 1U);
    EXPECT_TRUE(contexts_[0].completions.empty());
    EXPECT_TRUE(contexts_[1].completions.empty());
}

TEST_F(SoftTagsTest, force_after_a_cancel_gives_the_buffer_back_before_it_is_reported) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    ASSERT_EQ(cancel(contexts_[0], false), UCS_OK);
    EXPECT_EQ(cancel(contexts_[0], true), UCS_OK);
    EXPECT_EQ(cancel(contexts_[0], true), UCS_ERR_NO_ELEM);
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK) << "context and buffer are ours";
    EXPECT_EQ(tags_.report_cancelled(), 1U);
    EXPECT_TRUE(contexts_[0].completions.empty());
    tags_.complete(*tags_.consume(1), 1, 0, 8, UCS_OK);
    EXPECT_EQ(contexts_[0].completions, std::vector{UCS_OK});
}

TEST_F(SoftTagsTest, a_report_may_force_the_cancel_of_the_next_one) {
    ASSERT_EQ(post(contexts_[0], 1, &memory_[0], 1), UCS_OK);
    ASSERT_EQ(post(contexts_[1], 2, &memory_[1], 1), UCS_OK);
    next_ = [this] { EXPECT_EQ(cancel(contexts_[1], true), UCS_OK); };
    contexts_[0].completed_cb = [](uct_tag_context_t*, uct_tag_t, std::uint64_t, std::size_t, void*,
                                   ucs_status_t) { next_(); };
    ASSERT_EQ(cancel(contexts_[0], false), UCS_OK);
    ASSERT_EQ(cancel(contexts_[1], false), UCS_OK);
    EXPECT_EQ(tags_.report_cancelled(), 2U);
    EXPECT_TRUE(contexts_[1].completions.empty());
}

TEST_F(SoftTagsTest, a_matched_receive_completes_although_it_is_cancelled) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    SoftReceive* receive = tags_.consume(1);
    EXPECT_EQ(cancel(contexts_[0], false), UCS_OK);
    EXPECT_FALSE(tags_.has_cancelled());
    tags_.complete(*receive, 1, 0, 8, UCS_OK);
    EXPECT_EQ(contexts_[0].completions, std::vector{UCS_OK});
}

TEST_F(SoftTagsTest, force_gives_the_buffer_of_a_matched_receive_back_at_once) {
    ASSERT_EQ(post(contexts_[0], 1, memory_.data(), 8), UCS_OK);
    SoftReceive* receive = tags_.consume(1);
    ASSERT_EQ(cancel(contexts_[0], true), UCS_OK);
    EXPECT_EQ(post(contexts_[0], 2, memory_.data(), 8), UCS_OK);
    tags_.complete(*receive, 1, 0, 8, UCS_OK);
    EXPECT_TRUE(contexts_[0].completions.empty());
    EXPECT_EQ(cancel(contexts_[0], true), UCS_OK) << "its context is posted anew";
}

TEST_F(SoftTagsTest, an_adopted_receive_is_found_by_its_context) {
    SoftTags<SoftReceive>::disown(contexts_[0]);
    EXPECT_FALSE(tags_.has(contexts_[0]));
    SoftReceive* receive = tags_.adopt(1, &contexts_[0], nullptr, 0);
    ASSERT_NE(receive, nullptr);
    EXPECT_TRUE(tags_.has(contexts_[0]));
    tags_.complete(*receive, 1, 0, 0, UCS_OK);
    EXPECT_EQ(contexts_[0].completions, std::vector{UCS_OK});
    EXPECT_FALSE(tags_.has(contexts_[0]));
}

}  // namespace
}  // namespace tagwire::uct
