// SPDX-License-Identifier: BSD-3-Clause
// Short measurements over verbs transports, on the virtual HCA: endpoints that are connected to
// endpoints, registered memory, tags that the device matches.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command.hpp"
#include "over_vhca.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;
using tools::Shape;
using tools::TestInfo;

class OverRc : public OverVhca {
  protected:
    OverRc() : OverVhca("rc") {}
};

class EveryTestOverRc : public OverRc, public testing::WithParamInterface<const char*> {};

TEST_P(EveryTestOverRc, checks_bytes_and_tells_queue_pairs) {
    const TestInfo& test = tools::find_test(GetParam());
    const json results = results_of({test.name});
    ASSERT_EQ(results.size(), 1U);
    const json& result = results[0];
    EXPECT_EQ(result["transport"], "rc");
    EXPECT_EQ(result["device"], "vhca0:1");
    EXPECT_EQ(result["validated"], true);
    EXPECT_EQ(result["qps"], 2);
    EXPECT_TRUE(result["bytes_per_peer"].is_number());
    EXPECT_TRUE(result["floor_ns"].is_null());
    EXPECT_EQ(result["latency_ns"]["p50"].is_number(), test.shape != Shape::kStream);
}

INSTANTIATE_TEST_SUITE_P(Perf, EveryTestOverRc, testing::ValuesIn(tests_with_transport()),
                         [](const auto& param) { return std::string(param.param); });

TEST_F(OverRc, every_kind_of_tagged_message_arrives_whole) {
    for (const char* op : {"short", "bcopy", "zcopy", "rndv"}) {
        for (const char* test : {"tag_lat", "tag_bw", "tag_rate"}) {
            EXPECT_EQ(results_of({test, "--op", op, "--size", "0,1,17,100"}).size(), 4U)
                << op << test;
        }
    }
    EXPECT_EQ(results_of({"tag_rate", "--memory", "alloc", "--size", "64k,1m"}).size(), 2U);
}

TEST_F(OverRc, variants_of_the_options_work) {
    const std::vector<std::vector<std::string>> runs{
        {"tag_lat", "--unexpected", "--size", "8,4k"},
        {"tag_lat", "--depth", "100"},
        {"match", "--depth", "100"},
        {"tag_rate", "--bidir"},
        {"tag_rate", "--bidir", "--op", "rndv", "--size", "4k"},
        {"tag_rate", "--unexpected"},
        {"tag_rate", "--window", "1"},
        {"tag_rate", "--window", "500"},
        {"tag_bw", "--peers", "3", "--size", "8,64k"},
        {"tag_rate", "--threads", "2", "--wait", "yield"},
        {"am_lat", "--peers", "3"},
        {"am_bw", "--bidir", "--window", "4"},
        {"am_lat", "--size", "1,8,1k", "--wait", "sleep"},
        {"tag_lat", "--size", "8,64k", "--wait", "sleep"},
        {"put_bw", "--peers", "3", "--size", "64k"},
        {"get_lat", "--op", "zcopy", "--size", "64k", "--memory", "alloc"},
    };
    for (const std::vector<std::string>& arguments : runs)
        for (const json& result : results_of(arguments))
            EXPECT_EQ(result["validated"], true) << testing::PrintToString(arguments);
}

TEST_F(OverRc, every_peer_costs_its_queue_pairs) {
    for (const int peers : {4, 70}) {
        for (const json& result :
             results_of({"tag_rate", "--peers", std::to_string(peers), "--size", "8,1k"})) {
            EXPECT_EQ(result["peers"], peers);
            EXPECT_EQ(result["qps"], 2 * peers);
            EXPECT_GT(result["bytes_per_peer"], 0);
        }
    }
}

TEST_F(OverRc, tags_are_matched_by_software_where_the_device_does_not) {
    {
        const Setting by_choice("TAGWIRE_RC_TAG_MATCHING", "software");
        EXPECT_EQ(results_of({"tag_rate", "--size", "8,1k,64k"}).size(), 3U);
    }
    const Setting without("TAGWIRE_VHCA_TM", "0");
    const json results = results_of({"tag_lat", "--size", "8,1k,64k"});
    ASSERT_EQ(results.size(), 3U);
    EXPECT_EQ(results[0]["qps"], 1);
}

TEST_F(OverRc, device_is_found_with_and_without_its_port) {
    for (const char* name : {"vhca0", "vhca0:1"})
        EXPECT_EQ(results_of({"am_lat", "--device", name}).size(), 1U) << name;
    const Finished finished = tagwire({"perf", "am_lat", "--tl", "rc", "--device", "vhca7"});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.error.find("device 'vhca7' of transport"), std::string::npos)
        << finished.error;
    EXPECT_NE(finished.error.find("rc/vhca0:1"), std::string::npos) << finished.error;
}

TEST_F(OverRc, missing_transport_says_what_the_devices_are_about) {
    const Setting none("TAGWIRE_IB_DEVICES", "^vhca0");
    const Finished finished = tagwire({"perf", "am_lat", "--tl", "rc", "--device", "vhca0"});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.error.find("device vhca0: left out by TAGWIRE_IB_DEVICES"),
              std::string::npos)
        << finished.error;
}

TEST_F(OverRc, server_and_client_connect_their_endpoints) {
    Command server("TAGWIRE_TEST_COMMAND", {"perf", "--server", "0"});
    const std::string line = server.read_line();
    const Finished client = tagwire({"perf", "tag_rate", "--tl", "rc", "--peers", "2", "--connect",
                                     "127.0.0.1:" + line.substr(line.rfind(' ') + 1), "--size",
                                     "8,64k", "--iters", "200", "--validate"});
    EXPECT_EQ(client.status, 0) << client.error;
    EXPECT_EQ(server.wait().status, 0);
}

TEST_F(OverRc, info_tells_libraries_devices_and_who_matches_tags) {
    const Finished finished = tagwire({"info", "devices", "--json", "-"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const json info = json::parse(finished.out);
    for (const json& component : info["devices"]) {
        if (component["name"] != "ib")
            continue;
        EXPECT_EQ(component["found"]["device vhca0"].get<std::string>().rfind("ok", 0), 0U);
        EXPECT_TRUE(component["found"].contains("library virtual"));
        const json& transport = component["memory_domains"][0]["transports"][0];
        EXPECT_EQ(transport["interface"]["tag_matching"], "device");
        return;
    }
    ADD_FAILURE() << "no component ib: " << finished.out;
}

}  // namespace
}  // namespace tagwire::test
