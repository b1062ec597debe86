// SPDX-License-Identifier: BSD-3-Clause
#include "verdict.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "report.hpp"

namespace conformance {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000};

TEST(Verdict, a_case_that_returns_passes) {
    const Result result = run_apart([] {}, kLong);
    EXPECT_EQ(result.outcome, Outcome::kPass);
    EXPECT_EQ(result.text, "");
}

TEST(Verdict, a_case_that_fails_says_why) {
    const Result result = run_apart([] { throw Failed("expected 1, got 2"); }, kLong);
    EXPECT_EQ(result.outcome, Outcome::kFail);
    EXPECT_EQ(result.text, "expected 1, got 2");
}

TEST(Verdict, a_case_that_is_refused_is_not_supported) {
    const Result result = run_apart([] { throw Unsupported("fi_tsend"); }, kLong);
    EXPECT_EQ(result.outcome, Outcome::kUnsupported);
    EXPECT_EQ(result.text, "fi_tsend");
}

TEST(Verdict, a_case_that_waits_in_vain_hangs) {
    EXPECT_EQ(run_apart([] { throw Hung("an entry"); }, kLong).outcome, Outcome::kHang);
}

TEST(Verdict, a_case_that_does_not_return_is_ended_and_hangs) {
    const auto forever = [] {
        for (;;)
            pause();
    };
    EXPECT_EQ(run_apart(forever, milliseconds(50)).outcome, Outcome::kHang);
}

TEST(Verdict, a_case_that_is_killed_crashes) {
    const Result result = run_apart([] { raise(SIGKILL); }, kLong);
    EXPECT_EQ(result.outcome, Outcome::kCrash);
    EXPECT_NE(result.text.find("Killed"), std::string::npos) << result.text;
}

TEST(Verdict, a_case_that_exits_crashes) {
    EXPECT_EQ(run_apart([] { _exit(0); }, kLong).outcome, Outcome::kCrash);
}

TEST(Verdict, a_process_that_a_case_started_goes_with_it) {
    const Result result = run_apart(
        [] {
            if (fork() == 0)
                pause();
        },
        milliseconds(200));
    EXPECT_EQ(result.outcome, Outcome::kHang);  // its process has the pipe still
}

// Numbers of processes come again: what a killed one left would be met by a later case.
TEST(Verdict, what_a_killed_process_left_in_shared_memory_goes_with_its_case) {
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can give a case a /dev/shm of its own";
    const std::string path = "/dev/shm/left_by_a_case_of_" + std::to_string(getpid());
    const Result result = run_apart(
        [&] {
            if (fork() == 0) {
                std::ofstream(path) << "region";
                raise(SIGKILL);
            }
            while (access(path.c_str(), F_OK) != 0)
                usleep(1000);
        },
        kLong);
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.text;
    EXPECT_NE(access(path.c_str(), F_OK), 0);
    unlink(path.c_str());
}

TEST(Cases, every_feature_has_one_and_every_case_has_a_feature) {
    std::ifstream file(FI_CONFORMANCE_FEATURES);
    std::set<std::string> features;
    for (std::string line; std::getline(file, line);)
        features.insert(line);
    std::set<std::string> found;
    std::set<std::string> names;
    for (const auto& each : all_cases()) {
        EXPECT_TRUE(features.contains(each.feature)) << each.name << ": " << each.feature;
        EXPECT_TRUE(names.insert(each.name).second) << each.name << " is there twice";
        found.insert(each.feature);
    }
    EXPECT_FALSE(features.empty());
    EXPECT_EQ(found, features);
}

TEST(Cases, are_chosen_by_name_and_by_feature) {
    EXPECT_EQ(select({"tag_equal"}).size(), 1U);
    EXPECT_GT(select({"FI_PEEK"}).size(), 1U);
    EXPECT_EQ(select({}).size(), all_cases().size());
    EXPECT_THROW(select({"no such case"}), std::invalid_argument);
}

TEST(Report, names_the_outcome_of_each_provider) {
    const auto cases = select({"tag_equal", "tag_ignore"});
    const conformance::Run good{"good", cases, {{}, {}}};
    const conformance::Run bad{"bad", cases, {{}, {Outcome::kFail, "expected 1|2"}}};
    EXPECT_TRUE(all_pass(good));
    EXPECT_FALSE(all_pass(bad));
    std::ostringstream out;
    write_markdown(out, {good, bad});
    EXPECT_NE(out.str().find("| `tag_ignore` | fi_tagged DESCRIPTION | T1 | pass | fail |"),
              std::string::npos);
    EXPECT_NE(out.str().find("- `tag_ignore`, fail: expected 1/2"), std::string::npos);
}

}  // namespace
}  // namespace conformance
