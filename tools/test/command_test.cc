// SPDX-License-Identifier: BSD-3-Clause
// Exit status and messages of `tagwire`, `tagwire info` and the demo.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
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

TEST(TagwireCommand, wrong_usage_points_to_the_help_of_its_subcommand) {
    const struct {
        std::vector<std::string> arguments;
        const char* says;
    } cases[] = {
        {{}, "Try 'tagwire --help'."},
        {{"measure"}, "Try 'tagwire --help'."},
        {{"perf"}, "Try 'tagwire perf --help'."},
        {{"perf", "--server", "="}, "--server: '=' is not a port"},
        {{"soak", "--bogus"}, "Try 'tagwire soak --help'."},
        {{"soak", "--tl", "pigeon"}, "Try 'tagwire soak --help'."},
        {{"tune", "--tl", ","}, "Try 'tagwire tune --help'."},
        {{"inf"}, "'inf' is not a command of 'tagwire'; did you mean 'info'?"},
        {{"measure"}, "'measure' is not a command of 'tagwire'; there are perf info"},
        {{"perf", "tag_lat", "--siz", "8"}, "'--siz' is not an option of 'tagwire perf'; did you"},
        {{"perf", "tag_lat", "--iters", "many", "-q"}, "--iters"},
    };
    for (const auto& [arguments, says] : cases) {
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 2) << testing::PrintToString(arguments);
        EXPECT_NE(finished.error.find(says), std::string::npos)
            << testing::PrintToString(arguments) << finished.error;
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

/// `ulimit -v` for what is started meanwhile.
class AddressSpaceLimit {
  public:
    explicit AddressSpaceLimit(rlim_t bytes) {
        EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
        const rlimit limit{bytes, before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    ~AddressSpaceLimit() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
    AddressSpaceLimit(const AddressSpaceLimit&) = delete;
    AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

  private:
    rlimit before_{};
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// Batch systems set such limits.
TEST(TagwireCommand, shared_memory_works_in_a_small_address_space) {
    if (kIsSanitized)
        GTEST_SKIP() << "a sanitizer wants more address space than the limit of this test";
    const AddressSpaceLimit limit(rlim_t{4} << 30);
    for (const char* level : {"uct", "msg"}) {
        const Finished run = tagwire({"perf", "tag_lat", "--level", level, "--iters", "100",
                                      "--warmup", "10", "--size", "8,64k"});
        EXPECT_EQ(run.status, 0) << run.error;
        EXPECT_EQ(run.error.find("mmap"), std::string::npos) << run.error;
    }
}

TEST(TagwireCommand, too_large_an_arena_names_its_option) {
    if (kIsSanitized)
        GTEST_SKIP() << "a sanitizer wants more address space than the limit of this test";
    const AddressSpaceLimit limit(rlim_t{4} << 30);
    const Setting arena("TAGWIRE_SM_ARENA_BYTES", "8g");
    const Finished run = tagwire({"perf", "tag_lat", "--level", "msg", "--iters", "100"});
    EXPECT_NE(run.status, 0);
    EXPECT_NE(run.error.find("set a smaller TAGWIRE_SM_ARENA_BYTES"), std::string::npos)
        << run.error;
    const Setting no_network("TAGWIRE_TCP_DEVICES", "none");
    const Finished explained = tagwire({"explain"});
    EXPECT_NE(explained.status, 0);
    EXPECT_NE(explained.error.find("neither shared memory nor a real RDMA device nor a network "
                                   "interface can be used"),
              std::string::npos)
        << explained.error;
}

TEST(TagwireCommand, a_test_too_large_for_the_memory_says_so) {
    if (kIsSanitized)
        GTEST_SKIP() << "a sanitizer ends the process itself";
    const AddressSpaceLimit limit(rlim_t{4} << 30);
    const Finished run = tagwire({"perf", "chase", "--depth", "100000000"});
    EXPECT_EQ(run.status, 1);
    EXPECT_NE(run.error.find("out of memory"), std::string::npos) << run.error;
}

TEST(TagwireCommand, too_small_an_arena_is_refused) {
    const Setting arena("TAGWIRE_SM_ARENA_BYTES", "4k");
    const Finished run = tagwire({"perf", "tag_lat", "--iters", "100"});
    EXPECT_NE(run.status, 0);
    EXPECT_NE(run.error.find("from 1m to 16t, or 0"), std::string::npos) << run.error;
}

TEST(TagwireCommand, wrong_log_level_is_told) {
    const Setting level("TAGWIRE_LOG_LEVEL", "verbose");
    const Finished run = tagwire({"perf", "tag_lat", "--iters", "100"});
    EXPECT_EQ(run.status, 0);
    EXPECT_NE(run.error.find("TAGWIRE_LOG_LEVEL=verbose"), std::string::npos) << run.error;
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
        for (const char* key : {"type", "unit", "accepted", "default", "value", "source", "doc"})
            EXPECT_TRUE(option.contains(key)) << key;
        EXPECT_FALSE(option["doc"].get<std::string>().empty()) << option["name"];
    }
    EXPECT_TRUE(info["progress"].contains("mode"));
    ASSERT_FALSE(info["devices"].empty());
    const json& md = info["devices"][0]["memory_domains"][0];
    ASSERT_FALSE(md["transports"].empty());
    for (const char* key : {"device", "capabilities", "limits", "performance"})
        EXPECT_TRUE(md["transports"][0].contains(key)) << key;
}

TEST(TagwireInfo, text_begins_with_a_summary) {
    const Setting setting("TAGWIRE_RNDV_THRESHOLD", "64k");
    const std::string text = tagwire({"info"}).out;
    EXPECT_EQ(text.rfind("tagwire 0.", 0), 0U) << text;
    const std::string summary = text.substr(0, text.find("\n\n"));
    EXPECT_LE(std::count(summary.begin(), summary.end(), '\n'), 9) << summary;
    for (const char* line :
         {"shared memory  sm:memory; long messages are copied", "RDMA  ", "tcp  ", "transports  ",
          "waiting  ", "costs  ", "descriptors  ", "TAGWIRE_RNDV_THRESHOLD=64k", "more  "})
        EXPECT_NE(summary.find(line), std::string::npos) << line << " in\n" << summary;
    // One part alone has none, and neither has a JSON text.
    EXPECT_EQ(tagwire({"info", "build"}).out.rfind("build\n", 0), 0U);
}

TEST(TagwireInfo, text_shows_transports_and_options) {
    EXPECT_NE(tagwire({"info", "devices"}).out.find("transport sm"), std::string::npos);
    EXPECT_NE(tagwire({"info", "config"}).out.find("TAGWIRE_LOG_LEVEL="), std::string::npos);
    EXPECT_NE(tagwire({"info", "build"}).out.find("compiler"), std::string::npos);
}

TEST(TagwireInfo, progress_tells_the_mode_and_the_limits) {
    const auto told = [](const char* mode) {
        const Setting setting("TAGWIRE_PROGRESS", mode);
        return tagwire({"info", "progress"}).out;
    };
    const std::string polite = told("polite");
    for (const char* fact :
         {"mode                   polite", "scheduler_slice_us", "turn_limit_us", "nap_max_us"})
        EXPECT_NE(polite.find(fact), std::string::npos) << fact << " in\n" << polite;
    const std::string spinning = told("spin");
    EXPECT_NE(spinning.find("mode                   spin"), std::string::npos) << spinning;
    EXPECT_EQ(spinning.find("turn_limit_us"), std::string::npos) << spinning;
}

TEST(TagwireDemo, wrong_usage_is_status_2) {
    EXPECT_EQ(Command("TAGWIRE_TEST_DEMO", {"--fast"}).wait().status, 2);
    EXPECT_EQ(Command("TAGWIRE_TEST_DEMO", {"a.html", "b.html"}).wait().status, 2);
}

}  // namespace
}  // namespace tagwire::test
