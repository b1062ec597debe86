// SPDX-License-Identifier: BSD-3-Clause
// `tagwire explain` and `tagwire tune`.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "command.hpp"
#include "common/skip.hpp"

namespace tagwire::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Explain : public testing::Test {
  protected:
    ~Explain() override { fs::remove_all(folder_); }

    std::string in_folder(const char* name) const { return (folder_ / name).string(); }
    static std::string text_of(const std::string& file) {
        std::ifstream in(file);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    /// The output for one size over sm.
    static json size_over_sm(const std::string& size) {
        const Finished finished = tagwire({"explain", "--tl", "sm", "--size", size, "--json", "-"});
        EXPECT_EQ(finished.status, 0) << finished.error;
        return json::parse(finished.out)["transports"][0]["sizes"][0];
    }

  private:
    static std::string new_folder() {
        char name[] = "/tmp/test-explain-XXXXXX";
        return mkdtemp(name);
    }

    const fs::path folder_ = new_folder();
    const Setting config_{"XDG_CONFIG_HOME", folder_.c_str()};
};

TEST_F(Explain, live_says_what_the_connection_has_chosen_and_why) {
    const Finished finished = tagwire({"explain", "--tl", "sm", "--size", "8,64k", "--live"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const std::size_t live = finished.out.find("between two processes");
    ASSERT_NE(live, std::string::npos);
    EXPECT_NE(finished.out.find("64k: ", live), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("regime", live), std::string::npos) << finished.out;
}

TEST_F(Explain, refuses_what_live_cannot_do) {
    const Finished alone = tagwire({"explain", "--cpu", "0,1"});
    EXPECT_EQ(alone.status, 2);
    EXPECT_NE(alone.error.find("--live"), std::string::npos) << alone.error;
    const Finished as_json = tagwire({"explain", "--live", "--json", "-"});
    EXPECT_EQ(as_json.status, 2);
    EXPECT_NE(as_json.error.find("tagwire perf"), std::string::npos) << as_json.error;
}

TEST_F(Explain, json_has_winner_losers_and_terms_that_sum_up) {
    const Finished finished =
        tagwire({"explain", "--tl", "sm", "--size", "8,4k,1m", "--json", "-"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const json document = json::parse(finished.out);
    EXPECT_EQ(document["schema"], 1);
    ASSERT_EQ(document["transports"].size(), 1U);
    const json& sm = document["transports"][0];
    EXPECT_EQ(sm["transport"], "sm");
    EXPECT_EQ(sm["device"], "memory");
    EXPECT_EQ(sm["buffer"], "plain");
    EXPECT_TRUE(sm["source"].is_null());
    ASSERT_EQ(sm["sizes"].size(), 3U);
    EXPECT_EQ(sm["sizes"][0]["protocol"], "short");
    EXPECT_EQ(sm["sizes"][1]["protocol"], "bcopy");
    EXPECT_EQ(sm["sizes"][2]["protocol"], "rndv_get");
    for (const json& size : sm["sizes"]) {
        EXPECT_FALSE(size["rule"].get<std::string>().empty());
        EXPECT_EQ(size["knob"], "TAGWIRE_CALIBRATION=auto");
        EXPECT_GE(size["protocols"].size(), 6U);
        for (const json& protocol : size["protocols"]) {
            double sum = 0;
            for (const json& term : protocol["terms"]) {
                EXPECT_GE(term.get<double>(), 0);
                sum += term.get<double>();
            }
            EXPECT_NEAR(sum, protocol["ns"].get<double>(), 1e-3) << protocol["name"];
            EXPECT_TRUE(protocol["obstacle"].is_null() || protocol["obstacle"].is_string());
        }
    }
}

TEST_F(Explain, text_marks_the_winner_and_says_why_others_cannot) {
    const Finished finished = tagwire({"explain", "--tl", "sm", "--size", "4k"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    EXPECT_NE(finished.out.find("4k: bcopy"), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("* bcopy"), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("longer than a short message"), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("TAGWIRE_CALIBRATION=auto"), std::string::npos) << finished.out;
}

TEST_F(Explain, leaves_out_what_carries_no_messages) {
    if (std::getenv("TAGWIRE_TEST_HAS_VHCA") == nullptr)
        TW_SKIP("this build has no virtual HCA");
    const Finished finished = tagwire({"explain", "--tl", "rc:vhca0:1", "--json", "-"});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const json transports = json::parse(finished.out)["transports"];
    ASSERT_EQ(transports.size(), 1U);  // and not the ud that takes first contact
    EXPECT_EQ(transports[0]["transport"], "rc");
}

TEST_F(Explain, names_the_setting_that_decided) {
    const Setting threshold("TAGWIRE_RNDV_THRESHOLD", "1k");
    const json size = size_over_sm("4k");
    EXPECT_EQ(size["protocol"], "rndv_get");
    EXPECT_EQ(size["knob"], "TAGWIRE_RNDV_THRESHOLD=1024");
}

TEST_F(Explain, refuses_what_it_cannot) {
    EXPECT_EQ(tagwire({"explain", "--tl", "pigeon"}).status, 2);
    EXPECT_EQ(tagwire({"explain", "--tl", "sm", "--size", "many"}).status, 2);
    EXPECT_EQ(tagwire({"explain", "--tl", "sm", "--buffer", "wet"}).status, 2);
    EXPECT_EQ(tagwire({"explain", "--tl", "sm", "--json", "/proc/nowhere/file"}).status, 1);
    const Setting threshold("TAGWIRE_RNDV_THRESHOLD", "1t");
    const Finished refused = tagwire({"explain", "--tl", "sm"});
    EXPECT_EQ(refused.status, 1);
    EXPECT_NE(refused.error.find("TAGWIRE_UNEXPECTED_BYTES"), std::string::npos) << refused.error;
}

TEST_F(Explain, tells_the_way_of_operations_on_memory_of_another_process) {
    const Finished put = tagwire({"explain", "--tl", "sm", "--op", "put", "--json", "-"});
    ASSERT_EQ(put.status, 0) << put.error;
    const json ways = json::parse(put.out)["ways"];
    ASSERT_EQ(ways.size(), 2U);
    EXPECT_EQ(ways[0]["memory"], "allocated");
    for (const json& size : ways[0]["sizes"]) {
        EXPECT_EQ(size["way"], "stores") << size;
        EXPECT_EQ(size["needs_peer"], false) << size;
    }
    EXPECT_EQ(ways[1]["memory"], "mapped");
    EXPECT_EQ(ways[1]["sizes"][0]["way"], "short");
    const Finished add = tagwire({"explain", "--tl", "sm", "--op", "add"});
    ASSERT_EQ(add.status, 0) << add.error;
    EXPECT_NE(add.out.find("needs the peer's progress"), std::string::npos) << add.out;
}

TEST_F(Explain, refuses_operations_that_do_not_exist) {
    EXPECT_EQ(tagwire({"explain", "--tl", "sm", "--op", "push"}).status, 2);
    const Finished odd = tagwire({"explain", "--tl", "sm", "--op", "add", "--size", "16"});
    EXPECT_EQ(odd.status, 2);
    EXPECT_NE(odd.error.find("4 or 8 bytes"), std::string::npos) << odd.error;
    EXPECT_EQ(tagwire({"explain", "--tl", "sm", "--op", "put", "--live"}).status, 2);
    EXPECT_NE(tagwire({"explain", "--tl", "pigeon", "--op", "put"}).status, 0);
}

TEST_F(Explain, plot_is_refused_where_its_name_says_another_format) {
    const std::string file = in_folder("cost.png");
    const Finished finished = tagwire({"explain", "--tl", "sm", "--plot", file});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.error.find("is an SVG file"), std::string::npos) << finished.error;
    EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Explain, plot_without_python_or_gnuplot_says_what_to_install) {
    const std::string programs = in_folder("programs");
    fs::create_directory(programs);
    const std::string links = "ln -s $(command -v sh) " + programs +
                              " && ln -s $(python3 -c 'import sys; print(sys.executable)') " +
                              programs + "/python3";
    ASSERT_EQ(std::system(links.c_str()), 0);
    const std::string before = std::getenv("PATH");
    for (const auto& [path, missing] :
         {std::pair<std::string, const char*>{"/nowhere", "python3"}, {programs, "gnuplot-nox"}}) {
        setenv("PATH", path.c_str(), 1);
        const Finished finished =
            tagwire({"explain", "--tl", "sm", "--plot", in_folder("cost.svg")});
        setenv("PATH", before.c_str(), 1);
        EXPECT_EQ(finished.status, 1);
        EXPECT_NE(finished.error.find(missing), std::string::npos) << finished.error;
    }
}

TEST_F(Explain, plot_draws_every_protocol) {
    if (std::system("command -v gnuplot > /dev/null") != 0)
        TW_SKIP("gnuplot is not installed");
    const std::string file = in_folder("co'st.svg");
    const Finished finished = tagwire({"explain", "--tl", "sm", "--plot", file});
    ASSERT_EQ(finished.status, 0) << finished.error;
    const std::string picture = text_of(file);
    EXPECT_NE(picture.find("</svg>"), std::string::npos);
    for (const char* name : {"chosen", "short", "bcopy", "parts", "rndv_get", "rndv_copy"})
        EXPECT_NE(picture.find(name), std::string::npos) << name;
}

TEST_F(Explain, tune_measures_every_protocol_and_the_library_uses_it) {
    const Finished tuned = tagwire({"tune", "--rounds", "1", "--seconds", "600", "--force"});
    ASSERT_EQ(tuned.status, 0) << tuned.error;
    const json file = json::parse(text_of(in_folder("tagwire/calibration.json")));
    EXPECT_EQ(file["devices"][0]["transport"], "sm");
    for (const char* what :
         {"short", "bcopy", "parts", "rndv_get", "rndv_put", "rndv_copy", "registration"})
        EXPECT_GE(file["devices"][0]["costs"][what].size(), 2U) << what;
    for (const char* what : {"in_libc", "out_libc"})
        EXPECT_EQ(file["devices"][0]["copies"][what].size(), 4U) << what;
    const json told = size_over_sm("64k");
    for (const json& protocol : told["protocols"])
        EXPECT_EQ(protocol["measured"], true) << protocol["name"];
}

TEST_F(Explain, tune_ends_in_its_time) {
    const Finished tuned = tagwire({"tune", "--rounds", "1000", "--seconds", "1", "--force"});
    EXPECT_NE(tuned.out.find("sm: round 1 of 1000\n"), std::string::npos) << tuned.out;
    EXPECT_EQ(tuned.out.find("sm: round 1000 "), std::string::npos) << tuned.out;
    EXPECT_NE((tuned.out + tuned.error).find("(--seconds)"), std::string::npos) << tuned.error;
}

TEST_F(Explain, tune_finds_before_measuring_that_it_cannot_write) {
    const Finished tuned = tagwire({"tune", "--output", "/proc/nowhere/costs.json"});
    EXPECT_EQ(tuned.status, 1);
    EXPECT_EQ(tuned.out, "");
    EXPECT_NE(tuned.error.find("/proc/nowhere/costs.json"), std::string::npos) << tuned.error;
}

TEST_F(Explain, tune_refuses_what_it_cannot) {
    EXPECT_EQ(tagwire({"tune", "--tl", "pigeon"}).status, 2);
    EXPECT_EQ(tagwire({"tune", "--tl", ","}).status, 2);
    EXPECT_EQ(tagwire({"tune", "--rounds", "0"}).status, 2);
}

}  // namespace
}  // namespace tagwire::test
