// SPDX-License-Identifier: BSD-3-Clause
// Short measurements of the active messages of the messaging layer.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "over_vhca.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;

const std::vector<std::string> kActiveTests{"am_lat", "am_bw", "am_rate", "--level", "msg"};

std::vector<std::string> and_more(std::vector<std::string> arguments,
                                  const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

TEST(PerfActiveAtLevelMsg, every_length_arrives_and_is_checked) {
    for (const char* memory : {"user", "mapped"}) {
        std::vector<std::string> arguments =
            and_more(kActiveTests, {"--size", "0,1,8,100,4k,20k,300k", "--memory", memory,
                                    "--iters", "200", "--validate", "--json", "-"});
        arguments.insert(arguments.begin(), "perf");
        const Finished finished = tagwire(arguments);
        ASSERT_EQ(finished.status, 0) << finished.error;
        const json results = json::parse(finished.out)["results"];
        EXPECT_EQ(results.size(), 21U);
        for (const json& result : results) {
            EXPECT_EQ(result["level"], "msg");
            EXPECT_EQ(result["memory"], memory);
            EXPECT_EQ(result["validated"], true) << result["test"] << " " << result["size"];
        }
    }
}

TEST(PerfActiveAtLevelMsg, streams_go_both_ways_and_to_one_of_several_peers) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"--bidir"}, std::vector<std::string>{"--peers", "3"}}) {
        std::vector<std::string> arguments = and_more(
            {"perf", "am_bw", "--level", "msg", "--size", "8,100k", "--iters", "200", "--validate"},
            more);
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 0) << finished.error;
    }
}

TEST(PerfActiveAtLevelMsg, sides_that_sleep_are_woken) {
    for (const char* transport : {"sm", "tcp"}) {
        const Finished finished =
            tagwire({"perf", "am_lat", "tag_lat", "tag_bw", "--level", "msg", "--tl", transport,
                     "--wait", "sleep", "--size", "8,100k", "--iters", "50", "--validate"});
        EXPECT_EQ(finished.status, 0) << transport << ": " << finished.error;
    }
}

class ActiveOverRc : public OverVhca {
  protected:
    ActiveOverRc() : OverVhca("rc") {}
};

TEST_F(ActiveOverRc, eager_ones_and_rendezvous_arrive) {
    const json results = results_of(and_more(kActiveTests, {"--size", "8,4k,300k"}));
    EXPECT_EQ(results.size(), 9U);
    for (const json& result : results)
        EXPECT_EQ(result["transport"], "rc");
}

}  // namespace
}  // namespace tagwire::test
