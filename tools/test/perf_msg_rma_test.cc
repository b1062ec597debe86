// SPDX-License-Identifier: BSD-3-Clause
// Short measurements of the one-sided operations of the messaging layer.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "over_vhca.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;
using tools::Shape;

const std::vector<std::string> kPutsAndGets{"put_lat", "put_bw",  "put_rate", "get_lat",
                                            "get_bw",  "--level", "msg"};
const std::vector<std::string> kAtomics{"add_lat", "fadd_lat", "cswap_lat", "--level", "msg"};

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

/// The results of a run over shared memory that must succeed.
json rma_over_sm(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "perf");
    const Finished finished =
        tagwire(with(arguments, {"--iters", "200", "--validate", "--json", "-"}));
    EXPECT_EQ(finished.status, 0) << testing::PrintToString(arguments) << finished.error;
    return finished.status == 0 ? json::parse(finished.out)["results"] : json::array();
}

void expect_one_sided(const json& result, const std::string& memory) {
    const Shape shape = tools::find_test(result["test"].get<std::string>()).shape;
    EXPECT_EQ(result["level"], "msg");
    EXPECT_EQ(result["memory"], memory);
    EXPECT_EQ(result["validated"], true) << result["test"];
    EXPECT_EQ(result["latency_ns"]["p50"].is_number(), shape != Shape::kStream);
    EXPECT_EQ(result["messages_per_s"].is_number(), shape == Shape::kStream);
    EXPECT_TRUE(result["protocol"].is_null());
}

class RmaAtLevelMsg : public testing::TestWithParam<const char*> {};

TEST_P(RmaAtLevelMsg, has_the_keys_of_level_uct_and_checked_bytes) {
    const std::string memory = GetParam();
    const json at_uct = rma_over_sm({"put_lat"});
    ASSERT_EQ(at_uct.size(), 1U);
    const json moved =
        rma_over_sm(with(kPutsAndGets, {"--memory", memory, "--size", "1,8,17,4k,300k"}));
    EXPECT_EQ(moved.size(), 25U);
    const json changed = rma_over_sm(with(kAtomics, {"--memory", memory, "--size", "4,8"}));
    EXPECT_EQ(changed.size(), 6U);
    for (const json& results : {moved, changed}) {
        for (const json& result : results) {
            expect_one_sided(result, memory);
            EXPECT_EQ(
                result["floor_ns"].is_number(),
                tools::find_test(result["test"].get<std::string>()).shape == Shape::kPingPong);
            for (const auto& [key, value] : at_uct[0].items())
                EXPECT_TRUE(result.contains(key)) << key;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Perf, RmaAtLevelMsg, testing::Values("user", "mapped", "alloc"),
                         [](const auto& param) { return std::string(param.param); });

TEST(PerfRmaAtLevelMsg, data_may_be_fresh_and_the_window_small) {
    EXPECT_EQ(rma_over_sm({"put_bw", "get_bw", "--level", "msg", "--window", "3"}).size(), 2U);
    EXPECT_EQ(rma_over_sm({"get_lat", "--level", "msg", "--size", "0"}).size(), 1U);
    const Finished fresh = tagwire({"perf", "put_lat", "put_bw", "--level", "msg", "--data",
                                    "fresh", "--size", "8,4k", "--iters", "100"});
    EXPECT_EQ(fresh.status, 0) << fresh.error;
}

TEST(PerfRmaAtLevelMsg, sizes_that_an_operation_cannot_have_are_refused_or_left_out) {
    const Finished atomic = tagwire({"perf", "fadd_lat", "--level", "msg", "--size", "16"});
    EXPECT_EQ(atomic.status, 2);
    EXPECT_NE(atomic.error.find("works on 4 or 8 bytes"), std::string::npos) << atomic.error;
    const Finished put = tagwire({"perf", "put_bw", "--level", "msg", "--size", "0"});
    EXPECT_EQ(put.status, 2);
    EXPECT_NE(put.error.find("by its last byte"), std::string::npos) << put.error;
    const Finished range =
        tagwire({"perf", "fadd_lat", "--level", "msg", "--size", "8:32", "--iters", "100"});
    EXPECT_EQ(range.status, 0) << range.error;
    EXPECT_NE(range.error.find("sizes 16 to 32 skipped"), std::string::npos) << range.error;
}

class RmaOverRc : public OverVhca {
  protected:
    RmaOverRc() : OverVhca("rc") {}
};

class RmaOverUd : public OverVhca {
  protected:
    RmaOverUd() : OverVhca("ud") {}
};

TEST_F(RmaOverRc, the_device_carries_it_out) {
    EXPECT_EQ(results_of(with(kPutsAndGets, {"--size", "8,4k"})).size(), 10U);
    for (const json& result : results_of(with(kAtomics, {"--size", "4,8"}))) {
        EXPECT_EQ(result["transport"], "rc");
        expect_one_sided(result, "user");
    }
}

TEST_F(RmaOverUd, the_owner_carries_it_out) {
    EXPECT_EQ(results_of(with(kPutsAndGets, {"--size", "8,4k"})).size(), 10U);
    for (const json& result : results_of(with(kAtomics, {"--size", "4,8"}))) {
        EXPECT_EQ(result["transport"], "ud");
        expect_one_sided(result, "user");
    }
}

}  // namespace
}  // namespace tagwire::test
