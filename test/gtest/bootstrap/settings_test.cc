// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/settings.hpp"

#include <gtest/gtest.h>

#include "bootstrap/options.hpp"
#include "ucs/environment_guard.hpp"

namespace tagwire::bootstrap {
namespace {

class BootstrapSettings : public ::testing::Test {
  protected:
    BootstrapSettings() {
        environment_.unset("PMIX_NAMESPACE");
        environment_.unset("PMIX_RANK");
        params_.struct_bytes = sizeof params_;
    }

    Settings choose() {
        Settings settings;
        const Result result = choose_settings(&params_, &settings);
        EXPECT_TRUE(result.ok()) << result.why;
        return settings;
    }

    void expect_refusal(const std::string& part) {
        Settings settings;
        const Result result = choose_settings(&params_, &settings);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, result.status);
        EXPECT_NE(std::string::npos, result.why.find(part))
            << "'" << part << "' in: " << result.why;
    }

    test::EnvironmentGuard environment_;
    tw_bootstrap_params_t params_{};
};

TEST_F(BootstrapSettings, without_anything_it_is_a_job_of_one_process) {
    Settings settings;
    ASSERT_TRUE(choose_settings(nullptr, &settings).ok());
    EXPECT_EQ(TW_BOOTSTRAP_SINGLE, settings.method);
    EXPECT_EQ(60'000'000'000u, settings.timeout_ns);
}

TEST_F(BootstrapSettings, a_process_of_a_pmix_launcher_takes_pmix) {
    environment_.set("PMIX_NAMESPACE", "a");
    environment_.set("PMIX_RANK", "0");
    EXPECT_EQ(TW_BOOTSTRAP_PMIX, choose().method);
    EXPECT_TRUE(choose().may_be_single);
    params_.method = TW_BOOTSTRAP_PMIX;
    EXPECT_FALSE(choose().may_be_single);
}

TEST_F(BootstrapSettings, what_the_option_names_goes_before_a_launcher) {
    environment_.set("PMIX_NAMESPACE", "a");
    environment_.set("PMIX_RANK", "0");
    environment_.set("TAGWIRE_BOOTSTRAP", "dir:/a:b");
    environment_.set("TAGWIRE_RANK", "2");
    environment_.set("TAGWIRE_SIZE", "3");
    const Settings settings = choose();
    EXPECT_EQ(TW_BOOTSTRAP_DIR, settings.method);
    EXPECT_EQ("/a:b", settings.where);
    EXPECT_EQ(2u, settings.rank);
    EXPECT_EQ(3u, settings.size);
}

TEST_F(BootstrapSettings, parameters_go_before_options) {
    environment_.set("TAGWIRE_BOOTSTRAP", "pmix");
    environment_.set("TAGWIRE_RANK", "2");
    environment_.set("TAGWIRE_SIZE", "3");
    environment_.set("TAGWIRE_BOOTSTRAP_JOB", "from-option");
    environment_.set("TAGWIRE_BOOTSTRAP_TIMEOUT", "5s");
    params_.method = TW_BOOTSTRAP_DIR;
    params_.where = "/somewhere";
    params_.rank = 0;
    params_.size = 7;
    params_.job = "from-parameter";
    params_.timeout_ms = 250;
    const Settings settings = choose();
    EXPECT_EQ(TW_BOOTSTRAP_DIR, settings.method);
    EXPECT_EQ("/somewhere", settings.where);
    EXPECT_EQ(0u, settings.rank);
    EXPECT_EQ(7u, settings.size);
    EXPECT_EQ("from-parameter", settings.job);
    EXPECT_EQ(250'000'000u, settings.timeout_ns);
    params_.where = nullptr;
    expect_refusal("method dir needs a place");
}

TEST_F(BootstrapSettings, what_the_launcher_says_is_not_contradicted_by_stray_options) {
    environment_.set("TAGWIRE_BOOTSTRAP", "pmix");
    environment_.set("TAGWIRE_SIZE", "3");
    EXPECT_EQ(0u, choose().size);
}

TEST_F(BootstrapSettings, options_that_make_no_sense_are_refused) {
    for (const char* text : {"", "udp:1", "dir", "single:x", "mpi", "tcp:node7:4711"}) {
        environment_.set("TAGWIRE_BOOTSTRAP", text);
        expect_refusal("expected auto, pmix, dir:PATH or single");
    }
    environment_.set("TAGWIRE_BOOTSTRAP", "dir:");
    expect_refusal("needs a place");
    environment_.set("TAGWIRE_BOOTSTRAP", "dir:/somewhere");
    expect_refusal("set TAGWIRE_RANK and TAGWIRE_SIZE");
    environment_.set("TAGWIRE_SIZE", "2");
    expect_refusal("set TAGWIRE_RANK and TAGWIRE_SIZE");
    environment_.set("TAGWIRE_RANK", "2");
    expect_refusal("rank 2 in a job of 2");
    environment_.set("TAGWIRE_RANK", "1");
    EXPECT_EQ(1u, choose().rank);
    for (const char* job : {"", "a/b", "..\n", "\xc3\xa4"}) {
        environment_.set("TAGWIRE_BOOTSTRAP_JOB", job);
        expect_refusal("the job's name");
    }
    environment_.set("TAGWIRE_BOOTSTRAP_JOB", std::string(65, 'x'));
    expect_refusal("the job's name");
    environment_.set("TAGWIRE_BOOTSTRAP_JOB", std::string(64, 'x'));
    EXPECT_EQ(64u, choose().job.size());
    environment_.set("TAGWIRE_BOOTSTRAP_TIMEOUT", "inf");
    expect_refusal("an option is wrong");
}

TEST_F(BootstrapSettings, many_processes_that_do_not_know_how_to_meet_are_told_so) {
    environment_.set("TAGWIRE_SIZE", "4");
    environment_.set("TAGWIRE_RANK", "1");
    expect_refusal("nothing says how they meet");
}

TEST_F(BootstrapSettings, parameters_that_make_no_sense_are_refused) {
    params_.struct_bytes = 0;
    expect_refusal("struct_bytes is 0");
    params_.struct_bytes = sizeof params_;
    for (const int method : {2, 7}) {
        params_.method = static_cast<tw_bootstrap_method_t>(method);
        expect_refusal("params->method " + std::to_string(method) + " is not");
    }
    params_.method = TW_BOOTSTRAP_AUTO;
    params_.where = "/somewhere";
    expect_refusal("without method DIR");
    params_.method = TW_BOOTSTRAP_DIR;
    params_.size = 65537;
    expect_refusal("the limit of 65536");
    params_.size = 3;
    params_.rank = 3;
    expect_refusal("rank 3 in a job of 3");
    params_.rank = 0;
    params_.timeout_ms = 86'400'001;
    expect_refusal("more than a day");
    params_.timeout_ms = 0;
    params_.method = TW_BOOTSTRAP_SINGLE;
    params_.where = nullptr;
    expect_refusal("a job of 3 processes");
}

TEST(BootstrapOptions, the_table_is_sound) {
    EXPECT_EQ("", ucs::config_table_problem(option_table()));
}

TEST(BootstrapOptions, their_short_names_hide_no_typing_error) {
    test::EnvironmentGuard environment;
    environment.set("TAGWIRE_SM_RING_SIZE", "1");
    environment.set("TAGWIRE_RANK", "1");
    const ucs::OptionTable* tables[] = {&option_table()};
    const auto sentences = ucs::config_unknown_names(tables);
    ASSERT_EQ(1u, sentences.size());
    EXPECT_NE(std::string::npos, sentences.front().find("TAGWIRE_SM_RING_SIZE"));
}

}  // namespace
}  // namespace tagwire::bootstrap
