// SPDX-License-Identifier: BSD-3-Clause
#include "tools/soak.hpp"

#include <gtest/gtest.h>
#include <tagwire.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "command.hpp"
#include "tools/pattern.hpp"

namespace tagwire::test {
namespace {

using tools::draw_message;
using tools::Random;
using tools::Side;
using tools::SoakMessage;

TEST(SoakMessages, are_the_same_for_one_seed_and_of_every_kind) {
    Random one(7);
    Random same(7);
    tools::SoakCounts counts;
    for (std::uint64_t sequence = 1; sequence <= 1000; ++sequence) {
        const SoakMessage a = draw_message(one, sequence, 4096);
        const SoakMessage b = draw_message(same, sequence, 4096);
        ASSERT_EQ(a.size, b.size);
        ASSERT_EQ(a.tag, b.tag);
        ASSERT_EQ(a.send_flags, b.send_flags);
        counts.add(a);
    }
    EXPECT_EQ(counts.messages, 1000U);
    for (int kind = 0; kind <= tools::SoakCounts::kDiscard; ++kind)
        EXPECT_GT(counts.kinds[kind], 0U);
}

TEST(SoakMessages, first_wrong_byte_is_named) {
    SoakMessage message;
    message.sequence = 3;
    message.size = 100;
    std::vector<std::uint8_t> data(message.size);
    tools::Pattern(static_cast<std::uint64_t>(Side::kPeer), message.sequence)
        .fill(data.data(), data.size());
    EXPECT_EQ(wrong_byte(message, Side::kPeer, data.data()), std::nullopt);
    EXPECT_NE(wrong_byte(message, Side::kDriver, data.data()), std::nullopt);
    const std::uint8_t right = data[41];
    data[41] = static_cast<std::uint8_t>(right ^ 1U);
    data[99] = static_cast<std::uint8_t>(data[99] ^ 1U);
    char expected[100];
    std::snprintf(expected, sizeof expected, "byte 41 of 100 is 0x%02x, expected 0x%02x",
                  unsigned{data[41]}, unsigned{right});
    EXPECT_EQ(wrong_byte(message, Side::kPeer, data.data()), expected);
}

TEST(TagwireSoak, tells_seed_and_what_was_checked) {
    const Finished finished = tagwire({"soak", "--seconds", "1", "--seed", "7"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(finished.out.rfind("soak: seed 7, transports sm\n", 0), 0U) << finished.out;
    for (const char* words : {"every byte right", "  untagged ", "  claimed ", "  cancelled ",
                              "  puts ", "  gets ", "  additions ", "  active "})
        EXPECT_NE(finished.out.find(words), std::string::npos) << words << finished.out;
}

TEST(TagwireSoak, takes_the_transports_of_the_library) {
    const Setting transports("TAGWIRE_TRANSPORTS", "smm");
    const Finished refused = tagwire({"soak", "--seconds", "1"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.error.find("TAGWIRE_TRANSPORTS: nothing of 'smm' is here"), std::string::npos)
        << refused.error;
    EXPECT_EQ(tagwire({"soak", "--seconds", "1", "--tl", "sm"}).status, 0);
}

TEST(TagwireSoak, wrong_usage_is_status_2) {
    EXPECT_EQ(tagwire({"soak", "--seconds", "0"}).status, 2);
    EXPECT_EQ(tagwire({"soak", "--seed", "many"}).status, 2);
    EXPECT_EQ(tagwire({"soak", "--tl", "pigeon"}).status, 2);
    EXPECT_EQ(tagwire({"soak", "--tl", "pigeon,hawk"}).status, 2);
}

TEST(TagwireSoak, other_process_that_dies_is_an_error_with_its_reason) {
    Command soak("TAGWIRE_TEST_COMMAND", {"soak", "--seconds", "1000", "--seed", "7"});
    ASSERT_GT(soak.pid(), 0);
    soak.read_line();  // the seed
    soak.read_line();  // progress: both processes exchange messages
    const std::string pid = std::to_string(soak.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    pid_t child = 0;
    if (!(children >> child))
        GTEST_FAIL() << "no second process";
    ASSERT_GT(child, 1);
    kill(child, SIGKILL);
    const Finished finished = soak.wait();
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("tagwire: "), std::string::npos) << finished.error;
    EXPECT_EQ(finished.out.find("every byte right"), std::string::npos);
}

}  // namespace
}  // namespace tagwire::test
