// SPDX-License-Identifier: BSD-3-Clause
// Random traffic between hundreds of dc endpoints of a few interfaces, against a model, with each
// policy and pools of one DCI and more. The faults of the fabric are set for the whole process
// (TAGWIRE_VHCA_LOSS and so on); the variants of this test set them.
//
// The seed decides the operations, not when packets move: a repeated run may interleave otherwise
// than the first one.
#include "common/seeds.hpp"
#include "common/skip.hpp"
#include "rc/sim.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kDcRounds = 8;

struct Case {
    const char* policy;
    bool has_device_tags;
};

void PrintTo(const Case& what, std::ostream* out) {
    *out << what.policy;
}

bool dc_device_matches() {
    const Entity probe(resource_of("dc"));
    return probe.attr().cap.tag.recv.min_recv > 0;
}

class DcSim : public ::testing::TestWithParam<Case> {
  protected:
    /// Half of the seeds have one DCI without streams.
    static void run(std::uint64_t seed, bool has_crash) {
        const bool is_one = seed % 2 == 0;
        Sim::Options options;
        options.transport = "dc";
        options.config = {{"DC_POLICY", GetParam().policy},
                          {"DC_DCIS", std::to_string(is_one ? 1 : 1 + seed % 7)},
                          {"DC_STREAMS", std::to_string(is_one ? 1 : 1 + seed % 4)},
                          {"DC_QUOTA", std::to_string(1 + seed % 16)}};
        options.has_device_tags = GetParam().has_device_tags;
        options.has_crash = has_crash;
        options.has_rebirth = has_crash;
        options.steps = 6000;
        options.joins = 20;
        options.links_max = 1000;
        Sim sim(seed, options);
        sim.run();
    }

    void SetUp() override {
        if (GetParam().has_device_tags && !dc_device_matches())
            TW_SKIP("no target of the device has tag matching");
    }
};

TEST_P(DcSim, nothing_is_lost_and_nothing_twice) {
    for_each_seed(kDcRounds, [](std::uint64_t seed) { run(seed, false); });
}

TEST_P(DcSim, whoever_goes_takes_nobody_along) {
    for_each_seed(kDcRounds, [](std::uint64_t seed) { run(seed, true); });
}

INSTANTIATE_TEST_SUITE_P(Dc, DcSim,
                         ::testing::Values(Case{"dcs", true}, Case{"dcs", false},
                                           Case{"dcs_quota", true}, Case{"dcs_quota", false},
                                           Case{"rand", true}, Case{"rand", false},
                                           Case{"hash", true}, Case{"hash", false}),
                         [](const auto& parameter) {
                             return std::string(parameter.param.policy) +
                                    (parameter.param.has_device_tags ? "_device" : "_software");
                         });

}  // namespace
}  // namespace tagwire::test
