// SPDX-License-Identifier: BSD-3-Clause
// The log reads its options once per process. So every case logs in a child, and this program
// itself never does: that is why it has no other suites.
#include "ucs/log/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "ucs/config/config.hpp"
#include "ucs/environment_guard.hpp"
#include "ucs/log/repeats.hpp"

namespace tagwire::ucs {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class Log : public ::testing::Test {
  protected:
    [[noreturn]] static void log_each_level() {
        TW_LOG_ERROR("an %s", "error");
        TW_LOG_WARN("a warning");
        TW_LOG_INFO("an info");
        TW_LOG_DEBUG("a debug");
        TW_LOG_TRACE("a trace");
        std::exit(0);
    }

    test::EnvironmentGuard environment_;
};

TEST_F(Log, warnings_and_errors_are_logged_by_default) {
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0),
                AllOf(HasSubstr("an error"), HasSubstr("a warning"), Not(HasSubstr("an info"))));
}

TEST_F(Log, level_comes_from_the_environment) {
    environment_.set("TAGWIRE_LOG_LEVEL", "trace");
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0), HasSubstr("a trace"));
    environment_.set("TAGWIRE_LOG_LEVEL", "error");
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0),
                AllOf(HasSubstr("an error"), Not(HasSubstr("a warning"))));
    environment_.set("TAGWIRE_LOG_LEVEL", "off");
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0), Not(HasSubstr("error")));
}

TEST_F(Log, what_repeats_is_logged_at_powers_of_two) {
    const auto log = [] {
        Repeats repeats;
        for (int i = 0; i < 10; ++i)
            TW_LOG_REPEATED(LogLevel::kWarn, repeats.due("full"), "%s is full", "it");
        std::exit(0);
    };
    EXPECT_EXIT(log(), ExitedWithCode(0),
                AllOf(HasSubstr("it is full\n"), HasSubstr("it is full (2 times so far)\n"),
                      HasSubstr("(4 times so far)"), HasSubstr("(8 times so far)"),
                      Not(HasSubstr("(3 times")), Not(HasSubstr("(10 times"))));
}

TEST_F(Log, each_thing_that_repeats_is_counted_apart) {
    Repeats repeats;
    EXPECT_EQ(repeats.due("a"), 1U);
    EXPECT_EQ(repeats.due("a"), 2U);
    EXPECT_EQ(repeats.due("b"), 1U);
    EXPECT_EQ(repeats.due("a"), 0U);
    repeats.forget("a");
    EXPECT_EQ(repeats.due("a"), 1U);
    EXPECT_EQ(repeats.due("b"), 2U);
    // Many others make it forget both.
    for (std::size_t i = 0; i < Repeats::kKinds; ++i)
        EXPECT_EQ(repeats.due(std::to_string(i)), 1U);
    repeats.due("b");
    EXPECT_EQ(repeats.due("b"), 2U);
}

TEST_F(Log, what_never_repeats_is_logged_at_powers_of_two_as_well) {
    Repeats repeats;
    std::size_t lines = 0;
    for (int i = 0; i < 10'000; ++i)
        lines += repeats.due(std::to_string(i)) != 0 ? 1 : 0;
    EXPECT_LE(lines, Repeats::kKinds + 14);
    EXPECT_GE(lines, Repeats::kKinds + 13);
}

TEST_F(Log, what_has_no_text_is_one_thing) {
    Repeats repeats;
    std::size_t lines = 0;
    for (int i = 0; i < 1000; ++i)
        lines += repeats.due() != 0 ? 1 : 0;
    EXPECT_EQ(lines, 10U);
}

TEST_F(Log, program_may_set_the_level) {
    const auto set_then_log = [] {
        log_set_level(LogLevel::kInfo);
        log_each_level();
    };
    EXPECT_EXIT(set_then_log(), ExitedWithCode(0),
                AllOf(HasSubstr("an info"), Not(HasSubstr("a debug"))));
}

TEST_F(Log, line_names_level_process_and_place) {
    const auto log_one = [] {
        TW_LOG_ERROR("%d of %s", 3, "them");
        std::exit(0);
    };
    EXPECT_EXIT(log_one(), ExitedWithCode(0),
                MatchesRegex("\\[tagwire\\] error [^ ]+:[0-9]+ log_test.cc:[0-9]+: 3 of them\n"));
}

TEST_F(Log, file_receives_the_lines) {
    const std::string file = environment_.path("log");
    environment_.set("TAGWIRE_LOG_FILE", file);
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0), Not(HasSubstr("an error")));
    std::ifstream stream(file);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_THAT(text, AllOf(HasSubstr("an error"), HasSubstr("a warning")));
}

TEST_F(Log, file_that_cannot_be_opened_is_said_on_standard_error) {
    environment_.set("TAGWIRE_LOG_FILE", environment_.path("none/log"));
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0),
                AllOf(HasSubstr("none/log cannot be opened"), HasSubstr("an error")));
}

TEST_F(Log, bad_level_is_refused_and_the_default_holds) {
    environment_.set("TAGWIRE_LOG_LEVEL", "loud");
    EXPECT_EXIT(log_each_level(), ExitedWithCode(0),
                AllOf(HasSubstr("one of: off, error, warn, info, debug, trace"),
                      HasSubstr("a warning"), Not(HasSubstr("an info"))));
}

TEST_F(Log, bad_level_is_told_when_options_are_read) {
    const auto read_twice = [] {
        const OptionTable none{"none", {}, 1};
        char values = 0;
        EXPECT_EQ(config_fill(none, &values), UCS_OK);
        EXPECT_EQ(config_fill(none, &values), UCS_OK);
        std::exit(0);
    };
    EXPECT_EXIT(read_twice(), ExitedWithCode(0), MatchesRegex(""));
    environment_.set("TAGWIRE_LOG_LEVEL", "verbose");
    EXPECT_EXIT(read_twice(), ExitedWithCode(0),
                MatchesRegex("[^\n]* error [^\n]*TAGWIRE_LOG_LEVEL=verbose[^\n]*one of: [^\n]*\n"));
}

TEST_F(Log, long_message_is_cut) {
    const auto log_long = [] {
        TW_LOG_ERROR("%s", std::string(100'000, 'x').c_str());
        std::exit(0);
    };
    EXPECT_EXIT(log_long(), ExitedWithCode(0), HasSubstr("xxxx"));
}

TEST_F(Log, percent_signs_and_braces_pass_unchanged) {
    const auto log_odd = [] {
        TW_LOG_ERROR("%s", "%d {} %v");
        std::exit(0);
    };
    EXPECT_EXIT(log_odd(), ExitedWithCode(0), HasSubstr("%d {} %v"));
}

TEST_F(Log, unknown_variables_are_warned_about_once_and_are_not_fatal) {
    environment_.set("TAGWIRE_LOG_LEVLE", "debug");
    const auto warn_twice = [] {
        const OptionTable* tables[] = {&core_option_table()};
        config_warn_unknown_once(tables);
        config_warn_unknown_once(tables);
        std::exit(0);
    };
    EXPECT_EXIT(
        warn_twice(), ExitedWithCode(0),
        MatchesRegex("[^\n]* warning [^\n]*LOG_LEVLE; did you mean TAGWIRE_LOG_LEVEL[?]\n"));
}

}  // namespace
}  // namespace tagwire::ucs
