// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ucs/config/config_file.hpp"
#include "ucs/config/edit_distance.hpp"
#include "ucs/environment_guard.hpp"

namespace tagwire::ucs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Values {
    bool busy;
    std::uint64_t slots;
    std::uint64_t chunk;
    std::uint64_t wait;
    double factor;
    int mode;
    OptionString dir;
};

constexpr const char* kModes[] = {"auto", "always", "never", nullptr};

constexpr Option kOptions[] = {
    {.name = "PLAY_BUSY",
     .type = OptionType::kBool,
     .unit = "",
     .default_value = "yes",
     .doc = "Whether it is busy.",
     .offset = offsetof(Values, busy)},
    {.name = "PLAY_SLOTS",
     .type = OptionType::kCount,
     .unit = "slots",
     .default_value = "64",
     .doc = "Slots of a ring.",
     .offset = offsetof(Values, slots),
     .min = 2,
     .max = 65536,
     .flags = kOptionPowerOfTwo},
    {.name = "PLAY_CHUNK",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "8k",
     .doc = "Bytes of a chunk.",
     .offset = offsetof(Values, chunk)},
    {.name = "PLAY_WAIT",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1ms",
     .doc = "Time to wait.",
     .offset = offsetof(Values, wait),
     .max = 10'000'000'000},
    {.name = "PLAY_FACTOR",
     .type = OptionType::kDouble,
     .unit = "",
     .default_value = "1.5",
     .doc = "A factor.",
     .offset = offsetof(Values, factor),
     .max = 100},
    {.name = "PLAY_MODE",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "When.",
     .offset = offsetof(Values, mode),
     .choices = kModes},
    {.name = "PLAY_DIR",
     .type = OptionType::kString,
     .unit = "path",
     .default_value = "",
     .doc = "Where.",
     .offset = offsetof(Values, dir)},
};
constexpr OptionTable kTable{"play", kOptions, sizeof(Values)};

class Config : public ::testing::Test {
  protected:
    ucs_status_t fill() {
        problems_.clear();
        return config_resolve(kTable, &values_, sources_, &problems_);
    }

    std::string get(const char* name) {
        char text[200] = "";
        EXPECT_EQ(config_get(kTable, &values_, name, text, sizeof(text)), UCS_OK);
        return text;
    }

    const OptionReport& report(const std::string& variable) {
        rows_ = config_report(kTable);
        for (const OptionReport& row : rows_)
            if (row.variable == variable)
                return row;
        ADD_FAILURE() << "no row " << variable;
        return rows_.front();
    }

    test::EnvironmentGuard environment_;
    Values values_{};
    ConfigSources sources_;
    std::vector<std::string> problems_;
    std::vector<OptionReport> rows_;
};

TEST_F(Config, defaults_fill_every_type) {
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_TRUE(values_.busy);
    EXPECT_EQ(values_.slots, 64U);
    EXPECT_EQ(values_.chunk, 8192U);
    EXPECT_EQ(values_.wait, 1'000'000U);
    EXPECT_EQ(values_.factor, 1.5);
    EXPECT_EQ(values_.mode, 0);
    EXPECT_STREQ(values_.dir.text, "");
}

TEST_F(Config, user_file_overrides_default) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\n");
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 128U);
}

TEST_F(Config, xdg_config_home_replaces_dot_config) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\n");
    environment_.write("xdg/tagwire.conf", "PLAY_SLOTS = 256\n");
    environment_.set("XDG_CONFIG_HOME", environment_.path("xdg"));
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 256U);
}

TEST_F(Config, named_file_replaces_user_file) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\nPLAY_CHUNK = 1k\n");
    environment_.set("TAGWIRE_CONFIG_FILE", environment_.write("other", "PLAY_SLOTS = 512\n"));
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 512U);
    EXPECT_EQ(values_.chunk, 8192U);
}

TEST_F(Config, environment_overrides_file) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\n");
    environment_.set("TAGWIRE_PLAY_SLOTS", "256");
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 256U);
}

TEST_F(Config, prefixed_variable_goes_before_plain_one) {
    environment_.set("TAGWIRE_PLAY_SLOTS", "256");
    environment_.set("TAGWIRE_MPI_PLAY_SLOTS", "512");
    sources_.env_prefix = "MPI";
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 512U);
}

TEST_F(Config, file_of_the_caller_lies_between_user_file_and_environment) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\nPLAY_CHUNK = 1k\n");
    const std::string file = environment_.write("caller", "PLAY_SLOTS = 256\nPLAY_CHUNK = 2k\n");
    environment_.set("TAGWIRE_PLAY_CHUNK", "4k");
    sources_.file = file.c_str();
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 256U);
    EXPECT_EQ(values_.chunk, 4096U);
}

TEST_F(Config, absent_file_of_the_caller_is_ignored) {
    const std::string file = environment_.path("absent");
    sources_.file = file.c_str();
    EXPECT_EQ(fill(), UCS_OK);
}

TEST_F(Config, absent_named_file_is_a_problem) {
    environment_.set("TAGWIRE_CONFIG_FILE", environment_.path("absent"));
    EXPECT_EQ(fill(), UCS_ERR_INVALID_PARAM);
    EXPECT_THAT(problems_, ElementsAre(AllOf(HasSubstr("absent"), HasSubstr("No such file"))));
}

TEST_F(Config, bad_variable_is_refused_with_accepted_form) {
    environment_.set("TAGWIRE_PLAY_SLOTS", "100");
    EXPECT_EQ(fill(), UCS_ERR_INVALID_PARAM);
    EXPECT_THAT(
        problems_,
        ElementsAre("TAGWIRE_PLAY_SLOTS=100 (environment variable TAGWIRE_PLAY_SLOTS) is not "
                    "accepted: expected a power of two from 2 to 65536"));
    EXPECT_EQ(values_.slots, 64U);
}

TEST_F(Config, bad_line_of_a_file_is_named_by_number) {
    environment_.write(".config/tagwire.conf", "# mine\n\nPLAY_MODE = sometimes\n");
    EXPECT_EQ(fill(), UCS_ERR_INVALID_PARAM);
    EXPECT_THAT(problems_, ElementsAre(AllOf(HasSubstr("tagwire.conf:3"),
                                             HasSubstr("one of: auto, always, never"))));
}

TEST_F(Config, value_of_weaker_source_stays_when_stronger_is_refused) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\n");
    environment_.set("TAGWIRE_PLAY_SLOTS", "many");
    EXPECT_EQ(fill(), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(values_.slots, 128U);
}

TEST_F(Config, every_bad_value_is_reported) {
    environment_.set("TAGWIRE_PLAY_BUSY", "perhaps");
    environment_.set("TAGWIRE_PLAY_WAIT", "5");
    environment_.set("TAGWIRE_PLAY_FACTOR", "101");
    environment_.set("TAGWIRE_PLAY_DIR", std::string(4097, 'x'));
    EXPECT_EQ(fill(), UCS_ERR_INVALID_PARAM);
    EXPECT_THAT(problems_, SizeIs(4));
}

TEST_F(Config, file_lines_may_carry_prefix_comment_and_blanks) {
    environment_.write(".config/tagwire.conf",
                       "\t TAGWIRE_PLAY_SLOTS=128 # as many\r\n#PLAY_CHUNK = 1k\nPLAY_DIR = /a#b");
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 128U);
    EXPECT_EQ(values_.chunk, 8192U);
    EXPECT_STREQ(values_.dir.text, "/a#b");
}

TEST_F(Config, last_of_two_lines_holds) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS = 128\nPLAY_SLOTS = 256\n");
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(values_.slots, 256U);
}

TEST_F(Config, line_without_equals_sign_is_a_problem) {
    environment_.write(".config/tagwire.conf", "PLAY_SLOTS 128\n");
    EXPECT_EQ(fill(), UCS_ERR_INVALID_PARAM);
    EXPECT_THAT(problems_, ElementsAre(HasSubstr("tagwire.conf:1: expected NAME = value")));
}

TEST_F(Config, set_changes_one_option) {
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(config_set(kTable, &values_, "PLAY_CHUNK", "64m"), UCS_OK);
    EXPECT_EQ(values_.chunk, 64U << 20);
    EXPECT_EQ(values_.slots, 64U);
}

TEST_F(Config, set_accepts_the_variable_name) {
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(config_set(kTable, &values_, "TAGWIRE_PLAY_MODE", "Never"), UCS_OK);
    EXPECT_EQ(values_.mode, 2);
}

TEST_F(Config, set_refuses_unknown_name) {
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(config_set(kTable, &values_, "PLAY_SLTS", "64"), UCS_ERR_NO_ELEM);
}

TEST_F(Config, check_tells_what_a_context_may_set) {
    constexpr OptionTable process{"process", std::span(kOptions).first(0), 0, "it is read once"};
    const OptionTable own{"play of the process", kOptions, sizeof(Values), "it is read once"};
    const OptionTable* const tables[] = {&process, &kTable};
    const OptionTable* const fixed[] = {&own};
    std::string problem;
    EXPECT_EQ(config_check(tables, "TAGWIRE_PLAY_SLOTS", "128", &problem), UCS_OK);
    EXPECT_EQ(config_check(tables, "PLAY_SLOTS", "128", &problem), UCS_OK);
    EXPECT_EQ(problem, "");
    EXPECT_EQ(config_check(tables, "PLAY_SLOTS", "65", &problem), UCS_ERR_INVALID_PARAM);
    EXPECT_THAT(problem, HasSubstr("TAGWIRE_PLAY_SLOTS=65 (set by the program) is not accepted"));
    EXPECT_EQ(config_check(tables, "PLAY_SLTS", "64", &problem), UCS_ERR_NO_ELEM);
    EXPECT_THAT(problem, HasSubstr("did you mean TAGWIRE_PLAY_SLOTS?"));
    EXPECT_EQ(config_check(fixed, "PLAY_SLOTS", "128", &problem), UCS_ERR_UNSUPPORTED);
    EXPECT_THAT(problem, HasSubstr("belongs to the process, and a context cannot set it: it is "
                                   "read once"));
}

TEST_F(Config, set_leaves_value_when_it_refuses) {
    ASSERT_EQ(fill(), UCS_OK);
    EXPECT_EQ(config_set(kTable, &values_, "PLAY_SLOTS", "65"), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(values_.slots, 64U);
}

TEST_F(Config, get_prints_what_set_accepts) {
    ASSERT_EQ(fill(), UCS_OK);
    for (const Option& option : kOptions) {
        const std::string text = get(option.name);
        EXPECT_EQ(config_set(kTable, &values_, option.name, text.c_str()), UCS_OK) << text;
        EXPECT_EQ(get(option.name), text);
    }
    EXPECT_EQ(get("PLAY_CHUNK"), "8k");
    EXPECT_EQ(get("PLAY_WAIT"), "1ms");
    EXPECT_EQ(get("PLAY_BUSY"), "yes");
}

TEST_F(Config, get_refuses_a_short_buffer) {
    ASSERT_EQ(fill(), UCS_OK);
    char text[2];
    EXPECT_EQ(config_get(kTable, &values_, "PLAY_CHUNK", text, 2), UCS_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(config_get(kTable, &values_, "PLAY_NONE", text, 2), UCS_ERR_NO_ELEM);
}

TEST_F(Config, report_names_value_and_source) {
    const std::string file = environment_.write(".config/tagwire.conf", "PLAY_CHUNK = 1k\n");
    environment_.set("TAGWIRE_PLAY_WAIT", "2s");
    EXPECT_EQ(report("TAGWIRE_PLAY_SLOTS").source, "default");
    EXPECT_EQ(report("TAGWIRE_PLAY_CHUNK").source, file);
    EXPECT_EQ(report("TAGWIRE_PLAY_CHUNK").value, "1k");
    EXPECT_EQ(report("TAGWIRE_PLAY_CHUNK").default_value, "8k");
    EXPECT_EQ(report("TAGWIRE_PLAY_WAIT").source, "environment");
    EXPECT_EQ(report("TAGWIRE_PLAY_WAIT").value, "2s");
    EXPECT_EQ(report("TAGWIRE_PLAY_WAIT").type, "time");
}

TEST_F(Config, report_keeps_the_refusal) {
    environment_.set("TAGWIRE_PLAY_SLOTS", "3");
    const OptionReport& row = report("TAGWIRE_PLAY_SLOTS");
    EXPECT_EQ(row.value, "64");
    EXPECT_EQ(row.source, "default");
    EXPECT_THAT(row.problem, HasSubstr("a power of two"));
}

TEST_F(Config, unknown_variable_is_answered_by_nearest_name) {
    const OptionTable* tables[] = {&kTable, &core_option_table()};
    environment_.set("TAGWIRE_LOG_LEVLE", "debug");
    EXPECT_THAT(
        config_unknown_names(tables),
        ElementsAre("no option is called TAGWIRE_LOG_LEVLE; did you mean TAGWIRE_LOG_LEVEL?"));
}

TEST_F(Config, unknown_name_in_a_file_is_answered_too) {
    const OptionTable* tables[] = {&kTable};
    environment_.write(".config/tagwire.conf", "PLAY_SLOT = 64\n");
    EXPECT_THAT(config_unknown_names(tables),
                ElementsAre(AllOf(HasSubstr("tagwire.conf:1"), HasSubstr("TAGWIRE_PLAY_SLOTS?"))));
}

TEST_F(Config, known_and_foreign_variables_are_no_mistakes) {
    const OptionTable* tables[] = {&kTable};
    environment_.set("TAGWIRE_PLAY_SLOTS", "64");
    environment_.set("TAGWIRE_MPI_PLAY_SLOTS", "64");
    environment_.set("TAGWIRE_CONFIG_FILE", "");
    environment_.set("TAGWIRE_TEST_REQUIRE_ALL", "1");
    environment_.set("TAGWIRE_BENCH_UCX", "x");
    environment_.set("TAGWIRELESS", "1");
    EXPECT_THAT(config_unknown_names(tables), IsEmpty());
}

TEST_F(Config, own_tables_are_sound) {
    EXPECT_EQ(config_table_problem(core_option_table()), "");
    EXPECT_EQ(config_table_problem(progress_option_table()), "");
    EXPECT_EQ(config_table_problem(kTable), "");
}

TEST_F(Config, table_with_bad_default_is_found_out) {
    static constexpr Option kBad[] = {{.name = "PLAY_SLOTS",
                                       .type = OptionType::kCount,
                                       .unit = "",
                                       .default_value = "none",
                                       .doc = "Slots.",
                                       .offset = 0}};
    EXPECT_EQ(config_table_problem({"bad", kBad, 8}), "PLAY_SLOTS refuses its default none");
    EXPECT_EQ(config_table_problem({"bad", kBad, 4}), "PLAY_SLOTS lies outside the values");
}

TEST(EditDistance, counts_single_edits) {
    EXPECT_EQ(edit_distance("", ""), 0U);
    EXPECT_EQ(edit_distance("abc", ""), 3U);
    EXPECT_EQ(edit_distance("", "ab"), 2U);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
    EXPECT_EQ(edit_distance("LEVLE", "LEVEL"), 1U);
}

TEST(EditDistance, nearest_is_first_of_equals) {
    const std::string_view names[] = {"ab", "ac", "xyz"};
    EXPECT_EQ(nearest_name("ad", names), "ab");
    EXPECT_EQ(nearest_name("xy", names), "xyz");
    EXPECT_EQ(nearest_name("xy", {}), "");
}

}  // namespace
}  // namespace tagwire::ucs
