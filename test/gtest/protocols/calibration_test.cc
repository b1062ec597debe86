// SPDX-License-Identifier: BSD-3-Clause
// The file of measured costs, and what a context makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tagwire.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calibration.hpp"

namespace tagwire::test {
namespace {

TEST_F(Calibration, is_looked_for_below_the_users_configuration) {
    char path[256];
    std::size_t length = sizeof path;
    ASSERT_EQ(tw_calibration_path(path, &length), TW_OK);
    EXPECT_EQ(fs::path(path), default_file());
    length = 3;
    EXPECT_EQ(tw_calibration_path(path, &length), TW_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(length, default_file().string().size() + 1);
}

TEST_F(Calibration, replaces_the_attributes_of_a_device) {
    tw_explanation_t before;
    ASSERT_EQ(explain(20000, &before), TW_OK);
    EXPECT_STREQ(before.source, "");
    EXPECT_STREQ(before.protocols[before.chosen].name, "parts");
    EXPECT_EQ(before.protocols[before.chosen].is_measured, 0);

    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    tw_explanation_t after;
    ASSERT_EQ(explain(20000, &after), TW_OK);
    EXPECT_STREQ(after.source, default_file().c_str());
    EXPECT_STREQ(after.protocols[after.chosen].name, "rndv_get");
    EXPECT_EQ(after.protocols[after.chosen].is_measured, 1);
    EXPECT_LT(after.rndv_from, before.rndv_from);
    EXPECT_STREQ(after.knob, "TAGWIRE_CALIBRATION=auto");
}

TEST_F(Calibration, leaves_no_other_file_and_keeps_other_devices) {
    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    const tw_cost_sample_t other{"rc", "mlx5_0:1", "parts", 65536, 12345};
    ASSERT_EQ(tw_calibration_store(nullptr, &other, 1), TW_OK);
    tw_explanation_t explanation;
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "rndv_get");
    EXPECT_NE(text_of(default_file()).find("12345"), std::string::npos);
    const fs::directory_iterator files(default_file().parent_path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(Calibration, of_another_machine_is_not_used) {
    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    std::string text = text_of(default_file());
    const std::size_t at = text.find("\"kernel\": \"");
    ASSERT_NE(at, std::string::npos);
    text.insert(at + 11, "9");
    write(text);
    tw_explanation_t explanation;
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.source, "");
    setenv("TAGWIRE_CALIBRATION", default_file().c_str(), 1);
    EXPECT_EQ(explain(20000, &explanation), TW_ERR_INVALID_PARAM);
}

TEST_F(Calibration, that_is_damaged_is_ignored_unless_it_was_named) {
    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    const std::string good = text_of(default_file());
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    const std::vector<std::string> damaged{
        "",
        "[]",
        "{",
        std::string(2 << 20, ' '),
        good.substr(0, good.size() / 2),
        with("\"schema\": 1", "\"schema\": 2"),
        with("\"machine\"", "\"mashine\""),
        with("\"devices\"", "\"device\""),
        with("\"costs\"", "\"cost\""),
        with("\"parts\"", "\"pieces\""),
        with("9000", "-9000"),
        with("9000", "1e300"),
        with("9000", "\"9000\""),
        with("16384", "-16384"),
    };
    for (const std::string& text : damaged) {
        SCOPED_TRACE(text.substr(0, 300));
        write(text);
        tw_explanation_t explanation;
        unsetenv("TAGWIRE_CALIBRATION");
        ASSERT_EQ(explain(20000, &explanation), TW_OK);
        EXPECT_STREQ(explanation.source, "");
        setenv("TAGWIRE_CALIBRATION", default_file().c_str(), 1);
        EXPECT_EQ(explain(20000, &explanation), TW_ERR_INVALID_PARAM);
    }
}

// As after `sudo -u`, which leaves HOME to the caller's.
TEST_F(Calibration, in_a_folder_of_another_user_is_not_spoken_of) {
    write("damaged");
    const auto create = [this](const char* setting) {
        fs::permissions(folder_, fs::perms::none);
        if (setting != nullptr)
            setenv("TAGWIRE_CALIBRATION", setting, 1);
        if (geteuid() == 0 && seteuid(65534) != 0)
            _exit(2);
        tw_context_params_t params{.transports = "sm", .tag_sender_mask = 0};
        tw_context_h context = nullptr;
        _exit(tw_context_create(&params, &context) == TW_OK ? 0 : 1);
    };
    EXPECT_EXIT(create(nullptr), testing::ExitedWithCode(0), testing::Eq(""));
    EXPECT_EXIT(create(default_file().c_str()), testing::ExitedWithCode(1), "Permission denied");
    fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(Calibration, can_be_another_file_or_none) {
    const auto samples = cheap_reads();
    const fs::path other = folder_ / "other.json";
    ASSERT_EQ(tw_calibration_store(other.c_str(), samples.data(), samples.size()), TW_OK);
    EXPECT_FALSE(fs::exists(default_file()));
    setenv("TAGWIRE_CALIBRATION", other.c_str(), 1);
    tw_explanation_t explanation;
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.source, other.c_str());
    setenv("TAGWIRE_CALIBRATION", (folder_ / "missing.json").c_str(), 1);
    EXPECT_EQ(explain(20000, &explanation), TW_ERR_INVALID_PARAM);
    setenv("TAGWIRE_CALIBRATION", "none", 1);
    write("damaged");
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.source, "");
}

TEST_F(Calibration, takes_no_sample_that_cannot_be) {
    for (const tw_cost_sample_t& sample : {tw_cost_sample_t{"sm", "memory", "pigeons", 8, 50},
                                           tw_cost_sample_t{"sm", "memory", "short", 8, -1},
                                           tw_cost_sample_t{"", "memory", "short", 8, 50},
                                           tw_cost_sample_t{"sm", nullptr, "short", 8, 50}})
        EXPECT_EQ(tw_calibration_store(nullptr, &sample, 1), TW_ERR_INVALID_PARAM);
    const tw_cost_sample_t good{"sm", "memory", "short", 8, 50};
    EXPECT_EQ(tw_calibration_store("/proc/nowhere/file", &good, 1), TW_ERR_IO_ERROR);
    EXPECT_FALSE(fs::exists(default_file()));
}

TEST_F(Calibration, an_override_decides_and_is_named) {
    tw_explanation_t explanation;
    setenv("TAGWIRE_RNDV_THRESHOLD", "200", 1);
    ASSERT_EQ(explain(200, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "rndv_get");
    EXPECT_STREQ(explanation.knob, "TAGWIRE_RNDV_THRESHOLD=200");
    setenv("TAGWIRE_RNDV_THRESHOLD", "32m", 1);
    ASSERT_EQ(explain(31 << 20, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "parts");
}

TEST_F(Calibration, an_override_beyond_what_a_receiver_keeps_is_refused) {
    tw_explanation_t explanation;
    setenv("TAGWIRE_UNEXPECTED_BYTES", "1m", 1);
    setenv("TAGWIRE_RNDV_THRESHOLD", "2m", 1);
    EXPECT_EQ(explain(64, &explanation), TW_ERR_INVALID_PARAM);
    setenv("TAGWIRE_RNDV_THRESHOLD", "1m", 1);
    EXPECT_EQ(explain(64, &explanation), TW_OK);
}

}  // namespace
}  // namespace tagwire::test
