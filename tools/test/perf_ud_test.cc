// SPDX-License-Identifier: BSD-3-Clause
// Short measurements over ud on the virtual HCA: active messages, and a plain answer to whatever it
// does not have.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command.hpp"
#include "over_vhca.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;

class OverUd : public OverVhca {
  protected:
    OverUd() : OverVhca("ud") {}
};

TEST_F(OverUd, active_messages_arrive_whole) {
    for (const char* test : {"am_lat", "am_bw"}) {
        for (const char* op : {"short", "bcopy"}) {
            const json results = results_of({test, "--op", op, "--size", "8,17,160"});
            ASSERT_EQ(results.size(), 3U) << test << op;
            EXPECT_EQ(results[0]["transport"], "ud");
            EXPECT_EQ(results[0]["device"], "vhca0:1");
            EXPECT_EQ(results[0]["op"], op);
            EXPECT_EQ(results[0]["validated"], true);
        }
    }
    EXPECT_EQ(results_of({"am_lat", "--size", "4000,4064"}).size(), 2U);
}

TEST_F(OverUd, variants_of_the_options_work) {
    const std::vector<std::vector<std::string>> runs{
        {"am_lat", "--peers", "3"},
        {"am_bw", "--bidir", "--window", "4"},
        {"am_bw", "--size", "8,4000", "--window", "500"},
        {"am_lat", "--size", "8,1k", "--wait", "sleep"},
        {"am_bw", "--threads", "2", "--wait", "yield"},
    };
    for (const std::vector<std::string>& arguments : runs)
        for (const json& result : results_of(arguments))
            EXPECT_EQ(result["validated"], true) << testing::PrintToString(arguments);
}

TEST_F(OverUd, packets_that_are_lost_are_sent_again) {
    const Setting loss("TAGWIRE_VHCA_LOSS", "0.01");
    EXPECT_EQ(results_of({"am_bw", "--size", "8,1k"}).size(), 2U);
}

TEST_F(OverUd, what_it_does_not_have_is_named) {
    for (const tools::TestInfo& test : tools::all_tests()) {
        const std::string name = test.name;
        if ((test.options & tools::kWithTransport) == 0 ||
            (test.options & tools::kOnlyAtLevelMsg) != 0 || name == "am_lat" || name == "am_bw" ||
            name == "am_rate") {
            continue;
        }
        const Finished finished = tagwire({"perf", name, "--tl", "ud"});
        EXPECT_EQ(finished.status, 2) << name;
        EXPECT_NE(finished.error.find("over ud: this transport "), std::string::npos)
            << finished.error;
    }
    const Finished finished = tagwire({"perf", "am_lat", "--tl", "ud", "--size", "1m"});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.error.find("bcopy 0 to 4064"), std::string::npos) << finished.error;
}

TEST_F(OverUd, server_and_client_find_each_other) {
    Command server("TAGWIRE_TEST_COMMAND", {"perf", "--server", "0"});
    const std::string line = server.read_line();
    const Finished client =
        tagwire({"perf", "am_lat", "--tl", "ud", "--connect",
                 "127.0.0.1:" + line.substr(line.rfind(' ') + 1), "--iters", "200", "--validate"});
    EXPECT_EQ(client.status, 0) << client.error;
    EXPECT_EQ(server.wait().status, 0);
}

}  // namespace
}  // namespace tagwire::test
