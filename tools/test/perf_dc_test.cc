// SPDX-License-Identifier: BSD-3-Clause
// Short measurements over dc on the virtual HCA: many peers, few queue pairs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command.hpp"
#include "over_vhca.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;

// The target, the pool (TAGWIRE_DC_DCIS), and an initiator for answers to peers.
constexpr int kPairsMax = 1 + 8 + 1;

class OverDc : public OverVhca {
  protected:
    OverDc() : OverVhca("dc") {}
};

class EveryTestOverDc : public OverDc, public testing::WithParamInterface<const char*> {};

TEST_P(EveryTestOverDc, checks_bytes_and_tells_queue_pairs) {
    const tools::TestInfo& test = tools::find_test(GetParam());
    const json results = results_of({test.name});
    ASSERT_EQ(results.size(), 1U);
    const json& result = results[0];
    EXPECT_EQ(result["transport"], "dc");
    EXPECT_EQ(result["device"], "vhca0:1");
    EXPECT_EQ(result["validated"], true);
    EXPECT_GE(result["qps"], 2);
    EXPECT_LE(result["qps"], kPairsMax);
    EXPECT_GT(result["bytes_per_peer"], 0);
    EXPECT_EQ(result["latency_ns"]["p50"].is_number(), test.shape != tools::Shape::kStream);
}

INSTANTIATE_TEST_SUITE_P(Perf, EveryTestOverDc, testing::ValuesIn(tests_with_transport()),
                         [](const auto& param) { return std::string(param.param); });

TEST_F(OverDc, every_kind_of_message_arrives_whole) {
    for (const char* op : {"short", "bcopy", "zcopy", "rndv"}) {
        for (const char* test : {"tag_lat", "tag_bw", "tag_rate"}) {
            EXPECT_EQ(results_of({test, "--op", op, "--size", "0,1,17,100"}).size(), 4U)
                << op << test;
        }
    }
    for (const char* test : {"tag_rate", "put_bw", "get_bw"})
        EXPECT_EQ(results_of({test, "--memory", "alloc", "--size", "64k,1m"}).size(), 2U) << test;
}

TEST_F(OverDc, variants_of_the_options_work) {
    const std::vector<std::vector<std::string>> runs{
        {"tag_lat", "--unexpected", "--size", "8,4k"},
        {"match", "--depth", "100"},
        {"tag_rate", "--bidir"},
        {"tag_rate", "--bidir", "--op", "rndv", "--size", "4k"},
        {"tag_rate", "--window", "500"},
        {"tag_rate", "--threads", "2", "--wait", "yield"},
        {"am_bw", "--bidir", "--window", "4"},
        {"am_lat", "--size", "8,1k", "--wait", "sleep"},
    };
    for (const std::vector<std::string>& arguments : runs)
        for (const json& result : results_of(arguments))
            EXPECT_EQ(result["validated"], true) << testing::PrintToString(arguments);
}

TEST_F(OverDc, peers_share_the_pool) {
    for (const char* peers : {"4", "64"}) {
        for (const char* test : {"tag_rate", "am_bw", "am_lat", "put_bw", "get_bw"}) {
            for (const json& result : results_of({test, "--peers", peers, "--size", "8,4k"})) {
                EXPECT_EQ(result["validated"], true) << test;
                EXPECT_LE(result["qps"], kPairsMax) << test;
                EXPECT_GT(result["bytes_per_peer"], 0) << test;
            }
        }
    }
}

TEST_F(OverDc, every_policy_serves_more_peers_than_there_are_initiators) {
    const Setting two("TAGWIRE_DC_DCIS", "2");
    for (const char* policy : {"dcs", "dcs_quota", "rand", "hash"}) {
        const Setting chosen("TAGWIRE_DC_POLICY", policy);
        const json results = results_of({"tag_rate", "--peers", "8"});
        ASSERT_EQ(results.size(), 1U) << policy;
        EXPECT_LE(results[0]["qps"], 1 + 2 + 1) << policy;
    }
}

TEST_F(OverDc, peers_that_carry_no_messages_cost_no_queue_pair) {
    const json results = results_of({"am_lat", "--peers", "300"});
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0]["peers"], 300);
    EXPECT_LE(results[0]["qps"], kPairsMax);
    EXPECT_LT(results[0]["bytes_per_peer"], 512);
}

TEST_F(OverDc, wrong_number_of_peers_is_told) {
    for (const char* peers : {"0", "100001"}) {
        const Finished finished = tagwire({"perf", "am_lat", "--tl", "dc", "--peers", peers});
        EXPECT_EQ(finished.status, 2);
        EXPECT_NE(finished.error.find("--peers takes a number from 1 to 100000"), std::string::npos)
            << finished.error;
    }
    const Finished shared = tagwire({"perf", "am_lat", "--tl", "sm", "--peers", "65"});
    EXPECT_EQ(shared.status, 2);
    EXPECT_NE(shared.error.find("--peers takes at most 64 over sm"), std::string::npos)
        << shared.error;
}

TEST_F(OverDc, server_and_client_exchange_addresses) {
    Command server("TAGWIRE_TEST_COMMAND", {"perf", "--server", "0"});
    const std::string line = server.read_line();
    const Finished client = tagwire({"perf", "tag_rate", "--tl", "dc", "--peers", "300",
                                     "--connect", "127.0.0.1:" + line.substr(line.rfind(' ') + 1),
                                     "--size", "8,64k", "--iters", "200", "--validate"});
    EXPECT_EQ(client.status, 0) << client.error;
    EXPECT_NE(client.out.find("300 peers: "), std::string::npos) << client.out;
    EXPECT_EQ(server.wait().status, 0);
}

TEST_F(OverDc, info_tells_the_pool_and_the_policy) {
    const Finished finished = tagwire({"info", "devices", "--json", "-"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const json info = json::parse(finished.out);
    for (const json& component : info["devices"]) {
        for (const json& domain : component["memory_domains"]) {
            for (const json& transport : domain["transports"]) {
                if (transport["name"] != "dc")
                    continue;
                EXPECT_EQ(transport["interface"]["policy"], "dcs_quota");
                for (const char* fact :
                     {"quota", "credits", "dcis_max", "dcis", "channels", "channels_idle", "qps"}) {
                    EXPECT_TRUE(transport["interface"].contains(fact)) << fact;
                }
                EXPECT_TRUE(transport["connection"].contains("credits"));
                return;
            }
        }
    }
    ADD_FAILURE() << "no transport dc: " << finished.out;
}

}  // namespace
}  // namespace tagwire::test
