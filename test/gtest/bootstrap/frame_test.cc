// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/frame.hpp"

#include <gtest/gtest.h>

#include "bootstrap/result.hpp"

namespace tagwire::bootstrap {
namespace {

Frame a_share() {
    return {.kind = FrameKind::kShare,
            .operation = Operation::kAllgather,
            .number = 7,
            .rank = 2,
            .size = 3,
            .bytes = 4};
}

TEST(BootstrapFrame, a_head_comes_back_as_it_went) {
    const Frame sent = a_share();
    const auto got = decode(encode(sent));
    ASSERT_TRUE(got);
    EXPECT_EQ(sent.kind, got->kind);
    EXPECT_EQ(sent.operation, got->operation);
    EXPECT_EQ(sent.number, got->number);
    EXPECT_EQ(sent.rank, got->rank);
    EXPECT_EQ(sent.size, got->size);
    EXPECT_EQ(sent.bytes, got->bytes);
    const auto failure = decode(encode(failure_frame(UCS_ERR_TIMED_OUT, 3, "late")));
    ASSERT_TRUE(failure);
    EXPECT_EQ(UCS_ERR_TIMED_OUT, failure->status);
    EXPECT_EQ(4u, failure->payload_bytes());
}

TEST(BootstrapFrame, heads_that_make_no_sense_are_refused) {
    struct Change {
        std::size_t at;
        unsigned value;
    };
    for (const Change change :
         {Change{0, 'X'}, Change{4, 2}, Change{5, 0}, Change{5, 8}, Change{6, 0}, Change{6, 3},
          Change{7, 0xff}, Change{7, 1}, Change{16, 0}, Change{18, 2}, Change{23, 1}}) {
        FrameHead head = encode(a_share());
        head[change.at] = static_cast<std::byte>(change.value);
        EXPECT_FALSE(decode(head)) << "byte " << change.at << " is " << change.value;
    }
    FrameHead hello = encode(Frame{.size = 3});
    for (const unsigned kind : {0u, 3u, 8u}) {
        hello[5] = static_cast<std::byte>(kind);
        EXPECT_FALSE(decode(hello)) << "kind " << kind;
    }
    FrameHead failure = encode(failure_frame(UCS_ERR_TIMED_OUT, 3, ""));
    for (const unsigned status : {0u, 1u, 0x80u, 0x9cu}) {
        failure[7] = static_cast<std::byte>(status);
        EXPECT_FALSE(decode(failure)) << "status " << status;
    }
}

TEST(BootstrapFrame, a_whole_one_has_the_payload_that_it_announces) {
    const std::string payload = "abcd";
    auto bytes = with_payload(a_share(), bytes_of(payload));
    EXPECT_TRUE(decode_whole(bytes));
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_whole(bytes));
    bytes.resize(kFrameBytes + 3);
    EXPECT_FALSE(decode_whole(bytes));
    bytes.resize(kFrameBytes - 1);
    EXPECT_FALSE(decode_whole(bytes));
}

TEST(BootstrapFrame, foreign_text_is_printable_and_bounded) {
    const std::string wild = "a\x1b[31m\nb\xff" + std::string(5000, 'x');
    const std::string text = text_of(std::as_bytes(std::span(wild)));
    EXPECT_EQ(kTextBytesMax, text.size());
    EXPECT_EQ("a?[31m?b?xx", text.substr(0, 11));
    EXPECT_EQ("the job has failed, and no reason was given", reason_of({}));
}

TEST(BootstrapRanks, sets_of_ranks_are_told_as_people_do) {
    const auto text = [](std::uint32_t size, const std::vector<std::uint32_t>& ranks) {
        RankSet set(size);
        for (const std::uint32_t rank : ranks)
            set.add(rank);
        return set.text();
    };
    EXPECT_EQ("rank 3", text(4, {3}));
    EXPECT_EQ("ranks 1, 2", text(4, {1, 2}));
    EXPECT_EQ("ranks 1-3", text(4, {1, 2, 3}));
    EXPECT_EQ("ranks 0, 2 and 4-9", text(10, {0, 2, 4, 5, 6, 7, 8, 9}));
    std::vector<std::uint32_t> odd;
    for (std::uint32_t rank = 1; rank < 100; rank += 2)
        odd.push_back(rank);
    EXPECT_TRUE(text(100, odd).ends_with("29, 31 and 34 others")) << text(100, odd);
}

TEST(BootstrapDeadline, it_never_says_that_time_is_left_when_none_is) {
    EXPECT_TRUE(Deadline(0).is_over());
    EXPECT_EQ(0, Deadline(0).left_ms());
    EXPECT_GT(Deadline(60'000'000'000).left_ms(), 0);
    EXPECT_EQ("60 s", Deadline(60'000'000'000).limit_text());
    EXPECT_EQ("75 s", Deadline(60'000'000'000).with_grace().limit_text());
    EXPECT_EQ("0.25 s", Deadline(250'000'000).limit_text());
}

}  // namespace
}  // namespace tagwire::bootstrap
