// SPDX-License-Identifier: BSD-3-Clause
#include "over_vhca.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/skip.hpp"
#include "tools/job.hpp"

namespace tagwire::test {

using nlohmann::json;

void OverVhca::SetUp() {
    if (std::getenv("TAGWIRE_TEST_HAS_VHCA") == nullptr)
        TW_SKIP("built without the virtual HCA");
}

std::vector<const char*> tests_with_transport() {
    std::vector<const char*> names;
    for (const tools::TestInfo& test : tools::all_tests()) {
        if ((test.options & tools::kWithTransport) != 0 &&
            (test.options & tools::kOnlyAtLevelMsg) == 0) {
            names.push_back(test.name);
        }
    }
    return names;
}

json OverVhca::results_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "perf");
    for (const char* more : {"--tl", transport_, "--iters", "200", "--validate", "--json", "-"})
        arguments.emplace_back(more);
    const Finished finished = tagwire(arguments);
    EXPECT_EQ(finished.status, 0) << testing::PrintToString(arguments) << finished.error;
    return finished.status == 0 ? json::parse(finished.out)["results"] : json::array();
}

}  // namespace tagwire::test
