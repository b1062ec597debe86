// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/option_value.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace tagwire::ucs {
namespace {

Option number_option(OptionType type, std::uint64_t min = 0, std::uint64_t max = UINT64_MAX) {
    return {.name = "X",
            .type = type,
            .unit = "",
            .default_value = "0",
            .doc = "X.",
            .offset = 0,
            .min = min,
            .max = max};
}

std::optional<std::uint64_t> parse(OptionType type, const char* text) {
    std::uint64_t value = 0;
    return option_parse(number_option(type), text, &value) ? std::optional(value) : std::nullopt;
}

TEST(OptionValue, sizes_have_binary_units) {
    EXPECT_EQ(parse(OptionType::kBytes, "0"), 0U);
    EXPECT_EQ(parse(OptionType::kBytes, "4096"), 4096U);
    EXPECT_EQ(parse(OptionType::kBytes, "8k"), 8192U);
    EXPECT_EQ(parse(OptionType::kBytes, "8K"), 8192U);
    EXPECT_EQ(parse(OptionType::kBytes, "64m"), 64U << 20);
    EXPECT_EQ(parse(OptionType::kBytes, "1g"), 1U << 30);
    EXPECT_EQ(parse(OptionType::kBytes, "2t"), 2ULL << 40);
    EXPECT_EQ(parse(OptionType::kBytes, "8KiB"), 8192U);
    EXPECT_EQ(parse(OptionType::kBytes, "1.5k"), 1536U);
    EXPECT_EQ(parse(OptionType::kBytes, "inf"), UINT64_MAX);
}

TEST(OptionValue, malformed_sizes_are_refused) {
    for (const char* text : {"", "k", "8x", "-1", "8 k", "1.5", "1..5k", ".", "1.5.2k", "0x10",
                             "18446744073709551616", "16777216t", "8kk", "infinite", "+8"}) {
        EXPECT_EQ(parse(OptionType::kBytes, text), std::nullopt) << text;
    }
}

TEST(OptionValue, times_need_a_unit) {
    EXPECT_EQ(parse(OptionType::kTimeNs, "10ns"), 10U);
    EXPECT_EQ(parse(OptionType::kTimeNs, "5us"), 5'000U);
    EXPECT_EQ(parse(OptionType::kTimeNs, "3ms"), 3'000'000U);
    EXPECT_EQ(parse(OptionType::kTimeNs, "2s"), 2'000'000'000U);
    EXPECT_EQ(parse(OptionType::kTimeNs, "1.5us"), 1'500U);
    EXPECT_EQ(parse(OptionType::kTimeNs, "0"), 0U);
    EXPECT_EQ(parse(OptionType::kTimeNs, "inf"), UINT64_MAX);
    EXPECT_EQ(parse(OptionType::kTimeNs, "10"), std::nullopt);
    EXPECT_EQ(parse(OptionType::kTimeNs, "1.5ns"), std::nullopt);
    EXPECT_EQ(parse(OptionType::kTimeNs, "1m"), std::nullopt);
}

TEST(OptionValue, counts_have_no_unit) {
    EXPECT_EQ(parse(OptionType::kCount, "12"), 12U);
    EXPECT_EQ(parse(OptionType::kCount, "12k"), std::nullopt);
    EXPECT_EQ(parse(OptionType::kCount, "1.0"), 1U);
    EXPECT_EQ(parse(OptionType::kCount, "1.5"), std::nullopt);
}

TEST(OptionValue, booleans_have_ten_spellings) {
    const Option option{.name = "X",
                        .type = OptionType::kBool,
                        .unit = "",
                        .default_value = "n",
                        .doc = "X.",
                        .offset = 0};
    bool value = false;
    for (const char* text : {"y", "yes", "on", "1", "true", "YES", "True"}) {
        value = false;
        EXPECT_TRUE(option_parse(option, text, &value) && value) << text;
    }
    for (const char* text : {"n", "no", "off", "0", "false", "Off"}) {
        value = true;
        EXPECT_TRUE(option_parse(option, text, &value) && !value) << text;
    }
    for (const char* text : {"", "2", "ye", "enabled"})
        EXPECT_FALSE(option_parse(option, text, &value)) << text;
}

TEST(OptionValue, numbers_refuse_what_is_not_finite) {
    const Option option = number_option(OptionType::kDouble, 0, 10);
    double value = 0;
    EXPECT_TRUE(option_parse(option, "2.25", &value));
    EXPECT_EQ(value, 2.25);
    for (const char* text : {"", "nan", "inf", "-1", "10.5", "1x"})
        EXPECT_FALSE(option_parse(option, text, &value)) << text;
    EXPECT_EQ(value, 2.25);
}

TEST(OptionValue, range_is_inclusive) {
    const Option option = number_option(OptionType::kCount, 2, 5);
    std::uint64_t value = 0;
    EXPECT_FALSE(option_parse(option, "1", &value));
    EXPECT_TRUE(option_parse(option, "2", &value));
    EXPECT_TRUE(option_parse(option, "5", &value));
    EXPECT_FALSE(option_parse(option, "6", &value));
    EXPECT_FALSE(option_parse(option, "inf", &value));
    EXPECT_EQ(value, 5U);
}

TEST(OptionValue, power_of_two_is_checked) {
    Option option = number_option(OptionType::kBytes, 1);
    option.flags = kOptionPowerOfTwo;
    std::uint64_t value = 0;
    EXPECT_TRUE(option_parse(option, "4k", &value));
    EXPECT_FALSE(option_parse(option, "3k", &value));
    EXPECT_FALSE(option_parse(option, "0", &value));
    EXPECT_FALSE(option_parse(option, "inf", &value));
}

TEST(OptionValue, zero_may_stand_beside_the_range) {
    Option option = number_option(OptionType::kBytes, 4096, 1 << 20);
    std::uint64_t value = 1;
    EXPECT_FALSE(option_parse(option, "0", &value));
    option.flags = kOptionOrZero;
    EXPECT_TRUE(option_parse(option, "0", &value));
    EXPECT_EQ(value, 0U);
    EXPECT_FALSE(option_parse(option, "1k", &value));
    EXPECT_FALSE(option_parse(option, "2m", &value));
    EXPECT_TRUE(option_accepted(option).ends_with("from 4k to 1m, or 0"))
        << option_accepted(option);
}

TEST(OptionValue, text_keeps_its_letters) {
    const Option option{.name = "X",
                        .type = OptionType::kString,
                        .unit = "",
                        .default_value = "",
                        .doc = "X.",
                        .offset = 0};
    OptionString value{};
    EXPECT_TRUE(option_parse(option, "/Run/User", &value));
    EXPECT_STREQ(value.text, "/Run/User");
    EXPECT_TRUE(option_parse(option, "", &value));
    EXPECT_STREQ(value.text, "");
    const std::string longest(4096, 'a');  // as a path may be
    EXPECT_TRUE(option_parse(option, longest, &value));
    EXPECT_EQ(value.text, longest);
    EXPECT_FALSE(option_parse(option, longest + "a", &value));
    EXPECT_EQ(option_accepted(option), "text of at most 4096 bytes");
}

TEST(OptionValue, largest_dividing_unit_is_printed) {
    std::uint64_t value = 3U << 20;
    EXPECT_EQ(option_format(number_option(OptionType::kBytes), &value), "3m");
    value = 1025;
    EXPECT_EQ(option_format(number_option(OptionType::kBytes), &value), "1025");
    value = 0;
    EXPECT_EQ(option_format(number_option(OptionType::kBytes), &value), "0");
    EXPECT_EQ(option_format(number_option(OptionType::kTimeNs), &value), "0ns");
    value = 1'500'000;
    EXPECT_EQ(option_format(number_option(OptionType::kTimeNs), &value), "1500us");
    value = UINT64_MAX;
    EXPECT_EQ(option_format(number_option(OptionType::kBytes), &value), "inf");
}

TEST(OptionValue, accepted_form_is_a_phrase) {
    EXPECT_EQ(option_accepted(number_option(OptionType::kCount)), "a whole number, or inf");
    EXPECT_EQ(option_accepted(number_option(OptionType::kCount, 1)),
              "a whole number, at least 1, or inf");
    EXPECT_EQ(option_accepted(number_option(OptionType::kBytes, 4096, 1 << 20)),
              "a size in bytes or with k, m, g from 4k to 1m");
    EXPECT_EQ(option_accepted(number_option(OptionType::kTimeNs, 0, 1'000'000)),
              "a time with unit ns, us, ms or s from 0ns to 1ms");
}

}  // namespace
}  // namespace tagwire::ucs
