// SPDX-License-Identifier: BSD-3-Clause
// Exit status and messages of `tagwire`, `tagwire info` and the demo.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;

TEST(TagwireCommand, help_and_version_succeed) {
    EXPECT_EQ(tagwire({"--help"}).status, 0);
    EXPECT_NE(tagwire({"perf", "--help"}).out.find("cswap_lat"), std::string::npos);
    EXPECT_EQ(tagwire({"--version"}).out.rfind("tagwire 0.", 0), 0U);
}

TEST(TagwireCommand, wrong_usage_is_status_2) {
    const std::vector<std::vector<std::string>> wrong{
        {},
        {"measure"},
        {"info", "cables"},
        {"perf"},
        {"perf", "am_lat", "--bogus"},
        {"perf", "am_lat", "--iters", "many"},
        {"perf", "am_lat", "--size", "8q"},
        {"perf", "am_lat", "--tl", "pigeon"},
        {"perf", "am_lat", "--device", "pigeon0"},
        {"perf", "am_lat", "--cpu", "4095"},
        {"perf", "tag_lat", "--depth", "100000000000"},
        {"peer-process", "0"},
    };
    for (const auto& arguments : wrong) {
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 2) << testing::PrintToString(arguments) << finished.error;
        EXPECT_EQ(finished.out, "") << testing::PrintToString(arguments);
        EXPECT_NE(finished.error.find("tagwire:"), std::string::npos)
            << testing::PrintToString(arguments);
    }
}

TEST(TagwireCommand, unknown_transport_lists_what_there_is) {
    EXPECT_NE(tagwire({"perf", "am_lat", "--tl", "pigeon"}).error.find("sm/memory"),
              std::string::npos);
}

TEST(TagwireCommand, file_that_cannot_be_written_is_found_before_measuring) {
    const Finished finished = tagwire({"perf", "am_lat", "--json", "/proc/nowhere/x.json"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("/proc/nowhere/x.json"), std::string::npos);
}

TEST(TagwireInfo, json_has_devices_config_and_build) {
    const Finished finished = tagwire({"info", "--json", "-"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const json info = json::parse(finished.out);
    EXPECT_EQ(info["schema"], 1);
    EXPECT_FALSE(info["build"]["compiler"].get<std::string>().empty());
    ASSERT_FALSE(info["config"].empty());
    for (const json& option : info["config"]) {
        EXPECT_EQ(option["name"].get<std::string>().rfind("TAGWIRE_", 0), 0U);
        for (const char* key : {"type", "unit", "accepted", "default", "value", "source", "doc"}) {
            EXPECT_TRUE(option.contains(key)) << key;
        }
        EXPECT_FALSE(option["doc"].get<std::string>().empty()) << option["name"];
    }
    ASSERT_FALSE(info["devices"].empty());
    const json& md = info["devices"][0]["memory_domains"][0];
    ASSERT_FALSE(md["transports"].empty());
    for (const char* key : {"device", "capabilities", "limits", "performance"}) {
        EXPECT_TRUE(md["transports"][0].contains(key)) << key;
    }
}

TEST(TagwireInfo, text_shows_transports_and_options) {
    EXPECT_NE(tagwire({"info", "devices"}).out.find("transport sm"), std::string::npos);
    EXPECT_NE(tagwire({"info", "config"}).out.find("TAGWIRE_LOG_LEVEL="), std::string::npos);
    EXPECT_NE(tagwire({"info", "build"}).out.find("compiler"), std::string::npos);
}

TEST(TagwireDemo, wrong_usage_is_status_2) {
    EXPECT_EQ(Command("TAGWIRE_TEST_DEMO", {"--fast"}).wait().status, 2);
    EXPECT_EQ(Command("TAGWIRE_TEST_DEMO", {"a.html", "b.html"}).wait().status, 2);
}

}  // namespace
}  // namespace tagwire::test
